"""Partial evaluation: a syntax tree with everything folded that depends only on what is known.

Law: folding with a part of an environment and evaluating the rest in the whole of it answers as evaluating
everything in the whole; an error stays an error (which of several errors is reported may differ, as CEL allows, and
folding only ever lessens the work that counts towards bounds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

from tidegate.policy.predicate import values
from tidegate.policy.predicate.exact import closure, evaluate
from tidegate.policy.predicate.failure import CelError, PredicateFailed
from tidegate.policy.predicate.fast import boolean
from tidegate.policy.predicate.syntax import (
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
    children,
    walk,
)
from tidegate.policy.predicate.types import UNKNOWN, Kind, kind


class _NotKnown(Exception):
    """A path leads to something that is not known yet."""


def fold(node: Node, known: Mapping[str, Any]) -> Node:
    """The node with what is known put in."""
    match node:
        case Const() | Broken() | Var():
            return node
        case Attr():
            try:
                return Const(value=_whole(_reach(node, known)), at=node.at)
            except _NotKnown:
                return node
            except CelError as error:
                return Broken(reason=str(error), at=node.at)
        case Has() if isinstance(node.operand, Attr):
            return _has(node, node.operand, known)
        case Select() | Has():
            return _strict(replace(node, operand=fold(node.operand, known)))
        case Call():
            made = replace(node, arguments=tuple(fold(argument, known) for argument in node.arguments))
            return _strict(made)
        case Items():
            return _strict(replace(node, items=tuple(fold(item, known) for item in node.items)))
        case Entries():
            entries = tuple((fold(key, known), fold(value, known)) for key, value in node.entries)
            return _strict(replace(node, entries=entries))
        case Logic():
            return _logic(node, known)
        case Cond():
            return _conditional(node, known)
        case Macro():
            return _macro(node, known)
        case _:
            assert_never(node)


def _reach(node: Attr, known: Mapping[str, Any]) -> object:
    if node.root not in known:
        raise _NotKnown
    value = known[node.root]
    for field in node.path:
        if value is UNKNOWN:
            raise _NotKnown
        try:
            value = values.select(value, field)
        except CelError as error:
            raise CelError(f"unknown attribute {node.name}: {error}") from error
    return value


def _whole(value: Any) -> object:
    """A value that is known in all its parts."""
    todo = [value]
    while todo:
        part = todo.pop()
        if part is UNKNOWN:
            raise _NotKnown
        match kind(part):
            case Kind.LIST:
                todo.extend(part)
            case Kind.MAP:
                todo.extend(part.values())
            case Kind.GROUP:
                raise _NotKnown  # its attributes may be lazy, or known in part
            case _:
                pass
    return value


def _has(node: Has, operand: Attr, known: Mapping[str, Any]) -> Node:
    """`has` of an attribute looks at one field; the others may be unknown."""
    try:
        value = _reach(operand, known)
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


def _evaluated(node: Node) -> Node:
    """A node that needs nothing more, as its value."""
    try:
        return Const(value=evaluate(closure(node), {}), at=node.at)
    except CelError as error:
        return Broken(reason=str(error), at=node.at)
    except PredicateFailed:
        return node  # a bound: the evaluation itself shall run into it


def _strict(node: Select | Has | Call | Items | Entries) -> Node:
    parts = children(node)
    for part in parts:
        if isinstance(part, Broken):
            return part
    if any(not isinstance(part, Const) for part in parts):
        return node
    if isinstance(node, Call) and node.function.volatile:
        return node
    return _evaluated(node)


def _logic(node: Logic, known: Mapping[str, Any]) -> Node:
    rest: list[Node] = []
    broken: Broken | None = None
    for operand in node.operands:
        part = fold(operand, known)
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


def _conditional(node: Cond, known: Mapping[str, Any]) -> Node:
    test = fold(node.test, known)
    match test:
        case Broken():
            return test
        case Const(value=True):
            return fold(node.then, known)
        case Const(value=False):
            return fold(node.otherwise, known)
        case Const():
            return Broken(reason=f"{kind(test.value).value} where bool is expected", at=test.at)
        case _:
            return replace(node, test=test, then=fold(node.then, known), otherwise=fold(node.otherwise, known))


def _macro(node: Macro, known: Mapping[str, Any]) -> Node:
    over = fold(node.over, known)
    if isinstance(over, Broken):
        return over
    body = fold(node.body, known)
    test = None if node.test is None else fold(node.test, known)
    made = replace(node, over=over, body=body, test=test)
    if not isinstance(over, Const):
        return made
    if kind(over.value) in (Kind.LIST, Kind.MAP) and not over.value:
        return _evaluated(made)
    return _evaluated(made) if _closed(made) else made


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
