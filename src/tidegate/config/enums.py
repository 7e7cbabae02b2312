"""The closed sets of the configuration: what may stand where only a few words may stand.

The values are the words of the YAML file. Nothing here has behaviour.
"""

from __future__ import annotations

from enum import StrEnum


class Scheme(StrEnum):
    """The protocol of an address."""

    MQTT = "mqtt"
    MQTTS = "mqtts"
    WS = "ws"
    WSS = "wss"
    HTTP = "http"
    HTTPS = "https"
    TLS = "tls"


class ClientCert(StrEnum):
    """Whether a TLS listener asks clients for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class TlsVersion(StrEnum):
    """The oldest TLS version that a listener accepts."""

    V12 = "1.2"
    V13 = "1.3"


class Policies(StrEnum):
    """What may stand under `policies` instead of a list."""

    OPEN = "open"


class Durability(StrEnum):
    """When an acknowledgement may be sent: after the commit (sync), or before it (async)."""

    SYNC = "sync"
    ASYNC = "async"


class Reload(StrEnum):
    """What makes a node read its file again: SIGHUP only, or also a change of the file."""

    SIGNAL = "signal"
    WATCH = "watch"


class QueueFull(StrEnum):
    """What happens to a message for a session whose queue is full."""

    DROP_NEWEST = "drop-newest"
    DROP_OLDEST = "drop-oldest"
    DISCONNECT = "disconnect"


class DeniedPublish(StrEnum):
    """What an MQTT 3.1.1 publisher sees of a denied publish; that protocol has no negative PUBACK."""

    ACKNOWLEDGE = "acknowledge"
    DISCONNECT = "disconnect"


class LogFormat(StrEnum):
    """How log lines look; `auto` is console on a terminal and JSON otherwise."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Subscribe(StrEnum):
    """What becomes of a subscription to what its client may not read: refused, or held until it may."""

    STRICT = "strict"
    HOLD = "hold"


class ViewDefault(StrEnum):
    """What somebody sees of a topic that has views, but none for them."""

    NOTHING = "nothing"
    ALL = "all"


class Record(StrEnum):
    """What is written down beyond denials: nothing, what was allowed too, or the messages themselves."""

    OFF = "off"
    DECISIONS = "decisions"
    TRAFFIC = "traffic"


class Operation(StrEnum):
    """What a test of the rules tries."""

    READ = "read"
    WRITE = "write"
    SUBSCRIBE = "subscribe"


class BuiltInMonitor(StrEnum):
    """Monitors that need not be written: those of the measurements of scopes, 5.1."""

    SIMPLE = "simple_em"
    COMPLEX = "complex_em"
    HSUP = "hsup_em"
    MULTI = "multi_em"
