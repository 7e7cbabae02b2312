"""Another broker's bridge as a client of a guarded scope: the link `link:A->B` between two environments.

Its credentials say which environment it comes from. What it publishes crosses `A->B`, and what it subscribes to crosses
`B->A`: steps 6 to 8 of the end that sends, then the `read` of the end that receives (semantics, *Guard*). Each side has
messages authenticated with a secret of its own; the guard has both, opens with one and seals with the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.bounded import Bounded
from tidegate.config.scopes import Unenveloped
from tidegate.gate import Deny, Known, Step
from tidegate.gate.decision import PartialDecision, evaluate
from tidegate.gate.stages.write_reserved_topics import STATES, is_own_state
from tidegate.guard import envelopes
from tidegate.guard.envelopes import ALTERED, CALLED, Unauthentic, altered
from tidegate.policy import Subject
from tidegate.policy.scopes import ScopeLink
from tidegate.session import Message, NodeLinkEnd, Session, forwarded
from tidegate.wire import NONE, Publish
from tidegate.wire.envelope import Envelope

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope
    from tidegate.guard.guarded_session import GuardedSession
    from tidegate.guard.settings import BridgeSettings

Key = tuple[bool, bool, str, bytes, str]
"""Whether at the end that sends, whether into the scope, and the topic there, context and type of the last link."""
KNOWN: Final = 10_000  # decisions and contexts of one bridge that are kept
NOT_SHARED: Final = Deny(step=Step.WRITE, rule="share")
BEEN_HERE: Final = Deny(step=Step.WRITE, rule="path")


class Bridge:
    """The link that one bridge is, in both directions."""

    def __init__(self, scope: GuardedScope, settings: BridgeSettings, subject: Subject) -> None:
        """`subject`: whoever it has authenticated as."""
        self.scope = scope
        self.settings = settings
        self.here, self.far = scope.name, settings.environment
        node = scope.site.origin.node
        self.far_path, self.here_path = f"{self.far}@{node}", f"{self.here}@{node}"
        self.level, self.facts = subject.level, subject.facts
        self._ways: dict[Key, PartialDecision | Deny] = {}
        self._epoch = -1  # of the rules that these are by
        self._imported: Bounded[tuple[bytes, bytes], bytes] = Bounded(KNOWN)  # contexts, as they are on the other side
        self._exported: Bounded[tuple[bytes, str], bytes] = Bounded(KNOWN)
        self.inward, self.sending = self._ends(self.far, self.here, settings.into, subject)
        self.receiving, self.outward = self._ends(self.here, self.far, settings.out, subject)

    def _ends(
        self, source: str, target: str, link: ScopeLink | None, subject: Subject
    ) -> tuple[NodeLinkEnd, NodeLinkEnd]:
        """Where a link enters its target, and where it leaves its source; both are here."""
        acting = Subject(
            kind="link",
            client=f"{source}->{target}",
            user=None,
            scope=self.here,
            node=subject.node,
            domain=self.scope.gate.rules.domain,
            level=subject.level,
            facts=subject.facts,
            address=subject.address,
            listener=subject.listener,
            tls=subject.tls,
        )
        far = self.far_path if target == self.far else self.here_path
        return NodeLinkEnd(acting, True, link, far), NodeLinkEnd(acting, False, link, far)

    # -- into the scope ----------------------------------------------------------------------------------------

    def opened(self, session: GuardedSession, packet: Publish, topic: str) -> Message | Deny | None:
        """What the bridge publishes, as it goes to the broker here; None: nothing that anybody is to have."""
        scope, site = self.scope, self.scope.site
        before = self.inward.before(topic)
        if before is None:
            return NOT_SHARED
        try:
            envelope, payload = scope.envelopes.opened(packet.payload, self.settings.key)
        except Unauthentic as error:
            if not packet.payload:
                return None  # what clears a retained message comes in an envelope
            if scope.settings.unenveloped is not Unenveloped.PLAIN or packet.payload.startswith(b"TG"):
                return Deny(step=Step.WRITE, rule="unenveloped", detail=str(error))
            return self._plain(packet, topic, before)
        static, id = envelope.static, envelope.id
        if static.publisher.get(CALLED, static.topic) != before:
            return Deny(step=Step.WRITE, rule="unenveloped", detail="it is under another topic")
        if any(name.partition("@")[0] == self.here for name in static.path):
            return BEEN_HERE
        if altered(packet.properties, static):
            return Deny(step=Step.WRITE, rule="unenveloped", detail=ALTERED)
        if not packet.retain and (why := session.replayed(packet, topic, envelope, scope.oldest)) is not None:
            return why
        expires = None
        properties = packet.properties
        if properties is not NONE:
            if (interval := properties.message_expiry_interval) is not None:
                expires = site.now + interval
            properties = forwarded(properties)
        message = Message(
            topic,
            payload,
            packet.qos,
            envelope.retain and (packet.retain or not payload),
            envelope.published,
            scope.envelopes.maker(id.origin),
            id.number,
            self._context(envelope, topic, packet.qos),
            static.link,
            properties,
            expires,
            id.output,
        )
        verdict = self._crosses(message, before, self.sending, self.inward)
        if isinstance(verdict, Message):
            verdict.link = self.inward.type
        return verdict

    def tell_state(self, session: Session, topic: str, payload: bytes, retain: bool) -> None:
        """Whether the bridge is connected, which it says under its own name, or has said with its will. It belongs to
        neither environment, and lies in the broker as it is."""
        if is_own_state(session.subject, topic) and payload in STATES:
            site = self.scope.site
            site.number += 1
            state = Message(topic, payload, 1, retain, site.wall, site.origin, site.number, session.context, "in")
            self.scope.service.session.publish(state)

    def _plain(self, packet: Publish, topic: str, before: str) -> Message | Deny:
        """A message of nobody in particular."""
        site = self.scope.site
        site.number += 1
        context = envelopes.nobody(self.scope)
        message = Message(
            topic, packet.payload, packet.qos, packet.retain, site.wall, site.origin, site.number, context, "in"
        )
        return self._crosses(message, before, self.sending, self.inward)

    def _context(self, envelope: Envelope, topic: str, qos: int) -> bytes:
        made = self.scope.envelopes.context(envelope.static, topic, envelope.qos if envelope.qos != qos else None)
        key = (made, envelope.static.data)
        known = self._imported.get(key)
        if known is None:
            context = self.scope.gate.attributes.decoded(made)
            levels = self.scope.gate.rules.levels
            known = self._imported[key] = replace(
                context,
                floor=levels.floor(envelope.static.floor, self.level),
                held=levels.floor_facts(envelope.static.facts, self.facts),
                path=(*context.path, self.far_path),
            ).encode()
        return known

    # -- out of the scope --------------------------------------------------------------------------------------

    def leaving(self, message: Message) -> Message | Deny:
        """What the broker here delivers to the bridge, as it is in the other environment."""
        crossed = None if self.outward.link is None else self.outward.link.crossing(message.topic)
        if crossed is None:
            return NOT_SHARED
        context = self.scope.gate.attributes.context(message)
        if any(name.partition("@")[0] == self.far for name in context.path):
            return BEEN_HERE
        shown = self._crosses(message, message.topic, self.outward, self.receiving)
        if isinstance(shown, Deny):
            return shown
        data = self._exported.get((message.context, message.topic))
        if data is None:
            there = replace(context.called(message.topic), path=(*context.path, self.here_path))
            data = self._exported[message.context, message.topic] = there.encode()
        sealed = shown.across(crossed[0], shown.qos, data, self.outward.type, shown.properties)
        payload = self.scope.envelopes.sealed(sealed, self.scope.site.now, self.settings.key)
        made = message.across(message.topic, message.qos, message.context, message.link, shown.properties)
        made.payload = payload
        return made

    def _crosses(self, message: Message, before: str, outward: NodeLinkEnd, inward: NodeLinkEnd) -> Message | Deny:
        """What both ends let pass. Policies know a message as it is called where it comes from."""
        gate, shown = self.scope.gate, message
        if self._epoch != gate.stored.epoch:  # there are other rules
            self._epoch = gate.stored.epoch
            self._ways.clear()
        for stages, target in ((gate.stages.exporting, outward), (gate.stages.importing, inward)):
            key = (
                target is outward,
                target is self.inward or target is self.sending,
                before,
                message.context,
                message.link,
            )
            way = self._ways.get(key)
            if way is None:
                known = Known(
                    topic=before,
                    context=gate.attributes.context(message),
                    link=message.link,
                    now=self.scope.site.wall,
                    target=target,
                )
                way = evaluate(stages, known)
                if not known.clocked:
                    if len(self._ways) >= KNOWN:
                        self._ways.clear()
                    self._ways[key] = way
            verdict = way.show(shown) if isinstance(way, PartialDecision) else way
            if isinstance(verdict, Deny):
                return verdict
            shown = verdict
        return shown
