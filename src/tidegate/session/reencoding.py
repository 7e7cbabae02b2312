"""The fast lane to those who do not speak as the publisher does: the same message in another form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.session.host import LINKS, Route
from tidegate.session.link_session import LinkSession
from tidegate.session.message import Message
from tidegate.session.outlet import Shut
from tidegate.wire import encode_varint

if TYPE_CHECKING:
    from tidegate.session.connection import Connection


def cross(connection: Connection, route: Route, name: bytes, payload: bytes) -> None:
    """A QoS 0 publish with other properties: 3.1.1 has none, 5.0 may be told something, and what goes over a link to
    another node has an envelope. `name`: its topic as it stands in a packet.
    """
    if (stream := connection.session.crossing.get(route)) is not None:
        if not stream.payloads:
            stream.gathering.begins(stream)
        stream.payloads.append(payload)
        return
    dirty = connection.site.dirty
    for block, targets in route.cross:
        if block is None:
            other = b"\x30%b%b%b" % (encode_varint(len(name) + len(payload)), name, payload)
        elif block == LINKS:
            session = connection.session
            for link in targets:
                link.carry(route, name, payload, session)  # type: ignore[attr-defined]  # hot: these are `LinkSession`
            continue
        else:
            length = len(name) + len(block) + len(payload)
            other = b"\x30%b%b%b%b" % (encode_varint(length), name, block, payload)
        for target in targets:
            out = target.out
            if not out:
                dirty.append(target)
            out.append(other)


def joined(before: bytes, data: bytes, at: int, lengths: Sequence[int]) -> bytes:
    """QoS 0 publishes one after the other, whose payloads stand in `data` from `at` on. `before`: what stands in them
    between the length and the payload."""
    # hot: one look-up and two appends for each
    heads: dict[int, bytes] = {}
    parts: list[bytes] = []
    append = parts.append
    for length in lengths:
        try:
            append(heads[length])
        except KeyError:
            head = heads[length] = b"0%b%b" % (encode_varint(len(before) + length), before)
            append(head)
        stop = at + length
        append(data[at:stop])
        at = stop
    return b"".join(parts)


def pass_on(connection: Connection, route: Route, name: bytes, data: bytes, at: int, lengths: Sequence[int]) -> None:
    """Messages that came together over a link go to `fast`, and to those of `cross` that are no links."""
    site, count = connection.site, len(lengths)
    for block, targets in ((b"\0", route.fast), *route.cross) if route.fast else route.cross:
        if block == LINKS:
            continue
        before = name if block is None else name + block
        if count == 1:
            frames = b"0%b%b%b" % (encode_varint(len(before) + lengths[0]), before, data[at : at + lengths[0]])
        else:
            frames = joined(before, data, at, lengths)
        for target in targets:
            out = target.out
            if not out:
                site.dirty.append(target)
            elif isinstance(out, Shut):
                out.dropped += count
                continue
            out.append(frames)
            site.counters.frames_sent += count - 1


Onward = tuple[LinkSession, object, bytes]
"""A link, what put its messages into their form then, and what messages that are relayed begin with."""


def onward(route: Route, message: Message) -> tuple[Onward, ...]:
    """For messages that came over a link as this one did, and go on over others."""
    return tuple(
        (link, link.exporter, link.relayed(message)) for link in route.cross[-1][1] if isinstance(link, LinkSession)
    )


def relay(links: Sequence[Onward], body: bytes, count: int) -> bool:
    """Messages that came over a link go on to other nodes as they came, with this node's word on them in place of the
    last one's; whether all of those take that. `body`: what follows the static part of their envelope."""
    # hot: one join per link
    frames: list[bytes] = []
    for link, exporter, head in links:
        if not head or link.exporter is not exporter or (count > 1 and not link.gathering.patient):
            return False
        frame = b"0%b%b%b" % (encode_varint(len(head) + len(body)), head, body)
        if link.maximum and len(frame) > link.maximum:
            return False
        frames.append(frame)
    for (link, _, _), frame in zip(links, frames, strict=True):
        link.relay(frame, count)
    return True
