"""Administration while the node runs: where it is kept, where it is reached over HTTP, and who may come with a token.

A password in the address of a database comes from the environment (`${NAME}`); nothing here tells it again.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from tidegate.config import files
from tidegate.config.checks import Finding
from tidegate.config.policies import combined_problems
from tidegate.config.section import FilePath, Section
from tidegate.config.units import Count, Duration, Rate, Size, refusal
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.config.model import Config

SQLITE: Final = "sqlite"
DATABASE: Final = "admin.db"
"""The file of the embedded store, in the data folder."""

_EXAMPLE: Final = "write for example `http://127.0.0.1:8080` or `https://0.0.0.0:8443`"
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST: Final = 65536  # bytes of a file with master keys


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAddress:
    """Scheme, host and port."""

    scheme: str
    host: str
    port: int

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.scheme == "https"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect. A name other than localhost counts as reachable."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.rstrip(".").lower() == "localhost"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_http(written: object) -> HttpAddress:
    """The address that a URL names, or a refusal that says what is wrong with it."""
    if isinstance(written, HttpAddress):
        return written
    if not isinstance(written, str) or any(character <= " " or character == "\x7f" for character in written):
        raise refusal(f"must be a URL; {_EXAMPLE}")
    try:
        parts = urlsplit(written)
        port, host = parts.port, parts.hostname or ""
    except ValueError as broken:
        raise refusal(f"is not a URL ({broken}); {_EXAMPLE}") from None
    if parts.scheme not in ("http", "https"):
        raise refusal(f"must begin with http:// or https://; {_EXAMPLE}")
    if parts.username is not None or parts.password is not None:
        raise refusal("must not contain a user name or password; whoever comes has a token")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise refusal("must not go on after the port; end it there")
    if not host:
        raise refusal("names no host; write `127.0.0.1` for this machine, `0.0.0.0` for all interfaces")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if re.fullmatch(r"[0-9.]+", host) or not _HOST_NAME.fullmatch(host):
            raise refusal(f"has no valid host; {_EXAMPLE}") from None
    default = 8443 if parts.scheme == "https" else 8080
    return HttpAddress(scheme=parts.scheme, host=host, port=default if port is None else port)


def _store(written: str) -> str:
    if written == SQLITE:
        return written
    if not written.startswith("postgresql://"):
        raise refusal("must be `sqlite` or `postgresql://…`; write for example `postgresql://node@127.0.0.1/tidegate`")
    return written


def _variable(written: str) -> str:
    if not _VARIABLE.fullmatch(written):
        raise refusal("must be the name of an environment variable; write it without `$`")
    return written


HttpUrl = Annotated[
    HttpAddress,
    PlainValidator(parse_http),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^https?://[^/\s]+/?$", "title": "URL"}),
]
StorePlace = Annotated[str, AfterValidator(_store)]


class Http(Section):
    """The HTTP interface: a process of its own."""

    url: HttpUrl = HttpAddress(scheme="http", host="127.0.0.1", port=8080)
    """`http://` or `https://`, host and port (default 8080, 8443). Port 0: any free port."""
    cert: FilePath | None = None
    """Certificate chain (PEM) for https://."""
    key: FilePath | None = None
    """Private key (PEM) for https://. Default: the one in the file of the certificate."""
    client_ca: FilePath | None = None
    """Certificates (PEM) of the authorities, one of which must have signed the certificate of whoever comes. Default:
    certificates are not asked for."""
    rate: Rate = Field(default=50.0, gt=0, le=1e6)
    """Requests per second with one token; more are refused for a while."""
    address_rate: Rate = Field(default=100.0, gt=0, le=1e6)
    """Requests per second from one address; more are refused for a while."""
    max_body: Size = Field(default=512 << 10, ge=1 << 10, le=64 << 20)
    """Largest request accepted."""
    timeout: Duration = Field(default=30.0, gt=0, le=3600)
    """Time that a request may take to arrive, and to be answered."""


class MasterKey(Section):
    """Where the keys are under which secrets are stored: 32 random bytes each as base64 or 64 hexadecimal digits, one a
    line. The first seals; the others only open what was sealed before."""

    file: FilePath | None = None
    """A file that only the node's user can read."""
    environment: Annotated[str, AfterValidator(_variable)] | None = None
    """Or the name of an environment variable."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.environment is None):
            raise combined_problems([((), "needs either `file` or `environment`; write one of the two")])
        return self

    def text(self) -> str:
        """What is there. ConfigError with the remedy if nothing can be read; it never tells what was."""
        if self.environment is not None:
            found = os.environ.get(self.environment)
            if not found:
                raise ConfigError(f"the environment variable `{self.environment}` of `master_key` is not set: set it")
            return found
        assert self.file is not None
        return _private(self.file)


def _private(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(_MOST + 1)
    except OSError as broken:
        text = f"`master_key.file` names `{file}`, which cannot be read ({broken.strerror}): check name and permissions"
        raise ConfigError(text) from None
    if mode & 0o077:
        raise ConfigError(f"others than its owner may open `{file}` of `master_key.file`: chmod 600 it")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise ConfigError(f"`{file}` of `master_key.file` is no text: write each key on a line of its own") from None


class Tokens(Section):
    """Bearer tokens for the HTTP interface."""

    valid: Duration = Field(default=90 * 86400.0, ge=60, le=10 * 366 * 86400)
    """How long a token is valid at most, and unless it was made for less."""
    most: Count = Field(default=10_000, ge=1, le=1_000_000)
    """Tokens at a time."""


def problems(config: Config) -> Iterator[Finding]:
    """What is wrong only together."""
    http = config.http
    if config.store == SQLITE and "store" in config.model_fields_set and config.node.data is None:
        yield ("store",), "is a file in the data folder, and there is none; set `node.data`"
    if http is None:
        return
    if not config.administered:
        yield ("http",), "has nothing to keep changes in; set `node.data`, or name a database with `store`"
    if http.url.tls:
        if http.cert is None:
            yield ("http", "cert"), "is missing, which https:// needs; make one with `tidegate cert issue`"
    else:
        for key in ("cert", "key", "client_ca"):
            if key in http.model_fields_set:
                yield ("http", key), "has no effect on http://; write https://, or remove it"
    for index, listener in enumerate(config.listeners):
        if http.url.port and (http.url.host, http.url.port) == (listener.url.host, listener.url.port):
            yield ("http", "url"), f"takes the same address as listener {index}; choose another port"


def warnings(config: Config) -> Iterator[Finding]:
    """What is probably not meant."""
    if config.http is not None and not config.http.url.tls and not config.http.url.loopback:
        yield ("http", "url"), "carries tokens unencrypted over the network; use https://"


def unreadable_files(config: Config) -> Iterator[Finding]:
    """Files that cannot be read."""
    if config.http is not None:
        yield from files.unreadable_files(config.http, ("cert", "key", "client_ca"), "http")
    yield from files.master_key_problems(config.master_key)
