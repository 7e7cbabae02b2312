"""Partial evaluation: a syntax tree with everything folded that depends only on what is known.

Law: folding with a part of an environment and evaluating the rest in the whole of it answers as evaluating
everything in the whole; an error stays an error (which of several errors is reported may differ, as CEL allows, and
folding only ever lessens the work that counts towards bounds).

Folding has a budget too. What it does not reach is left as it is, for the evaluation itself to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from tidegate.predicate import equality, values
from tidegate.predicate.cost import stretch
from tidegate.predicate.exact import Frame, closure
from tidegate.predicate.failure import CelError
from tidegate.predicate.fast import boolean
from tidegate.predicate.syntax import (
    Attr,
    Broken,
    Call,
    Cond,
    Const,
    Entries,
    Has,
    Items,
    Logic,
    Macro,
    Node,
    Select,
    Var,
    walk,
)
from tidegate.predicate.types import UNKNOWN, Kind, kind
from tidegate.predicate.work import Work

MAX_PARTS: Final = 5_000
"""Lists, maps and their elements that one folding looks through for something unknown."""


class _NotKnown(Exception):
    """A path leads to something that is not known yet."""


def fold(node: Node, known: Mapping[str, Any], work: Work | None = None, preparing: Work | None = None) -> Node:
    """The node with what is known put in; `preparing` is what may be spent on constants of calls, if not `work`."""
    work = work or Work()
    return _Fold(known, work, preparing or work).node(node)


class _Fold:
    """One folding: what is known, and what may still be done."""

    def __init__(self, known: Mapping[str, Any], work: Work, preparing: Work) -> None:
        self.known = known
        self.work = work
        self.preparing = preparing
        self.parts = MAX_PARTS
        self.whole: dict[int, bool] = {}

    def node(self, node: Node) -> Node:
        match node:
            case Const() | Broken() | Var():
                return node
            case Attr():
                return self.attribute(node)
            case Has() if isinstance(node.operand, Attr):
                return self.has(node, node.operand)
            case Select() | Has():
                return self.field(node)
            case Call():
                return self.call(node)
            case Items():
                return self.items(node)
            case Entries():
                return self.entries(node)
            case Logic():
                return self.logic(node)
            case Cond():
                return self.conditional(node)
            case Macro():
                return self.macro(node)
            case _:
                assert_never(node)

    def attribute(self, node: Attr) -> Node:
        try:
            value = self.reach(node)
            return Const(value=value, at=node.at) if self.is_whole(value) else node
        except _NotKnown:
            return node
        except CelError as error:
            return Broken(reason=str(error), at=node.at)

    def reach(self, node: Attr) -> object:
        if node.root not in self.known:
            raise _NotKnown
        value = self.known[node.root]
        for field in node.path:
            if value is UNKNOWN:
                raise _NotKnown
            try:
                value = values.select(value, field)
            except CelError as error:
                raise CelError(f"unknown attribute {node.name}: {error}") from error
        return value

    def is_whole(self, value: Any) -> bool:
        """Whether a value is known in all its parts. Every value is looked through once."""
        if kind(value) not in _NESTED:
            return value is not UNKNOWN
        found = self.whole.get(id(value))
        if found is None:
            found = self.whole[id(value)] = self.look_through(value)
        return found

    def look_through(self, value: Any) -> bool:
        todo = [value]
        while todo:
            part = todo.pop()
            if part is UNKNOWN:
                return False
            match kind(part):
                case Kind.LIST:
                    inner = part
                case Kind.MAP:
                    inner = part.values()
                case Kind.GROUP:
                    return False  # its attributes may be lazy, or known in part
                case _:
                    continue
            self.parts -= 1 + len(part)
            if self.parts < 0:
                return False
            todo.extend([item for item in inner if type(item) not in _FLAT])
        return True

    def has(self, node: Has, operand: Attr) -> Node:
        """`has` of an attribute looks at one field; the others may be unknown."""
        try:
            value = self.reach(operand)
            if value is UNKNOWN:
                return node
            if not values.has(value, node.field):
                return Const(value=False, at=node.at)
            # what is there but not known may turn out to be absent
            return node if values.select(value, node.field) is UNKNOWN else Const(value=True, at=node.at)
        except _NotKnown:
            return node
        except CelError as error:
            return Broken(reason=str(error), at=node.at)

    def computed(self, node: Node, cost: int, run: Callable[..., object], *arguments: object) -> Node:
        """The value of a node whose parts are known."""
        try:
            self.work.spend(cost)
            return Const(value=run(*arguments), at=node.at)
        except CelError as error:
            return Broken(reason=str(error), at=node.at)
        except Exception:  # noqa: BLE001  a bound, or a value deeper than the stack: the evaluation shall run into it
            return node

    def field(self, node: Select | Has) -> Node:
        operand = self.node(node.operand)
        if isinstance(operand, Broken):
            return operand
        rebuilt = node if operand is node.operand else replace(node, operand=operand)
        if not isinstance(operand, Const):
            return rebuilt
        run = values.select if isinstance(node, Select) else values.has
        return self.computed(rebuilt, stretch(rebuilt), run, operand.value, node.field)

    def call(self, node: Call) -> Node:
        arguments = tuple(map(self.node, node.arguments))
        known: list[object] = []
        changed = False
        for new, old in zip(arguments, node.arguments, strict=True):
            if isinstance(new, Broken):
                return new
            if isinstance(new, Const):
                known.append(new.value)
            changed = changed or new is not old
        rebuilt = replace(node, arguments=arguments) if changed else node
        function = node.function
        if len(known) == len(arguments) and not function.volatile:
            meter = (self.work,) if function.metered else ()
            return self.computed(rebuilt, stretch(rebuilt), function.run, *meter, *known)
        if rebuilt.ready is None and function.prepare is not None and not isinstance(arguments[0], Const):
            if len(known) == len(arguments) - 1:
                return replace(rebuilt, ready=function.prepared(self.preparing, tuple(known)))
        return rebuilt

    def items(self, node: Items) -> Node:
        items = tuple(map(self.node, node.items))
        known = _constants(items)
        if isinstance(known, Broken):
            return known
        rebuilt = replace(node, items=items)
        return rebuilt if known is None else self.computed(rebuilt, stretch(rebuilt), list, known)

    def entries(self, node: Entries) -> Node:
        entries = tuple((self.node(key), self.node(value)) for key, value in node.entries)
        known = _constants([part for entry in entries for part in entry])
        if isinstance(known, Broken):
            return known
        made = replace(node, entries=entries)
        if known is None:
            return made
        pairs = zip(known[::2], known[1::2], strict=True)
        return self.computed(made, stretch(made), equality.mapping, self.work, pairs)

    def logic(self, node: Logic) -> Node:
        rest: list[Node] = []
        broken: Broken | None = None
        for operand in node.operands:
            part = self.node(operand)
            if isinstance(part, Const) and not isinstance(part.value, bool):
                part = Broken(reason=f"{kind(part.value).value} where bool is expected", at=part.at)
            match part:
                case Const():
                    if part.value is node.deciding:
                        return Const(value=node.deciding, at=node.at)
                case Broken():
                    broken = part
                case Logic() if part.deciding is node.deciding:
                    rest += part.operands
                case _:
                    rest.append(part)
        if not rest:
            return broken or Const(value=not node.deciding, at=node.at)
        if broken is not None:
            rest.append(broken)  # last: asked only if nothing before it decides
        if len(rest) == 1 and boolean(rest[0]):
            return rest[0]
        return replace(node, operands=tuple(rest))

    def conditional(self, node: Cond) -> Node:
        test = self.node(node.test)
        match test:
            case Broken():
                return test
            case Const(value=True):
                return self.node(node.then)
            case Const(value=False):
                return self.node(node.otherwise)
            case Const():
                return Broken(reason=f"{kind(test.value).value} where bool is expected", at=test.at)
            case _:
                return replace(node, test=test, then=self.node(node.then), otherwise=self.node(node.otherwise))

    def macro(self, node: Macro) -> Node:
        over = self.node(node.over)
        if isinstance(over, Broken):
            return over
        body = self.node(node.body)
        test = None if node.test is None else self.node(node.test)
        rebuilt = replace(node, over=over, body=body, test=test)
        if not isinstance(over, Const):
            return rebuilt
        if kind(over.value) in (Kind.LIST, Kind.MAP) and not over.value:
            return self.run(rebuilt)
        return self.run(rebuilt) if _closed(rebuilt) else rebuilt

    def run(self, node: Macro) -> Node:
        return self.computed(node, stretch(node), closure(node), Frame({}, self.work))


def _constants(parts: Sequence[Node]) -> list[object] | Broken | None:
    """The values of parts if all of them are known; the error of one that has one."""
    for part in parts:
        if isinstance(part, Broken):
            return part
    known = [part.value for part in parts if isinstance(part, Const)]
    return known if len(known) == len(parts) else None


_FLAT: Final = frozenset((str, int, float, bool, type(None), bytes, datetime, timedelta))
_NESTED: Final = frozenset((Kind.LIST, Kind.MAP, Kind.GROUP))


def _closed(node: Macro) -> bool:
    """Whether a macro needs nothing but itself."""
    bound = {part.variable.slot for part in walk(node) if isinstance(part, Macro)}
    for part in walk(node):
        match part:
            case Attr():
                return False
            case Call() if part.function.volatile:
                return False
            case Var() if part.slot not in bound:
                return False
            case _:
                pass
    return True
