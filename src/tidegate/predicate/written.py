"""A syntax tree as text again, such as what is left of a predicate when most of it is known.

It is for people, and reads back as the same tree, but for what no text can say: values that only the node has are
shown as they are, and an error that is known as `error(reason)`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, assert_never

from tidegate.predicate import syntax
from tidegate.predicate.functions import AGE
from tidegate.predicate.signature import Style
from tidegate.predicate.syntax import Node
from tidegate.predicate.types import Uint

_LOWEST, _OR, _AND, _RELATION, _SUM, _PRODUCT, _UNARY, _MEMBER = range(8)
_BINARY: Final = {
    **dict.fromkeys(("_<=_", "_>=_", "_==_", "_!=_", "_<_", "_>_", "_in_"), _RELATION),
    **dict.fromkeys(("_+_", "_-_"), _SUM),
    **dict.fromkeys(("_*_", "_/_", "_%_"), _PRODUCT),
}


def written(node: Node) -> str:
    """The text of a tree."""
    return _text(node, _LOWEST)


def _text(node: Node, least: int) -> str:
    """The text of a node, in brackets if it binds less than `least`."""
    text, binds = _bound(node)
    return f"({text})" if binds < least else text


def _bound(node: Node) -> tuple[str, int]:
    match node:
        case syntax.Const(value=value):
            text = constant(value)
            return text, _UNARY if text.startswith("-") else _MEMBER
        case syntax.Broken(reason=reason):
            return f"error({json.dumps(reason, ensure_ascii=False)})", _MEMBER
        case syntax.Var(name=name):
            return name, _MEMBER
        case syntax.Attr():
            return node.root + "".join(map(_field, node.path)), _MEMBER
        case syntax.Select(operand=operand, field=field):
            return _text(operand, _MEMBER) + _field(field), _MEMBER
        case syntax.Has(operand=operand, field=field):
            return f"has({_text(operand, _MEMBER)}.{field})", _MEMBER
        case syntax.Call():
            return _call(node)
        case syntax.Items(items=items):
            return f"[{_listed(items)}]", _MEMBER
        case syntax.Entries(entries=entries):
            return "{" + ", ".join(f"{written(key)}: {written(value)}" for key, value in entries) + "}", _MEMBER
        case syntax.Logic(deciding=deciding, operands=operands):
            binds = _OR if deciding else _AND
            return (" || " if deciding else " && ").join(_text(each, binds + 1) for each in operands), binds
        case syntax.Cond():
            return f"{_text(node.test, _OR)} ? {_text(node.then, _OR)} : {written(node.otherwise)}", _LOWEST
        case syntax.Macro():
            parts = tuple(written(each) for each in (node.variable, node.test, node.body) if each is not None)
            return f"{_text(node.over, _MEMBER)}.{node.which.value}({', '.join(parts)})", _MEMBER
        case _:
            assert_never(node)


def _call(node: syntax.Call) -> tuple[str, int]:
    name, arguments = node.function.name, node.arguments
    if name in _BINARY:
        binds = _BINARY[name]
        return f"{_text(arguments[0], binds)} {name.strip('_')} {_text(arguments[1], binds + 1)}", binds
    if name in ("!_", "-_"):
        return name[0] + _text(arguments[0], _MEMBER), _UNARY
    if name == "_[_]":
        return f"{_text(arguments[0], _MEMBER)}[{written(arguments[1])}]", _MEMBER
    if node.function is AGE:  # the clock is its first argument, which no text has
        return f"{name}({_listed(arguments[1:])})", _MEMBER
    if node.function.style is Style.RECEIVER and arguments:
        return f"{_text(arguments[0], _MEMBER)}.{name}({_listed(arguments[1:])})", _MEMBER
    return f"{name}({_listed(arguments)})", _MEMBER


def _listed(nodes: tuple[Node, ...]) -> str:
    return ", ".join(map(written, nodes))


def _field(name: str) -> str:
    return f".{name}" if name.isascii() and name.isidentifier() else f"[{json.dumps(name, ensure_ascii=False)}]"


def constant(value: object) -> str:
    """A value as a predicate writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Uint():
            return f"{int(value)}u"
        case float():
            return repr(value) if math.isfinite(value) else f'double("{value}")'
        case str():
            return json.dumps(value, ensure_ascii=False)
        case bytes():
            return 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
        case datetime():
            return f'timestamp("{value.isoformat()}")'
        case timedelta():
            return f'duration("{value.total_seconds()!r}s")'
        case Mapping():
            return "{" + ", ".join(f"{constant(key)}: {constant(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return f"[{', '.join(map(constant, value))}]"
        case _:
            return str(value)


def constants_of(node: Node) -> dict[str, frozenset[object] | None]:
    """Of each attribute that a tree reads, the texts and numbers that it is compared with for equality, and nothing
    else is done with it; None: something else is.

    Two values of which neither is one of these are the same to it.
    """
    found: dict[str, set[object] | None] = {}
    todo: list[Node] = [node]
    while todo:
        each = todo.pop()
        compared = _compared(each)
        if compared is not None:
            attribute, values = compared
            known = found.setdefault(attribute, set())
            if known is not None:
                known.update(values)
            continue
        if isinstance(each, syntax.Attr):
            found[each.name] = None
        todo.extend(syntax.children(each))
    return {name: None if values is None else frozenset(values) for name, values in found.items()}


def _compared(node: Node) -> tuple[str, list[object]] | None:
    """An attribute and what it is compared with, if a node is nothing but such a comparison."""
    if not isinstance(node, syntax.Call) or node.function.name not in ("_==_", "_!=_", "_in_"):
        return None
    left, right = node.arguments
    if node.function.name == "_in_":
        values: list[object] = []
        if isinstance(right, syntax.Const) and isinstance(right.value, list | tuple):
            values = list(right.value)
        elif isinstance(right, syntax.Items):
            values = [item.value if isinstance(item, syntax.Const) else None for item in right.items]
        else:
            return None
        return (left.name, values) if isinstance(left, syntax.Attr) and all(map(_plain, values)) else None
    if isinstance(right, syntax.Attr):
        left, right = right, left
    if isinstance(left, syntax.Attr) and isinstance(right, syntax.Const) and _plain(right.value):
        return left.name, [right.value]
    return None


def _plain(value: object) -> bool:
    return type(value) is str
