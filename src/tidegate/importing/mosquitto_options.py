"""Options of a `mosquitto.conf` that are neither listeners, access nor bridges: what becomes of each.

`SETTINGS` are taken over. `MET` need nothing, because a node does so anyway. `WITHOUT` have no equivalent, with the
reason; and so has whatever stands in none of the three.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from tidegate.importing.mosquitto_conf import Option

UNLIMITED: Final = 4_000_000
_UNITS: Final = {"h": 1 / 24, "d": 1, "w": 7, "m": 30, "y": 365}


def _count(option: Option) -> int:
    """A bound of messages; 0 is none."""
    return option.number() or UNLIMITED


def _days(option: Option) -> str:
    match = re.fullmatch(r"(\d+)\s*([hdwmy])", option.value)
    if match is None:
        raise option.wrong("`persistent_client_expiration` is a number and one of h, d, w, m, y; mend it")
    return f"{max(1, round(int(match[1]) * _UNITS[match[2]] * 24))}h"


SETTINGS: Final[dict[str, tuple[tuple[str, ...], Callable[[Option], Any]]]] = {
    "max_inflight_messages": (("limits", "inflight"), lambda option: min(option.number() or 65535, 65535)),
    "max_queued_messages": (("limits", "queue", "messages"), _count),
    "max_queued_bytes": (("limits", "queue", "bytes"), lambda option: option.number() or 1 << 30),
    "max_keepalive": (("limits", "max_keep_alive"), lambda option: option.number() or 65535),
    "persistent_client_expiration": (("limits", "session_expiry"), _days),
    "retain_available": (("limits", "retain"), Option.switch),
    "sys_interval": (("sys", "interval"), lambda option: f"{option.number()}s"),
}
"""Where each stands here, and its value."""

MET: Final[dict[str, str]] = {
    "set_tcp_nodelay": "true",
    "queue_qos0_messages": "false",
    "upgrade_outgoing_qos": "false",
    "allow_duplicate_messages": "false",
    "check_retain_source": "true",
    "allow_zero_length_clientid": "true",
    "auth_plugin_deny_special_chars": "true",
    "use_username_as_clientid": "false",
    "connection_messages": "true",
    "log_timestamp": "true",
}
"""What a node always does, by the value of the option that says so."""

LOG: Final = "log lines go to standard error, as `log.format` and `log.level` say"
MANAGER: Final = "left to the service manager"
WITHOUT: Final[dict[str, str]] = {
    "set_tcp_nodelay": "it is always set",
    "queue_qos0_messages": "QoS 0 never waits for a client that is away",
    "upgrade_outgoing_qos": "a message is delivered with the lower of the two QoS",
    "allow_duplicate_messages": "a session gets one copy, however many of its filters match",
    "check_retain_source": "retained messages are decided when they are delivered, with the publisher of then",
    "allow_zero_length_clientid": "clients without an identifier get one; a policy can demand a user",
    "auto_id_prefix": "made-up identifiers begin with `auto-`",
    "auth_plugin_deny_special_chars": "names with wildcards never fill a placeholder",
    "use_username_as_clientid": "a session belongs to a user and a client identifier",
    "connection_messages": LOG,
    "log_timestamp": LOG,
    "log_timestamp_format": LOG,
    "log_facility": LOG,
    "log_dest": LOG,
    "log_type": LOG,
    "pid_file": MANAGER,
    "user": MANAGER,
    "autosave_interval": "everything is committed within milliseconds",
    "autosave_on_changes": "everything is committed within milliseconds",
    "persistence_file": "`node.data` is a folder",
    "max_inflight_bytes": "`limits.inflight` counts messages",
    "memory_limit": "`limits.node` bounds what all clients hold together",
    "psk_file": "no pre-shared keys; use certificates",
    "http_dir": "no files are served",
    "websockets_headers_size": "headers of WebSocket requests are bounded anyway",
    "websockets_log_level": LOG,
    "bind_interface": "name the address of the interface in the listener's `url`",
    "capath": "a folder of authorities; put them into one file, `client_ca`",
    "ciphers": "the system's ciphers are used; set `tls_min`",
    "ciphers_tls1.3": "the system's ciphers are used",
    "dhparamfile": "not needed: key exchange is by elliptic curves",
    "tls_engine": "keys are read from files",
    "tls_engine_kpass_sha1": "keys are read from files",
    "tls_keyform": "keys are PEM files",
    "psk_hint": "no pre-shared keys; use certificates",
    "max_topic_alias": "`limits.topic_aliases` is for the whole node",
}
"""Why an option has no equivalent, or what to write instead."""


def met(option: Option) -> bool:
    """Whether a node does so anyway."""
    wanted = MET.get(option.name)
    return wanted is not None and option.switch() is (wanted == "true")


def why(option: Option) -> str:
    return WITHOUT.get(option.name, "no option of Mosquitto 2.0 that is known here")
