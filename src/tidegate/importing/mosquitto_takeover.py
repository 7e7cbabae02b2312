"""A whole `mosquitto.conf` becomes a configuration: listeners, access, bridges, limits.

Embedded, the node takes the place of Mosquitto. Guarded, Mosquitto stays behind on another port of this machine, with a
configuration that is written too, and the node stands where it was.

What has no equivalent is listed with its file and line. Where both cannot be the same, less is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate.errors import ConfigError
from tidegate.importing import mosquitto_access, mosquitto_behind, mosquitto_bridges, mosquitto_conf, mosquitto_options
from tidegate.importing.imported_policies import Commented, Imported, NotImported
from tidegate.importing.mosquitto_access import Domain
from tidegate.importing.mosquitto_behind import Behind
from tidegate.importing.mosquitto_conf import Conf, Files, Option, Options, Section

_TLS: Final = {"tlsv1.3": "1.3", "tlsv1.2": "1.2"}
_UNIX: Final = "no listeners on Unix sockets; clients on this machine connect to 127.0.0.1"
_MOUNTED: Final = "topics of a listener have no prefix here, so it is left out; make it a scope with a link that maps"
_INTERFACE: Final = "no listener is bound to an interface here, so this one is left out; name its address in a `url`"
_ANY_NAME: Final = (
    "without `password_file` any name is believed there. Here a name needs a password: add users, or let clients send "
    "none"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """What is written."""

    imported: Imported
    behind: Behind | None = None
    """The files of the Mosquitto behind the guard."""


@dataclass(slots=True, kw_only=True)
class _Listener:
    section: Section
    entries: list[dict[str, Any]]
    """One for each address family."""
    domain: Domain


class _Takeover:
    def __init__(self, conf: Conf, source: str, files: Files) -> None:
        self.conf = conf
        self.source = source
        self.files = files
        self.left: list[NotImported] = []
        self.settings: dict[str, Any] = {}

    def leave(self, option: Option, why: str) -> None:
        self.left.append(NotImported(place=f"{option.file}:{option.line}", what=_shown(option), why=why))

    # -- listeners -------------------------------------------------------------------------------------------------

    def listeners(self) -> list[_Listener]:
        conf = self.conf
        sections = [*([conf.default] if conf.opens_default or not conf.listeners else []), *conf.listeners]
        if sections[:1] != [conf.default]:
            for option in (*conf.default.options.all, *conf.default.security.all):
                self.leave(option, "before any `listener`, and there is no default listener")
        listeners = [listener for section in sections if (listener := self._listener(section)) is not None]
        if not listeners:
            raise ConfigError("no listener of it can be taken over; see what is listed", file=self.source)
        return listeners

    def _listener(self, section: Section) -> _Listener | None:
        options, conf = section.options, self.conf
        place = section.begin or next(iter(options.all), None)
        refusal = self._impossible(section)
        if refusal is not None:
            self.leave(*refusal)
            return None
        entry = self._tls(options)
        kind = options.value("protocol") or "mqtt"
        scheme = ("ws" if kind == "websockets" else "mqtt") + ("s" if "cert" in entry else "")
        hosts, port = self._address(section)
        security = section.security if conf.per_listener else conf.security
        anonymous = security.switch("allow_anonymous", conf.local_only)
        if (most := options.last("max_connections")) is not None and most.number() > 0:
            entry["max_connections"] = most.number()
        if anonymous:
            entry["anonymous"] = True
        if (largest := self._largest()) is not None:
            entry["max_packet"] = largest
        urls = tuple(f"{scheme}://{host}:{port}" for host in hosts)
        entries = [{"url": url, **entry} for url in urls]
        named = urls if entry.get("certificate_user") != "none" and "client_cert" in entry else ()
        domain = Domain(urls=urls, label=port, options=security, anonymous=anonymous, named=named)
        self._rest(options, place)
        return _Listener(section=section, entries=entries, domain=domain)

    def _impossible(self, section: Section) -> tuple[Option, str] | None:
        """The option for which a listener is left out, and why."""
        options, begin = section.options, section.begin
        if begin is not None and begin.value.split()[:1] == ["0"]:
            return begin, _UNIX
        if (mount := options.last("mount_point")) is not None:
            return mount, _MOUNTED
        addressed = (begin is not None and len(begin.value.split()) > 1) or options.value("bind_address")
        if (interface := options.last("bind_interface")) is not None and not addressed:
            return interface, _INTERFACE  # it would be open to every network
        if (hint := options.last("psk_hint")) is not None:
            return hint, "no pre-shared keys, so this listener is left out; use certificates"
        protocol = options.last("protocol")
        if protocol is not None and protocol.value not in ("mqtt", "websockets"):
            return protocol, "no such protocol here, so this listener is left out"
        return None

    def _address(self, section: Section) -> tuple[list[str], str]:
        options = section.options
        words = (section.begin.value if section.begin is not None else options.value("port") or "1883").split()
        port, host = words[0] if words else "", " ".join(words[1:]) or options.value("bind_address")
        if not port.isdigit() or not 0 < int(port) < 65536:
            option = section.begin or options.last("port")
            raise option.wrong("no port; mend it") if option else ConfigError("no port", file=self.source)
        if self.conf.local_only:
            return ["127.0.0.1", "[::1]"], port
        if host:
            return [f"[{host}]" if ":" in host else host], port
        families = {"ipv4": ["0.0.0.0"], "ipv6": ["[::]"]}  # noqa: S104 - as Mosquitto does
        return families.get(options.value("socket_domain"), [*families["ipv4"], *families["ipv6"]]), port

    def _tls(self, options: Options) -> dict[str, Any]:
        entry: dict[str, Any] = {}
        if not options.value("certfile"):
            return entry
        for key, name in (("cert", "certfile"), ("key", "keyfile")):
            if path := options.value(name):
                entry[key] = self.files.absolute(path)
        if (version := options.value("tls_version")) in _TLS:
            entry["tls_min"] = _TLS[version]
        named = {"subject": "use_subject_as_username", "common_name": "use_identity_as_username"}
        whose = next((name for name, key in named.items() if options.switch(key, False)), "none")
        if options.switch("require_certificate", False) or whose != "none":
            entry["client_cert"] = "required"
            entry["certificate_user"] = whose
            if authorities := options.value("cafile"):
                entry["client_ca"] = self.files.absolute(authorities)
            if revoked := options.value("crlfile"):
                entry["crl"] = self.files.absolute(revoked)
        return entry

    def _rest(self, options: Options, place: Option | None) -> None:
        """Options of a listener that have no equivalent."""
        taken = {
            *("port", "bind_address", "max_connections", "protocol", "socket_domain", "certfile", "keyfile", "cafile"),
            *("require_certificate", "use_identity_as_username", "use_subject_as_username", "crlfile", "max_qos"),
        }
        for option in options.all:
            if option.name == "tls_version" and option.value not in _TLS:
                self.leave(option, "TLS 1.2 is the oldest here")
            elif option.name not in taken and option.name != "tls_version" and not mosquitto_options.met(option):
                self.leave(option, mosquitto_options.why(option))

    def _largest(self) -> int | None:
        """The largest packet, if there is a bound."""
        general = self.conf.general
        bounds = [
            option.number() for name in ("max_packet_size", "message_size_limit") if (option := general.last(name))
        ]
        return min((bound for bound in bounds if bound > 0), default=None)

    # -- the rest --------------------------------------------------------------------------------------------------

    def domains(self, listeners: list[_Listener]) -> list[Domain]:
        """The listeners' domains; one for all, unless each says for itself who is let in."""
        if self.conf.per_listener:
            domains = [listener.domain for listener in listeners]
        else:
            first = listeners[0].domain
            urls = tuple(url for listener in listeners for url in listener.domain.urls)
            named = tuple(url for listener in listeners for url in listener.domain.named)
            domains = [replace(first, urls=urls, named=named)]
        for domain in domains:
            mosquitto_access.fill(domain, self.files, self.left)
            self._believed(domain)
            for option in domain.options.all:
                known = ("allow_anonymous", "acl_file", "password_file", "plugin", "auth_plugin")
                plain = option.name not in known and option is not domain.dynsec
                if plain and not mosquitto_options.met(option):
                    self.leave(option, mosquitto_options.why(option))
        return domains

    def _believed(self, domain: Domain) -> None:
        """Where names are believed without a password, they are not here."""
        if domain.knows or set(domain.urls) == set(domain.named):
            return
        option = domain.options.last("acl_file") or domain.options.last("allow_anonymous")
        if option is not None:
            self.leave(option, _ANY_NAME)

    def qos(self, listeners: list[_Listener]) -> None:
        bounds = [(option.number(), option) for each in listeners if (option := each.section.options.last("max_qos"))]
        if bounds:
            lowest, option = min(bounds, key=lambda bound: bound[0])
            self._set(("limits", "max_qos"), lowest)
            if len({number for number, _ in bounds}) > 1 or len(bounds) < len(listeners):
                self.leave(option, "it is for the whole node here; the lowest counts")

    def general(self, *, stays_behind: bool) -> None:
        """Options of no section. Those that a Mosquitto behind the guard keeps are not listed."""
        general = self.conf.general
        for option in general.all:
            if option.name in mosquitto_options.SETTINGS:
                where, value = mosquitto_options.SETTINGS[option.name]
                self._set(where, value(option))
            elif option.name in ("persistence", "persistence_location", "max_packet_size", "message_size_limit"):
                continue
            elif not (stays_behind or mosquitto_options.met(option)):
                self.leave(option, mosquitto_options.why(option))
        if stays_behind:
            self.settings["node"]["data"] = f"var/{self.settings['node']['name']}"
        elif general.switch("persistence", False):
            self.settings["node"]["data"] = f"var/{self.settings['node']['name']}"
            for option in general.every("persistence")[-1:]:
                self.leave(option, "the state goes to `node.data`; what `mosquitto.db` holds now is not taken over")

    def links(self) -> Iterator[tuple[str, Commented]]:
        certificates: dict[tuple[str, str], Option] = {}
        for section in self.conf.bridges:
            name = mosquitto_bridges.scope_name(section)
            entry = mosquitto_bridges.link(section, name, self.files, self.leave)
            if entry is None:
                continue
            if (cert := section.options.last("bridge_certfile")) is not None:
                pair = self.files.absolute(cert.value), self.files.absolute(section.options.value("bridge_keyfile"))
                certificates.setdefault(pair, cert)
            yield name, Commented(origin=_origin(section.begin), value=entry)
        for index, (pair, shown) in enumerate(certificates.items()):
            if index == 0:
                self.settings["node"] |= dict(zip(("cert", "key"), pair, strict=True))
            else:
                self.leave(shown, "a node has one certificate for all its links, `node.cert`; another bridge has it")

    def _set(self, where: tuple[str, ...], value: Any) -> None:
        section = self.settings
        for key in where[:-1]:
            section = section.setdefault(key, {})
        section[where[-1]] = value


