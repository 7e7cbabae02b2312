"""The shadow of a scope: decides what the rules would deny there, and nobody obeys it (`enforce: false`).

A scope that does not enforce its rules obeys others (`RuleSet.in_force`): none, or those that are not only watched. Its
shadow goes by all of them. It has a gate and monitors of its own, and sees the same subscriptions and sessions. Each
message takes the path a second time there (`observe`), by the same code, as far as it would have got if the rules were
enforced: a message that would be denied on its way in has no deliveries there, and what a monitor would make takes the
rest of the path in place of what it was made of. Nothing is sent, sealed, kept or written to the journal. Denials are
reported as those of a shadow.

What is decided when a plan is compiled is counted by the plan of the scope itself (`Plan.shadow`), which then keeps its
fast lane. Only plans of which the shadow has to see each message (`Plan.observed`) call it.

States of monitors are in memory alone. A message is followed over links to other scopes that have shadows, too. What
would happen over links to others, and to other nodes, is not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidegate.bounded import Bounded
from tidegate.gate import Deny, Gate, Plan, RuleSet, Step, passed
from tidegate.gate.scope_links import action_over
from tidegate.monitor import Instance, ModeRevision
from tidegate.routing import Subscriptions
from tidegate.scope.delivered_once import Seen, first
from tidegate.scope.egress import Egress
from tidegate.scope.monitors import Crossing, Made, Monitoring
from tidegate.scope.path import Path
from tidegate.scope.plans import Plans
from tidegate.scope.scope import Scope
from tidegate.scope.traversal import Traversal
from tidegate.session import Delivery, Grant, Link, Message, Session
from tidegate.topics import matches, share

if TYPE_CHECKING:
    from tidegate.scope.decision_reports import Audit

_MONITORS: Final = frozenset((Step.MONITOR_IN, Step.MONITOR_OUT))
REMEMBERED: Final = 20_000  # messages that would not have got further, and deliveries that wait


class Granted(Subscriptions[Session, Grant]):
    """The subscriptions of a scope without those that would have been refused."""

    def __init__(self, subscriptions: Subscriptions[Session, Grant], refused: Callable[[Grant], bool]) -> None:
        self._subscriptions, self._refused = subscriptions, refused

    def match(self, levels: Sequence[str]) -> list[tuple[Session, Grant]]:
        return [each for each in self._subscriptions.match(levels) if not self._refused(each[1])]


class ShadowScope(Scope):
    """Decides for a scope what would be denied there."""

    path: ShadowPath
    audit: Audit

    def __init__(self, real: Scope, rules: RuleSet, stopwatch: Callable[[], float]) -> None:
        # it has only what the path needs, and most of that is the scope's
        self.real, self.name, self.node, self.site, self.audit = real, real.name, real.node, real.site, real.audit
        self.sessions, self.shares, self.publishers = real.sessions, real.shares, real.publishers
        self.subjects, self.retained, self.neighbours = real.subjects, real.retained, real.neighbours
        self.entrance, self.shadow, self.node_links, self.connected = self, None, None, 0
        self.rules = rules
        self.subscriptions = Granted(real.subscriptions, self.refuses)
        self._denied: Bounded[tuple[Link, str], bool] = Bounded(REMEMBERED)
        self._withheld: Bounded[tuple[Link, str], bool] = Bounded(REMEMBERED)  # whatever policies say of the filter
        self.gate = Gate(
            self.subscriptions,
            real.shares,
            rules=rules,
            clock=real.site,
            fresh=real.subjects.fresh,
            retired=lambda plan: None,
            publishers=real.publishers,
            foreign=real.gate.foreign,
            compiled=lambda lane, plan: None,
            mode_revision=ModeRevision(),
            stopwatch=stopwatch,
        )
        real.site.on_alarm.append(self.gate.cache.tick)
        self.plans = Plans(self.gate, real.site, None)
        self.path = ShadowPath(self, None, stopwatch)
        self.path.change()
        real.gate.shadow, real.gate.cache.shadow = self.gate, self.gate.cache
        self.gate.cache.upstream = (real.gate.cache,)

    def adopt(self, rules: RuleSet) -> None:
        self.rules = rules
        self._denied.clear()
        self.gate.change(rules)
        self.path.change()

    def unlink(self) -> None:
        """Links between scopes are made anew."""
        self.gate.compiler.exits, self.gate.cache.upstream = (), (self.real.gate.cache,)
        self.path.monitoring.joined = {}

    def close(self) -> None:
        """The rules are enforced from now on."""
        self.real.gate.shadow = self.real.gate.cache.shadow = None
        self.site.on_alarm.remove(self.gate.cache.tick)
        self.path.monitoring.close()

    def refuses(self, grant: Grant) -> bool:
        """Whether a subscription would have been refused, so that nothing would be delivered by it."""
        if (grant.session.outward, share(grant.filter)[1]) in self._withheld:
            return True
        return not self.gate.rules.holds and self.denies(grant)

    def denies(self, grant: Grant) -> bool:
        """Whether a subscription would have been refused or held, so that nothing retained would be sent for it."""
        if grant.session.outward.subject.kind != "client":
            return False
        key = grant.session.outward, share(grant.filter)[1]
        denied = self._denied.get(key)
        if denied is None:
            denied = self._denied[key] = isinstance(self.gate.grant(key[1], key[0]), Deny)
        return denied

    def asked(self, filters: Sequence[str], target: Link, refusal: Deny | None) -> None:
        """A SUBSCRIBE has come; `refusal`: why it would be refused as a whole."""
        if refusal is not None and not self.real.gate.rules.enforcing:
            self.report("subscribe", target, filters[0], refusal)
        for filter in filters:
            if refusal is None:
                self._withheld.pop((target, share(filter)[1]), None)
            else:
                self._withheld[target, share(filter)[1]] = True

    def subscribed(self, filter: str, target: Link) -> None:
        """A SUBSCRIBE that is granted: whether it would be."""
        if (target, share(filter)[1]) in self._withheld:
            return  # it was counted with the others of its packet
        verdict = self.gate.grant(share(filter)[1], target)
        if isinstance(verdict, Deny):
            self.report("subscribe", target, filter, verdict)

    def admitted(self, topic: str, link: Link) -> None:
        """A will that is taken with CONNECT: whether it, and so its client, would be refused."""
        refusal = self.gate.admits(topic, link)
        if refusal is not None:
            self.report("write", link, topic, refusal)

    def report(
        self,
        action: str,
        link: Link,
        topic: str,
        why: Deny,
        context: bytes | None = None,
        message: Message | None = None,
    ) -> None:
        if why.step is Step.WHERE:  # the subscriber does not want it: nobody would deny anything
            return
        if why.step in _MONITORS and why.rule in self.real.gate.rules.monitors.by_id:
            return  # that one is obeyed
        self.count(action, link, topic, why, context, message)

    def count(
        self, action: str, link: Link, topic: str, why: Deny, context: bytes | None, message: Message | None = None
    ) -> None:
        """Counts and audits what would be denied."""
        self.site.counters.shadowed += 1
        publishers = None if context is None else self.gate.attributes.decoded(context).publishers
        self.audit.denied(action, link, topic, why, publishers or None, message, shadow=True)


class ShadowMonitoring(Monitoring):
    """The monitors of a shadow: they move as if they were obeyed."""

    def change(self) -> None:
        self.states.kept = False
        super().change()

    def entering(self, link: Link, principal: str) -> tuple[Instance, ...]:
        return self.states.chain(self.scope.gate.monitors(link), link, principal)

    def leaving(self, session: Session) -> Sequence[Instance]:
        return self.entering(session.outward, session.principal)

    def enter(self, link: Link, message: Message, plan: Plan, session: Session | None) -> tuple[list[Made], Deny]:
        principal = f"user:{link.subject.user}" if session is None else session.principal
        crossing = Crossing(link, principal, message)
        outputs = self._run(self.entering(link, principal), [(message, plan)], crossing)
        message.outputs = crossing.count
        return outputs, crossing.refusal

    def leave(self, session: Session, delivery: Delivery, shown: Message, overheard: bool) -> list[Message]:
        crossing = Crossing(session.outward, session.principal, shown)
        crossing.overheard = overheard
        return [event for event, _ in self._run(self.leaving(session), [(shown, None)], crossing)]

    def parted(self, session: Session) -> None:
        """A session is over."""
        self.states.parted((*self.entering(session.inward, session.principal), *self.leaving(session)))

    def close(self) -> None:
        for instance in self.states.instances.values():
            self.site.timers.cancel(instance.timer)
            instance.timer = None


class ShadowPath(Path):
    """The path of a shadow."""

    scope: ShadowScope
    monitoring: ShadowMonitoring
    egress: ShadowEgress

    def _egress(self, stopwatch: Callable[[], float]) -> ShadowEgress:
        return ShadowEgress(self.scope, self.monitoring, stopwatch)

    def _monitoring(self, stopwatch: Callable[[], float]) -> ShadowMonitoring:
        return ShadowMonitoring(self.scope, stopwatch, self.tick)

    def observe(
        self, plan: Plan, message: Message, link: Link, source: Session | None, denied: Iterable[tuple[Link, Deny]]
    ) -> None:
        """A message that passes in the scope: what would become of it. `denied`: to whom it does not pass."""
        begun = self._stopwatch()
        copy = message.copied()
        went_on = False
        if plan.control:  # its rules were taken by the scope itself
            return
        if self.write(plan, copy, link) is None:
            events, _ = self.enter(plan, copy, link, source, None)
            for way, event in events:
                went_on = went_on or event is copy
                self.egress.denied = {link for link, _ in denied} if event is copy else set()
                self.deliver(way, event, source)
            self.egress.denied = set()
        if not went_on:
            self.egress.stop(message)
        self.site.effort += int((self._stopwatch() - begun) * 1e6)

    def deliver(self, plan: Plan, message: Message, source: Session | None, root: Message | None = None) -> int:
        if plan.branches:
            return Traversal(message, source).begin(self.scope, plan, message)
        return self.egress.hand_out(plan, message, source)

    def arrived(self, plan: Plan, message: Message, source: Session | None, seen: Seen | None = None) -> int:
        """Nothing is kept that is retained."""
        return self.egress.hand_out(plan, message, source, seen)

    def tick(self, instance: Instance) -> None:
        emission = self.monitoring.tick(instance)
        if emission is None:
            return
        if emission.exit is not None:
            self._tick_between(emission, emission.exit)
        elif emission.inward:
            for plan, event in self._protected(emission.emitted, emission.link)[0]:
                self.deliver(plan, event, None)
        elif emission.session is not None:
            for _ in self.egress.addressed(emission.session, emission.messages):
                pass

    def _seal(self, plan: Plan, message: Message, link: Link) -> Deny | None:
        """Nothing is sealed; what is decided later must not look inside all the same."""
        if not (message.retain and not message.payload):
            self.protector.mark(message)
        return None


class ShadowEgress(Egress):
    """Steps 6 to 11 of a shadow. Where `Egress` sends something, nothing happens here."""

    scope: ShadowScope
    monitoring: ShadowMonitoring

    def __init__(self, scope: ShadowScope, monitoring: Monitoring, stopwatch: Callable[[], float]) -> None:
        super().__init__(scope, monitoring, stopwatch)
        self.denied: set[Link] = set()  # who does not get the message that is decided
        self._stopped: Bounded[tuple[str, int, int], bool] = Bounded(REMEMBERED)
        self._unseen: Bounded[Hashable, bool] = Bounded(REMEMBERED)  # by monitors: it waits for its client

    def stop(self, message: Message) -> None:
        """It would not have got here: what is delivered of it later is not counted."""
        self._stopped[_key(message)] = True

    def hand_out(self, plan: Plan, message: Message, source: Session | None, seen: Seen | None = None) -> int:
        for link, why in plan.denied:
            if link not in self.denied:
                self.scope.count(action_over(link, "read"), link, message.topic, why, message.context)
        for grant in plan.targets:
            self._reached(grant.session, grant, message, message, source, seen)
        for ways in plan.conditional:
            self._decided_now(ways[0].session, passed(ways, message), message, source, seen)
        for grant in plan.postponed:
            self._decided_now(grant.session, self._allowed(grant, message), message, source, seen)
        for weak, ways in plan.deferred:
            if not (message.qos and ways):
                self._report(ways[0].session, message, weak)
        for group, members in plan.groups:
            self._share(
                [
                    way if isinstance(way := members[session], Deny) else way.show(message)
                    for session, grant in group.members.items()
                    if session in members and not self.scope.refuses(grant)
                ],
                [session for session, grant in group.members.items() if not self.scope.refuses(grant)],
                message,
            )
        if plan.hearing:
            self._overhear(plan, message, source)
        return 0

    def _report(self, session: Session, message: Message, why: Deny) -> None:
        """It would be denied to a client, unless it is denied in any case."""
        real = self.scope.real.gate
        if not (real.rules.enforcing and isinstance(real.decide(message, session), Deny)):
            self.scope.report("read", session.outward, message.topic, why, message.context, message)

    def _share(self, verdicts: list[Message | Deny], sessions: list[Session], message: Message) -> None:
        """One member that may have it is enough; else the first speaks for all."""
        denied = [(session, why) for session, why in zip(sessions, verdicts, strict=False) if isinstance(why, Deny)]
        if denied and len(denied) == len(verdicts):
            self._report(denied[0][0], message, denied[0][1])

    def _allowed(self, grant: Grant, message: Message) -> tuple[Grant, Message] | Deny:
        shown = self.scope.gate.decide(message, grant.session, grant)
        return shown if isinstance(shown, Deny) else (grant, shown)

    def _decided_now(
        self,
        session: Session,
        verdict: tuple[Grant, Message] | Deny,
        message: Message,
        source: Session | None,
        seen: Seen | None,
    ) -> None:
        if isinstance(verdict, Deny):
            self._report(session, message, verdict)
        else:
            self._reached(session, verdict[0], message, verdict[1], source, seen)

    def _reached(
        self,
        session: Session,
        grant: Grant,
        message: Message,
        shown: Message,
        source: Session | None,
        seen: Seen | None,
    ) -> None:
        """It may be sent: what the monitors of the link would make of it."""
        if seen is not None and not first(seen, session, message):
            return
        if session is source and grant.no_local and grant.own is None:
            return
        if not self.monitoring.leaving(session):
            return
        if session.connection is not None:
            self._leave(session, message, shown)
        elif min(message.qos, grant.qos) and session.expiry:
            self._unseen[session, _key(message), message.output] = True

    def _leave(self, session: Session, message: Message, shown: Message, overheard: bool = False) -> None:
        """Step 11, and steps 6 to 10 for what monitors would make."""
        for event in self.monitoring.leave(session, Delivery(message, message.qos), shown, overheard):
            if event is not shown:
                for _ in self.addressed(session, (event,)):
                    pass

    def _overhear(self, plan: Plan, message: Message, source: Session | None) -> None:
        """Monitors that wait for something see it, also where nobody has subscribed to it."""
        posts = {post.attachment.id for post in plan.hearing if post.attachment.monitor.overhears}
        if not posts:
            return
        reached = {grant.session for grant in plan.targets}
        reached |= {ways[0].session for ways in plan.conditional}
        for session in list(self.scope.sessions.values()):
            if session in reached or session.connection is None or not self.scope.subjects.fresh(session):
                continue
            if posts.isdisjoint(instance.attachment.id for instance in self.monitoring.leaving(session)):
                continue
            if self.scope.real.brokered and self._asking(session, message):
                continue  # its monitors see it when the broker delivers it
            shown = self.scope.gate.decide(message, session)
            if isinstance(shown, Message):
                self._leave(session, message, shown, overheard=True)

    def retained(self, session: Session, grant: Grant, message: Message) -> None:
        """A retained message that is sent to a subscription that has come."""
        if _key(message) in self._stopped or self.scope.refuses(grant) or self.scope.denies(grant):
            return
        if grant.no_local and self.own(session, message):
            return
        self._decided_now(session, self._allowed(grant, message), message, None, None)

    def dequeued(self, session: Session, delivery: Delivery) -> None:
        """What waited is sent: what the connection of now, or its monitors, would deny.

        What would have been denied before would not have waited: it was counted then.
        """
        message, connection = delivery.message, session.connection
        if delivery.pid or _key(message) in self._stopped:
            return
        if connection is None or message.published >= connection.since:
            return  # it was decided for this connection when it was published
        group = delivery.group
        filters = None if group is None else (f"$share/{group[0]}/{group[1]}",)
        verdict = self.scope.gate.permits(message, session, filters)
        if isinstance(verdict, Deny):
            if not isinstance(self.scope.gate.permits(message, session, filters, later=True), Deny):
                self._report(session, message, verdict)
        elif self._unseen.pop((session, _key(message), message.output), False):
            self._leave(session, message, verdict)

    def received(self, session: Session, message: Message) -> None:
        """A message that a guarded broker delivers to a client."""
        if _key(message) in self._stopped:
            return
        asking = self._asking(session, message)
        if session.subscriptions and not asking:
            return  # it would have subscribed to nothing of this
        verdict: Message | Deny = UNWANTED
        for grant in asking or (None,):
            verdict = self.scope.gate.decide(message, session, grant)
            if isinstance(verdict, Message):
                break
        if isinstance(verdict, Deny):
            self._report(session, message, verdict)
        elif self.monitoring.leaving(session):
            self._leave(session, message, verdict)

    def _asking(self, session: Session, message: Message) -> list[Grant]:
        """Its subscriptions to a message that would have been granted."""
        return [
            grant
            for filter, grant in (session.subscriptions or {}).items()
            if matches(share(filter)[1], message.topic) and not self.scope.refuses(grant)
        ]

    def _decide(self, session: Session, message: Message, grant: Grant) -> Message | None:
        return None if self.scope.refuses(grant) else super()._decide(session, message, grant)


UNWANTED: Final = Deny(step=Step.WHERE, rule="where")


def _key(message: Message) -> tuple[str, int, int]:
    return message.origin.node, message.origin.boot, message.number
