"""PUBLISH frames as sessions send them: encoded once, with the packet identifier spliced in last.

A frame is kept in two parts, what stands before the packet identifier and what stands behind it. Parts are kept in
the message for everybody who agrees on (version, QoS, retain, subscription identifiers): the first form in `head` and
`tail`, further ones in `frames`. A message that came without properties brings its first form along: the bytes it
was published with. A message that expires is encoded anew each time, because the remaining time is in the frame.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from tidegate.session.carried_proof import without_proof
from tidegate.session.message import Message
from tidegate.wire import NONE, V5, encode_publish_parts

FORMS = 8  # kept per message: each holds the payload again, and a retained message lives long
EXACT = 1e-3  # seconds: more than adding and subtracting a clock is off by, so that 100 s are never sent as 101

Parts = tuple[bytes, bytes]


def form(version: int, qos: int, retain: bool) -> int:
    """A number for how a frame without subscription identifiers is encoded; never 0."""
    return version << 3 | qos << 1 | retain


def parts(
    message: Message, version: int, qos: int, retain: bool, ids: tuple[int, ...], now: float, alias: int = 0
) -> Parts:
    """The frame of `message`, split where the packet identifier goes (QoS 0: join them as they are).

    With `alias` negative the topic is left out and the alias alone names it; positive, both are sent.
    """
    if alias or message.expires is not None:
        return _encode(message, version, qos, retain, ids, now, alias)
    wanted = version << 3 | qos << 1 | retain
    if not ids:
        if message.form == wanted:
            return message.head, message.tail
        if not message.form:
            message.form = wanted
            message.head, message.tail = encoded = _encode(message, version, qos, retain, ids, now, 0)
            return encoded
    cache = message.frames
    key = (wanted, ids)
    if cache is None:
        cache = message.frames = {}
    elif (frame := cache.get(key)) is not None:
        return frame
    frame = _encode(message, version, qos, retain, ids, now, 0)
    if len(cache) < FORMS and not (retain and ids):  # retained ones go to one subscriber at a time
        cache[key] = frame
    return frame


class TopicAliases:
    """The topic aliases that one client has been sent (MQTT 5, 3.3.2.3.4)."""

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, int] = {}

    def alias(self, topic: str) -> int:
        """0: none free; positive: new, send both; negative: known to the client, send it alone."""
        known = self._known.get(topic)
        if known is not None:
            return -known
        if len(self._known) >= self._most:
            return 0
        number = self._known[topic] = len(self._known) + 1
        return number

    def forget(self, topic: str) -> None:
        """The client was not sent the alias that was given last."""
        del self._known[topic]


def _encode(
    message: Message, version: int, qos: int, retain: bool, ids: tuple[int, ...], now: float, alias: int
) -> Parts:
    topic = b"" if alias < 0 else message.topic.encode()
    properties = message.properties
    if properties is not NONE:
        properties = without_proof(properties)
    if version == V5 and (alias or ids or message.expires is not None):
        left = None if message.expires is None else max(1, ceil(message.expires - now - EXACT))
        properties = replace(
            properties,
            message_expiry_interval=left,
            topic_alias=abs(alias) or None,
            subscription_identifiers=ids,
        )
    return encode_publish_parts(topic, message.payload, qos, retain, version, properties)
