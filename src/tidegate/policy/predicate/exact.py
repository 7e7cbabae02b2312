"""The exact evaluator: a syntax tree as Python closures, with errors absorbed as CEL absorbs them.

It is the definition of what a predicate means. `fast` is the same for evaluations without an error and hands over
to this one as soon as there is one; `partial` uses it to fold what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from tidegate.policy.predicate import values
from tidegate.policy.predicate.failure import CelError, PredicateFailed
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
    Macros,
    Node,
    Select,
    Var,
    children,
)
from tidegate.policy.predicate.types import Kind, Uint, kind

BUDGET: Final = 200_000
"""Work that the macros of one evaluation may do, counted in operations of their bodies."""

_FLAT: Final = frozenset((int, float, bool, type(None), Uint, datetime, timedelta))


class Work:
    """What is left of the budget."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = BUDGET

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise PredicateFailed("too much work in macros")

    def charged(self, run: Callable[..., object], *arguments: object) -> object:
        """A call inside a macro, which pays for the size of what it looks at."""
        for argument in arguments:
            if type(argument) not in _FLAT and (type(argument) is not str or len(argument) >= 32):
                self.spend(values.weight(argument))  # what is flat is paid for by the round itself
        return run(*arguments)


class Frame:
    """One evaluation: the environment, the variables of macros, the work that is left."""

    __slots__ = ("env", "variables", "work")

    def __init__(self, env: Mapping[str, Any]) -> None:
        self.env = env
        self.variables: dict[int, object] = {}
        self.work = Work()


Run = Callable[[Frame], object]


def closure(node: Node, inside: bool = False) -> Run:
    """The node as a closure; `inside` a macro, calls are charged for."""
    match node:
        case Const():
            value = node.value
            return lambda frame: value
        case Broken():
            return _broken(node.reason)
        case Var():
            slot = node.slot
            return lambda frame: frame.variables[slot]
        case Attr():
            return _attribute(node)
        case Select():
            operand, field = closure(node.operand, inside), node.field
            return lambda frame: values.select(operand(frame), field)
        case Has():
            operand, field = closure(node.operand, inside), node.field
            return lambda frame: values.has(operand(frame), field)
        case Call():
            return _call(node, inside)
        case Items():
            items = [closure(item, inside) for item in node.items]
            return lambda frame: [item(frame) for item in items]
        case Entries():
            pairs = [(closure(key, inside), closure(value, inside)) for key, value in node.entries]
            return lambda frame: values.mapping((key(frame), value(frame)) for key, value in pairs)
        case Logic():
            return _logic(node, inside)
        case Cond():
            test, then = closure(node.test, inside), closure(node.then, inside)
            otherwise = closure(node.otherwise, inside)
            return lambda frame: then(frame) if values.boolean(test(frame)) else otherwise(frame)
        case Macro():
            return _macro(node, inside)
        case _:
            assert_never(node)


def _broken(reason: str) -> Run:
    def run(frame: Frame) -> object:
        raise CelError(reason)

    return run


def _attribute(node: Attr) -> Run:
    root, path, name = node.root, node.path, node.name

    def run(frame: Frame) -> object:
        try:
            value: Any = frame.env[root]
        except Exception as error:
            raise CelError(f"unknown attribute {root}") from error
        try:
            for field in path:
                value = values.select(value, field)
        except CelError as error:
            raise CelError(f"unknown attribute {name}: {error}") from error
        return value

    return run


def _call(node: Call, inside: bool) -> Run:
    arguments = [closure(argument, inside) for argument in node.arguments]
    function = node.function.run
    if inside:
        return lambda frame: frame.work.charged(function, *[argument(frame) for argument in arguments])
    if len(arguments) == 2:
        left, right = arguments
        return lambda frame: function(left(frame), right(frame))
    return lambda frame: function(*[argument(frame) for argument in arguments])


def _logic(node: Logic, inside: bool) -> Run:
    deciding = node.deciding
    operands = [closure(operand, inside) for operand in node.operands]

    def run(frame: Frame) -> bool:
        failed: CelError | None = None
        for operand in operands:
            try:
                if values.boolean(operand(frame)) is deciding:
                    return deciding
            except CelError as error:
                failed = error
        if failed is not None:
            raise failed
        return not deciding

    return run


def size(node: Node) -> int:
    """Nodes of a macro's body, without the bodies of macros inside it: those pay for themselves."""
    if isinstance(node, Macro):
        return 1 + size(node.over)
    return 1 + sum(map(size, children(node)))


def elements(value: Any, lists: bool, work: Work, cost: int) -> Iterable[object]:
    """What a macro runs over: elements of a list, keys of a map."""
    found = kind(value)
    if found is not Kind.LIST and (lists or found is not Kind.MAP):
        raise CelError(f"a macro over {found.value}")
    if len(value) > values.MAX_LIST:
        raise PredicateFailed(f"a macro over more than {values.MAX_LIST} elements")
    work.spend(1 + len(value))
    return _paying(value, work, cost)


def _paying(found: Iterable[object], work: Work, cost: int) -> Iterable[object]:
    for item in found:
        work.spend(cost)
        yield item


def cost_of(node: Macro) -> int:
    """The work of one round."""
    return size(node.body) + (size(node.test) if node.test is not None else 0)


def _macro(node: Macro, inside: bool) -> Run:
    over, body, slot, cost = closure(node.over, inside), closure(node.body, True), node.variable.slot, cost_of(node)
    test = closure(node.test, True) if node.test is not None else None
    which = node.which

    def quantified(frame: Frame) -> bool:
        deciding = which is Macros.EXISTS
        failed: CelError | None = None
        for item in elements(over(frame), False, frame.work, cost):
            frame.variables[slot] = item
            try:
                if values.boolean(body(frame)) is deciding:
                    return deciding
            except CelError as error:
                failed = error
        if failed is not None:
            raise failed
        return not deciding

    def once(frame: Frame) -> bool:
        count = 0
        for item in elements(over(frame), False, frame.work, cost):
            frame.variables[slot] = item
            count += values.boolean(body(frame))
        return count == 1

    def filtered(frame: Frame) -> list[object]:
        kept = []
        for item in elements(over(frame), True, frame.work, cost):
            frame.variables[slot] = item
            if values.boolean(body(frame)):
                kept.append(item)
        return kept

    def mapped(frame: Frame) -> list[object]:
        made = []
        for item in elements(over(frame), True, frame.work, cost):
            frame.variables[slot] = item
            if test is None or values.boolean(test(frame)):
                made.append(body(frame))
        return made

    match which:
        case Macros.ALL | Macros.EXISTS:
            return quantified
        case Macros.EXISTS_ONE:
            return once
        case Macros.FILTER:
            return filtered
        case Macros.MAP:
            return mapped
        case _:
            assert_never(which)


def evaluate(run: Run, env: Mapping[str, Any]) -> object:
    """The value of a closure; CelError or PredicateFailed, and nothing else."""
    try:
        return run(Frame(env))
    except (CelError, PredicateFailed):
        raise
    except Exception as error:  # a nested value deeper than Python's stack, memory, a broken Mapping
        raise PredicateFailed(f"{type(error).__name__}: {error}") from error
