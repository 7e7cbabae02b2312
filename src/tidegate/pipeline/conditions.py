"""The small language of `filter:`, as in `type = 'temperature' and (value > 3 or name in ('a', 'b'))`.

It looks like SQL and is none: a text is parsed here into a tree by a small grammar, and the tree is made into a Spark
column. Nothing of the text ever reaches a parser of Spark.

- Columns are those of `COLUMNS`; each has a kind, and things of different kinds are not compared.
- Logic has three values, as in SQL: what is asked of something absent is neither true nor false, nor is its opposite.
  A condition fits only where it is true; `is null` asks for absence.
- A number that is none (NaN) counts as absent.

Parsing is pure and needs no Spark. LALR and counted nesting bound what a hostile text can cost.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from tidegate.config.problems import remedy
from tidegate.errors import PipelineError
from tidegate.pipeline.columns import RECORD, F

if TYPE_CHECKING:
    from pyspark.sql import Column

MAX_SOURCE: Final = 4096  # characters of a condition
MAX_NESTING: Final = 32  # levels of `not`, `and`, `or`, brackets and what they hold inside each other


class Kind(StrEnum):
    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"
    TIME = "time"


_KINDS: Final = {"double": Kind.NUMBER, "string": Kind.TEXT, "boolean": Kind.BOOLEAN, "timestamp": Kind.TIME}
_INNER: Final = ("id", "policy_version", "fault")  # of the pipeline itself, and nothing to judge a record by

COLUMNS: Final = {name: _KINDS[type] for name, type in RECORD if type in _KINDS and name not in _INNER}
"""What a condition or a check may read of a record."""

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_REMEDIES: Final = {
    Kind.NUMBER: "write a number, without quotes",
    Kind.TEXT: "write a text in single quotes",
    Kind.BOOLEAN: "write true or false, without quotes",
    Kind.TIME: "compare it with `measured_at` or `received_at`",
}
_LITERALS: Final = {"NUMBER": Kind.NUMBER, "TEXT": Kind.TEXT, "TRUE": Kind.BOOLEAN, "FALSE": Kind.BOOLEAN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The tree of a text, by the rules of `GRAMMAR`, or what is wrong with it."""

    tree: Tree[Token] | None
    problems: tuple[str, ...] = ()


