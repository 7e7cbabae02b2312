"""PUBLISH packets for the broker: a message that may be written, in its envelope."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Final

from tidegate.gate.attributes import FLOOR
from tidegate.guard.envelopes import PROPERTY
from tidegate.session import Message
from tidegate.session.carried_proof import without_proof
from tidegate.session.frames import EXACT
from tidegate.wire import NONE, V5, Properties, encode_publish_parts
from tidegate.wire.envelope import to_property

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope

LARGE: Final = "it is too large for it"


Framed = tuple[bytes, bytes, bytes]
"""What clears the retained message of the topic, mostly empty; then the packet, split where its identifier goes.

What clears goes ahead of what says so to clients: whoever acknowledges that has done this, too."""


def framed(scope: GuardedScope, message: Message, version: int, maximum: int, qos: int, retain: bool) -> Framed:
    """A message as it goes to the broker. ValueError: the broker takes no packet of that size (`maximum`; 0: any)."""
    topic, payload, now = message.topic.encode(), message.payload, scope.site.now
    plain = message.topic.startswith("$SYS/")  # as the broker itself says it
    if not scope.enforcing:
        plain = True
        scope.passed.note(message)
    properties = _forwarded(message, version, now, enforcing=scope.enforcing)
    if plain:
        pass
    elif scope.settings.as_property:
        pairs = tuple(pair for pair in properties.user_properties if pair[0] != PROPERTY)
        own = (PROPERTY, to_property(scope.envelopes.envelope(message, now)))
        properties = replace(properties, user_properties=(*pairs, own))
    else:
        payload = scope.envelopes.sealed(message, now)
    clears = retain and not (message.payload or plain or scope.settings.as_property)
    head, tail = encode_publish_parts(topic, payload, qos, retain and not clears, version, properties)
    if maximum and len(head) + len(tail) + 2 * (qos > 0) > maximum:
        raise ValueError(LARGE)
    clearing = b"".join(encode_publish_parts(topic, b"", 0, True, version, NONE)) if clears else b""
    return clearing, head, tail


def _forwarded(message: Message, version: int, now: float, *, enforcing: bool) -> Properties:
    """The floor is in the envelope; the remaining time is for the broker."""
    if version != V5:
        return NONE
    properties = without_proof(message.properties) if enforcing else message.properties
    pairs = properties.user_properties
    if enforcing and pairs and pairs[-1][0] == FLOOR:
        properties = replace(properties, user_properties=pairs[:-1])
    if message.expires is not None:
        left = max(1, ceil(message.expires - now - EXACT))
        properties = replace(properties, message_expiry_interval=left)
    return properties
