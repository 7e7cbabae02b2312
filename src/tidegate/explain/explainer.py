"""Why something is allowed or denied: every step in its order, what it knew, and which rule spoke.

It asks the stages of the gate themselves, one after the other, about one message; nothing is decided here. Beside each
answer stands what the stage looked at, read off the same rules. What a running node would say is asked too: it knows
some denials before the message comes, so of several rules that deny it may name another one.

Between the steps of the publisher's scope and those of the reader's stand the links from one to the other (`routes`).

It knows no directory: who acts comes in as a link with its subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tidegate.explain.explanation import Explanation, Line, Verdict
from tidegate.explain.routes import Arrival, RouteFinder, Search, monitors_on_way
from tidegate.explain.steps import StepDetails, StepRecorder, individual_rules
from tidegate.gate.attributes import Attributes
from tidegate.gate.decision import evaluate, undecided
from tidegate.gate.gate import Gate
from tidegate.gate.lane import Lane
from tidegate.gate.plan import Plan
from tidegate.gate.rule_set import RuleSet
from tidegate.gate.stages.order import bordering, crossing, stages
from tidegate.gate.stages.read_preferences import ForeignOwners, OwnerPreferences
from tidegate.gate.stages.write_and_read_policies import AccessStage
from tidegate.gate.verdict import Deny, Known, Stage, Step
from tidegate.policy import Action, Policies, Preference, Preferences
from tidegate.policy.brokering import Brokering
from tidegate.predicate import Predicate
from tidegate.routing import Shares, Subscriptions
from tidegate.session import NO_TERMS, Context, Link, Message, NodeLinkEnd, Origin, Session, Terms
from tidegate.topics import share
from tidegate.wire import NONE, V5, Publish

_NOWHERE: Final = Origin("0" * 16, 0)
_LAST: Final = frozenset((Step.WHERE, Step.MONITOR_OUT))  # asked of what the view leaves
_EVERYTHING: Final = RuleSet(
    policies=Policies(()),
    preferences=Preferences((Preference(id="some", user="somebody", topic="#"),)),
    brokering=Brokering(()),
)
"""Rules with which no step is left out of the gate."""

Steps = list[tuple[Stage, Stage | None]]
"""Each step, and the stage that the rules have for it, if they have one."""


class _Clock:
    """The moment that is asked about."""

    __slots__ = ("alarm", "since", "steady", "wall")

    def __init__(self) -> None:
        self.wall = self.steady = self.alarm = self.since = 0.0


class Explainer:
    """Explains by one version of the rules. Made once for many questions."""

    def __init__(self, rules: RuleSet, node: str = "", foreign: ForeignOwners | None = None) -> None:
        """`foreign`: what is known of owners of other domains, whose messages come over links; None: nothing comes."""
        self.rules = rules
        self._clock = _Clock()
        self._gate = Gate(
            Subscriptions[Session, Any](),
            Shares[Session, Any](),
            rules=replace(rules, capabilities=None),  # nobody who is asked about has shown one
            clock=self._clock,
            fresh=lambda session: True,
            retired=lambda plan: None,
            foreign=foreign,
        )
        self._routes = RouteFinder(self._gate, rules, node)
        attributes = Attributes(_EVERYTHING, self._clock)
        owners = OwnerPreferences(_EVERYTHING)
        full = stages(_EVERYTHING, attributes, owners)
        self._ingress = _complete(full[0], self._gate.stages.ingress)
        self._egress = _complete(full[1], self._gate.stages.egress)
        sending, receiving = crossing(_EVERYTHING, attributes, owners)
        self._sending = _complete(sending, self._gate.stages.sending)
        self._receiving = _complete(receiving, self._gate.stages.receiving)
        exporting, importing = bordering(_EVERYTHING, attributes, owners)
        self._exporting = _complete(exporting, self._gate.stages.exporting)
        self._importing = _complete(importing, self._gate.stages.importing)

    # -- questions -----------------------------------------------------------------------------------------------

    def write(self, link: Link, packet: Publish, at: float) -> Explanation:
        gate, link = self._gate, self._typed(link)
        message, context = self._published(link, packet, at)
        known = Known(topic=message.topic, context=context, link=link.type, now=at)
        walk = StepRecorder(self._gate.attributes, known, message)
        for kind, stage in self._ingress:
            walk.take(kind, stage)
        lines, stopped = self._watched(Step.MONITOR_IN, link, message.topic, walk.denied)
        walk.lines += lines
        plan = gate.compiler.compile(message.topic, Lane(context, link.type, V5, NONE, gate.version))
        if self.rules.keyed:
            walk.lines.append(_protected(plan, asked=not walk.denied and stopped is None))
        denial = plan.refusal or undecided(plan.admission, message) or stopped
        if plan.sealing is not None:
            context = replace(context, sealed=True)
            message.context, message.facts = context.encode(), None
        return Explanation(
            action="write",
            topic=message.topic,
            subject=link.subject,
            at=at,
            version=self.rules.version,
            message=message,
            entered=link.scope,
            context=context,
            **walk.concluded(walk.lines, denial),
        )

    def read(
        self, written: Explanation, target: Link, at: float, terms: Terms = NO_TERMS, where: Predicate | None = None
    ) -> Explanation:
        """May somebody receive what was published, by a subscription with these terms, and what of it? Or may it
        leave over a link to another node?

        Links on the way were crossed when it was published.
        """
        message, context = written.message, written.context
        assert message is not None
        assert context is not None
        target = self._typed(target)
        start = Arrival(scope=written.entered, message=message, context=context, path=frozenset((written.entered,)))
        if not written.allowed:
            return self._delivery(written, start, target, at, terms, where)
        self._clock.wall = written.at
        search = self._routes.to(target.scope, start, written.at)
        refused: list[tuple[Arrival, Explanation]] = []
        for arrival in search.arrivals:
            explanation = self._delivery(written, arrival, target, at, terms, where)
            if explanation.allowed:
                return explanation
            refused.append((arrival, explanation))
        if not refused:
            return self._nowhere(written, search, target, at)
        (_, first), *others = refused
        notes = tuple(f"over {arrival.route} it comes there too: {other.headline}" for arrival, other in others)
        rules = first.rules.union(*(other.rules for _, other in others))
        clocked = any(each.clocked for _, each in refused)
        return replace(first, rules=rules, notes=(*first.notes, *notes), clocked=clocked)

    def _delivery(
        self, written: Explanation, arrival: Arrival, target: Link, at: float, terms: Terms, where: Predicate | None
    ) -> Explanation:
        message, context = arrival.message, arrival.context
        self._clock.wall = at
        known = Known(
            topic=message.topic, context=context, link=message.link, now=at, target=target, terms=terms, where=where
        )
        walk = StepRecorder(self._gate.attributes, known, message)
        walk.denied = not written.allowed
        walk.clocked = written.clocked or arrival.clocked
        for kind, stage in self._towards(target):
            if kind.step in _LAST:
                walk.look()
            walk.take(kind, stage)
        walk.look()
        lines, stopped = self._watched(Step.MONITOR_OUT, target, message.topic, walk.denied)
        walk.lines += lines
        if target.exports:
            walk.lines = [replace(line, link=target.subject.client) for line in walk.lines]
        result: Message | Deny | None = written.denial
        if written.allowed:
            result = _shown(self._gate.stages.towards(target), known, message)
            if stopped is not None and not isinstance(result, Deny):
                result = stopped
        denial, shown = (None, result) if isinstance(result, Message) else (result, None)
        concluded = walk.concluded((*written.lines, *arrival.lines, *walk.lines), denial, arrival.lines)
        return Explanation(**self._of_reading(written, target, at), shown=shown, **concluded)

    def _towards(self, target: Link) -> Steps:
        return self._exporting if target.exports else self._egress

    def _nowhere(self, written: Explanation, search: Search, target: Link, at: float) -> Explanation:
        """No way leads to the reader's scope."""
        denials = [line for line in search.lines if line.verdict is Verdict.DENY]
        walk = StepRecorder(self._gate.attributes, None, None)
        walk.denied = True
        for kind, stage in self._towards(target):
            walk.take(kind, stage)
        return Explanation(
            **self._of_reading(written, target, at),
            lines=(*written.lines, *search.lines, *walk.lines),
            allowed=False,
            decided=denials[0],
            rules=individual_rules([*(line.rule for line in denials), *(each.rule for each in search.denied)]),
            denial=search.denied[0] if search.denied else None,
            clocked=written.clocked or search.clocked,
        )

    def _of_reading(self, written: Explanation, target: Link, at: float) -> dict[str, Any]:
        assert written.context is not None
        return {
            "action": "read",
            "topic": written.topic,
            "subject": target.subject,
            "publisher": written.context.subject,
            "at": at,
            "version": self.rules.version,
            "message": written.message,
            "entered": written.entered,
            "context": written.context,
        }

    def subscribe(self, filter: str, target: Link, at: float) -> Explanation:
        """Is a SUBSCRIBE granted? Whether anything is delivered is decided message by message."""
        self._clock.wall = at
        plain = share(filter)[1]
        attributes, actor = self._gate.attributes, target.subject
        walk = StepRecorder(attributes, None, None)
        for kind, stage in self._egress:
            if stage is None or walk.denied:
                walk.take(kind, stage)
                continue
            details = StepDetails()
            if isinstance(stage, AccessStage):
                known = {"s": attributes.subject(actor), "e": attributes.environment(actor).known}
                details.policies(stage.policies.considered_for(Action.READ, actor, plain, known), known)
            walk.note(kind, stage.grant(plain, target), details)
        answer = self._gate.grant(plain, target)
        denial = answer if isinstance(answer, Deny) else None
        concluded = walk.concluded(walk.lines, denial)
        concluded["clocked"] = False  # what changes while the subscription lasts is not asked
        if denial is not None and self.rules.holds:
            concluded["notes"] += ("it is granted but held: nothing is delivered until a rule allows it",)
        return Explanation(
            action="subscribe", topic=filter, subject=actor, at=at, version=self.rules.version, **concluded
        )

    def cross(self, action: Action, end: Link, link: Link, packet: Publish, at: float) -> Explanation:
        """May a scope or a link forward what somebody published over another link (write), or import it (read)?

        Whether it was allowed to be published is not asked, nor what brokering says: over which link it came is not
        known.
        """
        message, context = self._published(self._typed(link), packet, at)
        asked = self._sending if action is Action.WRITE else self._receiving
        steps = [each for each in asked if each[0].step is not Step.BROKERING]
        known = Known(topic=message.topic, context=context, link=message.link, now=at, target=end)
        walk = StepRecorder(self._gate.attributes, known, message)
        for kind, stage in steps:
            walk.take(kind, stage)
        result = _shown(tuple(stage for _, stage in steps if stage is not None), known, message)
        return Explanation(
            action=action.value,
            topic=message.topic,
            subject=end.subject,
            at=at,
            version=self.rules.version,
            message=message,
            context=context,
            **walk.concluded(walk.lines, result if isinstance(result, Deny) else None),
        )

    def arrive(self, message: Message, end: NodeLinkEnd, at: float) -> Explanation:
        """May something enter over a link from another node? What comes of it is asked with `read`."""
        self._clock.wall = at
        context = self._gate.attributes.context(message)
        before = end.before(message.topic) or message.topic  # policies know it as the other node calls it
        known = Known(topic=before, context=context, link=message.link, now=at, target=end)
        walk = StepRecorder(self._gate.attributes, known, message)
        for kind, stage in self._importing:
            walk.take(kind, stage)
        lines, stopped = self._watched(Step.MONITOR_IN, end, message.topic, walk.denied)
        walk.lines = [replace(line, link=end.subject.client) for line in (*walk.lines, *lines)]
        result = _shown(self._gate.stages.importing, known, message)
        denial = result if isinstance(result, Deny) else stopped
        return Explanation(
            action=Action.READ.value,
            topic=message.topic,
            subject=end.subject,
            publisher=context.subject,
            at=at,
            version=self.rules.version,
            message=message,
            entered=end.scope,
            context=context,
            **walk.concluded(walk.lines, denial),
        )

    # -- what is asked about -------------------------------------------------------------------------------------

    def _published(self, link: Link, packet: Publish, at: float) -> tuple[Message, Context]:
        gate = self._gate
        self._clock.wall = at
        options, left = gate.read_options(packet.properties)
        user_properties = (*left, *gate.floor_properties(gate.context(link)).user_properties)
        properties = replace(packet.properties, user_properties=user_properties)
        context = gate.context(link, options)
        message = Message(
            packet.topic,
            packet.payload,
            packet.qos,
            packet.retain,
            at,
            _NOWHERE,
            0,
            context.encode(),
            link.type,
            NONE if properties == NONE else properties,
        )
        return message, context

    def _watched(self, step: Step, link: Link, topic: str, denied: bool) -> tuple[list[Line], Deny | None]:
        """The monitors of a link that listen to a topic, and the filter that stops it, if that is certain."""
        stopped, notes = monitors_on_way(((self._gate.monitors(link), topic, step),))
        if not notes:
            return [], None
        if denied:
            return [Line(step=step, verdict=Verdict.UNASKED)], None
        if stopped is None:
            return [Line(step=step, verdict=Verdict.SILENT, notes=notes)], None
        return [Line(step=step, verdict=Verdict.DENY, rule=stopped.rule, notes=notes)], stopped

    def _typed(self, link: Link) -> Link:
        """The link with the type that it has by these rules."""
        if isinstance(link, NodeLinkEnd):
            return link
        types = self.rules.brokering.types(link.subject)
        return Link(link.subject, link.inward, types.inward if link.inward else types.outward, link.demand, link.scope)


