"""Functions as CEL sees them: their overloads, and how they are called.

A function is described by overloads (kinds of arguments, kind of the result). They give its arity, the static type
check and the check at run time. A function that depends on anything but its arguments is *volatile*: it is never
called before a message is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tidegate.predicate.failure import CelError, PredicateFailed
from tidegate.predicate.types import Kind
from tidegate.predicate.work import Meter, Work

Overload = tuple[tuple[Kind, ...], Kind]


class Style(Enum):
    """How a function is called: `f(x, y)`, `x.f(y)`, or as one likes."""

    GLOBAL = "global"
    RECEIVER = "receiver"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Function:
    """A function that predicates can call. As a Python object it is called like the Python function it wraps."""

    name: str
    run: Callable[..., object]
    overloads: tuple[Overload, ...]
    style: Style = Style.GLOBAL
    volatile: bool = False
    foreign: bool = False
    """Written by an administrator: may raise anything and return anything."""
    literal: Callable[..., object] | None = None
    """Called when the predicate is loaded with the last argument if that is a literal; an error refuses the text."""
    cost: int = 20
    """Operations of a call with small arguments."""
    metered: bool = False
    """Whether `run` takes a meter first and pays for what depends on the size of its arguments."""
    prepare: Callable[..., Callable[..., object]] | None = None
    """Given a meter and all arguments but the first, if those are constants, makes a function of the first.

    That function is metered as `run` is.
    """

    def __call__(self, *arguments: object) -> object:
        return self.run(Work(), *arguments) if self.metered else self.run(*arguments)

    def prepared(self, work: Meter, constants: tuple[object, ...]) -> Callable[..., object] | None:
        """The function of the first argument when the others are known; None if there is none."""
        try:
            return None if self.prepare is None else self.prepare(work, *constants)
        except (CelError, PredicateFailed):
            return None  # the call itself will say so, or has more to spend

    @property
    def arities(self) -> frozenset[int]:
        return frozenset(len(takes) for takes, _ in self.overloads)

    def fits(self, kinds: tuple[Kind, ...]) -> list[Kind]:
        """The results of the overloads that these kinds of arguments may reach."""
        return [
            result
            for takes, result in self.overloads
            if len(takes) == len(kinds)
            and all(want is got or Kind.ANY in (want, got) for want, got in zip(takes, kinds, strict=True))
        ]
