"""Records one way through the steps of the gate, and what each step looked at: for explanations.

Each stage is asked of one message, and beside its answer stands what it looked at, read off the same rules. Nothing is
decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from tidegate.explain.explanation import ConsideredRule, Line, Verdict
from tidegate.gate.attributes import CLOCK_PATHS, Attributes
from tidegate.gate.decision import UNSEEN, UNSIGNED, part_of
from tidegate.gate.stages.brokering import BrokeringStage
from tidegate.gate.stages.levels import DemandStage, LevelStage
from tidegate.gate.stages.read_preferences import ForwardingPreferenceStage, PreferenceStage
from tidegate.gate.stages.view import PUBLISHER, ViewStage
from tidegate.gate.stages.where import WHERE, WhereStage
from tidegate.gate.stages.write_and_read_policies import AccessStage, ForwardingAccessStage
from tidegate.gate.stages.write_reserved_topics import RESERVED, ReservedTopicStage
from tidegate.gate.verdict import Allow, Deny, Known, Residual, Stage, Step
from tidegate.policy import ALL, RELAXED, Demand, Policy, Table, View
from tidegate.policy.brokering import UNTYPED, exempt
from tidegate.policy.demands import effective_demand, unknown_name
from tidegate.policy.outcome import Outcome, outcome
from tidegate.predicate import UNKNOWN, Predicate, PredicateFailed
from tidegate.session import Message, Subject

_CLOCKS: Final = CLOCK_PATHS | {"e", "p", "p.e", "p.time"}
_PARTS: Final[Mapping[type, str]] = {
    ReservedTopicStage: "reserved",
    DemandStage: "demand",
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
    def __init__(self, attributes: Attributes, known: Known | None, message: Message | None) -> None:
        self.attributes = attributes
        self.known = known
        self.message = message
        self.shown = message
        self.view = ALL
        self.lines: list[Line] = []
        self.denied = False
        self.whole = False
        self.clocked = False
        self._looked = False

    def take(self, kind: Stage, stage: Stage | None) -> None:
        """Asks a stage, unless an earlier one has denied or the rules leave it out."""
        part = _PARTS.get(type(kind), "")
        if isinstance(kind, DemandStage) and (self.denied or not self._unknown_demand(kind)):
            return  # most messages demand nothing that could be wrong: no line speaks of it
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

    def _unknown_demand(self, stage: DemandStage) -> bool:
        return self.known is not None and isinstance(stage.evaluate(self.known), Deny)

    def note(self, kind: Stage, answer: Allow | Deny, details: StepDetails) -> None:
        self.clocked = self.clocked or details.clocked
        line = Line(
            step=answer.step if isinstance(answer, Deny) else kind.step,
            part=_PARTS.get(type(kind), ""),
            verdict=Verdict.ALLOW if answer.rule or details.spoke else Verdict.SILENT,
            rule=answer.rule,
            considered=tuple(details.considered),
            knew=dict(sorted(details.knew.items())),
            absent=tuple(sorted(details.absent)),
            notes=tuple(details.notes),
        )
        if isinstance(answer, Deny):
            self.denied = True
            line = replace(line, verdict=Verdict.DENY, error=answer.error or answer.detail)
        else:
            self.view &= answer.view
            self.whole = self.whole or answer.whole
            line = replace(line, view=answer.view)
        self.lines.append(line)

    def look(self) -> None:
        """Applies what all tables leave, once, before the subscription's own condition is asked."""
        if self._looked or self.denied or self.view.shows_all:
            return
        self._looked = True
        assert self.message is not None
        at = next(at for at, line in reversed(list(enumerate(self.lines))) if line.step is Step.VIEW)
        line = replace(self.lines[at], view=self.view)
        self.shown = None if self.view.shows_nothing else part_of(self.message, self.view)
        if self.whole and not self.view.shows_nothing:
            self.denied = True
            line = replace(line, verdict=Verdict.DENY, rule=UNSIGNED.rule, error=UNSIGNED.detail)
        elif self.shown is None:
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

    def concluded(self, lines: Iterable[Line], denial: Deny | None, crossed: Iterable[Line] = ()) -> dict[str, Any]:
        """What follows from the lines; `denial` is what a running node says, and its verdict counts.

        `crossed` are those of links on the way here: their rules have allowed it too.
        """
        lines = tuple(lines)
        first = next((line for line in lines if line.verdict is Verdict.DENY), None)
        notes: tuple[str, ...] = ()
        if (first is None) != (denial is None):
            notes = ("asked twice, it answered differently: a condition calls a volatile function",)
            first = None if denial is None else Line(step=denial.step, verdict=Verdict.DENY, rule=denial.rule)
        elif first is not None and denial is not None:
            notes = other_denial(first, denial)
        decided = first
        named = [each.rule for each in (first, denial) if each is not None]
        if denial is None:
            spoke = [line for line in (*self.lines, *crossed) if line.verdict is Verdict.ALLOW and line.rule]
            decided = spoke[0] if spoke else None
            named = [line.rule for line in spoke]
        return {
            "lines": lines,
            "allowed": denial is None,
            "decided": decided,
            "rules": individual_rules(named),
            "denial": denial,
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
                if applicable is None:
                    return
                env = self._around(receiver, message)
                if stage.owners.is_foreign(known.context):
                    env["p"] = self.attributes.published_in(applicable.domain, message)
                seen = applicable.seeing(receiver, env)
                for each, how in applicable.considered(receiver, env):
                    says = "deny" if each.denies else _keeps(each.keep)
                    details.rule(each.id, says, each.when, how, seen)
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

    def policies(self, outcomes: Iterable[tuple[Policy, Outcome]], env: Mapping[str, Any]) -> None:
        for policy, how in outcomes:
            self.rule(policy.id, policy.effect.value, policy.when, how, env)
            self._read(policy.topic.reads, env)

    def rule(self, rule: str, says: str, when: Predicate | None, how: Outcome, env: Mapping[str, Any]) -> None:
        self.spoke = True
        word, error = str(how).lower(), ""
        if isinstance(how, PredicateFailed):
            word, error = "error", how.reason
        elif isinstance(how, Predicate):
            word = "open"
        condition = "" if when is None else when.text
        self.considered.append(ConsideredRule(rule=rule, says=says, condition=condition, outcome=word, error=error))
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


def other_denial(first: Line, denial: Deny) -> tuple[str, ...]:
    """The note on a running node that names another rule than the first that denies; none if it names the same."""
    if (denial.step, denial.rule) == (first.step, first.rule):
        return ()
    return (f"a running node names `{denial.rule}` ({denial.step.value}): it denies before the message comes",)


def individual_rules(rules: Iterable[str]) -> frozenset[str]:
    """Rules as they are named together, and one by one."""
    return frozenset(name for rule in rules for name in (rule, *rule.split(", ")))


def _of_clock(path: str) -> bool:
    """Whether an attribute is the clock's, now or when the message was published, or holds one that is."""
    return path in _CLOCKS or path.removeprefix("p.") in CLOCK_PATHS


def _keeps(view: View) -> str:
    return "keep all" if view.shows_all else f"keep {', '.join(view.plain)}"


def _demanded(demand: Demand) -> str:
    return demand.text or "nothing"


def _types(details: StepDetails, known: Known) -> None:
    assert known.target is not None
    if known.context.floor is None and exempt(known.context.subject):
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
    reader = target.subject
    publisher = source.demand or RELAXED
    subscriber = effective_demand(levels, reader.level, known.terms.demand, target.demand)
    details.knew |= {
        "publisher demands": _demanded(publisher),
        "level of the reader": levels.told(reader.level, levels.floor_facts(reader.facts)),
        "subscriber demands": _demanded(subscriber),
        "floor": levels.told(source.level, levels.floor_facts(source.facts, signed=source.signed)),
    }
    for demand in (publisher, subscriber):
        if demand.names:
            details.spoke = True
        if why := unknown_name(levels, demand):
            details.notes.append(f"nothing meets it: {why}")


def _tables(stage: ViewStage, details: StepDetails, known: Known) -> None:
    assert known.target is not None
    actor, written = known.target.subject, known.context.view
    for row, applies in stage.views.considered(actor, known.topic):
        details.rule(row.id, f"{_keeps(row.view)} for {row.subject}", None, applies, {})
    if written is None:
        return
    details.spoke = True
    table = Table.parse(written)
    if table.error:
        details.notes.append(table.error)
    for subject, view, applies in table.considered(stage.views.terms(actor), known.context.subject.domain):
        details.rule(PUBLISHER, f"{_keeps(view)} for {subject}", None, applies, {})