def _shown(stages: tuple[Stage, ...], known: Known, message: Message) -> Message | Deny:
    """What of a message passes these stages, decided as for a plan and then for the message."""
    way = evaluate(stages, known)
    return way if isinstance(way, Deny) else way.show(message)


def _complete(full: Sequence[Stage], there: Sequence[Stage]) -> Steps:
    """Every step of the gate in its order, and the stage that the rules have for it, if they have one."""
    by_type = {type(stage): stage for stage in there}
    steps = [(kind, by_type.pop(type(kind), None)) for kind in full]
    assert not by_type, "a stage of the gate that no rules bring"
    return steps


def _protected(plan: Plan, *, asked: bool) -> Line:
    """What step 4 does with a message of the plan."""
    why = plan.refusal
    if why is not None and why.step is Step.PROTECT:
        return Line(step=Step.PROTECT, verdict=Verdict.DENY, rule=why.rule, error=why.error)
    if not asked:
        return Line(step=Step.PROTECT, verdict=Verdict.UNASKED)
    if plan.sealing is None:
        return Line(step=Step.PROTECT, verdict=Verdict.SILENT, notes=("it is not protected",))
    group = plan.sealing.group
    how = "has to come sealed, or is denied" if plan.sealing.end_to_end else "is sealed, and nobody on the way sees it"
    note = (
        f"`{group.filter}` protects it: what is in it {how}; its key is for all messages of the group {group.id[:12]}"
    )
    return Line(step=Step.PROTECT, verdict=Verdict.ALLOW, notes=(note,))
