"""The exceptions of the client: the broker refuses, the broker is unreachable, or the key service refuses a key.

The client raises only these, KeysError, and ValueError for options that contradict each other.
"""

from __future__ import annotations

from typing import Final

from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from tidegate.errors import KeysError, TidegateError

_HINTS: Final = {
    0x81: "the broker could not read the packet",
    0x87: "no rule allows it, or a rule denies it",
    0x8A: "this client is banned",
    0x8E: "another client connected with the same identifier",
    0x93: "too many messages at once",
    0x95: "the message is larger than the broker accepts",
    0x97: "a limit or the disk of the broker is full",
    0x9A: "the broker does not keep messages",
    0x9B: "the broker does not offer this QoS",
}


class Refused(TidegateError):
    """The broker said no: what it refused, its reason code, and its own words or ours."""

    def __init__(self, what: str, reason: ReasonCode | None, reason_string: str = "") -> None:
        self.what = what
        self.reason = reason
        self.code = reason.value if reason is not None else 0x80
        self.reason_string = reason_string
        because = f": {reason.getName()} (0x{self.code:02x})" if reason is not None else ""
        about = reason_string or _HINTS.get(self.code, "")
        super().__init__(what + because + (f"; {about}" if about else ""))


class Unreachable(TidegateError):
    """There is no broker there, it does not answer, or the connection broke."""


class Denied(KeysError):
    """The key service does not give a key: its words, and the rule that says so, if it names one."""

    def __init__(self, message: str, *, rule: str | None, problem: str) -> None:
        super().__init__(message if rule is None or rule in message else f"{message} (rule {rule})")
        self.rule = rule
        self.problem = problem
        """One word for programs: `denied`, `unknown` (there is no such key any more), `conflict` (no public key is
        registered), `invalid` or `unavailable`; over HTTP also the others that it has."""


def reason_string(properties: Properties | None) -> str:
    """What the broker explains, on one line."""
    return " ".join(str(getattr(properties, "ReasonString", "")).split())
