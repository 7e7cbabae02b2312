"""Bridges of a `mosquitto.conf` become links to foreign brokers.

A topic of a bridge has the same prefixes as an entry of `share`. One without a pattern maps a single topic to another:
what both end with becomes the pattern. Mosquitto's access rules never hold for its bridges, so the links may forward
and import whatever they share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, Final

from tidegate import topics
from tidegate.importing.imported_policies import ImportedPolicy
from tidegate.importing.mosquitto_conf import Files, Option, Section

Leave = Callable[[Option, str], None]

_VERSIONS: Final = {"mqttv50": "5", "mqttv311": "3.1.1", "mqttv31": "3.1.1"}
_DIRECTIONS: Final = ("out", "in", "both")
_SAME: Final = frozenset(
    (
        *("address", "addresses", "topic", "remote_username", "username", "remote_password", "password"),
        *("remote_clientid", "clientid", "try_private", "bridge_protocol_version", "bridge_cafile", "bridge_certfile"),
        *("bridge_keyfile", "restart_timeout", "keepalive_interval", "bridge_attempt_unsubscribe"),
    )
)
"""Options that are taken over, or whose only purpose is met anyway."""
_OTHERWISE: Final = {
    "local_clientid": "links have no client identifier at this end",
    "local_username": "a link is the subject `link:A->B` here, and its policies say what may cross",
    "local_password": "a link is no client at this end",
    "notifications": "`tidegate link list` and the metrics tell whether a link is connected; no topic does",
    "notifications_local_only": "no topic tells whether a link is connected",
    "notification_topic": "no topic tells whether a link is connected",
    "bridge_capath": "a folder of authorities; name one file as `broker.ca`",
    "bridge_psk": "no pre-shared keys; use certificates",
    "bridge_identity": "no pre-shared keys; use certificates",
    "bridge_insecure": "the name in the broker's certificate is always verified",
    "bridge_tls_version": "TLS 1.2 and 1.3 are used, whichever the broker has",
    "bridge_alpn": "not sent; connect to the port that needs none",
    "bridge_require_ocsp": "not asked for",
    "bridge_bind_address": "the system chooses the address",
    "bridge_max_packet_size": "the broker says in CONNACK what it takes",
    "round_robin": "the first address that answers is kept until it is lost",
    "threshold": "links connect at once",
    "idle_timeout": "links stay connected",
}


def scope_name(section: Section) -> str:
    """What the file calls the broker at the other end."""
    assert section.begin is not None
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", section.begin.value).strip("-._")[:60]
    return name if name and name != "main" else f"{name or 'bridge'}-remote"


def link(section: Section, name: str, files: Files, leave: Leave) -> dict[str, Any] | None:
    """The entry of `links`; None if nothing would cross."""
    options, begin = section.options, section.begin
    assert begin is not None
    tls = bool(options.value("bridge_cafile") or options.value("bridge_capath") or options.value("bridge_psk"))
    via = [
        _url(address, tls=tls) for option in options.every("address", "addresses") for address in option.value.split()
    ]
    if not via:
        raise begin.wrong("a bridge without `address`; Mosquitto does not start with it")
    if not tls and options.last("bridge_certfile") is not None:
        via = [url.replace("mqtt://", "mqtts://", 1) for url in via]
    share = [entry for option in options.every("topic") for entry in _shares(option, leave)]
    for option in options.all:
        _other(option, leave)
    if not share:
        leave(begin, "no topic of it crosses; there is no such link")
        return None
    version = _VERSIONS.get(options.value("bridge_protocol_version") or "mqttv311", "3.1.1")
    broker: dict[str, Any] = {"version": version}
    if client := options.value("remote_clientid") or options.value("clientid"):
        broker["client"] = client
    if user := options.value("remote_username") or options.value("username"):
        broker["user"] = user
        if password := options.value("remote_password") or options.value("password"):
            broker["password"] = password
    if ca := options.value("bridge_cafile"):
        broker["ca"] = files.absolute(ca)
    return {"from": "main", "to": name, "via": via, "broker": broker, "share": share}


def policies(name: str, link: dict[str, Any]) -> Iterator[ImportedPolicy]:
    """A bridge may forward and import all that it shares."""
    towards = {entry["direction"] for entry in link["share"]}
    origin = f"Mosquitto's access rules do not hold for its bridges: {name}"
    for id, subject, action in (("out", f"link:main->{name}", "write"), ("in", f"link:{name}->main", "read")):
        if towards & {id, "both"}:
            yield ImportedPolicy(id=f"bridge-{name}-{id}", subject=subject, topic="#", action=(action,), origin=origin)


def _url(address: str, *, tls: bool) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.endswith("]")):
        host, port = address, "1883"
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{'mqtts' if tls else 'mqtt'}://{host}:{port}"


def _shares(option: Option, leave: Leave) -> Iterator[dict[str, Any]]:
    words = _words(option.value)
    pattern, direction, qos, local, remote = (*words, *("", "out", "0", "", "")[len(words) :])[:5]
    local, remote = ("" if prefix == '""' else prefix for prefix in (local, remote))
    if pattern in ("", '""'):
        pattern, local, remote = _single(local, remote)
    if direction not in _DIRECTIONS or qos not in ("0", "1", "2"):
        raise option.wrong("`topic` of a bridge: write `topic PATTERN out|in|both 0|1|2 LOCAL REMOTE`")
    if not pattern or not topics.valid_filter(pattern):
        leave(option, "its two topics have no level in common at their ends; rename one of them, or `map` it")
    elif any(each.startswith("$") for each in (local + pattern, remote + pattern)):
        leave(option, "topics that begin with `$` never cross a link")
    elif set("+#") & set(local + remote):
        leave(option, "its prefix has a wildcard")
    else:
        entry: dict[str, Any] = {"topic": pattern, "direction": direction, "qos": int(qos)}
        if local:
            entry["local_prefix"] = local
        if remote:
            entry["remote_prefix"] = remote
        yield entry


def _words(text: str) -> list[str]:
    return text.split()


def _single(local: str, remote: str) -> tuple[str, str, str]:
    """The last levels that two topics have in common, and what stands before these."""
    one, other = local.split("/"), remote.split("/")
    pairs = zip(reversed(one), reversed(other), strict=False)
    common = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    if not common or not local or not remote:
        return "", local, remote
    pattern = "/".join(one[-common:])
    return pattern, local.removesuffix(pattern), remote.removesuffix(pattern)


def _other(option: Option, leave: Leave) -> None:
    match option.name:
        case "cleansession" | "local_cleansession":
            if option.switch():
                leave(option, "what waits for a link is kept while it is away")
        case "start_type":
            if option.value != "automatic":
                leave(option, "links connect at once and stay connected")
        case "bridge_outgoing_retain":
            if not option.switch():
                leave(option, "retained messages cross a link as retained")
        case "notifications":
            if option.switch():
                leave(option, _OTHERWISE[option.name])
        case "round_robin" | "bridge_insecure" | "bridge_require_ocsp":
            if option.switch():
                leave(option, _OTHERWISE[option.name])
        case name if name in _OTHERWISE:
            leave(option, _OTHERWISE[name])
        case name if name not in _SAME:
            leave(option, "no option of Mosquitto 2.0")
        case _:
            pass
