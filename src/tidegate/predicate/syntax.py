"""The syntax tree: what `parse` makes of a text and what everything else works on.

Operators are calls of functions named as in the CEL specification (`_+_`, `!_`, `_[_]`). `a.b.c` of a root is one
`Attr`, and `a["b"]` is the same as `a.b`, so that what a predicate reads can be said exactly.
`&&` and `||` have any number of operands; with one operand they only demand that it is a bool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from tidegate.predicate.signature import Function

Place = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What stands at a place of the text: line and column, from one."""

    at: Place = (1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Const(Placed):
    """A value that is known."""

    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(Placed):
    """An error that is known; what partial evaluation leaves where `&&` or `||` may still absorb it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Var(Placed):
    """The variable of a macro. Every macro of a predicate has its own slot."""

    name: str
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attr(Placed):
    """An attribute by its path from a root; the empty path is the root itself."""

    root: str
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        return ".".join((self.root, *self.path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Placed):
    """A field of what is no attribute path, such as `x.level` of a macro's `x`."""

    operand: Node
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Has(Placed):
    """`has(operand.field)`."""

    operand: Node
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Placed):
    """A function or an operator: strict, so an error in an argument is an error of the call."""

    function: Function
    arguments: tuple[Node, ...]
    ready: Callable[..., object] | None = None
    """The function prepared for these constants; it takes the first argument only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Placed):
    """`[a, b]`."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries(Placed):
    """`{a: b}`."""

    entries: tuple[tuple[Node, Node], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic(Placed):
    """`&&` (decided by false) or `||` (decided by true), which absorb errors once decided."""

    deciding: bool
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cond(Placed):
    """`test ? then : otherwise`."""

    test: Node
    then: Node
    otherwise: Node


class Macros(Enum):
    """The macros that bind a variable."""

    ALL = "all"
    EXISTS = "exists"
    EXISTS_ONE = "exists_one"
    FILTER = "filter"
    MAP = "map"


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro(Placed):
    """`over.all(x, body)` and its siblings; `test` is the condition of `map` with three arguments."""

    which: Macros
    over: Node
    variable: Var
    body: Node
    test: Node | None = None


Node = Const | Broken | Var | Attr | Select | Has | Call | Items | Entries | Logic | Cond | Macro


def children(node: Node) -> tuple[Node, ...]:
    """The operands of a node, in the order of the text."""
    match node:
        case Const() | Broken() | Var() | Attr():
            return ()
        case Select() | Has():
            return (node.operand,)
        case Call():
            return node.arguments
        case Items():
            return node.items
        case Entries():
            return tuple(part for entry in node.entries for part in entry)
        case Logic():
            return node.operands
        case Cond():
            return (node.test, node.then, node.otherwise)
        case Macro():
            return (node.over, node.body) if node.test is None else (node.over, node.test, node.body)
        case _:
            assert_never(node)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(children(node))
