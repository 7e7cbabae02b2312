"""Links to nodes that are not trusted (semantics, *Trust* and *Links between nodes*; SEC-REDS, 2.4.1: a connection that
is degraded to untrusted).

Such a node is not believed, and nobody can hold it to anything. So only the id and the way of a message travel, that it
comes once and not back; and what leaves is decided as if the node were a reader of all of it, as with a foreign broker
(`gate.stages.order.bridging`). What comes was published by the link itself (`link:far->near`), over a connection that
is worth no more than its encryption.

Both ends of such a link say so: else one sends what the other does not believe, or expects what it does not send.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.gate import Deny
from tidegate.policy.levels import TLS
from tidegate.policy.scopes import NodeLink
from tidegate.scope.exports import LinkExports
from tidegate.scope.imports import LinkImports
from tidegate.scope.node_links import LinkEnd
from tidegate.scope.seen_ids import Id
from tidegate.session import BrokerLinkEnd, Connection, Context, Message, NodeLinkEnd
from tidegate.wire import Properties, Publish
from tidegate.wire.envelope import Envelope, MessageId, Static

if TYPE_CHECKING:
    from tidegate.scope.link_greeting import Greeting, Peer

NOBODY: Final = {"kind": "client", "client": ""}


class UntrustedEnd(LinkEnd):
    """This node's end of a link to a node that it does not trust (session.Host)."""

    ends = BrokerLinkEnd

    def importer(self) -> LinkImports:
        return UntrustedImports(self.scope, self.control, self.link.name)

    @property
    def trusted(self) -> bool:
        return False

    def configure(self, link: NodeLink) -> None:
        super().configure(link)
        if link.out is not None:
            here = f"{link.near}@{self.site.origin.node}"
            self.session.exporter = UntrustedExports(
                link.out, lambda: self.scope.gate, here, self.links.owners, self.control
            )

    def attach(
        self, connection: Connection, peer: Peer, greeting: Greeting | None, terms: Properties, answer: bytes = b""
    ) -> None:
        levels = self.scope.gate.rules.levels
        worth = levels.floor(peer.level, TLS) if TLS in levels.ranks else levels.lowest
        super().attach(connection, replace(peer, name="", level=worth, facts=()), greeting, terms, answer)


class UntrustedExports(LinkExports):
    """What leaves over one such link."""

    def _attested(self, message: Message) -> None:
        return None  # whose it is is not told

    def _static(self, message: Message) -> Static:
        context = self._gate().attributes.context(message)
        return self._of(context, message, message.link)

    def _of(self, context: Context, message: Message, link: str) -> Static:
        name = self.link.crossing(message.topic)
        return Static(
            origin=message.origin.node,
            publisher=NOBODY,
            topic=message.topic if name is None else name[0],
            floor=self._gate().rules.levels.lowest,
            path=(*context.path, self._here),
        )


class UntrustedImports(LinkImports):
    """What comes over one such link."""

    def _domains(self, static: Static) -> set[str]:
        return set()  # whatever it says of them

    def _known(self, static: Static, id: MessageId) -> Id:
        return "", id.origin, id.number, id.output  # ids of nobody's: they use up no others

    def _proven(self, envelope: Envelope, packet: Publish, payload: bytes) -> bool | Deny:
        return False

    def _made(self, static: Static, link: NodeLinkEnd, topic: str) -> Context:
        own = link.subject
        return Context(
            subject=replace(own, domain=""),
            surroundings=self.scope.gate.rules.surroundings(own.listener).added,
            floor=own.level,
            held=own.facts,
            path=static.path if static.path[-1:] == (link.far,) or not link.far else (*static.path, link.far),
        )
