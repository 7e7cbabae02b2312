"""The small language of `filter:`, as in `type = 'temperature' and (value > 3 or name in ('a', 'b'))`.

It looks like SQL and is none: a text is parsed here into a tree of a few kinds of nodes, and the tree is made into a
Spark column. Nothing of the text ever reaches a parser of Spark.

- Columns are those of `COLUMNS`; each has a kind, and things of different kinds are not compared.
- Logic has three values, as in SQL: what is asked of something absent is neither true nor false, nor is its opposite.
  A condition fits only where it is true; `is null` asks for absence.
- A number that is none (NaN) counts as absent.

Parsing is pure and needs no Spark. LALR and counted nesting bound what a hostile text can cost.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from tidegate.config.problems import suggestion
from tidegate.errors import PipelineError
from tidegate.pipeline.columns import RECORD
from tidegate.pipeline.spark_functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column

MAX_SOURCE: Final = 4096
"""Characters of a condition."""
MAX_NESTING: Final = 32
"""Levels of `not`, `and`, `or` and brackets inside each other."""


class Kind(StrEnum):
    """What can be compared with each other."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"
    TIME = "time"


_KINDS: Final = {"double": Kind.NUMBER, "string": Kind.TEXT, "boolean": Kind.BOOLEAN, "timestamp": Kind.TIME}
_INNER: Final = ("id", "policy_version", "fault")  # of the pipeline itself, and nothing to judge a record by

COLUMNS: Final = {name: _KINDS[type] for name, type in RECORD if type in _KINDS and name not in _INNER}
"""What a condition or a check may read of a record."""


COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A column of the record."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A value that is written down."""

    value: float | str | bool
    kind: Kind


Operand: TypeAlias = Name | Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    comparison: str
    """One of `COMPARISONS`."""
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """Equal to one of the values."""

    operand: Operand
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    operand: Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A column or literal that is itself true or false."""

    operand: Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    part: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class All:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Any_:
    parts: tuple[Node, ...]


Node: TypeAlias = Compare | Within | Absent | Truth | Not | All | Any_


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The tree of a text, or what is wrong with it."""

    node: Node | None
    problems: tuple[str, ...] = ()


GRAMMAR: Final = r"""
start: _any
_any: any_
?any_: all_ (_OR all_)*
?all_: _part (_AND _part)*
_part: negated | test | bracket
negated: NOT _part
bracket: "(" _any ")"
?test: operand COMPARE operand      -> compare
     | operand IN "(" _values ")"      -> within
     | operand NOT IN "(" _values ")"  -> without
     | operand IS NULL              -> absent
     | operand IS NOT NULL          -> present
     | operand                      -> truth
_values: _literal ("," _literal)*
operand: NAME | _literal
_literal: NUMBER | TEXT | TRUE | FALSE

_AND.2: /and(?![_a-zA-Z0-9])/i
_OR.2: /or(?![_a-zA-Z0-9])/i
NOT.2: /not(?![_a-zA-Z0-9])/i
IN.2: /in(?![_a-zA-Z0-9])/i
IS.2: /is(?![_a-zA-Z0-9])/i
NULL.2: /null(?![_a-zA-Z0-9])/i
TRUE.2: /true(?![_a-zA-Z0-9])/i
FALSE.2: /false(?![_a-zA-Z0-9])/i
COMPARE: "<=" | ">=" | "==" | "!=" | "<>" | "=" | "<" | ">"
NAME: /[_a-zA-Z][_a-zA-Z0-9]*/
NUMBER: /[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![_a-zA-Z0-9.])/
TEXT: /'(?:[^']|'')*'/
SPACE: /[\t\n\f\r ]+/
%ignore SPACE
"""

_SPELLINGS: Final = {"==": "=", "<>": "!="}


@dataclass(frozen=True, slots=True)
class _Raw:
    """A rule of the grammar before its names are looked up."""

    rule: str
    parts: tuple[_Raw | Token, ...]
    depth: int


class _TooDeep(Exception):
    """Nesting is refused while parsing, before anything recurses."""


