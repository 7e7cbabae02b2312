"""One way through the steps of the door, and what was seen on it: for explanations.

Each stage is asked of one message, and beside its answer stands what it looked at, read off the same rules. Nothing is
decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from tidegate.explain.explanation import ConsideredRule, Line, Verdict
from tidegate.gate.access import AccessStage, ForwardingAccessStage
from tidegate.gate.attributes import CLOCK_PATHS, Attributes
from tidegate.gate.brokering import BrokeringStage
from tidegate.gate.decision import UNSEEN, part_of
from tidegate.gate.levels import LevelStage
from tidegate.gate.preferences import ForwardingPreferenceStage, PreferenceStage
from tidegate.gate.reserved import RESERVED, ReservedTopicStage
from tidegate.gate.verdict import Allow, Deny, Known, Residual, Stage, Step
from tidegate.gate.views import PUBLISHER, ViewStage
from tidegate.gate.where import WHERE, WhereStage
from tidegate.policy import ALL, RELAXED, Demand, Policy, Table, View
from tidegate.policy.access import Outcome, outcome
from tidegate.policy.brokering import UNTYPED, exempt
from tidegate.predicate import UNKNOWN, Predicate, PredicateFailed
from tidegate.session import Message, Subject

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_CLOCKS: Final = CLOCK_PATHS | {"e", "p", "p.e", "p.time"}
_PARTS: Final[Mapping[type, str]] = {
    ReservedTopicStage: "reserved",
    AccessStage: "policies",
    ForwardingAccessStage: "policies",
    PreferenceStage: "preferences",
    ForwardingPreferenceStage: "preferences",
}
_LEFT_OUT: Final[Mapping[type, str]] = {
    AccessStage: "`policies: open`",
    ForwardingAccessStage: "`policies: open`",
    BrokeringStage: "brokering is open",
    PreferenceStage: "there are no preferences",
    ForwardingPreferenceStage: "there are no preferences",
}


class StepRecorder:
    """One way through the door, and what was seen on it."""

    def __init__(self, attributes: Attributes, known: Known | None, message: Message | None) -> None:
        self.attributes = attributes
        self.known = known
        self.message = message
        self.shown = message
        self.view = ALL
        self.lines: list[Line] = []
        self.denied = False
        self.clocked = False
        self._looked = False

    def take(self, kind: Stage, stage: Stage | None) -> None:
        """Asks a stage, unless an earlier one has denied or the rules leave it out."""
        part = _PARTS.get(type(kind), "")
        if self.denied:
            self.lines.append(Line(step=kind.step, part=part, verdict=Verdict.UNASKED))
        elif stage is None:
            notes = (_LEFT_OUT[type(kind)],) if type(kind) in _LEFT_OUT else ()
            self.lines.append(Line(step=kind.step, part=part, verdict=Verdict.SILENT, notes=notes))
        else:
            assert self.known is not None
            assert self.shown is not None
            answer = stage.evaluate(self.known)
            if isinstance(answer, Residual):
                answer = answer.decide(self.shown)
            details = StepDetails()
            self._describe(stage, details, self.known, self.shown)
            self.note(kind, answer, details)

    def note(self, kind: Stage, answer: Allow | Deny, details: StepDetails) -> None:
        """Writes an answer down."""
        self.clocked = self.clocked or details.clocked
        part = _PARTS.get(type(kind), "")
        view = ALL
        error = ""
        if isinstance(answer, Deny):
            self.denied = True
            verdict, error = Verdict.DENY, answer.error
        else:
            view = answer.view
            self.view &= view
            verdict = Verdict.ALLOW if answer.rule or details.spoke else Verdict.SILENT
        self.lines.append(
            Line(
                step=kind.step,
                part=part,
                verdict=verdict,
                rule=answer.rule,
                error=error,
                considered=tuple(details.considered),
                knew=dict(sorted(details.knew.items())),
                absent=tuple(sorted(details.absent)),
                view=view,
                notes=tuple(details.notes),
            )
        )

    def look(self) -> None:
        """Applies what all tables leave, once, before the subscription's own condition is asked."""
        if self._looked or self.denied or self.view.shows_all:
            return
        self._looked = True
        assert self.message is not None
        at = next(at for at, line in reversed(list(enumerate(self.lines))) if line.step is Step.VIEW)
        line = replace(self.lines[at], view=self.view)
        self.shown = None if self.view.shows_nothing else part_of(self.message, self.view)
        if self.shown is None:
            self.denied = True
            why = self._unseen(self.message)
            line = replace(line, verdict=Verdict.DENY, rule=UNSEEN.rule, notes=(*line.notes, why))
        elif line.verdict is Verdict.SILENT:
            line = replace(line, verdict=Verdict.ALLOW)
        self.lines[at] = line

    def _unseen(self, message: Message) -> str:
        if self.view.shows_nothing:
            return "the tables have nothing in common"
        try:
            self.attributes.facts(message)["payload"]
        except KeyError:
            return "the content is no JSON that can be taken apart, so it is shown whole or not at all"
        return "nothing of the content is among what may be seen"

    def concluded(self, lines: Iterable[Line], told: Deny | None, crossed: Iterable[Line] = ()) -> dict[str, Any]:
        """What follows from the lines; `told` is what a running node says, and its verdict counts.

        `crossed` are those of links on the way here: their rules have allowed it too.
        """
        lines = tuple(lines)
        first = next((line for line in lines if line.verdict is Verdict.DENY), None)
        notes: tuple[str, ...] = ()
        if (first is None) != (told is None):
            notes = ("asked twice, it answered differently: a condition calls a volatile function",)
            first = None if told is None else Line(step=told.step, verdict=Verdict.DENY, rule=told.rule)
        elif first is not None and told is not None and (told.step, told.rule) != (first.step, first.rule):
            notes = (f"a running node names `{told.rule}` ({told.step.value}): it denies before the message comes",)
        decided = first
        named = [each.rule for each in (first, told) if each is not None]
        if told is None:
            spoke = [line for line in (*self.lines, *crossed) if line.verdict is Verdict.ALLOW and line.rule]
            decided = spoke[0] if spoke else None
            named = [line.rule for line in spoke]
        return {
            "lines": lines,
            "allowed": told is None,
            "decided": decided,
            "rules": individual_rules(named),
            "told": told,
            "clocked": self.clocked,
            "notes": notes,
        }

    # -- what a stage looked at ----------------------------------------------------------------------------------

    def _describe(self, stage: Stage, details: StepDetails, known: Known, message: Message) -> None:
        match stage:
            case ReservedTopicStage():
                first = known.topic.split("/", 1)[0]
                if first in RESERVED and known.topic not in stage.heard:
                    details.tell(f"only services write below `{first}`", {"s.kind": known.context.subject.kind})
            case AccessStage():
                target = known.target
                actor = known.context.subject if target is None else target.subject
                env = {"s": self.attributes.subject(actor), **self._around(actor, message)}
                if target is None:
                    env["p"] = {}
                details.policies(stage.policies.considered(stage.action, actor, known.topic, env), env)
                details.spoke = True
            case BrokeringStage():
                _types(details, known)
            case LevelStage():
                _levels(stage, details, known)
            case PreferenceStage():
                assert known.target is not None
                receiver = known.target.subject
                applicable = stage.applicable(known)
                env = self._around(receiver, message)
                seen = applicable.seeing(receiver, env)
                for each, how in applicable.considered(receiver, env):
                    details.rule(each.id, _keeps(each.keep), each.when, how, seen)
            case ViewStage():
                _tables(stage, details, known)
            case WhereStage() if known.where is not None:
                assert known.target is not None
                env = self._around(known.target.subject, message)
                del env["p"]
                details.rule(WHERE, "allow", known.where, outcome(known.where, env), env)
            case _:
                pass

    def _around(self, actor: Subject, message: Message) -> dict[str, Any]:
        """The roots of a message that is here, without `s`."""
        attributes = self.attributes
        return {
            "o": attributes.facts(message),
            "e": attributes.now(attributes.environment(actor)),
            "p": attributes.published(message),
        }


