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

from tidegate.predicate import equality, syntax, values
from tidegate.predicate.cost import stretch
from tidegate.predicate.exact import Frame, closure
from tidegate.predicate.failure import CelError
from tidegate.predicate.fast import boolean
from tidegate.predicate.syntax import Node, walk
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
            case syntax.Const() | syntax.Broken() | syntax.Var():
                return node
            case syntax.Attr() | syntax.Has(operand=syntax.Attr()):
                try:
                    return self.attribute(node) if isinstance(node, syntax.Attr) else self.has(node)
                except _NotKnown:
                    return node
                except CelError as error:
                    return syntax.Broken(reason=str(error), at=node.at)
            case syntax.Select() | syntax.Has():
                return self.field(node)
            case syntax.Call():
                return self.call(node)
            case syntax.Items():
                return self.items(node)
            case syntax.Entries():
                return self.entries(node)
            case syntax.Logic():
                return self.logic(node)
            case syntax.Cond():
                return self.conditional(node)
            case syntax.Macro():
                return self.macro(node)
            case _:
                assert_never(node)

    def attribute(self, node: syntax.Attr) -> Node:
        value = self.reach(node)
        return syntax.Const(value=value, at=node.at) if self.is_whole(value) else node

    def reach(self, node: syntax.Attr) -> object:
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
        whole = self.whole.get(id(value))
        if whole is None:
            whole = self.whole[id(value)] = self.look_through(value)
        return whole

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

    def has(self, node: syntax.Has) -> Node:
        """`has` of an attribute looks at one field; the others may be unknown."""
        assert isinstance(node.operand, syntax.Attr)
        value = self.reach(node.operand)
        if value is UNKNOWN:
            return node
        present = values.has(value, node.field)
        if present and values.select(value, node.field) is UNKNOWN:
            return node  # what is there but not known may turn out to be absent
        return syntax.Const(value=present, at=node.at)

    def computed(self, node: Node, cost: int, run: Callable[..., object], *arguments: object) -> Node:
        """The value of a node whose parts are known."""
        try:
            self.work.spend(cost)
            return syntax.Const(value=run(*arguments), at=node.at)
        except CelError as error:
            return syntax.Broken(reason=str(error), at=node.at)
        except Exception:  # noqa: BLE001  a bound, or a value deeper than the stack: the evaluation shall run into it
            return node

    def field(self, node: syntax.Select | syntax.Has) -> Node:
        operand = self.node(node.operand)
        if isinstance(operand, syntax.Broken):
            return operand
        rebuilt = node if operand is node.operand else replace(node, operand=operand)
        if not isinstance(operand, syntax.Const):
            return rebuilt
        run = values.select if isinstance(node, syntax.Select) else values.has
        return self.computed(rebuilt, stretch(rebuilt), run, operand.value, node.field)

    def call(self, node: syntax.Call) -> Node:
        arguments = tuple(map(self.node, node.arguments))
        known: list[object] = []
        changed = False
        for new, old in zip(arguments, node.arguments, strict=True):
            if isinstance(new, syntax.Broken):
                return new
            if isinstance(new, syntax.Const):
                known.append(new.value)
            changed = changed or new is not old
        rebuilt = replace(node, arguments=arguments) if changed else node
        function = node.function
        if len(known) == len(arguments) and not function.volatile:
            meter = (self.work,) if function.metered else ()
            return self.computed(rebuilt, stretch(rebuilt), function.run, *meter, *known)
        if rebuilt.ready is None and function.prepare is not None and not isinstance(arguments[0], syntax.Const):
            if len(known) == len(arguments) - 1:
                return replace(rebuilt, ready=function.prepared(self.preparing, tuple(known)))
        return rebuilt

    def items(self, node: syntax.Items) -> Node:
        items = tuple(map(self.node, node.items))
        known = _constants(items)
        if isinstance(known, syntax.Broken):
            return known
        rebuilt = replace(node, items=items)
        return rebuilt if known is None else self.computed(rebuilt, stretch(rebuilt), list, known)

    def entries(self, node: syntax.Entries) -> Node:
        entries = tuple((self.node(key), self.node(value)) for key, value in node.entries)
        known = _constants([part for entry in entries for part in entry])
        if isinstance(known, syntax.Broken):
            return known
        rebuilt = replace(node, entries=entries)
        if known is None:
            return rebuilt
        pairs = zip(known[::2], known[1::2], strict=True)
        return self.computed(rebuilt, stretch(rebuilt), equality.mapping, self.work, pairs)

    def logic(self, node: syntax.Logic) -> Node:
        rest: list[Node] = []
        broken: syntax.Broken | None = None
        for operand in node.operands:
            part = self.node(operand)
            if isinstance(part, syntax.Const) and not isinstance(part.value, bool):
                part = syntax.Broken(reason=f"{kind(part.value).value} where bool is expected", at=part.at)
            match part:
                case syntax.Const():
                    if part.value is node.deciding:
                        return syntax.Const(value=node.deciding, at=node.at)
                case syntax.Broken():
                    broken = part
                case syntax.Logic() if part.deciding is node.deciding:
                    rest += part.operands
                case _:
                    rest.append(part)
        if not rest:
            return broken or syntax.Const(value=not node.deciding, at=node.at)
        if broken is not None:
            rest.append(broken)  # last: asked only if nothing before it decides
        if len(rest) == 1 and boolean(rest[0]):
            return rest[0]
        return replace(node, operands=tuple(rest))

    def conditional(self, node: syntax.Cond) -> Node:
        test = self.node(node.test)
        match test:
            case syntax.Broken():
                return test
            case syntax.Const(value=True):
                return self.node(node.then)
            case syntax.Const(value=False):
                return self.node(node.otherwise)
            case syntax.Const():
                return syntax.Broken(reason=f"{kind(test.value).value} where bool is expected", at=test.at)
            case _:
                return replace(node, test=test, then=self.node(node.then), otherwise=self.node(node.otherwise))

    def macro(self, node: syntax.Macro) -> Node:
        over = self.node(node.over)
        if isinstance(over, syntax.Broken):
            return over
        body = self.node(node.body)
        test = None if node.test is None else self.node(node.test)
        rebuilt = replace(node, over=over, body=body, test=test)
        if not isinstance(over, syntax.Const):
            return rebuilt
        if kind(over.value) in (Kind.LIST, Kind.MAP) and not over.value:
            return self.run(rebuilt)
        return self.run(rebuilt) if _closed(rebuilt) else rebuilt

    def run(self, node: syntax.Macro) -> Node:
        return self.computed(node, stretch(node), closure(node), Frame({}, self.work))


def _constants(parts: Sequence[Node]) -> list[object] | syntax.Broken | None:
    """The values of parts if all of them are known; the error of one that has one."""
    for part in parts:
        if isinstance(part, syntax.Broken):
            return part
    known = [part.value for part in parts if isinstance(part, syntax.Const)]
    return known if len(known) == len(parts) else None


_FLAT: Final = frozenset((str, int, float, bool, type(None), bytes, datetime, timedelta))
_NESTED: Final = frozenset((Kind.LIST, Kind.MAP, Kind.GROUP))


def _closed(node: syntax.Macro) -> bool:
    """Whether a macro needs nothing but itself."""
    bound = {part.variable.slot for part in walk(node) if isinstance(part, syntax.Macro)}
    for part in walk(node):
        match part:
            case syntax.Attr():
                return False
            case syntax.Call() if part.function.volatile:
                return False
            case syntax.Var() if part.slot not in bound:
                return False
            case _:
                pass
    return True
