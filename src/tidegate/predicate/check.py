"""The static check: what can be known to be wrong before any message is there.

Attributes have kind ANY, so an error here is an error for every message: arguments that no overload takes, a test
that is no bool, a comparison that can never be true, a literal that is no duration, pattern, filter or network.
The check never changes what a predicate answers; it only refuses texts.
"""

from __future__ import annotations

from typing import Final, assert_never

from tidegate.predicate import syntax, times
from tidegate.predicate.failure import CelError, PredicateError, PredicateFailed
from tidegate.predicate.syntax import Macros, Node, children, walk
from tidegate.predicate.types import NUMBERS, Kind, kind

_KEYS = frozenset((Kind.ANY, Kind.INT, Kind.UINT, Kind.BOOL, Kind.STRING))
_COMPARING: Final = frozenset(("_==_", "_!=_", "_in_"))


def static(node: Node) -> Kind:
    """The kind that a node will have if it has a value at all; raises PredicateError if it cannot have one."""
    match node:
        case syntax.Const():
            return kind(node.value)
        case syntax.Broken() | syntax.Var() | syntax.Attr():
            return Kind.ANY
        case syntax.Select() | syntax.Has():
            if static(node.operand) not in (Kind.ANY, Kind.MAP):
                raise PredicateError(f"{static(node.operand).value} has no field {node.field}", *node.at)
            return Kind.BOOL if isinstance(node, syntax.Has) else Kind.ANY
        case syntax.Call():
            return _call(node)
        case syntax.Items():
            for item in node.items:
                static(item)
            return Kind.LIST
        case syntax.Entries():
            for key, value in node.entries:
                if static(key) not in _KEYS:
                    raise PredicateError(f"{static(key).value} cannot be the key of a map", *key.at)
                static(value)
            return Kind.MAP
        case syntax.Logic():
            for operand in node.operands:
                _test(operand, "||" if node.deciding else "&&")
            return Kind.BOOL
        case syntax.Cond():
            _test(node.test, "?:")
            then, otherwise = static(node.then), static(node.otherwise)
            return then if then is otherwise else Kind.ANY
        case syntax.Macro():
            return _macro(node)
        case _:
            assert_never(node)


def _test(node: Node, what: str) -> None:
    kind = static(node)
    if kind not in (Kind.ANY, Kind.BOOL):
        raise PredicateError(f"{what} of {kind.value} where bool is expected", *node.at)


def _macro(node: syntax.Macro) -> Kind:
    over = static(node.over)
    lists = node.which in (Macros.MAP, Macros.FILTER)
    if over not in (Kind.ANY, Kind.LIST) and (lists or over is not Kind.MAP):
        raise PredicateError(f"{node.which.value} over {over.value}", *node.at)
    if node.test is not None:
        _test(node.test, node.which.value)
    if node.which is Macros.MAP:
        static(node.body)
    else:
        _test(node.body, node.which.value)
    return Kind.LIST if lists else Kind.BOOL


def _call(node: syntax.Call) -> Kind:
    kinds = tuple(static(argument) for argument in node.arguments)
    name = node.function.name
    results = node.function.fits(kinds)
    if not results:
        raise PredicateError(f"no such overload: {name} of {', '.join(k.value for k in kinds)}", *node.at)
    if name in ("_==_", "_!=_"):
        left, right = kinds
        if left is not right and Kind.ANY not in kinds and not (left in NUMBERS and right in NUMBERS):
            raise PredicateError(f"{left.value} and {right.value} are never equal", *node.at)
    _literals(node)
    return results[0] if all(result is results[0] for result in results) else Kind.ANY


def _literals(node: syntax.Call) -> None:
    """Refuse literals that will fail for every message."""
    try:
        if node.function.name == "within":
            given = _literal(node.arguments[1])
            if given is not None:
                times.windows(given)
            zone = _literal(node.arguments[2]) if len(node.arguments) == 3 else None
            if isinstance(zone, str):
                times.zone(zone)
        elif node.function.literal is not None:
            given = _literal(node.arguments[-1])
            if given is not None:
                node.function.literal(given)
    except (CelError, PredicateFailed) as error:
        raise PredicateError(str(error), *node.arguments[-1].at) from None


def _literal(node: Node) -> object:
    match node:
        case syntax.Const():
            return node.value
        case syntax.Items():
            parts = [item.value for item in node.items if isinstance(item, syntax.Const)]
            return parts if len(parts) == len(node.items) else None
        case _:
            return None


def reads(node: Node) -> frozenset[str]:
    """The attributes that an evaluation may read, by path; a path stands for everything below it."""
    paths, todo = set(), [node]
    while todo:
        node = todo.pop()
        match node:
            case syntax.Has(operand=syntax.Attr() as operand):
                paths.add(f"{operand.name}.{node.field}")  # the operand is on the way, not read for itself
            case syntax.Attr():
                paths.add(node.name)
            case _:
                todo.extend(children(node))
    return frozenset(paths)


def compared(node: Node) -> frozenset[tuple[str, str]]:
    """Attributes and the texts that they are compared with, by `==`, `!=` and `in`."""
    pairs: set[tuple[str, str]] = set()
    for part in walk(node):
        match part:
            case syntax.Call(function=function, arguments=(left, right)) if function.name in _COMPARING:
                for attribute, other in ((left, right), (right, left)):
                    if isinstance(attribute, syntax.Attr):
                        given = _literal(other)
                        texts = given if isinstance(given, list | tuple) else (given,)
                        pairs |= {(attribute.name, text) for text in texts if isinstance(text, str)}
    return frozenset(pairs)


def unpredictable(node: Node) -> bool:
    """Whether the answer may change without any attribute, version or the clock changing."""
    return any(isinstance(part, syntax.Call) and part.function.volatile for part in walk(node))


def volatile(node: Node) -> bool:
    """Whether the answer may change without any attribute or version changing."""
    return any(
        isinstance(part, syntax.Call) and (part.function.volatile or part.function.name == "age") for part in walk(node)
    )
