"""From text to syntax tree, with line and column, and within bounds.

The parser is driven bottom-up and nothing here recurses, so nesting is counted and refused before anything that
does recurse sees it. Names are resolved here: roots, variables of macros, functions, macros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tidegate.lazy import LazyModule
from tidegate.predicate import literals, syntax
from tidegate.predicate.compare_by_rank import Ranking
from tidegate.predicate.failure import PredicateError
from tidegate.predicate.functions import AGE, FUNCTIONS, OPERATORS
from tidegate.predicate.grammar import GRAMMAR, KEYWORDS, RESERVED
from tidegate.predicate.signature import Function, Style
from tidegate.predicate.syntax import Macros, Node, Place
from tidegate.predicate.types import INT_MAX, UINT_MAX, Uint

if TYPE_CHECKING:
    import lark
else:
    lark = LazyModule("lark")  # a node whose policies are open parses nothing

MAX_SOURCE: Final = 16 * 1024
"""Bytes of a predicate's text."""
MAX_NESTING: Final = 64
"""Levels of operators, calls and brackets inside each other."""

_MACROS: Final = {macro.value: macro for macro in Macros}


@dataclass(frozen=True, slots=True)
class _Raw:
    """A node before names are resolved: what lark's rule was, its parts, and how deep it is."""

    rule: str
    parts: tuple[Any, ...]
    at: Place
    depth: int


class _Build:
    """Lark's callbacks: one per rule, called bottom-up while it parses."""

    def __getattr__(self, rule: str) -> Callable[[list[Any]], _Raw]:
        if rule.startswith("_") or not rule.islower():
            raise AttributeError(rule)

        def build(parts: list[Any]) -> _Raw:
            at = next((_place(part) for part in parts if part is not None), (1, 1))
            depth = max((part.depth for part in parts if isinstance(part, _Raw)), default=0)
            if rule not in ("list", "entry", "start"):
                depth += 1
            if depth > MAX_NESTING:
                raise PredicateError(f"nested more than {MAX_NESTING} deep", *at)
            return _Raw(rule, tuple(parts), at, depth)

        return build


def _place(part: Any) -> Place:
    return part.at if isinstance(part, _Raw) else (part.line or 1, part.column or 1)


@lru_cache(1)
def _parser() -> lark.Lark:
    return lark.Lark(GRAMMAR, parser="lalr", lexer="contextual", transformer=_Build(), maybe_placeholders=True)


def parse(
    text: str,
    functions: Mapping[str, Function],
    names: frozenset[str],
    limit: int = MAX_SOURCE,
    ranking: Ranking | None = None,
) -> Node:
    """The syntax tree of a text of at most `limit` bytes. Attributes of `ranking` compare by rank."""
    limit = min(limit, MAX_SOURCE)
    if len(text) > limit or len(text.encode(errors="surrogatepass")) > limit:
        raise PredicateError(f"longer than {limit} bytes")
    try:
        tree: Any = _parser().parse(text)
    except lark.UnexpectedCharacters as error:
        raise PredicateError(f"unexpected {error.char!r}", error.line, error.column) from None
    except lark.UnexpectedToken as error:
        if error.token.type == "$END":
            lines = text.split("\n")
            raise PredicateError("it ends too early", len(lines), len(lines[-1]) + 1) from None
        raise PredicateError(f"unexpected {str(error.token)[:40]!r}", error.line, error.column) from None
    except lark.UnexpectedInput as error:
        raise PredicateError("no CEL", error.line, error.column) from None
    return _Resolve(functions, names, ranking).node(tree.parts[0])


