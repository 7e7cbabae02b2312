"""What another node publishes over a link: the same as of a client, but each message brings its own context and id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from tidegate.errors import ProtocolError
from tidegate.session.connection import Connection
from tidegate.session.host import Refusal, Route
from tidegate.session.message import Message
from tidegate.session.publishing import Publishing
from tidegate.wire import Publish, Reason, Type

REPEATED: Final = Reason.PACKET_IDENTIFIER_IN_USE
"""What the other node is told in PUBREC of a message that has been here: it lets go of it."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A message that has come out of its envelope, and the plan that it follows."""

    route: Route
    message: Message


class Importer(Protocol):
    """Opens what comes over a link (scope.imports)."""

    def opened(self, connection: Connection, packet: Publish) -> Imported | Refusal | None:
        """A message and its plan, or why it is refused; None: it has been here, or comes back."""
        ...

    def seen(self, message: Message) -> None:
        """A QoS 1 or 2 message has been taken."""
        ...


class LinkPublishing(Publishing):
    """What one connection of a link publishes, until it is acknowledged."""

    __slots__ = ("importer",)

    def __init__(self, connection: Connection, importer: Importer) -> None:
        super().__init__(connection)
        self.importer = importer

    def publish(self, packet: Publish) -> None:
        if packet.properties.topic_alias is not None or packet.properties.subscription_identifiers:
            raise ProtocolError("neither topic aliases nor subscription identifiers go over a link")
        qos, pid = packet.qos, packet.packet_id
        imported = self.importer.opened(self.connection, packet)
        if isinstance(imported, Imported):
            message = imported.message
            self.take(imported.route, b"", qos, packet.retain, pid, packet.properties, message.expires, message=message)
            if qos == 1:
                self.importer.seen(message)
        elif imported is not None:
            self._refused(qos, pid, imported)
        elif qos:
            # whoever sends it is done with it: 0x10, or PUBREC with a reason, ends the exchange
            type = Type.PUBACK if qos == 1 else Type.PUBREC
            self._acknowledge(type, pid, Reason.NO_MATCHING_SUBSCRIBERS if qos == 1 else REPEATED, wait=False)
