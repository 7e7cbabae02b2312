"""From text to a predicate that can be asked.

`Predicate` holds the syntax tree and makes its evaluators when it is first asked: partial evaluation makes many
predicates of which most are never asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from tidegate.predicate.check import compared, reads, static, unpredictable, volatile
from tidegate.predicate.clock import until
from tidegate.predicate.compare_by_rank import Ranking
from tidegate.predicate.exact import evaluate, paid
from tidegate.predicate.failure import CelError, PredicateError, PredicateFailed
from tidegate.predicate.fast import fast
from tidegate.predicate.parse import MAX_SOURCE, parse
from tidegate.predicate.partial import fold
from tidegate.predicate.signature import Function
from tidegate.predicate.syntax import Broken, Const, Node
from tidegate.predicate.types import UNKNOWN, Env, Kind
from tidegate.predicate.work import BUDGET, LOADING, Work
from tidegate.predicate.written import constants_of, written

NAMES: Final = frozenset(("s", "o", "e", "p"))
"""The roots of semantics: subject, object, environment, publish context."""

LONG_TEXT: Final = 2048
"""Characters of a text from which on its evaluators are made at once: that takes longer than an evaluation may."""

SHORT_LIST: Final = 16
_PLAIN: Final = frozenset((str, int, float, bool))


class Predicate:
    """A condition over attributes. Call it with an environment: it answers, or raises PredicateFailed."""

    def __init__(self, node: Node, text: str, budget: int = BUDGET) -> None:
        self._node = node
        self._budget = budget
        self._run: Callable[[Any], object] | None = None  # made when first asked; never one of our own methods: a
        # predicate that refers to itself would have to wait for the garbage collector
        self.text = text
        """The text it came from; of a partially evaluated predicate, still the whole text."""
        if len(text) > LONG_TEXT:
            self._make()

    def limited(self, budget: int) -> Predicate:
        """The same, which may cost at most so much."""
        return self if budget >= self._budget else Predicate(self._node, self.text, budget)

    def __call__(self, env: Env) -> bool:
        # hot: one generated function; everything below only after an error
        try:
            answer = (self._run or self._make())(env)
        except PredicateFailed:
            raise
        except Exception:  # noqa: BLE001  whatever it was, the exact evaluator meets it again and judges it
            answer = self._exactly(env)
        if answer is True or answer is False:
            return answer
        raise PredicateFailed("the result is not a bool")

    def __repr__(self) -> str:
        return f"Predicate({self.text!r})"

    @cached_property
    def reads(self) -> frozenset[str]:
        """The attributes it may read, by path: `s.user`, `o.payload.level`; `o.payload` if read dynamically."""
        return reads(self._node)

    @property
    def compared(self) -> frozenset[tuple[str, str]]:
        """Attributes by path, and the texts that they are compared with: `s.user` and `mary`. For warnings."""
        return compared(self._node)

    @property
    def written(self) -> str:
        """What is left of it as text; of one that was not partially evaluated, all of it."""
        return written(self._node)

    @cached_property
    def constants(self) -> Mapping[str, frozenset[object] | None]:
        """Of each attribute that it reads, the texts that it is compared with, if nothing else is done with it."""
        return constants_of(self._node)

    @cached_property
    def _paths(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(path.split(".")) for path in self.reads)

    @cached_property
    def volatile(self) -> bool:
        """Whether it calls a volatile function or `age`, so that an answer is good only for the moment."""
        return volatile(self._node)

    @cached_property
    def unpredictable(self) -> bool:
        """Whether it calls a volatile function, so that an answer is not even good for the moment."""
        return unpredictable(self._node)

    def partial(self, known: Env) -> bool | Predicate | PredicateFailed:
        """What remains when this much is known.

        Roots that are absent from `known`, and roots or attributes that are `UNKNOWN`, are not known yet; an
        attribute that is absent from a known root is known to be absent. A failure that no further knowledge can
        mend is returned, not raised.
        """
        if all(_given(known, path) for path in self._paths) and not self.volatile:
            try:  # nothing is left to fold: to ask is much quicker
                return self(known)
            except PredicateFailed as failed:
                return failed
        try:
            node = fold(self._node, known, Work(self._budget))
        except PredicateFailed as failed:
            return failed
        except Exception as error:  # noqa: BLE001  as in a call: whatever happens is a failure of the predicate
            return PredicateFailed(f"{type(error).__name__}: {error}")
        match node:
            case Const(value=bool() as answer):
                return answer
            case Const():
                return PredicateFailed("the result is not a bool")
            case Broken():
                return PredicateFailed(node.reason)
            case _:
                return Predicate(node, self.text, self._budget)

    def until(self, env: Env) -> datetime | None:
        """Until when the answer in this environment stays the same if only the clock moves on.

        The answer, or the failure, is the same at every instant from `e.now` up to, and not including, the one that
        is returned. That is in UTC and to the microsecond, as timestamps are. None means that the clock does not
        matter; `e.now` itself that the answer is good for this instant only, as one that depends on `age` or on a
        volatile function.

        What is not in `env` or is `UNKNOWN` there may have any value, as long as it keeps it. `e.now` is needed,
        with the zone of the clock, if the predicate reads the clock; PredicateFailed if it is missing.
        """
        try:
            return until(self._node, env, Work(self._budget))
        except PredicateFailed:
            raise
        except Exception as error:
            raise PredicateFailed(f"{type(error).__name__}: {error}") from error

    def prepare(self) -> None:
        """Makes what it is asked with now rather than when it is first asked: that takes longer than many answers."""
        if self._run is None:
            self._make()

    def _make(self) -> Callable[[Any], object]:
        run = fast(self._node, self._budget)
        if run is None:
            self._exact  # noqa: B018  made here
            return self._exactly
        self._run = run
        return run

    @cached_property
    def _exact(self) -> Callable[[Any], object]:
        return paid(self._node)

    def _exactly(self, env: Env) -> object:
        try:
            return evaluate(self._exact, env, Work(self._budget))
        except CelError as error:
            raise PredicateFailed(str(error)) from error


def _given(known: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Whether what stands at a path is known for certain: a plain value or a short list of them, or nothing."""
    value: Any = known.get(path[0], UNKNOWN)
    for name in path[1:]:
        if value is UNKNOWN:
            return False
        try:
            value = value[name]
        except KeyError:
            return True
        except Exception:  # noqa: BLE001  whatever it is, folding meets it again and judges it
            return False
    if type(value) in (list, tuple) and len(value) <= SHORT_LIST:
        return all(type(each) in _PLAIN for each in value)
    return type(value) in _PLAIN


def compile(  # named as re.compile is
    text: str,
    *,
    functions: Mapping[str, Function] | None = None,
    names: frozenset[str] = NAMES,
    budget: int = BUDGET,
    limit: int = MAX_SOURCE,
    ranking: Ranking | None = None,
) -> Predicate:
    """The predicate of a text; PredicateError with line and column if it is none.

    `budget` is what one evaluation may cost, in operations of about 0.1 µs; `limit` how long the text may be, in
    bytes. Give both smaller for texts of strangers. Attributes of `ranking` compare by rank, not as text.
    """
    node = parse(text, functions or {}, names, limit, ranking)
    result = static(node)
    if result not in (Kind.ANY, Kind.BOOL):
        raise PredicateError(f"the result is {result.value}, not bool", *node.at)
    return Predicate(loaded(node, budget), text, budget)


def loaded(node: Node, budget: int) -> Node:
    """Constants folded; what they are to be prepared for is as small as the text."""
    return fold(node, {}, Work(budget), Work(LOADING))