class _Resolve:
    """Raw nodes to syntax nodes. Recurses, but not deeper than MAX_NESTING."""

    def __init__(self, functions: Mapping[str, Function], names: frozenset[str], ranking: Ranking | None) -> None:
        self.functions = functions
        self.names = names
        self.ranking = ranking
        self.scope: dict[str, list[syntax.Var]] = {}
        self.slots = 0

    def node(self, raw: Any) -> Node:
        if isinstance(raw, lark.Token):
            return self.literal(raw)
        node: Node = getattr(self, raw.rule)(raw.at, *raw.parts)
        return node

    def literal(self, token: lark.Token) -> Node:
        at = _place(token)
        value: object
        try:
            match token.type:
                case "TRUE" | "FALSE":
                    value = token.type == "TRUE"
                case "NULL":
                    value = None
                case "INT":
                    value = self.integer(token, at)
                    if value > INT_MAX:
                        raise PredicateError("an int has 64 bits", *at)
                case "UINT":
                    number = self.integer(token[:-1], at)
                    if number > UINT_MAX:
                        raise PredicateError("a uint has 64 bits", *at)
                    value = Uint(number)
                case "FLOAT":
                    value = float(token)
                case "RAW":
                    value = literals.raw(token)
                case "STRING":
                    value = literals.string(token)
                case _:
                    value = literals.octets(token)
        except literals.BadLiteral as error:
            raise PredicateError(str(error), *at) from None
        return syntax.Const(value=value, at=at)

    @staticmethod
    def integer(digits: str, at: Place) -> int:
        if len(digits) > 40:
            raise PredicateError("an integer has 64 bits", *at)
        return int(digits, 16 if digits[:2] in ("0x", "0X") else 10)

    def conditional(self, at: Place, test: Any, then: Any, otherwise: Any) -> Node:
        return syntax.Cond(test=self.node(test), then=self.node(then), otherwise=self.node(otherwise), at=at)

    def or_(self, at: Place, *operands: Any) -> Node:
        return syntax.Logic(deciding=True, operands=tuple(map(self.node, operands)), at=at)

    def and_(self, at: Place, *operands: Any) -> Node:
        return syntax.Logic(deciding=False, operands=tuple(map(self.node, operands)), at=at)

    def binary(self, at: Place, left: Any, operator: lark.Token, right: Any) -> Node:
        arguments = (self.node(left), self.node(right))
        if self.ranking is not None:
            arguments = self.ranking.operands(str(operator), *arguments)
        return syntax.Call(function=OPERATORS[f"_{operator}_"], arguments=arguments, at=_place(operator))

    def prefixed(self, at: Place, *parts: Any) -> Node:
        *operators, operand = parts
        if len(operators) > MAX_NESTING:
            raise PredicateError(f"nested more than {MAX_NESTING} deep", *at)
        if operators[-1] == "-" and isinstance(operand, lark.Token) and operand.type == "INT":
            # the least int cannot be written as minus a positive int
            number = self.integer(operand, at)
            if number > INT_MAX + 1:
                raise PredicateError("an int has 64 bits", *at)
            node: Node = syntax.Const(value=-number, at=at)
            operators.pop()
        else:
            node = self.node(operand)
        for operator in reversed(operators):
            node = syntax.Call(function=OPERATORS[f"{operator}_"], arguments=(node,), at=_place(operator))
        return node

    def parenthesis(self, at: Place, inner: Any) -> Node:
        return self.node(inner)

    def name(self, at: Place, name: lark.Token) -> Node:
        bound = self.scope.get(name)
        if bound:
            return syntax.Var(name=bound[-1].name, slot=bound[-1].slot, at=at)
        if name in RESERVED:
            raise PredicateError(f"{name} is a reserved word", *at)
        if name not in self.names:
            raise PredicateError(f"unknown name {name}; there is {', '.join(sorted(self.names))}", *at)
        return syntax.Attr(root=str(name), path=(), at=at)

    def select(self, at: Place, operand: Any, field: lark.Token) -> Node:
        if field in KEYWORDS:
            raise PredicateError(f"{field} is a keyword; write ['{field}']", *at)
        return self.field(self.node(operand), str(field), at)

    @staticmethod
    def field(operand: Node, field: str, at: Place) -> Node:
        if isinstance(operand, syntax.Attr):
            return syntax.Attr(root=operand.root, path=(*operand.path, field), at=operand.at)
        return syntax.Select(operand=operand, field=field, at=at)

    def subscript(self, at: Place, operand: Any, bracket: lark.Token, index: Any) -> Node:
        left, right = self.node(operand), self.node(index)
        if isinstance(left, syntax.Attr) and isinstance(right, syntax.Const) and isinstance(right.value, str):
            return self.field(left, right.value, at)
        return syntax.Call(function=OPERATORS["_[_]"], arguments=(left, right), at=_place(bracket))

    def items(self, at: Place, bracket: lark.Token, *parts: Any) -> Node:
        return syntax.Items(items=tuple(self.node(part) for part in parts if part is not None), at=at)

    def mapping(self, at: Place, brace: lark.Token, *parts: Any) -> Node:
        entries = [part for part in parts if part is not None]
        return syntax.Entries(entries=tuple((self.node(e.parts[0]), self.node(e.parts[1])) for e in entries), at=at)

    def call(self, at: Place, name: lark.Token, listed: Any) -> Node:
        arguments = listed.parts if listed else ()
        if name == "has":
            return self.has(at, arguments)
        if name == "age" and "age" not in self.functions:
            if "e" not in self.names:
                raise PredicateError("age() needs e.now, which is not known here", *at)
            given = tuple(map(self.node, arguments))
            if len(given) != 1:
                raise PredicateError(f"age() takes 1 argument, not {len(given)}", *at)
            return syntax.Call(function=AGE, arguments=(syntax.Attr(root="e", path=("now",), at=at), *given), at=at)
        return self.function(str(name), Style.GLOBAL, tuple(map(self.node, arguments)), at)

    def has(self, at: Place, arguments: tuple[Any, ...]) -> Node:
        if len(arguments) != 1 or not isinstance(arguments[0], _Raw) or arguments[0].rule != "select":
            raise PredicateError("has() takes one field, as in has(s.x)", *at)
        operand, field = arguments[0].parts
        return syntax.Has(operand=self.node(operand), field=str(field), at=at)

    def method(self, at: Place, operand: Any, name: lark.Token, listed: Any) -> Node:
        arguments = listed.parts if listed else ()
        place = _place(name)
        dotted = self.dotted(operand)
        if dotted is not None:
            return self.function(f"{dotted}.{name}", Style.GLOBAL, tuple(map(self.node, arguments)), at)
        if name in _MACROS:
            return self.macro(_MACROS[name], operand, arguments, place)
        given = (self.node(operand), *map(self.node, arguments))
        return self.function(str(name), Style.RECEIVER, given, place)

    def dotted(self, raw: Any) -> str | None:
        """The dots before a function such as `sets.contains`, unless they begin with a root or a variable."""
        parts: list[str] = []
        while isinstance(raw, _Raw) and raw.rule == "select":
            parts.append(str(raw.parts[1]))
            raw = raw.parts[0]
        if not isinstance(raw, _Raw) or raw.rule != "name":
            return None
        first = str(raw.parts[0])
        if first in self.names or self.scope.get(first):
            return None  # a field of it, and a receiver
        return ".".join((first, *reversed(parts)))

    def function(self, name: str, style: Style, arguments: tuple[Node, ...], at: Place) -> Node:
        function = self.functions.get(name) or FUNCTIONS.get(name)
        if function is None:
            raise PredicateError(f"unknown function {name}", *at)
        if function.style not in (style, Style.BOTH):
            how = f"{name}(x)" if function.style is Style.GLOBAL else f"x.{name}()"
            raise PredicateError(f"{name} is called as {how}", *at)
        if len(arguments) not in function.arities:
            takes = " or ".join(str(count) for count in sorted(function.arities))
            raise PredicateError(f"{name} takes {takes} arguments, not {len(arguments)}", *at)
        return syntax.Call(function=function, arguments=arguments, at=at)

    def macro(self, which: Macros, operand: Any, arguments: tuple[Any, ...], at: Place) -> Node:
        allowed = (2, 3) if which is Macros.MAP else (2,)
        if len(arguments) not in allowed:
            raise PredicateError(f"{which.value} takes {' or '.join(map(str, allowed))} arguments", *at)
        variable, *rest = arguments
        if not isinstance(variable, _Raw) or variable.rule != "name" or variable.parts[0] in RESERVED:
            raise PredicateError(f"the first argument of {which.value} is the name of a variable", *at)
        over = self.node(operand)
        name = str(variable.parts[0])
        bound = syntax.Var(name=name, slot=self.slots, at=variable.at)
        self.slots += 1
        self.scope.setdefault(name, []).append(bound)
        parts = [self.node(part) for part in rest]
        self.scope[name].pop()
        test = parts[0] if len(parts) == 2 else None
        return syntax.Macro(which=which, over=over, variable=bound, test=test, body=parts[-1], at=at)
