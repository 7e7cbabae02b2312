"""Packets decoded, and paid for by the number of their user properties.

A user property takes five bytes at least, and a microsecond to read, look at and write: a packet that has a thousand of
them costs a hundred times as much as one of the same length that has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.session.packet_costs import PROPERTY
from tidegate.wire import Connect, Packet, decode

if TYPE_CHECKING:
    from tidegate.session.runtime import Site

FEW: Final = 64  # bytes of a packet that cannot have many


def priced(site: Site, first: int, body: bytes, version: int) -> Packet:
    """The packet; the turn has spent what its properties cost."""
    # hot: one comparison for a short packet
    packet = decode(first, body, version)
    if len(body) > FEW and version == 5 and (properties := getattr(packet, "properties", None)) is not None:
        site.effort += PROPERTY * len(properties.user_properties)
        if isinstance(packet, Connect) and packet.will is not None:
            site.effort += PROPERTY * len(packet.will.properties.user_properties)
    return packet
