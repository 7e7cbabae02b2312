"""What one evaluation may cost: work is counted in operations and ends with the budget.

An operation is about 0.1 µs of the exact evaluator, so that `BUDGET` of them hold the event loop for about 1 ms. It
is a count, not a time: the same predicate with the same values costs the same everywhere. Charged are

- every node of the syntax tree that is reached, and every round of a macro (`cost`);
- what a function looks at, copies, hashes or compares, by size, before it does so (`values`, `equality`, `functions`);
- every error that `&&`, `||`, `all` or `exists` absorbs.

`Work` belongs to the exact evaluator, which alone decides whether a predicate fails for its work. The fast evaluator
counts more coarsely, with `Trial` if there are macros and with `Spare` if not, and hands over when that is used up.
"""

from __future__ import annotations

from typing import Final, Protocol

from tidegate.predicate.failure import PredicateFailed

BUDGET: Final = 10_000
"""Operations that one evaluation may cost unless `compile` is told otherwise."""

LOADING: Final = 10_000_000
"""Operations for the literals of a text when it is loaded: no bound, because the text has one."""

ERROR: Final = 30
"""Operations for an error that is absorbed: an exception with its message and its cause."""

LONG: Final = 64
"""Characters that cost one operation to compare, copy or hash; shorter texts are paid for by the call itself."""


class Handover(Exception):
    """Too much for the fast evaluator: the exact one shall count."""


class Meter(Protocol):
    """What functions are given to pay for what they do."""

    def spend(self, amount: int) -> None:
        """Pay for something about to be done; raises if that is too much."""

    def total(self) -> Meter:
        """The meter for a function that pays in many small amounts: one that adds them up."""


class Work:
    """The work of one exact evaluation; a predicate that needs more fails."""

    __slots__ = ("left",)

    def __init__(self, budget: int = BUDGET) -> None:
        self.left = budget

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            self.exhausted()

    def total(self) -> Meter:
        return self

    def exhausted(self) -> None:
        raise PredicateFailed("too much work: values too large, or macros with too many rounds")


class Trial(Work):
    """The work of one fast evaluation that has macros."""

    __slots__ = ()

    def exhausted(self) -> None:
        raise Handover


class Spare:
    """What each call of a predicate without macros may cost: known beforehand, so that nothing need be counted.

    Times the number of calls in the predicate it is less than the budget.
    """

    __slots__ = ("each",)

    def __init__(self, each: int) -> None:
        self.each = each

    def spend(self, amount: int) -> None:
        if amount > self.each:
            raise Handover

    def total(self) -> Meter:
        return Trial(self.each)
