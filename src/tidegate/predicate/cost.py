"""What a syntax tree costs to evaluate, before any value is seen.

A *stretch* is what is evaluated in one go once it has begun: the nodes of a tree without the operands of `&&` and
`||`, the branches of `?:` and the bodies of macros, each of which is a stretch of its own and is paid for when it is
reached. What depends on the size of values is not in here; functions pay for that themselves.
"""

from __future__ import annotations

from typing import assert_never

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
    children,
)
from tidegate.predicate.work import ERROR


def stretch(node: Node) -> int:
    """Operations to evaluate a node up to the stretches inside it."""
    match node:
        case Const() | Var():
            return 1
        case Broken():
            return ERROR
        case Attr():
            return 2 + 2 * len(node.path)
        case Select():
            return 4 + stretch(node.operand)
        case Has():
            return 8 + stretch(node.operand)
        case Call():
            return node.function.cost + sum(map(stretch, node.arguments))
        case Items():
            return 3 + sum(1 + stretch(item) for item in node.items)
        case Entries():
            return 5 + sum(5 + stretch(key) + stretch(value) for key, value in node.entries)
        case Logic():
            return 4
        case Cond():
            return 4 + stretch(node.test)
        case Macro():
            return 10 + stretch(node.over)
        case _:
            assert_never(node)


def most(node: Node) -> int:
    """Operations if everything is evaluated, but for the bodies of macros."""
    return stretch(node) + _inside(node)


def _inside(node: Node) -> int:
    """The stretches inside a node's own."""
    match node:
        case Logic():
            return sum(1 + most(operand) for operand in node.operands)
        case Cond():
            return _inside(node.test) + max(most(node.then), most(node.otherwise))
        case Macro():
            return _inside(node.over)
        case _:
            return sum(map(_inside, children(node)))


def round_of(node: Macro) -> int:
    """Operations of one round of a macro, up to the stretches inside it."""
    return 3 + stretch(node.body) + (stretch(node.test) if node.test is not None else 0)


def most_of_round(node: Macro) -> int:
    """Operations of one round of a macro, but for the macros inside it."""
    return 3 + most(node.body) + (most(node.test) if node.test is not None else 0)
