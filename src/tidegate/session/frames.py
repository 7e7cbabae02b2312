"""PUBLISH frames as sessions send them: encoded once, with the packet identifier spliced in last.

A frame is kept in two parts, what stands before the packet identifier and what stands behind it. Parts are kept in
the message for everybody who agrees on (version, QoS, retain, subscription identifiers): the first form in `head` and
`tail`, further ones in `frames`. A message that came without properties brings its first form along: the bytes it
was published with. A message that expires is encoded anew each time, because the remaining time is in the frame.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from tidegate.session.message import Message
from tidegate.wire import NONE, V5, encode_properties, encode_varint

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
            message.head, message.tail = made = _encode(message, version, qos, retain, ids, now, 0)
            return made
    cache = message.frames
    key = (wanted, ids)
    if cache is None:
        cache = message.frames = {}
    elif (found := cache.get(key)) is not None:
        return found
    made = _encode(message, version, qos, retain, ids, now, 0)
    if len(cache) < FORMS and not (retain and ids):  # retained ones go to one subscriber at a time
        cache[key] = made
    return made


def _encode(
    message: Message, version: int, qos: int, retain: bool, ids: tuple[int, ...], now: float, alias: int
) -> Parts:
    topic = b"" if alias < 0 else message.topic.encode()
    if version == V5:
        properties = message.properties
        if alias or ids or message.expires is not None:
            left = None if message.expires is None else max(1, ceil(message.expires - now - EXACT))
            properties = replace(
                properties,
                message_expiry_interval=left,
                topic_alias=abs(alias) or None,
                subscription_identifiers=ids,
            )
        tail = b"\0" + message.payload if properties is NONE else encode_properties(properties) + message.payload
    else:
        tail = message.payload
    length = 2 + len(topic) + (2 if qos else 0) + len(tail)
    first = 0x30 | qos << 1 | retain
    head = bytes((first,)) + encode_varint(length) + len(topic).to_bytes(2, "big") + topic
    return head, tail
