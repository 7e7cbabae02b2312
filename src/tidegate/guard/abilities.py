"""What a broker can do of MQTT, by its kind. What it cannot do the guard refuses, where the broker would weaken it
without a word (docs/reference/guard-backends.md, which tests write).

A broker of MQTT 5 says in CONNACK what it cannot do. One of 3.1.1 cannot say so: the guard asks it for a subscription
with QoS 2 (`ServiceConnection`), and wants to be told of what kind it is if it grants less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegate.config.scopes import BackendKind
from tidegate.gate import Deny, Step
from tidegate.wire import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Of one kind of broker."""

    qos: int = 2
    """The highest that it takes without making less of it."""
    retain: bool = True
    """Whether each subscription that matches, with wildcards or without, is given what is retained."""
    shared: bool = True
    """Whether `$share/GROUP/FILTER` is more to it than a topic."""
    levels: int = 200
    """The most levels of a topic or filter. Mosquitto ends the connection of whoever sends one with more."""
    barred: str = ""
    """Characters that it refuses in topics, or takes for others."""
    reorders: int = 64
    """QoS 1 and 2 messages of one publisher and topic among which one may come late. What is older than these has been
    here, and somebody shows it again."""
    internal: bool = False
    """Whether `#` shows clients topics of its own that begin with `$`."""

    def objection(self, topic: str) -> Deny | None:
        """Why it cannot take a message of this topic."""
        return None if self.names(topic) else BARRED

    def names(self, topic: str) -> bool:
        """Whether a topic or filter means the same to it as to the guard."""
        return topic.count("/") < self.levels and not any(character in topic for character in self.barred)


BARRED: Final = Deny(
    step=Step.WRITE,
    rule="backend",
    reason=Reason.TOPIC_NAME_INVALID,
    detail="it does not take all characters of this topic, or not so many levels",
)
KINDS: Final[Mapping[BackendKind, Abilities]] = {
    BackendKind.MQTT: Abilities(),
    # `.` and ` ` end the connection; `*` and `>` are wildcards of subjects. What was on its way when a server or a
    # connection went comes again after `ack_wait`, behind everything that was published meanwhile
    BackendKind.NATS: Abilities(qos=1, shared=False, barred=". *>", reorders=8192, internal=True),
    # QoS 2 is taken as QoS 1; `.` comes back as `/`, and `*` as `+`
    BackendKind.RABBITMQ: Abilities(qos=1, retain=False, shared=False, barred=".*"),
}
