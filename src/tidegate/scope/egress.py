"""Steps 6 to 11 of the path (see `scope.path`): what leaves a scope for its sessions, at the moment of sending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tidegate.gate import Deny, Plan, Step, combine, passed
from tidegate.policy.brokering import PLAIN
from tidegate.scope.delivered_once import Seen, first
from tidegate.scope.large_fanout import PIECE, LargeFanout
from tidegate.scope.monitors import Monitoring
from tidegate.scope.subscribing import matching
from tidegate.scope.waiting_for_level import WaitingForLevel
from tidegate.session import Delivery, Grant, Later, Message, Session
from tidegate.wire import Properties

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope


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
        if self.scope.shadow is not None:
            self.scope.shadow.path.egress.retained(session, grant, message)
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
        if self.scope.shadow is not None:
            self.scope.shadow.path.egress.dequeued(session, delivery)
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