class _Build:
    """Lark's callbacks, one for each rule, called bottom-up."""

    def __getattr__(self, rule: str) -> Callable[[list[Any]], _Raw]:
        if rule.startswith("_") or not rule.islower():
            raise AttributeError(rule)

        def build(parts: list[Any]) -> _Raw:
            depth = 1 + max((part.depth for part in parts if isinstance(part, _Raw)), default=0)
            if depth > MAX_NESTING:
                raise _TooDeep
            return _Raw(rule, tuple(parts), depth)

        return build


@lru_cache(1)
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_Build())


@lru_cache(512)
def parse(text: str) -> Parsed:
    """The tree of a condition with every name known and every comparison typed, or its problems."""
    if len(text) > MAX_SOURCE:
        return _wrong(f"the condition is longer than {MAX_SOURCE} characters; make several rules of it")
    if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in text):
        return _wrong("the condition holds characters that are no text; write it without them")
    if not text.strip():
        return _wrong("the condition is empty; leave `filter` out to let the rule apply to every record")
    try:
        tree: Any = _parser().parse(text)
    except _TooDeep:
        return _wrong(f"the condition is nested more than {MAX_NESTING} deep; make several rules of it")
    except UnexpectedCharacters as error:
        hint = "; write texts in single quotes, a quote inside doubled" if error.char in "'\"`" else ""
        return _wrong(f"unexpected {error.char!r}{_at(error.pos_in_stream)}{hint}")
    except UnexpectedToken as error:
        return _wrong(_unexpected(error))
    except UnexpectedInput as error:
        return _wrong(f"this is no condition{_at(error.pos_in_stream)}; write for example `value > 3`")
    reading = _Reading()
    node = reading.node(tree)
    return Parsed(node=None if reading.problems else node, problems=tuple(reading.problems))


def problems(text: str) -> tuple[str, ...]:
    """What is wrong with a condition, with its place and how to mend it; nothing if it is right."""
    return parse(text).problems


def column(node: Node) -> Column:
    """The column that is true where the condition fits, and false or null where not."""
    match node:
        case Compare(comparison=comparison, left=left, right=right):
            return COMPARISONS[comparison](_read(left), _read(right))
        case Within(operand=operand, values=values):
            return _read(operand).isin([literal.value for literal in values])
        case Absent(operand=operand):
            return _read(operand).isNull()
        case Truth(operand=operand):
            return _read(operand)
        case Not(part=part):
            return ~column(part)
        case All(parts=parts):
            return _folded([column(part) for part in parts], lambda left, right: left & right)
        case Any_(parts=parts):
            return _folded([column(part) for part in parts], lambda left, right: left | right)
        case _:
            assert_never(node)


def fits(text: str | None) -> Column:
    """The column of a condition as text; of none, what is always true. PipelineError if it is wrong."""
    if text is None:
        return F.lit(True)
    parsed = parse(text)
    if parsed.node is None:
        raise PipelineError(f"filter {text[:80]!r}: {'; '.join(parsed.problems)}")
    return column(parsed.node)


def _read(operand: Operand) -> Column:
    match operand:
        case Name(name=name, kind=Kind.NUMBER):
            return F.when(~F.isnan(name), F.col(name))
        case Name(name=name):
            return F.col(name)
        case Literal(value=value):
            return F.lit(value)
        case _:
            assert_never(operand)


def _folded(columns: Sequence[Column], join: Callable[[Column, Column], Column]) -> Column:
    """Joined as a balanced tree: Spark recurses over what it is given."""
    if len(columns) == 1:
        return columns[0]
    middle = len(columns) // 2
    return join(_folded(columns[:middle], join), _folded(columns[middle:], join))