class StepDetails:
    """What one stage looked at."""

    def __init__(self) -> None:
        self.considered: list[ConsideredRule] = []
        self.knew: dict[str, Any] = {}
        self.absent: set[str] = set()
        self.notes: list[str] = []
        self.spoke = False
        self.clocked = False

    def tell(self, note: str, knew: Mapping[str, Any]) -> None:
        self.spoke = True
        self.notes.append(note)
        self.knew |= knew

    def policies(self, found: Iterable[tuple[Policy, Outcome]], env: Mapping[str, Any]) -> None:
        for policy, how in found:
            self.rule(policy.id, policy.effect.value, policy.when, how, env)
            self._read(policy.topic.reads, env)

    def rule(self, rule: str, says: str, when: Predicate | None, how: Outcome, env: Mapping[str, Any]) -> None:
        self.spoke = True
        came, error = str(how).lower(), ""
        if isinstance(how, PredicateFailed):
            came, error = "error", how.reason
        elif isinstance(how, Predicate):
            came = "open"
        condition = "" if when is None else when.text
        self.considered.append(ConsideredRule(rule=rule, says=says, condition=condition, outcome=came, error=error))
        if when is not None:
            self.clocked = self.clocked or when.volatile or any(map(_of_clock, when.reads))
            self._read(when.reads, env)

    def _read(self, paths: Iterable[str], env: Mapping[str, Any]) -> None:
        for path in paths:
            value: Any = env
            try:
                for name in path.split("."):
                    value = value[name]
            except (KeyError, TypeError, IndexError):
                self.absent.add(path)
            else:
                if value is not UNKNOWN:
                    self.knew[path] = value