GRAMMAR: Final = r"""
start: _any
_any: any_
?any_: all_ (_OR all_)*
?all_: _part (_AND _part)*
_part: negated | test | bracket
negated: NOT _part
bracket: "(" _any ")"
?test: _operand COMPARE _operand        -> compare
     | _operand IN "(" _values ")"      -> within
     | _operand NOT IN "(" _values ")"  -> without
     | _operand IS NULL                 -> absent
     | _operand IS NOT NULL             -> present
     | _operand                         -> truth
_values: _literal ("," _literal)*
_operand: NAME | _literal
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


@lru_cache(1)
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="basic")


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
        tree = _parser().parse(text)
    except UnexpectedCharacters as error:
        hint = "; write texts in single quotes, a quote inside doubled" if error.char in "'\"`" else ""
        return _wrong(f"unexpected {error.char!r}{_at(error.pos_in_stream)}{hint}")
    except UnexpectedToken as error:
        return _wrong(_unexpected(error))
    except UnexpectedInput as error:
        return _wrong(f"this is no condition{_at(error.pos_in_stream)}; write for example `value > 3`")
    if _depth(tree) >= MAX_NESTING:
        return _wrong(f"the condition is nested more than {MAX_NESTING} deep; make several rules of it")
    found = tuple(_problems(tree))
    return Parsed(tree=None if found else tree, problems=found)


def problems(text: str) -> tuple[str, ...]:
    """What is wrong with a condition, with its place and how to mend it; nothing if it is right."""
    return parse(text).problems


def fits(text: str | None) -> Column:
    """The column that is true where a condition fits, and false or null where not; of none, what is always true.

    PipelineError if the condition is wrong.
    """
    if text is None:
        return F.lit(True)
    parsed = parse(text)
    if parsed.tree is None:
        raise PipelineError(f"filter {text[:80]!r}: {'; '.join(parsed.problems)}")
    return _column(parsed.tree)


def _column(tree: Tree[Any]) -> Column:
    """Recurses, but not deeper than MAX_NESTING."""
    parts: list[Any] = tree.children
    match tree.data:
        case "any_":
            return _folded([_column(part) for part in parts], operator.or_)
        case "all_":
            return _folded([_column(part) for part in parts], operator.and_)
        case "negated":
            return ~_column(parts[1])
        case "compare":
            return _COMPARISONS[parts[1]](_operand(parts[0]), _operand(parts[2]))
        case "within":
            return _operand(parts[0]).isin([_value(token) for token in parts[2:]])
        case "without":
            return ~_operand(parts[0]).isin([_value(token) for token in parts[3:]])
        case "absent":
            return _operand(parts[0]).isNull()
        case "present":
            return _operand(parts[0]).isNotNull()
        case "truth":
            return _operand(parts[0])
        case _:  # brackets, and the whole
            return _column(parts[0])


def _operand(token: Token) -> Column:
    if token.type != "NAME":
        return F.lit(_value(token))
    return F.when(~F.isnan(token), F.col(token)) if _kind(token) is Kind.NUMBER else F.col(token)


def _folded(columns: Sequence[Column], join: Callable[[Column, Column], Column]) -> Column:
    """Joined as a balanced tree: Spark recurses over what it is given."""
    if len(columns) == 1:
        return columns[0]
    middle = len(columns) // 2
    return join(_folded(columns[:middle], join), _folded(columns[middle:], join))


def _depth(tree: Tree[Any]) -> int:
    """How many levels of rules there are, counted without recursion."""
    depth, level = 0, [tree]
    while level:
        depth += 1
        level = [part for rule in level for part in rule.children if isinstance(part, Tree)]
    return depth


def _problems(tree: Tree[Any]) -> Iterator[str]:
    """All that is wrong with names, kinds and numbers. Recurses, but not deeper than MAX_NESTING."""
    for part in tree.children:
        if isinstance(part, Tree):
            yield from _problems(part)
        else:
            yield from _token_problems(part)
    parts: list[Any] = tree.children
    match [str(tree.data), *parts]:
        case ["compare", left, sign, right]:
            yield from _mismatch(left, right, sign)
            if _COMPARISONS[sign] not in (operator.eq, operator.ne) and _kind(left) is _kind(right) is Kind.BOOLEAN:
                yield f"true and false have no order for `{sign}`{_at(sign.start_pos)}; write `=` or `!=`"
        case ["within" | "without", operand, *values]:
            for token in values:
                if token.type in _LITERALS:
                    yield from _mismatch(operand, token, token)
        case ["truth", operand] if _kind(operand) not in (None, Kind.BOOLEAN):
            where = _at(operand.start_pos)
            yield f"{_described(operand)} is neither true nor false{where}; compare it, as in `value > 3`"


def _token_problems(token: Token) -> Iterator[str]:
    if token.type == "NAME" and token not in COLUMNS:
        mend = remedy(token, COLUMNS, f"there is {', '.join(COLUMNS)}")
        yield f"there is no column `{token[:40]}`{_at(token.start_pos)}; {mend}"
    elif token.type == "NUMBER" and not math.isfinite(float(token)):
        yield f"{token[:40]} is too large a number{_at(token.start_pos)}; write one below 1e308"


def _mismatch(left: Token, right: Token, at: Token) -> Iterator[str]:
    """No second problem is made of a column that is not known."""
    kind, other = _kind(left), _kind(right)
    if kind is not None and other is not None and kind is not other:
        mend = _REMEDIES[kind if left.type == "NAME" else other]
        yield f"{_described(left)} cannot be compared with {_described(right)}{_at(at.start_pos)}; {mend}"


def _kind(token: Token) -> Kind | None:
    """None if it names no column."""
    return COLUMNS.get(token) if token.type == "NAME" else _LITERALS[token.type]


def _value(literal: Token) -> float | str | bool:
    match literal.type:
        case "NUMBER":
            return float(literal)
        case "TEXT":
            return literal[1:-1].replace("''", "'")
        case _:
            return literal.type == "TRUE"


def _described(operand: Token) -> str:
    kind = _kind(operand)
    if operand.type == "NAME":
        return f"`{operand}` (a {kind})"
    value = _value(operand)
    return f"{value[:40]!r} (a {kind})" if isinstance(value, str) else f"{value} (a {kind})"


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
    return Parsed(tree=None, problems=(problem,))
