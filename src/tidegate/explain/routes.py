"""The ways of one message over the links between scopes, for explanations.

They are found as the engine finds them (`scope.traversal`): the nearest scopes first, each link at most once, never
into a scope that the message has been in. `PlanCompiler.over` decides whether it crosses a link. Only links are tried
that can lead to the scope that is asked about.

Of monitors on a link it knows what filters do. What others do depends on what they have seen before: it is taken for
granted that they let the message pass as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.explain.explanation import ExtraStep, Line, Verdict
from tidegate.explain.steps import StepRecorder, other_denial
from tidegate.gate.decision import unsigned
from tidegate.gate.gate import Gate
from tidegate.gate.rule_set import RuleSet
from tidegate.gate.scope_links import ScopeExit, link_ends, link_monitors
from tidegate.gate.verdict import Deny, Known, Step
from tidegate.monitor import Attachment
from tidegate.monitor.library import Filter
from tidegate.policy import ALL as WHOLE
from tidegate.policy.scopes import ALL, ScopeLink
from tidegate.session import Context, Message

NOT_SHARED: Final = "not shared"
NO_LINK: Final = "no link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A message in a scope, and how it came there."""

    scope: str
    message: Message
    """As it is there; it has the type of the last link."""
    context: Context
    path: frozenset[str]
    """The scopes that it has been in."""
    lines: tuple[Line, ...] = ()
    """The links that it has crossed."""
    clocked: bool = False

    @property
    def route(self) -> str:
        return ", ".join(line.link for line in self.lines)


@dataclass(slots=True)
class Search:
    arrivals: list[Arrival] = field(default_factory=list)
    """There, the first to come first."""
    lines: list[Line] = field(default_factory=list)
    """If there are none: every link that was tried and leads on."""
    denied: list[Deny] = field(default_factory=list)
    """What a running node says of those that were not crossed, if it says anything."""
    clocked: bool = False

    def add(self, attempt: _Attempt) -> None:
        self.clocked = self.clocked or attempt.clocked
        if attempt.line not in self.lines:
            self.lines.append(attempt.line)
        if attempt.denied is not None and attempt.denied.step is not Step.BROKERING:
            self.denied.append(attempt.denied)


class RouteFinder:
    """The links of one version of the rules."""

    def __init__(self, gate: Gate, rules: RuleSet, node: str) -> None:
        self._gate = gate
        self._exits: dict[str, list[_Way]] = {}
        self._sources: dict[str, set[str]] = {}
        self._useful: dict[str, frozenset[str]] = {}
        for link in rules.space.links:
            self._exits.setdefault(link.source, []).append(_Way(link, gate, rules, node))
            self._sources.setdefault(link.target, set()).add(link.source)

    def to(self, scope: str, start: Arrival, at: float) -> Search:
        """Every way from where a message is to a scope, at a moment at which the clock stands."""
        search = Search()
        tried: list[tuple[str, frozenset[str], _Attempt]] = []
        crossed: set[str] = set()
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            if here.scope == scope:
                search.arrivals.append(here)
                continue  # it does not come back
            for way in self._leading(here.scope, scope):
                if way.link.target in here.path or way.link.name in crossed:
                    continue
                attempt = way.take(self._gate, here, at)
                tried.append((way.link.target, here.path, attempt))
                if attempt.consumed:
                    crossed.add(way.link.name)
                if attempt.arrival is not None:
                    waiting.append(attempt.arrival)
        if search.arrivals:
            return search
        for target, path, attempt in tried:
            if target in self._reaching(scope, path):
                search.add(attempt)
        if not search.lines:
            search.lines.append(_closed("", NO_LINK, f"no links lead from `{start.scope}` to `{scope}`"))
        return search  # some link was denied: the one from the nearest scope that was reached

    def _leading(self, source: str, scope: str) -> Iterator[_Way]:
        useful = self._useful.get(scope)
        if useful is None:
            useful = self._useful[scope] = self._reaching(scope)
        return (way for way in self._exits.get(source, ()) if way.link.target in useful)

    def _reaching(self, scope: str, path: frozenset[str] = frozenset()) -> frozenset[str]:
        """The scopes from which links lead there, not through those of a path, whatever crosses them."""
        reaching = {scope}
        waiting = [scope]
        while waiting:
            new = self._sources.get(waiting.pop(), set()) - reaching - path
            reaching |= new
            waiting += new
        return frozenset(reaching)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    line: Line
    arrival: Arrival | None = None
    denied: Deny | None = None
    consumed: bool = True
    """No other copy crosses the link any more."""
    clocked: bool = False