def individual_rules(rules: Iterable[str]) -> frozenset[str]:
    """Rules as they are named together, and one by one."""
    return frozenset(name for rule in rules for name in (rule, *rule.split(", ")))


def _of_clock(path: str) -> bool:
    """Whether an attribute is the clock's, now or when the message was published, or holds one that is."""
    return path in _CLOCKS or path.removeprefix("p.") in CLOCK_PATHS


def _keeps(view: View) -> str:
    return "keep all" if view.shows_all else f"keep {', '.join(view.plain)}"


def _demanded(demand: Demand) -> str:
    return "nothing" if demand.level is None else demand.level


def _types(details: StepDetails, known: Known) -> None:
    assert known.target is not None
    if exempt(known.context.subject):
        details.tell("the node speaks of itself", {})
        return
    came, goes = known.link, known.target.type
    details.spoke = True
    details.knew |= {"came over": came, "leaves over": goes}
    if UNTYPED in (came, goes):
        details.notes.append("nothing passes over a link without a type")


def _levels(stage: LevelStage, details: StepDetails, known: Known) -> None:
    assert known.target is not None
    levels, source, target = stage.levels, known.context, known.target
    own, level = source.subject.level, target.subject.level
    publisher = source.demand or RELAXED
    subscriber = levels.effective(level, known.terms.demand, target.demand)
    details.knew |= {
        "publisher demands": _demanded(publisher),
        "level of the reader": level,
        "subscriber demands": _demanded(subscriber),
        "floor": levels.floor(own),
    }
    for demand in (publisher, subscriber):
        if demand.level is not None:
            details.spoke = True
            if levels.rank(demand.level) is None:
                details.notes.append(f"`{demand.level}` is no level here: nothing meets it")


def _tables(stage: ViewStage, details: StepDetails, known: Known) -> None:
    assert known.target is not None
    actor, said = known.target.subject, known.context.view
    for row, applies in stage.views.considered(actor, known.topic):
        details.rule(row.id, f"{_keeps(row.view)} for {row.subject}", None, applies, _NOTHING)
    if said is None:
        return
    details.spoke = True
    table = Table.parse(said)
    if table.error:
        details.notes.append(table.error)
    for subject, view, applies in table.considered(actor, known.context.subject.domain):
        details.rule(PUBLISHER, f"{_keeps(view)} for {subject}", None, applies, _NOTHING)
