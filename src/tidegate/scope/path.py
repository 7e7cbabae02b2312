"""The path of a message through a scope: five steps in, six steps out (semantics, *The path*).

In, once for each message that comes over a link x->y:

 1. write      `write`: may the subject write this topic
 2. monitor    `enter`: the monitors of x->y turn the message into a sequence of messages
 3. context    is part of the message since it was made; what monitors make has that of what caused it
 4. protect    `enter`: the payload is encrypted where the topic is protected
 5. journal    `enter`: written down where it has to be, once, where the message enters the node

Out, for each target link y->z, at the moment of sending:

 6. to 10.     brokering, levels, read, view, where: in the plan of a live message (`deliver`), by `Gate.decide` for one
               that was queued or retained (`permits`); their order is in `gate.stages`
11. monitor    `leave`: the monitors of y->z turn the delivery into a sequence of deliveries

Every message takes this path, wherever it comes from. The fast lanes of a connection follow a plan in which all steps
have been decided. Nothing else seals, writes to the journal, or runs a monitor.

A QoS 2 message is published when it is released: `accept` decides step 1 at PUBLISH, so that PUBREC can say no;
`release` takes steps 1 to 5 at PUBREL, and `deliver_released` the others, when the journal is safe. Until then the
store keeps it sealed, if its topic is protected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tidegate.gate import Deny, Lane, Plan, ScopeExit, Step, action_over, combine, passed
from tidegate.monitor import Instance
from tidegate.policy.brokering import PLAIN
from tidegate.policy.capability import BEFORE, NOTHING
from tidegate.policy.control_topics import KEYS
from tidegate.scope.asked_lane import AskedLane
from tidegate.scope.delivered_once import Seen, first
from tidegate.scope.large_fanout import PIECE, LargeFanout
from tidegate.scope.monitors import Emission, Made, Monitoring
from tidegate.scope.priced_conditions import asked
from tidegate.scope.protection import Keyring, Protector
from tidegate.scope.subscribing import matching
from tidegate.scope.traversal import Traversal, crossed
from tidegate.scope.waiting_for_level import WaitingForLevel
from tidegate.session import Connection, Delivery, Grant, Journal, Later, Link, Message, Refusal, Session
from tidegate.wire import NONE, Properties, Reason

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

Events = tuple[tuple[Plan, Message], ...]  # messages on their way, each with the plan it follows
NO_ROOM: Final = Deny(step=Step.JOURNAL, rule="storage", reason=Reason.QUOTA_EXCEEDED)
"""Nothing can be made safe at the moment: the publisher sends it again later."""


class Path:
    """The eleven steps of one scope."""

    def __init__(self, scope: Scope, keyring: Keyring | None, stopwatch: Callable[[], float]) -> None:
        self.scope, self.site, self._stopwatch = scope, scope.site, stopwatch
        self.protector = Protector(scope, keyring)
        self.monitoring = Monitoring(scope, stopwatch, self.tick)
        self.egress = self._egress(stopwatch)
        self.asked = AskedLane(scope, self.monitoring, self.egress.large_fanout, stopwatch)

    def _egress(self, stopwatch: Callable[[], float]) -> Egress:
        return Egress(self.scope, self.monitoring, stopwatch)

    def change(self) -> None:
        """Other rules are in force."""
        self.monitoring.change()
        self.protector.changed()

    # -- in ------------------------------------------------------------------------------------------------------

    def publish(self, plan: Plan, message: Message, source: Session) -> int | Refusal:
        """A PUBLISH of QoS 0 or 1: how many it reached, or why it did not go on."""
        # hot: nothing but what the plan asks for
        if plan.immediate and not message.retain:
            if message.qos and plan.durable and self._no_room(plan, message):
                return NO_ROOM
            return self.deliver(plan, message, source)
        link = source.inward
        if plan.refusal is not None or plan.admission or plan.control or message.retain:
            why = self.write(plan, message, link)
            if why is not None:
                return why
        if message.qos and self._no_room(plan, message):
            return NO_ROOM
        if plan.monitored or plan.sealing is not None or plan.ingested or plan.control:
            return self._publish(plan, message, link, source)
        return self.deliver(plan, message, source)

    def accept(self, plan: Plan, message: Message, source: Session) -> Message | Refusal:
        """A PUBLISH of QoS 2: what the store keeps until it is released, or why it is refused."""
        if plan.immediate and not (message.retain or plan.durable or source.row):
            return message  # hot: nothing but what the plan asks for
        if plan.refusal is not None or plan.admission or plan.control or message.retain:
            why = self.write(plan, message, source.inward)
            if why is not None:
                return why
        if message.retain:
            self.scope.keepable(message)  # so that PUBREC can tell
        if self._no_room(plan, message) or (source.row and self.site.store.refusing):
            return NO_ROOM
        if plan.sealing is None:
            return message
        kept = message.copied()
        why = self._seal(plan, kept, source.inward)
        return kept if why is None else why

    def release(self, connection: Connection, message: Message) -> Events | Refusal:
        """A PUBREL: steps 1 to 5 for a QoS 2 message, by the rules, the clock and the connection of now.

        What goes on is handed to `deliver_released`: at once, or when the journal is safe if it is there.
        """
        source = connection.session
        if (plan := connection.host.plans.released(connection, message)) is None:
            return ()  # it has come another way meanwhile
        if plan.control:
            self._control(message, source)  # rules of publishers were taken with PUBLISH, so that PUBREC could say no
            return ()
        if (plan.ingested or plan.monitored) and self.site.journal.full:
            return NO_ROOM  # before monitors see it: they see it once
        capability = source.subject.capability
        if plan.immediate and capability is None and not message.retain:
            return ((plan, message),)  # hot: steps 1 to 5 are empty
        why: Deny | None = None
        if capability is None:
            if plan.refusal is not None or plan.admission or plan.control or message.retain:
                why = self.write(plan, message, source.inward)
        else:
            signed = self.scope.gate.attributes.decoded(message.context).signed
            capability.ledger.shown = BEFORE if signed else NOTHING  # verified with PUBLISH, or never
            try:
                why = self.write(plan, message, source.inward)
            finally:
                capability.ledger.shown = NOTHING
        if why is not None:
            return why
        if not (plan.monitored or plan.sealing is not None or plan.ingested):
            return ((plan, message),)
        events, why = self.enter(plan, message, source.inward, source, self.site.journal)
        if why is NO_ROOM:
            message.journaled = False  # it is released again
        return events if why is None else why

    def deliver_released(self, events: Events, message: Message, source: Session) -> int:
        """Steps 6 to 11 for what goes on of a QoS 2 message."""
        reached = 0
        for plan, event in events:
            if message.journaled:  # time has passed
                reached += self.deliver_later(event, source.inward, source, message)
            else:
                reached += self.deliver(plan, event, source, message)
        return reached

    def send(
        self,
        link: Link,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
        expiry: int | None = None,
        source: Session | None = None,
    ) -> Deny | int:
        """What does not come as a PUBLISH packet: wills and services. How many it reached, or why not."""
        plan, message = self.scope.plans.message(
            link, topic, payload, qos=qos, retain=retain, properties=properties, expiry=expiry
        )
        why = self.write(plan, message, link)
        return why if why is not None else self._publish(plan, message, link, source)

    def _publish(self, plan: Plan, message: Message, link: Link, source: Session | None) -> int | Deny:
        """Steps 2 to 11, after the write was allowed."""
        if plan.control:
            return self._control(message, source)
        events, why = self.enter(plan, message, link, source, self.site.journal)
        if why is not None:
            return why
        reached = 0
        for way, event in events:
            reached += self.deliver(way, event, source, message)
        return reached

    def write(self, plan: Plan, message: Message, link: Link) -> Deny | None:
        """Step 1: why it must not be written, which is audited."""
        why = plan.refusal
        if why is None and plan.admission:
            # semantics, *Time*: a denied retained publish neither sets nor clears
            why = asked(plan.admission, message, self.site, self._stopwatch)
        if why is None and plan.control and message.topic not in KEYS:
            why = self.scope.publishers.take(message)
        if why is not None:
            self.scope.report("write", link, message.topic, why, message.context, message)
        return why

    def tried(self, plan: Plan, message: Message, link: Link) -> Deny | None:
        """Whether a message could be written, before anything happens to it: step 1, and that it comes sealed."""
        why = self.write(plan, message, link)
        if why is None and plan.sealing is not None and plan.sealing.end_to_end and not plan.monitored:
            why = self._seal(plan, message.copied(), link)
        return why

    def enter(
        self, plan: Plan, message: Message, link: Link, source: Session | None, journal: Journal | None
    ) -> tuple[Events, Deny | None]:
        """Steps 2 to 5: what goes on of a message that may be written; or why nothing does."""
        refusal: Deny | None = None
        outputs: Iterable[Made] = ((message, plan),)
        if plan.monitored:
            outputs, refusal = self.monitoring.enter(link, message, plan, source)
        events, denied = self._protected(outputs, link)
        if not events:
            return (), denied or refusal
        for way, event in events:
            if journal is not None and (way.ingested or journal.takes_all):
                message.journaled = True
                if not journal.write(event) and message.qos:
                    return (), NO_ROOM
        return events, None

    def _protected(self, outputs: Iterable[Made], link: Link) -> tuple[Events, Deny | None]:
        """Step 4: the same messages, sealed where the plan says so; without those that cannot be."""
        sealed: list[tuple[Plan, Message]] = []
        why: Deny | None = None
        for event, plan in outputs:
            assert plan is not None  # they are on the way in
            if plan.sealing is None or (denied := self._seal(plan, event, link)) is None:
                sealed.append((plan, event))
            else:
                why = denied
        return tuple(sealed), why

    def _seal(self, plan: Plan, message: Message, link: Link) -> Deny | None:
        why = None if plan.sealing is None else self.protector.protect(plan, message)
        if why is not None:
            self.scope.report(action_over(link, "write"), link, message.topic, why, message.context)
        return why

    def tick(self, instance: Instance) -> None:
        """A monitor's timer is due: what it emits takes the path from behind its monitor on."""
        emission = self.monitoring.tick(instance)
        if emission is None:
            return
        if emission.exit is not None:
            self._tick_between(emission, emission.exit)
        elif emission.inward:
            events, _ = self._protected(emission.emitted, emission.link)
            for plan, event in events:
                if plan.ingested:
                    self.site.journal.write(event)
                self.deliver(plan, event, None)
        elif emission.session is not None:
            for delivery, shown in self.egress.addressed(emission.session, emission.messages):
                emission.session.add(delivery, shown)

    def _tick_between(self, emission: Emission, exit: ScopeExit) -> None:
        """The same on a link between scopes."""
        traversal = Traversal(emission.cause, None)
        path = (exit.link.source,)
        if not emission.inward:
            traversal.resume(exit, emission.messages, path)
            return
        events, _ = self._protected(emission.emitted, emission.link)
        for plan, event in events:
            traversal.begin(self.scope, plan, event, path)

    # -- over links between scopes of the node -------------------------------------------------------------------

    def export(self, exit: ScopeExit, message: Message, root: Message) -> list[Message]:
        """Step 11 where a message leaves this scope for another one. `root`: what outputs are numbered after."""
        return self.monitoring.export(exit, message, root)

    def arrive(
        self, exit: ScopeExit, message: Message, root: Message, lane: Lane, name: bytes, watched: bool
    ) -> list[tuple[Plan, Message]]:
        """Steps 2 to 4 where a message enters this scope from another one; it was journaled where it entered the node.

        `lane`, `name`: where its own plan is found. `watched`: monitors of the link have to see it.
        """
        outputs: list[Made] = [(message, None)]
        if watched:
            outputs = self.monitoring.arrive(exit, message, root)
            if message.noted:
                root.noted = True  # a monitor has changed its state, and may have suppressed it
        events: list[tuple[Plan, Message]] = []
        for event, plan in outputs:
            if plan is None:
                event, plan = crossed(event, exit), self.scope.plans.of(lane, name)  # noqa: PLW2901
            if plan.sealing is None or self._seal(plan, event, exit.inward) is None:
                events.append((plan, event))
        return events

    # -- out -----------------------------------------------------------------------------------------------------

    def deliver(self, plan: Plan, message: Message, source: Session | None, root: Message | None = None) -> int:
        """Delivers to everybody the plan names, in all scopes that it leads to; to how many.

        `root`: the message whose publisher waits for it to be safe, if this is what a monitor made of that one.
        """
        scope = self.scope
        if scope.gate.watched:
            self.scope.audit.published(message, scope.gate.attributes.context(message).subject)
        if not plan.branches:
            if plan.flat or message.retain:
                reached = self.arrived(plan, message, source)
            else:  # hot: the same without a call
                plan.passed += 1
                reached = self.egress.hand_out(plan, message, source)
        elif not plan.plain or message.retain or message.properties.response_topic is not None:
            reached = Traversal(message, source).begin(scope, plan, message)
        else:
            reached = self._deliver_flat(plan, message, source)
        if root is not None and root is not message:
            root.noted |= message.rows > 0 or message.noted or (message.retain and self.site.store.noted)
        return reached

    def deliver_later(
        self, message: Message, link: Link, source: Session | None = None, root: Message | None = None
    ) -> int:
        """Delivers what was written to the journal before, by the plans of now."""
        scope, gate, name = self.scope, self.scope.gate, message.topic.encode()
        if not message.output and (why := scope.plans.again(link, message).refusal) is not None:
            self.scope.report("write", link, message.topic, why, message.context, message)
            return 0
        lane = gate.derived_lane(message.context, gate.attributes.context(message), message.link, None)
        events, _ = self._protected(((message, scope.plans.of(lane, name)),), link)
        return sum(self.deliver(way, event, source, root) for way, event in events)

    def _deliver_flat(self, plan: Plan, message: Message, source: Session | None) -> int:
        """The same over links that every message crosses as it is."""
        plan.passed += 1
        if len(busy := plan.busy) == 1 and plan.idle:
            exit, other = busy[0]
            message.link = exit.link.type  # nobody sees it who would have to know another
            return exit.scope.path.egress.hand_out(other, message, source)  # type: ignore[no-any-return]
        seen: Seen | None = set() if plan.twice else None
        reached = self.egress.hand_out(plan, message, source, seen)
        for exit, other in busy:
            copy = crossed(message, exit)
            reached += exit.scope.path.egress.hand_out(other, copy, source, seen)
            if copy.rows or copy.noted:
                message.noted = True
        return reached

    def arrived(self, plan: Plan, message: Message, source: Session | None, seen: Seen | None = None) -> int:
        """A message is here: kept if it is retained, and delivered to everybody the plan names here."""
        if plan.flat:
            plan.apart += 1
        else:
            plan.passed += 1
        if message.retain:
            retained = self.scope.retained
            if seen is not None and not first(seen, (retained, message.topic), message):
                retained.came_over(message)
            elif self.scope.keepable(message):
                retained.keep(message)
        return self.egress.hand_out(plan, message, source, seen)

    # -- what several steps need ---------------------------------------------------------------------------------

    def _no_room(self, plan: Plan, message: Message) -> bool:
        """Whether a QoS 1 or 2 message would have to be made safe, and cannot be at the moment."""
        site = self.site
        stored = plan.durable or message.retain or plan.monitored
        if (stored and site.store.refusing) or (plan.ingested and site.journal.refusing):
            return True
        return bool(plan.refusing) and any(link.refuses(message) for link in plan.refusing)

    def _control(self, message: Message, source: Session | None) -> int:
        """A message for the node itself: publisher rules have been taken, a request for a key is answered."""
        keyring = self.protector.keyring
        if message.topic not in KEYS:
            return 1
        return 0 if keyring is None or source is None else keyring.ask(self.scope, source, message)