class _Way:
    __slots__ = ("_entering", "_exit", "_leaving", "link")

    def __init__(self, link: ScopeLink, gate: Gate, rules: RuleSet, node: str) -> None:
        self.link = link
        self._exit = ScopeExit(link, *link_ends(link, rules, node), gate, None)
        self._leaving, self._entering = link_monitors(link, rules)

    def take(self, gate: Gate, here: Arrival, at: float) -> _Attempt:
        link, message = self.link, here.message
        crossing = link.crossing(message.topic)
        if crossing is None:
            return _Attempt(line=_closed(link.name, NOT_SHARED, self._shared(message)), consumed=False)
        topic, qos = crossing
        known = Known(topic=message.topic, context=here.context, link=message.link, now=at)
        way = gate.compiler.over(self._exit, known)
        answer = way if isinstance(way, Deny) else way.show(message)
        asked = self._asked(gate, known, message)
        clocked = any(walk.clocked for walk in asked)
        lines = [line for walk in asked for line in walk.lines]
        if isinstance(answer, Deny):
            return _Attempt(line=self._refused(lines, answer), denied=answer, consumed=False, clocked=clocked)
        stopped, notes = monitors_on_way(
            ((self._leaving, message.topic, Step.MONITOR_OUT), (self._entering, topic, Step.MONITOR_IN))
        )
        if stopped is not None:
            line = Line(step=stopped.step, link=link.name, verdict=Verdict.DENY, rule=stopped.rule, notes=notes)
            return _Attempt(line=line, denied=stopped, clocked=clocked)
        if topic != message.topic:
            notes = (f"behind it the topic is `{topic}`", *notes)
        if qos < message.qos:
            notes = (f"it goes on with QoS {qos}", *notes)
        line = self._passed(lines, notes)
        context = here.context
        if answer is not message and context.signed:
            context = replace(context, signed=False)
            answer = unsigned(answer, here.context)
        data = answer.context
        if topic != message.topic and context.topic is None:
            context = replace(context, topic=message.topic)
            data = context.encode()
        arrived = answer.across(topic, min(answer.qos, qos), data, link.type, answer.properties)
        arrival = Arrival(
            scope=link.target,
            message=arrived,
            context=context,
            path=here.path | {link.target},
            lines=(*here.lines, line),
            clocked=here.clocked or clocked,
        )
        return _Attempt(line=line, arrival=arrival, clocked=clocked)

    def _shared(self, message: Message) -> str:
        if message.topic.startswith("$") or self.link.shares == ALL:
            return "topics that begin with `$` do not cross"
        return f"it shares {', '.join(share.here + share.filter for share in self.link.shares)}"

    def _asked(self, gate: Gate, source: Known, message: Message) -> list[StepRecorder]:
        """What each step of the link says, where it leaves the one scope and where it enters the other."""
        walks: list[StepRecorder] = []
        for steps, target in ((gate.stages.sending, self._exit.outward), (gate.stages.receiving, self._exit.inward)):
            known = Known(topic=source.topic, context=source.context, link=source.link, now=source.now, target=target)
            walk = StepRecorder(gate.attributes, known, message)
            walk.denied = bool(walks and walks[-1].denied)
            for stage in steps:
                walk.take(stage, stage)
            walks.append(walk)
        return walks

    def _refused(self, lines: list[Line], answer: Deny) -> Line:
        """The step that denied it; the node may name another one, which it knew of before."""
        first = next((line for line in lines if line.verdict is Verdict.DENY), None)
        if first is None:
            return Line(step=answer.step, link=self.link.name, verdict=Verdict.DENY, rule=answer.rule)
        return replace(first, link=self.link.name, notes=first.notes + other_denial(first, answer))

    def _passed(self, lines: list[Line], notes: tuple[str, ...]) -> Line:
        """All steps of the link in one line."""
        knew: dict[str, Any] = {}
        view = WHOLE
        for line in lines:
            view &= line.view
            for path, value in line.knew.items():
                # of what a condition can read of a link, only `s.scope` is not the same at both ends
                knew[path] = value if knew.get(path, value) == value else f"{knew[path]}, then {value}"
        return Line(
            step=ExtraStep.LINK,
            link=self.link.name,
            verdict=Verdict.ALLOW,
            rule=", ".join(dict.fromkeys(line.rule for line in lines if line.rule)),
            considered=tuple(dict.fromkeys(each for line in lines for each in line.considered)),
            knew=dict(sorted(knew.items())),
            absent=tuple(sorted({path for line in lines for path in line.absent})),
            view=view,
            notes=(*(note for line in lines for note in line.notes), *notes),
        )


def _closed(link: str, rule: str, why: str) -> Line:
    """A link that lets nothing pass, though no step has denied it."""
    return Line(step=ExtraStep.LINK, link=link, verdict=Verdict.DENY, rule=rule, notes=(why,))


def monitors_on_way(chains: Iterable[tuple[Sequence[Attachment], str, Step]]) -> tuple[Deny | None, tuple[str, ...]]:
    """The filter that stops a message, if that is certain, and what to say of the monitors that listen to it.

    Each chain of monitors comes with the topic that it sees and its step. What other monitors than filters do depends
    on what they have seen before.
    """
    listening = [(each, step) for chain, topic, step in chains for each in chain if each.monitor.hears(topic)]
    if not listening:
        return None, ()
    first, step = listening[0]
    if isinstance(first.monitor, Filter):
        return Deny(step=step, rule=first.id), ("it is a filter, and this topic is none of those that pass",)
    ids = ", ".join(each.id for each, _ in listening)
    return None, (f"what {ids} will do depends on what went before: see `tidegate monitor try`",)
