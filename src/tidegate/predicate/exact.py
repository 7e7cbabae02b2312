"""The exact evaluator: a syntax tree as Python closures, with errors absorbed as CEL absorbs them.

It is the definition of what a predicate means, bounds included: it pays for each stretch of the tree when it is
reached, and what is absorbed is paid for too. `fast` is the same for evaluations without an error and within its own,
coarser bounds, and hands over to this one otherwise; `partial` uses it to fold what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

from tidegate.predicate import equality, syntax, values
from tidegate.predicate.cost import round_of, stretch
from tidegate.predicate.failure import CelError, PredicateFailed
from tidegate.predicate.syntax import Macros, Node
from tidegate.predicate.types import Kind, kind
from tidegate.predicate.work import ERROR, Work


class Frame:
    """One evaluation: the environment, the variables of macros, the work that is left."""

    __slots__ = ("env", "variables", "work")

    def __init__(self, env: Mapping[str, Any], work: Work) -> None:
        self.env = env
        self.variables: dict[int, object] = {}
        self.work = work


Run = Callable[[Frame], object]


def paid(node: Node) -> Run:
    """The node as a closure that pays for its stretch."""
    run, price = closure(node), stretch(node)

    def pay(frame: Frame) -> object:
        frame.work.spend(price)
        return run(frame)

    return pay


def closure(node: Node) -> Run:
    """The node as a closure; whoever calls it has paid for its stretch."""
    match node:
        case syntax.Const():
            value = node.value
            return lambda frame: value
        case syntax.Broken():
            return _broken(node.reason)
        case syntax.Var():
            slot = node.slot
            return lambda frame: frame.variables[slot]
        case syntax.Attr():
            return _attribute(node)
        case syntax.Select():
            operand, field = closure(node.operand), node.field
            return lambda frame: values.select(operand(frame), field)
        case syntax.Has():
            operand, field = closure(node.operand), node.field
            return lambda frame: values.has(operand(frame), field)
        case syntax.Call():
            return _call(node)
        case syntax.Items():
            items = [closure(item) for item in node.items]
            return lambda frame: [item(frame) for item in items]
        case syntax.Entries():
            pairs = [(closure(key), closure(value)) for key, value in node.entries]
            return lambda frame: equality.mapping(frame.work, ((key(frame), value(frame)) for key, value in pairs))
        case syntax.Logic():
            return _logic(node)
        case syntax.Cond():
            test, then, otherwise = closure(node.test), paid(node.then), paid(node.otherwise)
            return lambda frame: then(frame) if values.boolean(test(frame)) else otherwise(frame)
        case syntax.Macro():
            return _macro(node)
        case _:
            assert_never(node)


def _broken(reason: str) -> Run:
    def run(frame: Frame) -> object:
        raise CelError(reason)

    return run


def _attribute(node: syntax.Attr) -> Run:
    root, path, name = node.root, node.path, node.name
    select = values.select

    def run(frame: Frame) -> object:
        try:
            value: Any = frame.env[root]
        except Exception as error:
            raise CelError(f"unknown attribute {root}") from error
        try:
            for field in path:
                value = select(value, field)
        except CelError as error:
            raise CelError(f"unknown attribute {name}: {error}") from error
        return value

    return run


def _call(node: syntax.Call) -> Run:
    function, metered = node.function.run, node.function.metered
    arguments = [closure(argument) for argument in node.arguments]
    if node.ready is not None:
        function, arguments = node.ready, arguments[:1]
    if len(arguments) == 2:
        left, right = arguments
        if metered:
            return lambda frame: function(frame.work, left(frame), right(frame))
        return lambda frame: function(left(frame), right(frame))
    if metered:
        return lambda frame: function(frame.work, *[argument(frame) for argument in arguments])
    return lambda frame: function(*[argument(frame) for argument in arguments])


def _logic(node: syntax.Logic) -> Run:
    deciding = node.deciding
    operands = [(1 + stretch(operand), closure(operand)) for operand in node.operands]

    def run(frame: Frame) -> bool:
        failed: CelError | None = None
        work = frame.work
        for price, operand in operands:
            work.spend(price)
            try:
                if values.boolean(operand(frame)) is deciding:
                    return deciding
            except CelError as error:
                work.spend(ERROR)
                failed = error
        if failed is not None:
            raise failed
        return not deciding

    return run


def elements(value: Any, lists: bool, work: Work, cost: int) -> Iterable[object]:
    """What a macro runs over: elements of a list, keys of a map. Each round is paid for when it begins."""
    over = kind(value)
    if over is not Kind.LIST and (lists or over is not Kind.MAP):
        raise CelError(f"a macro over {over.value}")
    if len(value) > values.MAX_LIST:
        raise PredicateFailed(f"a macro over more than {values.MAX_LIST} elements")
    return _paying(value, work, cost)


def _paying(items: Iterable[object], work: Work, cost: int) -> Iterable[object]:
    for item in items:
        work.left -= cost
        if work.left < 0:
            work.exhausted()
        yield item


def _macro(node: syntax.Macro) -> Run:
    over, body, slot, cost = closure(node.over), closure(node.body), node.variable.slot, round_of(node)
    test = closure(node.test) if node.test is not None else None
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
                frame.work.spend(ERROR)
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
        results = []
        for item in elements(over(frame), True, frame.work, cost):
            frame.variables[slot] = item
            if test is None or values.boolean(test(frame)):
                results.append(body(frame))
        return results

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


def evaluate(run: Run, env: Mapping[str, Any], work: Work | None = None) -> object:
    """The value of a closure; CelError or PredicateFailed, and nothing else."""
    try:
        return run(Frame(env, work or Work()))
    except (CelError, PredicateFailed):
        raise
    except Exception as error:  # a nested value deeper than Python's stack, memory, a broken Mapping
        raise PredicateFailed(f"{type(error).__name__}: {error}") from error