class Egress:
    """Steps 6 to 11: what leaves a scope for its sessions (session.Decider)."""

    def __init__(self, scope: Scope, monitoring: Monitoring, stopwatch: Callable[[], float]) -> None:
        self.scope, self.site = scope, scope.site
        self.monitoring, self._stopwatch = monitoring, stopwatch
        self.fresh = scope.subjects.fresh
        self.waiting = WaitingForLevel(scope)
        self.large_fanout = LargeFanout(scope, stopwatch)
        self.stream, self.too_weak = self.waiting.stream, self.waiting.too_weak
        self.listened, self.caught_up = monitoring.listened, monitoring.states.caught_up

    def hand_out(self, plan: Plan, message: Message, source: Session | None, seen: Seen | None = None) -> int:
        """Steps 6 to 10 for the targets of a plan in this scope: what was not decided with the plan is decided now."""
        retain = message.retain
        qos = message.qos
        for target in plan.targets:
            grant = target
            session = grant.session
            if seen is not None and not first(seen, session, message):
                continue
            if session is source:
                if grant.no_local:
                    continue
                grant = grant.own or grant
            most = grant.qos
            session.deliver(message, qos if qos < most else most, retain and grant.retain_as_published, grant.ids)
        reached = len(plan.targets) + plan.unwanted
        return reached if plan.certain else reached + self._hand_out_rest(plan, message, source, seen)

    def _hand_out_rest(self, plan: Plan, message: Message, source: Session | None, seen: Seen | None) -> int:
        """The same for those who are decided with each message, who are decided later, share, or only listen."""
        qos, retain, reached = message.qos, message.retain, 0
        begun, several = self._stopwatch() if plan.conditional else 0.0, len(plan.conditional) > 1
        postponed: list[Grant] = []
        for ways in plan.conditional:
            session = ways[0].session
            if seen is not None and (session, message.output) in seen:
                continue
            if several and not session.leaving and (postponed or self._stopwatch() - begun > PIECE):
                postponed.append(combine([way.grant for way in ways if way.grant is not None]))
                if seen is not None:
                    seen.add((session, message.output))
                continue
            verdict = passed(ways, message)
            if isinstance(verdict, Deny):
                self.scope.report("read", session.outward, message.topic, verdict, message.context, message)
                reached += verdict.step is Step.WHERE  # what a subscriber wants is no business of the publisher
                continue
            grant, shown = verdict
            if seen is not None:
                seen.add((session, message.output))
            for way in ways:
                if way.failed:
                    self.scope.audit.failed(session.outward, message.topic, way.failed)
            reached += 1
            if session is source:
                if grant.no_local:
                    continue
                grant = grant.own or grant
            if self.scope.gate.counts_allowed:
                self.scope.delivered(session, message)
            session.deliver(message, min(qos, grant.qos), retain and grant.retain_as_published, grant.ids, None, shown)
        if plan.conditional:
            spent = (self._stopwatch() - begun) * 1e6  # whoever publishes pays for what it is asked, also later
            decided = len(plan.conditional) - len(postponed)
            self.site.effort += int(spent * len(plan.conditional) / decided if postponed and decided else spent)
        if plan.postponed:
            postponed += [each for each in plan.postponed if seen is None or first(seen, each.session, message)]
        if postponed:
            reached += self.large_fanout.postpone(postponed, message, source)
        for weak, ways in plan.deferred:
            reached += self.waiting.defer(weak, ways, message, source, seen)
        for group, members in plan.groups:
            if seen is None or (group, message.output) not in seen:
                sent = self.scope.sharing.send(group, message, members)
                reached += sent or self.scope.sharing.unwanted
                if sent and seen is not None:
                    seen.add((group, message.output))
        if plan.hearing:
            self.monitoring.overhear(plan, message, seen)
        return reached

    def deliver_retained(self, session: Session, grant: Grant, message: Message) -> None:
        """Steps 6 to 10 for a retained message and a subscription that has come."""
        if grant.no_local and self.own(session, message):
            return
        qos = min(message.qos, grant.qos)
        if qos and self.waiting.waits(self.scope.gate.decide(message, session, grant), session, message, grant):
            session.defer(Delivery(message, qos, True, grant.ids))
            return
        shown = self._decide(session, message, grant)
        if shown is not None:
            if self.scope.gate.counts_allowed:
                self.scope.delivered(session, message)
            session.deliver(message, qos, True, grant.ids, None, shown)

    def answer(self, session: Session, context: bytes, topic: str, payload: bytes, properties: Properties) -> bool:
        """A message for one client alone, if it has subscribed to that topic; decided like any other."""
        grant = (session.subscriptions or {}).get(topic)
        if grant is None or session.connection is None:
            return False
        site = self.site
        site.number += 1
        message = Message(
            topic, payload, 1, False, site.wall, site.origin, site.number, context, PLAIN.inward, properties
        )
        shown = self._decide(session, message, grant)
        if shown is None:
            return False
        session.deliver(message, min(1, grant.qos), False, grant.ids, None, shown)
        return True

    def _decide(self, session: Session, message: Message, grant: Grant) -> Message | None:
        begun = self._stopwatch()
        verdict = self.scope.gate.decide(message, session, grant)
        self.site.effort += int((self._stopwatch() - begun) * 1e6)
        return self._audited(session, message, verdict)

    def _audited(self, session: Session, message: Message, verdict: Message | Deny) -> Message | None:
        """What may be sent of a message that was decided again; the audit is told if nothing may, or what failed."""
        scope = self.scope
        if isinstance(verdict, Deny):
            scope.report("read", session.outward, message.topic, verdict, message.context, message)
            return None
        if scope.gate.stored.failed:
            scope.audit.failed(session.outward, message.topic, scope.gate.stored.failed)
        return verdict

    def permits(self, session: Session, delivery: Delivery) -> Message | Later | None:
        """Steps 6 to 10 for a delivery that waited: what of it may be sent now (session.Decider)."""
        begun = self._stopwatch()
        verdict, message = self._decided(session, delivery), delivery.message
        self.site.effort += int((self._stopwatch() - begun) * 1e6)
        if delivery.qos and self.waiting.keeps(verdict, session, delivery):
            return Later.LATER
        return self._audited(session, message, verdict)

    def _decided(self, session: Session, delivery: Delivery) -> Message | Deny:
        group = delivery.group
        filters = None if group is None else (f"$share/{group[0]}/{group[1]}",)
        return self.scope.gate.permits(delivery.message, session, filters)

    def monitored(self, session: Session, delivery: Delivery, shown: Message | None) -> list[tuple[Delivery, Message]]:
        """Step 11: what is sent in place of a delivery, and what is shown of it (session.Decider).

        `shown`: what may be seen of it, if that has been decided now; None: steps 6 to 10 are decided here.
        """
        message, overheard = delivery.message, delivery.overheard
        if shown is None:
            verdict = self._admissible(session, delivery)
            if verdict is None:
                return []
            shown, overheard = verdict
        sent: list[tuple[Delivery, Message]] = []
        for event in self.monitoring.leave(session, delivery, shown, overheard):
            if event is not shown:
                sent += self.addressed(session, (event,), delivery.retain, delivery.group)
            elif not overheard:
                delivery.seen = True
                delivery.by = self.monitoring.ids(session)
                sent.append((delivery, shown))
        message.noted = message.noted or shown.noted
        return sent

    def _admissible(self, session: Session, delivery: Delivery) -> tuple[Message, bool] | None:
        """What monitors may be shown of a delivery, and whether they only overhear it; None: nothing."""
        scope, message = self.scope, delivery.message
        if delivery.overheard:
            verdict = scope.gate.decide(message, session)
            if isinstance(verdict, Deny):
                session.offered = (0, 0)  # nobody asked for it, and another copy may be allowed
                return None
            return verdict, True
        verdict = self._decided(session, delivery)
        if isinstance(verdict, Message):
            return verdict, False
        self.scope.report("read", session.outward, message.topic, verdict, message.context, message)
        if delivery.group is not None:
            scope.sharing.hand_round([delivery])
            return None
        if verdict.step is not Step.WHERE:
            return None
        verdict = scope.gate.decide(message, session)  # not wanted, but it may be seen
        return None if isinstance(verdict, Deny) else (verdict, True)

    def addressed(
        self,
        session: Session,
        messages: Iterable[Message],
        retain: bool = False,
        group: tuple[str, str] | None = None,
    ) -> Iterator[tuple[Delivery, Message]]:
        """Steps 6 to 10 for what monitors of a client's link made: to those of its subscriptions that match it.

        `group`: what it was made of came by this shared subscription, and so does it.
        """
        for message in messages:
            own = self.own(session, message)
            grants: list[Grant] = []
            shown = message
            for grant in matching(session, message.topic, group):
                if own and grant.no_local:
                    continue
                verdict = self._decide(session, message, grant)
                if verdict is not None:
                    grants.append(grant)
                    shown = verdict
            if grants:
                yield self.monitoring.delivery(session, message, grants, retain, group), shown

    def hand_on(self, delivery: Delivery) -> None:
        """Another member of its shared subscription may have what this one may not."""
        self.scope.sharing.hand_round([delivery])

    def own(self, session: Session, message: Message) -> bool:
        """Whether a session's client has published the message."""
        context = self.scope.gate.attributes.context(message)
        return not context.path and context.subject.session == session.subject.session
