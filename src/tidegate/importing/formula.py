"""What a foreign rule asks, as a formula that becomes the subject, the topic and the condition of policies.

A formula speaks of one request. Its leaves are tests, the action, and `UNSAID`: what no policy can say.

Invariants
- `settled` is asked in one of two directions. Downwards it holds at most where the formula holds, upwards at least
  there; without `UNSAID` both are the formula itself. Permissions are settled downwards and refusals upwards, so that
  what is written never allows more than what was read.
- A condition cannot fail for want of an attribute: a test asks first whether it is there.
- The weight of a formula is what evaluating it costs at most, about, in the operations of `policy.predicate`.

It does not know where a formula comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final

from tidegate.errors import ConfigError
from tidegate.importing.imported_policies import plain_topic, quoted, unspeakable
from tidegate.policy import Template
from tidegate.policy.selector import QUALIFIED
from tidegate.predicate import BUDGET, PredicateError, compile

MAX_WEIGHT: Final = BUDGET // 2
"""Of a formula that becomes a condition: the rest of the budget is for long topics."""


@dataclass(frozen=True, slots=True)
class Const:
    value: bool
    weight: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Unsaid:
    """Holds or not, and no policy can say when."""

    weight: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Doing:
    """The action is one of these; of `read` and `write`."""

    actions: frozenset[str]
    weight: ClassVar[int] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One condition; `selector` and `filter` say the same as a policy's subject or topic, where that is possible."""

    text: str
    selector: str | None = None
    filter: str | None = None
    weight: int = 30


@dataclass(frozen=True, slots=True)
class Not:
    part: Formula
    weight: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", self.part.weight + 4)


@dataclass(frozen=True, slots=True)
class _Parts:
    parts: tuple[Formula, ...]
    weight: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", sum(part.weight + 1 for part in self.parts))


class All(_Parts):
    __slots__ = ()


class Some(_Parts):
    __slots__ = ()


Formula = Const | Unsaid | Doing | Test | Not | All | Some

ALWAYS: Final = Const(True)
NEVER: Final = Const(False)
UNSAID: Final = Unsaid()


# -- putting together ------------------------------------------------------------------------------------------------


def both(*parts: Formula) -> Formula:
    return _joined(parts, All, NEVER, ALWAYS)


def either(*parts: Formula) -> Formula:
    return _joined(parts, Some, ALWAYS, NEVER)


def _joined(parts: tuple[Formula, ...], sort: type[All] | type[Some], strong: Const, weak: Const) -> Formula:
    inner = [each for part in parts for each in (part.parts if isinstance(part, sort) else (part,))]
    if strong in inner:
        return strong
    kept = tuple(dict.fromkeys(each for each in inner if each != weak))
    return sort(kept) if len(kept) > 1 else kept[0] if kept else weak


def opposite(part: Formula) -> Formula:
    match part:
        case Const():
            return Const(not part.value)
        case Not():
            return part.part
        case _:
            return Not(part)


def without(formula: Formula, other: Formula) -> Formula:
    """What is left of a formula to be asked where another one holds."""
    # one UNSAID is not another, so nothing that may hold it is left out
    known = {part for part in (other.parts if isinstance(other, All) else (other,)) if isinstance(part, Test | Doing)}
    match formula:
        case Test() | Doing() if formula in known:
            return ALWAYS
        case All():
            return both(*(part for part in formula.parts if part not in known))
        case Some():
            return either(*(without(part, other) for part in formula.parts))
        case _:
            return formula


# -- tests -----------------------------------------------------------------------------------------------------------


def named(sort: str, name: str) -> Test:
    """The user or client has this name, or one of their roles or groups has it."""
    # `policy.shown` shows a name that holds an `@` with its domain
    shown = f"{quoted(name + '@')} + s.domain" if sort in QUALIFIED and "@" in name else quoted(name)
    if sort in ("user", "client"):
        text = f"has(s.{sort}) && s.{sort} == {shown}"
    else:
        text = f"{shown} in s.{sort}s"
    return Test(text=text, selector=f"{sort}:{name}" if unspeakable(sort, name) is None else None)


def topic_fits(filter: str) -> Test | None:
    """The topic matches a filter, which is plain text; None if it is no filter of a policy."""
    template = plain_topic(filter)
    try:
        Template.parse(template)
    except ConfigError:
        return None
    return Test(text=f"matchesFilter(o.topic, {quoted(filter)})", filter=template)


