"""The fast lane to those who do not speak as the publisher does: the same message in another form."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
            for link in targets:
                assert isinstance(link, LinkSession)
                link.carry(name, payload, connection.session)
            continue
        else:
            length = len(name) + len(block) + len(payload)
            other = b"\x30%b%b%b%b" % (encode_varint(length), name, block, payload)
        for target in targets:
            out = target.out
            if not out:
                dirty.append(target)
            out.append(other)
