"""What a syntax tree costs to evaluate, before any value is seen.

A *stretch* is what is evaluated in one go once it has begun: the nodes of a tree without the operands of `&&` and
`||`, the branches of `?:` and the bodies of macros, each of which is a stretch of its own and is paid for when it is
reached. What depends on the size of values is not in here; functions pay for that themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tidegate.predicate import syntax
from tidegate.predicate.syntax import Node, children
from tidegate.predicate.work import ERROR


def stretch(node: Node) -> int:
    """Operations to evaluate a node up to the stretches inside it."""
    match node:
        case syntax.Const() | syntax.Var():
            return 1
        case syntax.Broken():
            return ERROR
        case syntax.Attr():
            return 2 + 2 * len(node.path)
        case syntax.Select():
            return 4 + stretch(node.operand)
        case syntax.Has():
            return 8 + stretch(node.operand)
        case syntax.Call():
            return node.function.cost + sum(map(stretch, node.arguments))
        case syntax.Items():
            return 3 + sum(1 + stretch(item) for item in node.items)
        case syntax.Entries():
            return 5 + sum(5 + stretch(key) + stretch(value) for key, value in node.entries)
        case syntax.Logic():
            return 4
        case syntax.Cond():
            return 4 + stretch(node.test)
        case syntax.Macro():
            return 10 + stretch(node.over)
        case _:
            assert_never(node)


def most(node: Node) -> int:
    """Operations if everything is evaluated, but for the bodies of macros."""
    return stretch(node) + _inside(node)


def _inside(node: Node) -> int:
    """The stretches inside a node's own."""
    match node:
        case syntax.Logic():
            return sum(1 + most(operand) for operand in node.operands)
        case syntax.Cond():
            return _inside(node.test) + max(most(node.then), most(node.otherwise))
        case syntax.Macro():
            return _inside(node.over)
        case _:
            return sum(map(_inside, children(node)))


def round_of(node: syntax.Macro, of: Callable[[Node], int] = stretch) -> int:
    """Operations of one round of a macro: up to the stretches inside it, or with `most`, up to the macros inside it."""
    return 3 + of(node.body) + (of(node.test) if node.test is not None else 0)
