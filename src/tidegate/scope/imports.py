"""Messages that come from another node: the envelope is opened, and what it says is believed as far as it may be.

The floor never rises: it is the lower of what is claimed and of the level of the connection that it came over. A
publisher of another domain is nobody of this one, whatever its name. A message does not come back to where it has been.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidegate.bounded import Bounded, Weighed
from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.gate import Deny, Plan, Step
from tidegate.policy import Demand, Subject
from tidegate.policy.domains import spoken_for
from tidegate.policy.preference_sets import UNNUMBERED
from tidegate.policy.scopes import ScopeLink
from tidegate.scope.link_control import PREFIX, LinkControl
from tidegate.scope.link_signatures import CHANGED, Attested, renamed
from tidegate.scope.seen_ids import Id
from tidegate.session import Connection, Context, LinkSession, Message, NodeLinkEnd, Origin, SourceContext
from tidegate.session.carried_proof import with_proof, with_signature, without_hidden
from tidegate.session.link_publishing import Imported
from tidegate.session.publishing import forwarded, with_floor_properties
from tidegate.wire import NONE, Properties, Publish, Reason
from tidegate.wire.envelope import STATIC_BYTES, Envelope, MessageId, Static, open, static_cache

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

STATICS: Final = 10_000  # of one link that are kept

AHEAD: Final = (("clock_skew", "it was published later than it came: the clock of its node or of this one is wrong"),)
NOT_SHARED: Final = Deny(step=Step.WRITE, rule="share")
BEEN_HERE: Final = Deny(step=Step.WRITE, rule="path")
UNKNOWN_ORIGIN: Final = Deny(step=Step.WRITE, rule="envelope", error="it comes from nobody whom this link speaks for")


class LinkImports:
    """What comes over one link (session.Plans)."""

    def __init__(self, scope: Scope, control: LinkControl, name: str) -> None:
        self.scope = scope
        self.control = control
        self.here: Collection[str] = frozenset()
        """The scopes that a message must not have been in, as paths name them."""
        self.domains: frozenset[str] = frozenset()  # of whose people the other node may speak
        self.former: ScopeLink | None = None  # what has crossed, and how it was called, before the rules changed
        self._statics = static_cache(STATICS)
        self._contexts: Weighed[tuple[bytes, str, str], bytes] = Weighed(STATICS, STATIC_BYTES, _weight)
        self._origins: Bounded[bytes, Origin] = Bounded(STATICS)
        self.ringed = False
        """Whether what comes over this link may come over another one too."""
        self._renewed = 0  # so often
        self._last: tuple[Message | None, Id] = None, ("", b"", 0, 0)
        """The message that was found to be like another one last, and its id."""
        self.seen_ids = scope.seen_ids.share(name, scope.site.store)

    def opened(self, connection: Connection, packet: Publish) -> Imported | Deny | None:
        """A message and its plan; why it is refused; or None if it has been here before."""
        session = connection.session
        link = session.inward
        assert isinstance(session, LinkSession)
        assert isinstance(link, NodeLinkEnd)
        envelope, payload, domains = self._envelope(packet)
        static = envelope.static
        if any(name in self.here for name in static.path):
            return None
        before = link.before(packet.topic)
        if before is None:
            self._report(link, packet.topic, NOT_SHARED, envelope.id)
            return NOT_SHARED
        id = envelope.id
        why, attested = self._believed(domains, envelope, packet, payload)
        if why:
            said = f"{UNKNOWN_ORIGIN.error}: {why}"
            self._report(link, packet.topic, replace(UNKNOWN_ORIGIN, detail=why, error=said), id)
            return UNKNOWN_ORIGIN
        once = packet.qos > 0 or attested is not None
        ringed = self.ringed and not packet.retain and not once
        if packet.retain:  # also one that has been here: it is not gone at the other end
            self.control.came_retained(packet.topic)
        known = self._known(static, id)
        kept = self.scope.retained.get(packet.topic) if packet.retain else None
        same = kept is not None and self._id(kept) == known
        again = self.ringed and same is packet.retain and self.control.links.copies.another(known, link.subject.client)
        if same and not again:
            return None
        seen = known in self.scope.seen_ids or (ringed and known in self.scope.seen_ids.unkept)
        if not again and self.ringed and (self._elsewhere(known) or (ringed and seen)):
            return None
        if once and not again and known in self.scope.seen_ids and not (packet.retain and self._renamed(before, known)):
            if packet.retain:
                self.control.passed_over(known)
            return None
        if envelope.published > self.scope.site.wall + self.scope.site.limits.clock_skew:
            self.scope.audit.failed(link, packet.topic, AHEAD)
        proven = False
        if static.capability is not None:
            answer = self._proven(envelope, packet, payload)
            if isinstance(answer, Deny):
                self._report(link, packet.topic, answer, id)
                return answer
            proven = answer
        context = self._context(static, link, packet, envelope, proven, attested is not None)
        lane = self.scope.gate.imported_lane(context, self.scope.gate.attributes.decoded(context), link)
        name = packet.topic.encode()
        plan = lane.plans.get(name) or self.scope.gate.plan(lane, name)
        if again and seen and (plan.monitored or plan.ingested):
            return None
        message = self._message(packet, link, before, envelope, payload, context, plan.floor_properties, attested)
        each = ringed or static.capability is not None or attested is not None  # looked at more closely
        return Imported(plan, message, lane if plan is lane.plans.get(name) and not each else None, once, ringed)

    def supposed(self, packet: Publish) -> Message | Deny:
        """What a message would be here that the other node could send; why it would be refused. Nothing is kept of it,
        and nothing audited.
        """
        link = self.control.end.session.inward
        assert isinstance(link, NodeLinkEnd)
        envelope, payload, domains = self._envelope(packet)
        if any(name in self.here for name in envelope.static.path):
            return BEEN_HERE
        before = link.before(packet.topic)
        if before is None:
            return NOT_SHARED
        why = self._not_made_by(envelope.static, envelope.id.node) or _strangers(domains - self.domains)
        if why:
            return replace(UNKNOWN_ORIGIN, detail=why)
        context = self._context(envelope.static, link, packet, envelope)
        return self._message(packet, link, before, envelope, payload, context)

    def _envelope(self, packet: Publish) -> tuple[Envelope, bytes, set[str]]:
        """The envelope of a message, its content, and the domains of all that it comes from. ProtocolError without."""
        try:
            envelope, payload = open(packet.payload, None, statics=self._statics)
            return envelope, payload, self._domains(envelope.static)
        except MalformedPacket as error:
            raise ProtocolError(f"a message without a valid envelope: {error}", Reason.PROTOCOL_ERROR) from error

    def _message(
        self,
        packet: Publish,
        link: NodeLinkEnd,
        before: str,
        envelope: Envelope,
        payload: bytes,
        context: bytes,
        floor_properties: Properties = NONE,
        attested: Attested | None = None,
    ) -> Message:
        """A message as it is here."""
        id = envelope.id
        origin = self._origins.get(id.origin)
        if origin is None:
            origin = self._origins[id.origin] = Origin(id.node, id.boot)
        site = self.scope.site
        ahead = envelope.published > site.wall + site.limits.clock_skew
        published = site.wall if ahead else envelope.published
        properties = packet.properties
        expires = None
        if properties is not NONE:
            if (interval := properties.message_expiry_interval) is not None:
                expires = site.now + interval
            properties = without_hidden(forwarded(properties))
        if attested is not None:
            properties = with_signature(properties, attested.encode())
        if envelope.proof is not None and envelope.static.capability is not None:
            properties = with_proof(properties, envelope.proof.decode())
        if floor_properties is not NONE:
            properties = with_floor_properties(properties, floor_properties)
        return Message(
            packet.topic,
            payload,
            min(packet.qos, link.qos(before)),
            packet.retain,
            published,
            origin,
            id.number,
            context,
            link.type,
            properties,
            expires,
            id.output,
        )

    def alike(
        self, other: Message, origin: bytes, number: int, output: int, published: float, payload: bytes
    ) -> Message | None:
        """A QoS 1 message that differs from another one in nothing but these; None: to be looked at more closely."""
        # hot: two look-ups
        known, wall = self._origins.get(origin), self.scope.site.wall
        if known is None or known.node != other.origin.node or published > wall + self.scope.site.limits.clock_skew:
            return None
        message = Message(
            other.topic,
            payload,
            1,
            False,
            published,
            known,
            number,
            other.context,
            other.link,
            other.properties,
            None,
            output,
        )
        id = self._id(message)
        self._last = message, id
        return None if id in self.scope.seen_ids.ids else message

    def _renamed(self, before: str, id: Id) -> bool:
        """Whether a retained message is here under another name, which the link gave it before the rules changed; it
        goes from there, and is taken as if it had not been here."""
        crossed = None if self.former is None else self.former.crossing(before)
        kept = None if crossed is None else self.scope.retained.get(crossed[0])
        if crossed is None or kept is None or self._id(kept) != id:
            return False
        self.scope.retained.drop(crossed[0])
        self._forget(id)
        return True

    @property
    def epoch(self) -> tuple[int, int]:
        return self.scope.gate.cache.epoch, self._renewed

    def told(self, packet: Publish) -> bool:
        """Whether it is for this node itself, which has taken note of it."""
        if not packet.topic.startswith(PREFIX) or packet.qos:
            return False
        self.control.take(packet.topic, packet.payload)
        return True

    def seen(self, message: Message) -> None:
        """A QoS 1 or 2 message has been taken: it is not taken again, whichever way it comes."""
        last, id = self._last
        self.seen_ids.add(id if last is message else self._id(message))

    def note(self, message: Message) -> None:
        """A QoS 0 message has been taken, and may come another way too."""
        self.seen_ids.note(self._id(message))

    def same(self, packet: Publish, messages: tuple[Message, ...]) -> bool:
        """Whether a PUBLISH is the one that these messages came from."""
        try:
            id = open(packet.payload, None, statics=self._statics)[0].id
        except MalformedPacket:
            return False  # which is said when it is opened
        return any(self._id(each)[1:] == (id.origin, id.number, id.output) for each in messages)

    def gone(self, message: Message) -> None:
        """A retained message is not there any more. If it comes again, as under another name when both ends have
        changed their shares, one after the other, it is taken."""
        id = self._id(message)
        self._forget(id)
        self.control.gone(id)

    def _forget(self, id: Id) -> None:
        self.scope.seen_ids.forget(id)
        self.control.links.copies.forget(id)

    def settled(self, message: Message, published: bool) -> None:
        """A QoS 2 message that was released has been published, or refused."""
        id = self._id(message)
        if self.scope.seen_ids.let_go(id, message) and published:
            self.seen_ids.add(id)

    def released(self, connection: Connection, message: Message) -> Plan | None:
        """The plan of a QoS 2 message that is released, and keeps its context; None: it has come another way, or is
        not shared any more."""
        link = connection.session.inward
        assert isinstance(link, NodeLinkEnd)
        if link.before(message.topic) is None:
            self.scope.report("read", link, message.topic, NOT_SHARED, None, message)
            return None
        id = self._id(message)
        again = self.ringed and not message.retain and id in self.scope.seen_ids
        again = again and self.control.links.copies.another(id, link.subject.client)
        if not again and not self.scope.seen_ids.release(id, message):
            return None
        message.link = link.type
        message.facts = None
        plan = self.scope.plans.again(link, message)
        return None if again and (plan.monitored or plan.ingested) else plan

    def _report(self, link: NodeLinkEnd, topic: str, why: Deny, id: MessageId) -> None:
        origin = Origin(id.node, id.boot)
        message = Message(topic, b"", 0, False, 0.0, origin, id.number, b"", link.type, output=id.output)
        self.scope.report("read", link, topic, why, None, message)

    def _elsewhere(self, id: Id) -> bool:
        """Whether it has come into another scope that this one is linked with."""
        links, scope = self.control.links, self.scope
        others = (scope.neighbours[name] for name in links.joined(scope.name) if name != scope.name)
        return any(id in other.seen_ids for other in others)

    def _known(self, static: Static, id: MessageId) -> Id:
        """The id of a message among those of the domain of its publisher."""
        return static.publisher["domain"], id.origin, id.number, id.output

    def _proven(self, envelope: Envelope, packet: Publish, payload: bytes) -> bool | Deny:
        """Whether the publisher has proven a message that brings a capability; why it is refused."""
        return self.control.links.capabilities.proven(self.scope, envelope, packet, payload)

    def _domains(self, static: Static) -> set[str]:
        """Of all people that a message comes from."""
        statics = [static, *(open(each, None, statics=self._statics)[0].static for each in static.others)]
        return {_text(each.publisher, "domain") for each in statics}

    def is_ringed(self, ringed: bool) -> None:
        """More is known of the ways between nodes."""
        if ringed != self.ringed:
            self.ringed = ringed
            self.renew()
            end = self.control.end
            end.session.ringed = ringed
            self.scope.subscribing.retouch(end.session)
            if end.session.connection is not None:
                end.session.connection.publishing.path = end.path

    def renew(self) -> None:
        """There is another connection, or there are other rules: what was believed over the last one is asked again."""
        self._contexts.clear()
        self._renewed += 1

    def _believed(
        self, domains: set[str], envelope: Envelope, packet: Publish, payload: bytes
    ) -> tuple[str, Attested | None]:
        """Why the other node may not say this, of its publisher and of those of all that it was made from; empty: it
        may. And what the node has signed that made it."""
        if why := self._not_made_by(envelope.static, envelope.id.node):
            return why, None
        strange, signs = domains - self.domains, self.control.end.link.sign
        if envelope.signature is None:
            return (_strangers(strange) or ("it is not signed" if signs else "")), None
        name, unproven = self.control.links.signatures.signed_by(envelope, payload, packet.properties)
        if unproven is CHANGED:
            return unproven, None
        if name:
            rules = self.scope.gate.rules
            alien = domains - spoken_for(name, rules.domains) | domains & rules.formerly
            if not alien:
                return (_redirected(envelope, packet) if strange else ""), Attested.of(envelope, payload)
            unproven = f"signed by {name[:100]}, who does not speak for it"
        if strange or signs:
            return f"{_strangers(strange or domains)}, {unproven}", None
        return "", None

    def _not_made_by(self, static: Static, node: str) -> str:
        """Why a node cannot have made this; empty: it can."""
        if self.scope.site.origin.node in (node, static.origin):
            return "with an id of this node"  # what is made here does not come from elsewhere
        if static.origin != node:
            return f"made by {static.origin}, and numbered by {node}"
        return ""

    def _id(self, message: Message) -> Id:
        domain = self.scope.gate.attributes.context(message).subject.domain
        return domain, message.origin.key, message.number, message.output

    def _context(
        self,
        static: Static,
        link: NodeLinkEnd,
        packet: Publish,
        envelope: Envelope,
        proven: bool = False,
        attested: bool = False,
    ) -> bytes:
        before = link.before(packet.topic)
        taken = packet.qos if before is None else min(packet.qos, link.qos(before))
        lowered = envelope.qos if envelope.qos != taken else None
        how = f"{lowered}{' proven' if proven else ''}{' attested' if attested else ''}"
        key = (static.data, packet.topic, how)
        data = self._contexts.get(key)
        if data is None:
            others: list[SourceContext] = []
            for each in static.others:
                other, _ = open(each, None, statics=self._statics)
                source = self._made(other.static, link, other.static.topic)
                others.append(SourceContext(source.encode(), link.type, other.published or None))
            made = self._made(static, link, packet.topic)
            signed = static.data if attested else b""
            context = replace(made, qos=lowered, others=tuple(others), signed=proven, attested=signed)
            data = self._contexts[key] = context.encode()
        return data

    def _made(self, static: Static, link: NodeLinkEnd, topic: str) -> Context:
        """The context that a static part says, as far as it is believed."""
        levels, own, own_far = self.scope.gate.rules.levels, link.subject, link.far
        said = static.publisher
        subject = Subject(
            kind=_text(said, "kind") or "client",
            client=_text(said, "client"),
            user=_text(said, "user") or None,
            scope=_text(said, "scope"),
            node=_text(said, "node"),
            domain=_text(said, "domain"),
            level=_text(said, "level") or static.floor,
            roles=_texts(said, "roles"),
            groups=_texts(said, "groups"),
            attributes=_attributes(said),
            identity=static.owner,
        )
        return Context(
            subject=subject,
            demand=None if static.demand is None else Demand.of(static.demand),
            view=static.view,
            surroundings=static.surroundings,
            topic=static.topic if static.topic != topic else None,
            sealed=static.sealed,
            under=static.under,
            scored=static.scored,
            floor=levels.floor(static.floor, own.level),
            held=levels.floor_facts(static.facts, own.facts),
            path=static.path if static.path[-1:] == (own_far,) or not own_far else (*static.path, own_far),
            foreign=_owner(static),
            token="" if static.capability is None else static.capability.decode(errors="replace"),
        )


def _owner(static: Static) -> tuple[str, int] | None:
    """The owner at home, and the number of the preferences that count; with none that counts nobody receives it."""
    if static.preferences is not None:
        return static.preferences[1], static.preferences[2]
    return None if _text(static.publisher, "user") == "" else ("", UNNUMBERED)


def _strangers(domains: Collection[str]) -> str:
    """Why what comes from people of these domains is not believed; empty: there are none."""
    return f"of the domain {', '.join(f'{domain[:100]!r}' for domain in sorted(domains))}" if domains else ""


def _redirected(envelope: Envelope, packet: Publish) -> str:
    """Why a message that only its signature speaks for cannot have come so; empty: it can."""
    if packet.retain and not envelope.retain:
        return "it was not published as retained"
    if renamed(envelope.static.topic, packet.topic):
        return f"it was signed for the topic {envelope.static.topic[:100]!r}"
    return ""


def _text(said: Any, name: str) -> str:
    value = said.get(name, "")
    return value if isinstance(value, str) else ""


def _weight(key: tuple[bytes, str, str]) -> int:
    return len(key[0]) + len(key[1])


def _texts(said: Any, name: str) -> tuple[str, ...]:
    values = said.get(name, ())
    return tuple(value for value in values if isinstance(value, str)) if isinstance(values, list | tuple) else ()


def _attributes(said: Any) -> dict[str, Any]:
    """What is said of the publisher beside its names; `trust.domains` says which of it counts here."""
    found = said.get("attributes")
    return {name: value for name, value in found.items() if isinstance(name, str)} if isinstance(found, dict) else {}
