"""The packets of a connection that is not open yet: CONNECT, AUTH, and a DISCONNECT in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import ProtocolError
from tidegate.session.other_protocols import spoken
from tidegate.session.packet_costs import FLUSH_BYTES
from tidegate.session.phase import OPEN, Phase
from tidegate.session.priced_decode import priced
from tidegate.wire import V5, Auth, Connect, Disconnect, Reason, Type, announced, frame, level

if TYPE_CHECKING:
    from tidegate.session.reader import Reader


def read_handshake(reader: Reader, data: bytes) -> int:
    """Takes all whole packets up to the one that ends it, and what follows then; how many bytes that was."""
    connection = reader.connection
    pos = 0
    while connection.phase in (Phase.NEW, Phase.WAITING) and pos < len(data):
        if connection.phase is Phase.NEW and data[0] != Type.CONNECT << 4:
            # [MQTT-3.1.0-1] the first packet is CONNECT; whoever sends another may not speak MQTT at all
            if language := spoken(data):
                connection.host.handshake.misdirected(connection, language)
            raise ProtocolError("the first packet is not CONNECT")
        if connection.phase is Phase.NEW and V5 in (level(data[start:12]) for start in range(2, 6)):
            connection.version = V5  # so that it is refused in its own words even if it cannot be decoded
        whole = frame(data, pos, reader.max_packet if connection.phase is Phase.WAITING else reader.max_connect)
        if whole is None:
            reader.need = announced(data, pos) - pos
            return pos
        first, start, stop = whole
        if connection.phase is Phase.WAITING and first >> 4 not in (Type.AUTH, Type.DISCONNECT):
            if connection.authentication is not None:
                raise ProtocolError("only AUTH and DISCONNECT before CONNACK")  # [MQTT-3.1.2-30]
            return pos  # sent ahead of CONNACK; it is read when the handshake is over
        if stop - pos > reader.max_connect:
            raise ProtocolError("AUTH larger than this listener allows", Reason.PACKET_TOO_LARGE)
        if not reader.affords(first >> 4, stop - start):
            return pos
        packet = priced(reader.site, first, data[start:stop], connection.version)
        pos = stop
        if isinstance(packet, Connect):
            if connection.phase is not Phase.NEW:
                raise ProtocolError("a second CONNECT")
            connection.version = packet.version
            connection.old, connection.bridge = packet.old, packet.bridge
            wants = packet.properties.request_problem_information
            connection.problem_information = wants != 0
            connection.client_max_packet = packet.properties.maximum_packet_size or 0
            connection.phase = Phase.WAITING
            connection.host.handshake.connect(connection, packet)
        elif isinstance(packet, Auth):
            connection.host.handshake.auth(connection, packet)
        elif isinstance(packet, Disconnect):
            connection.disconnected(packet)
    if connection.phase is OPEN and pos < len(data):
        return pos + reader.read(data[pos:])
    if len(data) - pos > reader.max_packet + FLUSH_BYTES:
        raise ProtocolError("too much sent ahead of CONNACK", Reason.PACKET_TOO_LARGE)
    return pos
