"""`mosquitto.conf`, read as Mosquitto 2.0 reads it: options in the order of the file, each with its place.

- A line is a word and, behind spaces, the rest. `#` begins a comment only at the very beginning of a line.
- `listener` begins a listener, `connection` a bridge. Options of listeners before the first `listener` are those of the
  default listener, which is there if one of them is.
- With `per_listener_settings true`, from that line on, who is let in is said for each listener by itself.
- `include_dir` stands for the files of a folder whose names end with `.conf`, in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tidegate.errors import ConfigError

MAX_OPTIONS: Final = 100_000
MAX_FILES: Final = 1000

LISTENER: Final = frozenset(
    (
        *("port", "bind_address", "bind_interface", "http_dir", "max_connections", "max_qos", "max_topic_alias"),
        *("mount_point", "protocol", "socket_domain", "use_username_as_clientid", "websockets_headers_size"),
        *("websockets_log_level", "cafile", "capath", "certfile", "keyfile", "ciphers", "ciphers_tls1.3", "crlfile"),
        *("dhparamfile", "require_certificate", "tls_engine", "tls_engine_kpass_sha1", "tls_keyform", "tls_version"),
        *("use_identity_as_username", "use_subject_as_username", "psk_hint"),
    )
)
SECURITY: Final = frozenset(
    (
        *("allow_anonymous", "acl_file", "password_file", "psk_file", "plugin", "auth_plugin"),
        *("auth_plugin_deny_special_chars", "allow_zero_length_clientid", "auto_id_prefix"),
    )
)
OPENS_DEFAULT: Final = LISTENER - {"websockets_headers_size", "websockets_log_level", "max_topic_alias", "max_qos"}
"""Options of listeners that open the default listener, where they come before the first `listener`."""
BRIDGE: Final = frozenset(
    (
        *("address", "addresses", "topic", "remote_username", "username", "remote_password", "password"),
        *("remote_clientid", "clientid", "cleansession", "local_cleansession", "try_private", "notifications"),
        *("notifications_local_only", "notification_topic", "keepalive_interval", "idle_timeout", "local_clientid"),
        *("local_password", "local_username", "restart_timeout", "round_robin", "start_type", "threshold"),
    )
)


class Files(Protocol):
    """The files that the configuration names."""

    def text(self, path: str) -> str:
        """The content of a file; ConfigError if it cannot be read."""

    def names(self, folder: str) -> Sequence[str]:
        """The paths of the files in a folder; ConfigError if it cannot be read."""

    def absolute(self, path: str) -> str:
        """The whole path of a file that the configuration names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One line."""

    file: str
    line: int
    name: str
    value: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.value}".rstrip()

    def wrong(self, text: str) -> ConfigError:
        return ConfigError(text, file=self.file, line=self.line)

    def switch(self) -> bool:
        """`true` or `false`."""
        match self.value.lower():
            case "true" | "1":
                return True
            case "false" | "0":
                return False
            case _:
                raise self.wrong(f"`{self.name}` is neither true nor false; mend it")

    def number(self) -> int:
        try:
            return int(self.value)
        except ValueError:
            raise self.wrong(f"`{self.name}` is no number; mend it") from None


class Options:
    """Options of one section, in their order."""

    def __init__(self) -> None:
        self.all: list[Option] = []

    def last(self, name: str) -> Option | None:
        """The option, if it is there; the last of several counts."""
        return next((option for option in reversed(self.all) if option.name == name), None)

    def every(self, *names: str) -> list[Option]:
        return [option for option in self.all if option.name in names]

    def value(self, name: str) -> str:
        """What it says; empty without it."""
        option = self.last(name)
        return "" if option is None else option.value

    def switch(self, name: str, default: bool) -> bool:
        option = self.last(name)
        return default if option is None else option.switch()


@dataclass(slots=True, kw_only=True)
class Section:
    """A listener or a bridge, and the line that begins it; None: the default listener."""

    begin: Option | None
    options: Options = field(default_factory=Options)
    security: Options = field(default_factory=Options)
    """Of a listener with `per_listener_settings`: who is let in."""


class Conf:
    """The whole configuration."""

    def __init__(self) -> None:
        self.general = Options()
        self.security = Options()
        """Who is let in, unless each listener says it."""
        self.default = Section(begin=None)
        self.listeners: list[Section] = []
        self.bridges: list[Section] = []
        self.per_listener = False

    @property
    def opens_default(self) -> bool:
        """Whether there is the default listener beside those that are named."""
        return any(option.name in OPENS_DEFAULT for option in self.default.options.all)

    @property
    def local_only(self) -> bool:
        """Whether there is nothing but the default listener, on this machine alone."""
        return not (self.listeners or self.opens_default)


def read(text: str, source: str, files: Files) -> Conf:
    """The configuration; ConfigError for what Mosquitto would not start with, as far as it matters here."""
    conf = Conf()
    reader = _Reader(conf, files)
    reader.take(text, source)
    return conf


class _Reader:
    def __init__(self, conf: Conf, files: Files) -> None:
        self._conf = conf
        self._files = files
        self._listener = conf.default
        self._bridge: Section | None = None
        self._plugin_in: Options | None = None
        self._count = 0
        self._read = 0

    def take(self, text: str, source: str) -> None:
        self._read += 1
        if self._read > MAX_FILES:
            raise ConfigError(f"more than {MAX_FILES} files are included; is it a circle?", file=source)
        for option in _options(text, source):
            self._count += 1
            if self._count > MAX_OPTIONS:
                raise option.wrong(f"more than {MAX_OPTIONS:,} lines; split the file")
            self._one(option)

    def _one(self, option: Option) -> None:
        conf = self._conf
        match option.name:
            case "include_dir":
                folder = self._files.names(option.value)
                for path in sorted(path for path in folder if path.endswith(".conf")):
                    self.take(self._files.text(path), path)
            case "per_listener_settings":
                conf.per_listener = option.switch()
            case "listener":
                self._listener = Section(begin=option)
                conf.listeners.append(self._listener)
            case "connection":
                self._bridge = Section(begin=option)
                conf.bridges.append(self._bridge)
            case name if name in BRIDGE or name.startswith("bridge_"):
                if self._bridge is None:
                    raise option.wrong(f"`{name}` before any `connection`; Mosquitto does not start with it")
                self._bridge.options.all.append(option)
            case name if name in LISTENER:
                self._listener.options.all.append(option)
            case name if name in SECURITY:
                security = self._security()
                security.all.append(option)
                if name in ("plugin", "auth_plugin"):
                    self._plugin_in = security
            case name if name.startswith(("plugin_opt_", "auth_opt_")):
                (self._plugin_in or self._security()).all.append(option)
            case _:
                conf.general.all.append(option)

    def _security(self) -> Options:
        return self._listener.security if self._conf.per_listener else self._conf.security


def _options(text: str, source: str) -> Iterator[Option]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#") or not line.strip():
            continue
        word, _, rest = line.strip().partition(" ")
        yield Option(file=source, line=number, name=word, value=rest.strip())
