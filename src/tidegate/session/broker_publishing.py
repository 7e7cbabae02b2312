"""What a foreign broker publishes over a link: the same as another node, but there are no envelopes.

Nothing in a payload is looked for: one that begins as an envelope does is passed on as it is.
"""

from __future__ import annotations

from tidegate.errors import ProtocolError
from tidegate.session.link_publishing import Imported, LinkPublishing
from tidegate.wire import Publish


class BrokerPublishing(LinkPublishing):
    """What one connection to a foreign broker brings, until it is acknowledged."""

    __slots__ = ()

    def read_ahead(self, data: bytes, room: int) -> tuple[int, int]:
        return 0, 0

    def publish(self, packet: Publish) -> None:
        properties, qos, pid = packet.properties, packet.qos, packet.packet_id
        if properties.topic_alias is not None or properties.subscription_identifiers:
            raise ProtocolError("the broker was asked neither for topic aliases nor for subscription identifiers")
        if qos == 2 and self._resent(packet):
            return
        imported = self.importer.opened(self.connection, packet)
        if isinstance(imported, Imported):
            message = imported.message
            self._refusal = None
            self.take(imported.route, b"", qos, packet.retain, pid, properties, message.expires, message=message)
        elif imported is not None:
            self._refused(qos, pid, imported)
