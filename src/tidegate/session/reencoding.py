"""The fast lane to those who do not speak as the publisher does: the same message in another form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.session.grant import Shut
from tidegate.session.host import LINKS, Route
from tidegate.session.link_session import LinkSession
from tidegate.wire import encode_varint

if TYPE_CHECKING:
    from tidegate.session.connection import Connection


def cross(connection: Connection, route: Route, name: bytes, payload: bytes) -> None:
    """A QoS 0 publish with other properties: 3.1.1 has none, 5.0 may be told something, and what goes over a link to
    another node has an envelope. `name`: its topic as it stands in a packet.
    """
    dirty = connection.site.dirty
    for block, targets in route.cross:
        if block is None:
            other = b"\x30%b%b%b" % (encode_varint(len(name) + len(payload)), name, payload)
        elif block == LINKS:
            session = connection.session
            for link in targets:
                link.carry(name, payload, session)  # type: ignore[attr-defined]  # hot: these are `LinkSession`
            continue
        else:
            length = len(name) + len(block) + len(payload)
            other = b"\x30%b%b%b%b" % (encode_varint(length), name, block, payload)
        for target in targets:
            out = target.out
            if not out:
                dirty.append(target)
            out.append(other)


def joined(before: bytes, payloads: Sequence[bytes]) -> bytes:
    """QoS 0 publishes one after the other; `before`: what stands in them between the length and the payload."""
    # hot: one look-up and two appends for each
    heads: dict[int, bytes] = {}
    parts: list[bytes] = []
    for payload in payloads:
        length = len(payload)
        head = heads.get(length)
        if head is None:
            head = heads[length] = b"0%b%b" % (encode_varint(len(before) + length), before)
        parts.append(head)
        parts.append(payload)
    return b"".join(parts)


def pass_on(connection: Connection, route: Route, name: bytes, payloads: Sequence[bytes]) -> None:
    """The same for several messages that came together over a link, and what `fast` gets of them as well."""
    site, count = connection.site, len(payloads)
    for block, targets in ((b"\0", route.fast), *route.cross) if route.fast else route.cross:
        if block == LINKS:
            for link in targets:
                assert isinstance(link, LinkSession)
                for payload in payloads:
                    link.carry(name, payload, connection.session)
            continue
        frames = joined(name if block is None else name + block, payloads)
        for target in targets:
            out = target.out
            if not out:
                site.dirty.append(target)
            elif isinstance(out, Shut):
                out.dropped += count
                continue
            out.append(frames)
            site.counters.frames_sent += count - 1