def read(
    text: str,
    source: str,
    files: Files,
    *,
    name: str,
    behind: mosquitto_behind.Wanted | None = None,
    enforce: bool = True,
) -> TakenOver:
    """The configuration of a node `name`; with `behind`, of a guard in front of that Mosquitto. Without `enforce` its
    rules are only watched."""
    conf = mosquitto_conf.read(text, source, files)
    work = _Takeover(conf, source, files)
    work.settings["node"] = {"name": name}
    listeners = work.listeners()
    work.settings["listeners"] = []
    domains = work.domains(listeners)
    if len(domains) > 1:
        for each in listeners:
            if each.domain.knows:
                each.entries[:] = [{**entry, "users": sorted(each.domain.users)} for entry in each.entries]
    work.settings["listeners"] = [
        Commented(origin=_origin(each.section.begin), value=entry) for each in listeners for entry in each.entries
    ]
    work.general(stays_behind=behind is not None)
    work.qos(listeners)
    links = list(work.links())
    if links:
        work.settings["links"] = [link for _, link in links]
    files_behind = None
    if behind is not None:
        files_behind = mosquitto_behind.files(conf, domains, files, behind)
        work.settings["scopes"] = {"main": files_behind.scope}
    if not enforce:
        work.settings["enforce"] = False
    work.settings["subscribe"] = "hold"
    policies = [policy for link, entry in links for policy in mosquitto_bridges.policies(link, entry.value)]
    access = mosquitto_access.combined(domains, policies, work.left)
    users = access.users
    if files_behind is not None and files_behind.proves_names:
        users = {name: {key: entry[key] for key in entry if key != "password"} for name, entry in users.items()}
    imported = Imported(
        settings=work.settings,
        open=access.policies is None,
        policies=access.policies or (),
        combining="first-applicable",
        users=users,
        notes=access.notes,
        left=tuple(sorted(access.left, key=_place)),
    )
    return TakenOver(imported=imported, behind=files_behind)


def _origin(option: Option | None) -> str:
    return "the default listener" if option is None else f"{option.file}:{option.line}: {option.text}"


def _shown(option: Option) -> str:
    """The line, without a secret."""
    return f"{option.name} …" if "password" in option.name and option.name != "password_file" else option.text


def _place(left: NotImported) -> tuple[str, int]:
    file, _, line = left.place.rpartition(":")
    return file, int(line) if line.isdigit() else 0