def text_fits(path: str, pattern: str, *, within: str | None = None) -> Test | None:
    """A text has a match of an RE2 pattern; None if it is no such pattern.

    `within` is the attribute that has to be there first.
    """
    literal = quoted(pattern)
    try:
        compile(f"o.topic.matches({literal})")
    except PredicateError:
        return None
    guard = f"has({within}) && " if within else ""
    return Test(text=f"{guard}{path}.matches({literal})", weight=120)


# -- taking apart ----------------------------------------------------------------------------------------------------


def settled(formula: Formula, action: str, *, upward: bool) -> Formula:
    """The formula for one action, without `UNSAID`."""
    match formula:
        case Const() | Test():
            return formula
        case Unsaid():
            return Const(upward)
        case Doing():
            return Const(action in formula.actions)
        case Not():
            return opposite(settled(formula.part, action, upward=not upward))
        case All():
            return both(*(settled(part, action, upward=upward) for part in formula.parts))
        case Some():
            return either(*(settled(part, action, upward=upward) for part in formula.parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """A formula as the parts of one policy. Without a topic it is about every topic."""

    subject: str | tuple[str, ...] = "*"
    topic: str | None = None
    when: str | None = None


class TooLarge(Exception):
    """A condition would be larger than a condition may be."""


def flat(formula: Formula, *, bare: bool = False) -> list[Flat]:
    """A settled formula as policies that apply exactly where it holds; raises TooLarge.

    With `bare` they have no condition, and apply at least there.
    """
    if formula == NEVER:
        return []
    subject: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    rest: list[Formula] = []
    for part in formula.parts if isinstance(formula, All) else (formula,):
        tests = part.parts if isinstance(part, Some) else (part,)
        selectors = tuple(test.selector for test in tests if isinstance(test, Test) and test.selector is not None)
        filters = tuple(test.filter for test in tests if isinstance(test, Test) and test.filter is not None)
        if subject is None and len(selectors) == len(tests):
            subject = selectors
        elif topics is None and len(filters) == len(tests):
            topics = filters
        elif part != ALWAYS:
            rest.append(part)
    when = None if bare else condition(both(*rest))
    who: str | tuple[str, ...] = "*" if subject is None else subject[0] if len(subject) == 1 else subject
    return [Flat(subject=who, topic=topic, when=when) for topic in (topics or (None,))]


def flat_by_action(
    formula: Formula, *, allows: bool, too_large: Callable[[], object]
) -> list[tuple[tuple[str, ...], list[Flat]]]:
    """The formula as policies that allow or deny, for each action, or for both where they are the same.

    A formula that is too large for a condition allows nothing, or denies without a condition; `too_large` is called.
    """
    by_action: dict[str, list[Flat]] = {}
    for action in ("read", "write"):
        asked = settled(formula, action, upward=not allows)
        try:
            by_action[action] = flat(asked)
        except TooLarge:
            too_large()
            by_action[action] = [] if allows else flat(asked, bare=True)
    if by_action["read"] == by_action["write"]:
        return [(("read", "write"), by_action["read"])]
    return [((action,), flats) for action, flats in by_action.items()]


def condition(formula: Formula) -> str | None:
    """A settled formula as a condition, None if it always holds; raises TooLarge."""
    if formula == ALWAYS:
        return None
    if formula.weight > MAX_WEIGHT:
        raise TooLarge
    text = _text(formula)
    if not _compiles(text):
        raise TooLarge
    return text


@lru_cache(64)
def _compiles(text: str) -> bool:
    """Most texts are asked for twice in a row: for reading, and for writing."""
    try:
        compile(text)
    except PredicateError:
        return False
    return True


def _text(formula: Formula) -> str:
    match formula:
        case Const():
            return "true" if formula.value else "false"
        case Test():
            return formula.text
        case Not():
            return f"!({_text(formula.part)})"
        case All():
            return " && ".join(f"({_text(part)})" if isinstance(part, Some) else _text(part) for part in formula.parts)
        case Some():
            return " || ".join(_text(part) for part in formula.parts)
        case Doing() | Unsaid():
            raise AssertionError("only what is settled has a text")