class _Reading:
    """Raw rules to nodes, with all that is wrong on the way. Recurses, but not deeper than MAX_NESTING."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def node(self, raw: Any) -> Node:
        parts = raw.parts
        match raw.rule:
            case "start" | "bracket":
                return self.node(parts[0])
            case "any_":
                return Any_(parts=tuple(map(self.node, parts)))
            case "all_":
                return All(parts=tuple(map(self.node, parts)))
            case "negated":
                return Not(part=self.node(parts[1]))
            case "absent":
                return Absent(operand=self.operand(parts[0]))
            case "present":
                return Not(part=Absent(operand=self.operand(parts[0])))
            case "within":
                return self.within(parts[0], parts[2:])
            case "without":
                return Not(part=self.within(parts[0], parts[3:]))
            case "compare":
                return self.compare(*parts)
            case _:
                return self.truth(parts[0])

    def compare(self, left: _Raw, sign: Token, right: _Raw) -> Node:
        comparison = _SPELLINGS.get(sign, str(sign))
        a, b = self.operand(left), self.operand(right)
        self.same(a, b, sign)
        if comparison not in ("=", "!=") and _known(a, b) and a.kind is b.kind is Kind.BOOLEAN:
            self.problem(f"true and false have no order for `{sign}`", sign, "write `=` or `!=`")
        return Compare(comparison=comparison, left=a, right=b)

    def within(self, operand: _Raw, values: Sequence[Token]) -> Node:
        read = self.operand(operand)
        literals = tuple(self.literal(token) for token in values)
        for token, literal in zip(values, literals, strict=True):
            self.same(read, literal, token)
        return Within(operand=read, values=literals)

    def truth(self, raw: _Raw) -> Node:
        operand = self.operand(raw)
        if operand.kind is not Kind.BOOLEAN:
            token = raw.parts[0]
            self.problem(f"{_described(operand)} is neither true nor false", token, "compare it, as in `value > 3`")
        return Truth(operand=operand)

    def operand(self, raw: _Raw) -> Operand:
        token = raw.parts[0]
        assert isinstance(token, Token)
        if token.type != "NAME":
            return self.literal(token)
        name = str(token)
        kind = COLUMNS.get(name)
        if kind is None:
            near = suggestion(name, COLUMNS)
            self.problem(
                f"there is no column `{name[:40]}`",
                token,
                f"did you mean `{near}`?" if near else f"there is {', '.join(COLUMNS)}",
            )
            return Name(name="", kind=Kind.BOOLEAN)  # see `_known`
        return Name(name=name, kind=kind)

    def literal(self, token: Token) -> Literal:
        match token.type:
            case "NUMBER":
                number = float(token)
                if not math.isfinite(number):
                    self.problem(f"{token[:40]} is too large a number", token, "write one below 1e308")
                return Literal(value=number, kind=Kind.NUMBER)
            case "TEXT":
                return Literal(value=token[1:-1].replace("''", "'"), kind=Kind.TEXT)
            case _:
                return Literal(value=token.type == "TRUE", kind=Kind.BOOLEAN)

    def same(self, left: Operand, right: Operand, at: Token) -> None:
        if left.kind is right.kind or not _known(left, right):
            return
        remedy = {
            Kind.NUMBER: "write a number, without quotes",
            Kind.TEXT: "write a text in single quotes",
            Kind.BOOLEAN: "write true or false, without quotes",
            Kind.TIME: "compare it with `measured_at` or `received_at`",
        }[left.kind if isinstance(left, Name) else right.kind]
        self.problem(f"{_described(left)} cannot be compared with {_described(right)}", at, remedy)

    def problem(self, what: str, token: Token | _Raw, remedy: str) -> None:
        assert isinstance(token, Token)
        self.problems.append(f"{what}{_at(token.start_pos)}; {remedy}")


def _known(*operands: Operand) -> bool:
    """Whether all columns are known: no second problem is made of one that is not."""
    return all(operand.name for operand in operands if isinstance(operand, Name))


def _described(operand: Operand) -> str:
    match operand:
        case Name(name=name, kind=kind):
            return f"`{name}` (a {kind})"
        case Literal(value=value, kind=kind):
            return f"{str(value)[:40]!r} (a {kind})" if kind is Kind.TEXT else f"{value} (a {kind})"
        case _:
            assert_never(operand)


def _unexpected(error: UnexpectedToken) -> str:
    token = error.token
    if token.type == "$END":
        return "the condition ends too early; write for example `value > 3`"
    if token.type == "NULL":
        return f"nothing equals null{_at(token.start_pos)}; write `is null` or `is not null`"
    return f"unexpected {str(token)[:40]!r}{_at(token.start_pos)}; write for example `value > 3 and unit = 'C'`"


def _at(position: int | None) -> str:
    return "" if position is None else f" at character {position + 1}"


def _wrong(problem: str) -> Parsed:
    return Parsed(node=None, problems=(problem,))
