"""Names that have an order, such as levels: `<`, `<=`, `>` and `>=` compare them by their place in it, not as text.

Which attributes hold such names is known when a text is parsed, so comparisons with them become comparisons of numbers
there. `==`, `!=` and `in` compare names; a name that is not in the order is refused, because it can only be a mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidegate.predicate import syntax
from tidegate.predicate.failure import CelError, PredicateError
from tidegate.predicate.signature import Function
from tidegate.predicate.syntax import Node
from tidegate.predicate.types import Kind

_COMPARES: Final = frozenset(("<", "<=", ">", ">="))
_NAMES: Final = frozenset(("==", "!=", "in"))


class Ranking:
    """An order of names, lowest first, and the attributes that hold them (`s.level`). `word` is what errors say."""

    def __init__(self, names: Sequence[str], attributes: Iterable[str], word: str = "name") -> None:
        self.names = tuple(names)
        self._attributes = frozenset(attributes)
        self._word = word
        self._ranks = {name: rank for rank, name in enumerate(self.names)}
        takes = (((Kind.STRING,), Kind.INT),)
        self._attribute_rank = Function(name="rank", run=self._rank_or_lowest, overloads=takes)
        self._value_rank = Function(name="rank", run=self._rank, overloads=takes)

    def operands(self, operator: str, left: Node, right: Node) -> tuple[Node, Node]:
        """What a comparison compares, if one side is such an attribute; PredicateError if the other is no such name."""
        if not (self._ranked(left) or self._ranked(right)):
            return left, right
        if operator in _COMPARES:
            return self._number(left), self._number(right)
        if operator in _NAMES:
            for operand in (left, right):
                for node in operand.items if isinstance(operand, syntax.Items) else (operand,):
                    if isinstance(node, syntax.Const) and isinstance(node.value, str):
                        self._known(node, node.value)
        return left, right

    def _ranked(self, node: Node) -> bool:
        return isinstance(node, syntax.Attr) and node.name in self._attributes

    def _number(self, node: Node) -> Node:
        """The rank of what an operand will be."""
        if isinstance(node, syntax.Const) and isinstance(node.value, str):
            return syntax.Const(value=self._known(node, node.value), at=node.at)
        function = self._attribute_rank if self._ranked(node) else self._value_rank
        return syntax.Call(function=function, arguments=(node,), at=node.at)

    def _known(self, node: Node, name: str) -> int:
        rank = self._ranks.get(name)
        if rank is None:
            known = ", ".join(self.names)
            raise PredicateError(f"'{name[:40]}' is no {self._word}; there is {known}", *node.at)
        return rank

    def _rank_or_lowest(self, name: str) -> int:
        """Of an attribute: a name from before a change of the order counts as the lowest."""
        return self._ranks.get(name, 0)

    def _rank(self, name: str) -> int:
        rank = self._ranks.get(name)
        if rank is None:
            raise CelError(f"'{name[:40]}' is no {self._word}")
        return rank
