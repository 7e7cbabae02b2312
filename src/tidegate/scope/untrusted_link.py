"""Connections to nodes that are not trusted (semantics, *Trust* and *Links between nodes*; SEC-REDS, 2.4.1: a
connection that is degraded to untrusted).

Such a node is not believed, and nobody can hold it to anything. So only the id and the way of a message travel, that it
comes once and not back; and what leaves is decided as if the node were a reader of all of it, as with a foreign broker
(`gate.stages.order.bridging`). What comes was published by the link itself (`link:far->near`), over a connection that
is worth no more than its encryption.

A connection is untrusted because its link says so (`trusted: false`), because of who is at the other end
(`Peer.degraded`: not on the trust list, or nobody known), or because the other node says that it does not trust this
one. Both ends tell that when it opens, so that neither sends what the other does not believe. On a link to a trusted
node, what may not go over such a connection waits for a better one (`DegradedLinkEnd`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.gate import Deny
from tidegate.policy.levels import TLS
from tidegate.policy.scopes import ScopeLink
from tidegate.scope.exports import LinkExports, SigningExports
from tidegate.scope.imports import LinkImports
from tidegate.scope.link_greeting import UNTRUSTED, UNTRUSTED_VERSION, Peer
from tidegate.scope.seen_ids import Id
from tidegate.session import BrokerLinkEnd, Context, DegradedLinkEnd, Message, NodeLinkEnd
from tidegate.wire import Properties, Publish
from tidegate.wire.envelope import Envelope, MessageId, Static

if TYPE_CHECKING:
    from tidegate.scope.node_links import LinkEnd

NOBODY: Final = {"kind": "client", "client": ""}
SIGNED: Final = "what crosses this link has to be signed, and the connection is not trusted"
BETTER: Final = "a trusted connection carries this link"
NOT_TRUSTED: Final = "the link says `trusted: false`"
TOLD_UNTRUSTED: Final = "the other node does not trust this one"


def why(end: LinkEnd, peer: Peer, terms: Properties | None = None) -> str:
    """Why a connection is untrusted, by who is there and what they have said; empty: it is not."""
    if end.link.broker is not None:
        return ""
    if not end.link.trusted:
        return NOT_TRUSTED
    said = terms is not None and (UNTRUSTED, UNTRUSTED_VERSION) in terms.user_properties
    return peer.degraded or (TOLD_UNTRUSTED if said else "")


def refused(end: LinkEnd, peer: Peer, terms: Properties) -> str:
    """Why a link does not take an untrusted connection; empty: it does, or the connection is trusted."""
    if not why(end, peer, terms):
        return ""
    return SIGNED if end.link.sign else BETTER if end.trusted else ""


def judge(end: LinkEnd, peer: Peer, terms: Properties) -> None:
    """A link has a connection from now on: what of it is believed, and what it is worth."""
    end.found, end.degraded = peer, why(end, peer, terms)
    if end.degraded:
        levels = end.scope.gate.rules.levels
        worth = levels.floor(peer.level, TLS) if TLS in levels.ranks else levels.lowest
        peer = replace(peer, name="", level=worth, facts=peer.facts if peer.degraded else ())
    end.peer = peer
    if end.degraded != end.told_degraded and end.links.ends.get(end.link.name) is end:
        end.told_degraded = end.degraded
        for told in end.links.on_trust:
            told(end.link.name, end.degraded)
    if end.link.broker is None and isinstance(end.plans, UntrustedImports) is not end.untrusted:
        before, end.plans = end.plans, imports(end)
        end.plans.seen_ids, end.plans.former = before.seen_ids, before.former


def imports(end: LinkEnd) -> LinkImports:
    """What takes what comes over a link."""
    return (UntrustedImports if end.untrusted else LinkImports)(end.scope, end.control, end.link.name)


def exports(end: LinkEnd, link: ScopeLink, here: str) -> LinkExports:
    """What puts what leaves into its form."""
    kind, exported = LinkExports, end.link.export
    if end.untrusted:
        kind, exported = UntrustedExports, ()
    elif end.link.sign and end.links.signatures.own is not None:
        kind = SigningExports
    return kind(link, lambda: end.scope.gate, here, end.links.owners, end.control, exported)


def ends(end: LinkEnd) -> type[NodeLinkEnd]:
    """As which links it acts."""
    if end.link.trusted:
        return DegradedLinkEnd if end.degraded else end.ends
    return BrokerLinkEnd


class UntrustedExports(LinkExports):
    """What leaves over one such connection."""

    proofs = False

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
    """What comes over one such connection."""

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
