"""What has gone to a guarded broker in shadow mode, so that who published what it delivers is known.

Nothing is written into the messages there (no envelope), so that the guard can be taken away again. What the broker
delivers is recognised by its topic and content, for as long as it is among the newest. If two clients publish the same
to the same topic, the newer one counts for both. What is not recognised is decided as from an unknown publisher, and
counted: it came around the guard, before this start, or too long ago.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from tidegate.bounded import Newest
from tidegate.guard.envelopes import nobody
from tidegate.policy.brokering import PLAIN
from tidegate.session import Message, Origin

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope

REMEMBERED: Final = 100_000

Passed = tuple[bytes, str, float, Origin, int, int, int]  # context, type of link, published, id and output, QoS


class PassedMessages:
    """Of one guarded scope that does not enforce."""

    def __init__(self, scope: GuardedScope) -> None:
        self.scope = scope
        self.unknown = 0
        """Messages of the broker whose publisher is not known."""
        self._newest: Newest[bytes, Passed] = Newest(REMEMBERED)

    def clear(self) -> None:
        self._newest.clear()

    def note(self, message: Message) -> None:
        """It goes to the broker."""
        self.note_bytes(message.topic.encode(), message.payload, message)

    def note_bytes(self, topic: bytes, payload: bytes, message: Message) -> None:
        origin, number, output = message.origin, message.number, message.output
        passed = (message.context, message.link, message.published, origin, number, output, message.qos)
        self._newest[_key(topic, payload)] = passed

    def attributed(self, message: Message) -> Message:
        """A message of the broker, with the context it was published with; or nobody's."""
        passed = self._newest.get(_key(message.topic.encode(), message.payload))
        if passed is None:
            self.unknown += 1
            message.context, message.link = nobody(self.scope), PLAIN.inward
            return message
        context, message.link, message.published, message.origin, message.number, message.output, qos = passed
        if qos != message.qos:
            _, known = self.scope.path.monitoring.context(context, message.topic, message.topic, qos)
            context = known.encode()
        message.context = context
        return message


def _key(topic: bytes, payload: bytes) -> bytes:
    return blake2b(b"%b\0%b" % (topic, payload), digest_size=16).digest()
