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

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tidegate.gate import Deny, Lane, Plan, ScopeExit, Step, action_over
from tidegate.monitor import Instance
from tidegate.policy.capability import BEFORE, NOTHING
from tidegate.policy.control_topics import KEYS
from tidegate.scope.asked_lane import AskedLane
from tidegate.scope.delivered_once import Seen, first
from tidegate.scope.egress import Egress
from tidegate.scope.monitors import Emission, Made, Monitoring
from tidegate.scope.priced_conditions import asked
from tidegate.scope.protection import Keyring, Protector
from tidegate.scope.traversal import Traversal, crossed
from tidegate.session import Connection, Journal, Link, Message, Refusal, Session
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
        self.monitoring = self._monitoring(stopwatch)
        self.egress = self._egress(stopwatch)
        self.asked = AskedLane(scope, self.monitoring, self.egress.large_fanout, stopwatch)

    def _egress(self, stopwatch: Callable[[], float]) -> Egress:
        return Egress(self.scope, self.monitoring, stopwatch)

    def _monitoring(self, stopwatch: Callable[[], float]) -> Monitoring:
        return Monitoring(self.scope, stopwatch, self.tick)

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
        if plan.observed:
            self._observe(plan, message, link, source)
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
        if plan.observed:
            self._observe(plan, message, source.inward, source)
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
        if why is None and plan.observed:
            self._observe(plan, message, link, source)
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

    def _observe(self, plan: Plan, message: Message, link: Link, source: Session | None) -> None:
        """What may be written: what would become of it if the scope enforced its rules."""
        if plan.shadow is not None and self.scope.shadow is not None:
            self.scope.shadow.path.observe(plan.shadow, message, link, source, plan.denied)

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
