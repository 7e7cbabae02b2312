"""Predicates in CEL, the Common Expression Language: parsed once, partially evaluated, run as generated Python.

    when = compile("s.role == 'coach' && within(e.now, '08:00-20:00')")
    when.reads                      # frozenset({'s.role', 'e.now'})
    when.partial({"s": subject})    # True, False, a smaller Predicate, or a PredicateFailed
    when({"s": subject, "e": ...})  # True or False, or raises PredicateFailed

As the CEL specification, with these differences:

- left out: `type()` and type values, protocol buffer messages and enums, optional values, names with a leading dot,
  functions outside the standard definitions (other than those of Tidegate);
- timestamps and durations have microseconds, and further digits of a text are cut off;
- one map cannot have both `true` and `1`, or `false` and `0`, as keys;
- numbers of a JSON payload are int if written without a fraction and exponent, else double;
- `map` and `filter` run over lists only; `timestamp(int)` takes seconds since 1970.

Bounds. One evaluation costs at most 10,000 operations (`budget`) of about 0.1 µs, so that it holds the event loop for
about 1 ms; then it fails. Everything costs: nodes and rounds of macros, what is compared, copied, hashed or searched
by its size, absorbed errors (see `work`). So all of these are bounded together: about 1,000 rounds of a short macro,
1,500 elements of lists compared, 600 KiB of text copied, a pattern of 20 instructions on 8,000 characters.
Besides: 16 KiB of text (`limit`), nesting of 64, lists of 10,000 elements to run over or to compute, strings of 1 MiB,
patterns of 1,024 characters with 8 Unicode classes. Partial evaluation has the same budget and leaves the rest as it
is. What a function of an administrator does is not bounded; a call counts as 20 operations.

    compile(text, budget=2_000, limit=2_048)    # for texts of strangers

The clock. `when.until(env)` says until when an answer holds if only the clock moves on: None if it does not matter,
`e.now` if the answer is good for this instant only (see `clock`).

An environment's values must not change while a predicate that has been partially evaluated with them is in use.
"""

from __future__ import annotations

from tidegate.predicate.compare_by_rank import Ranking
from tidegate.predicate.compile import NAMES, Predicate, compile
from tidegate.predicate.failure import PredicateError, PredicateFailed
from tidegate.predicate.literals import quoted
from tidegate.predicate.python_functions import function, load_function
from tidegate.predicate.signature import Function
from tidegate.predicate.types import UNKNOWN, Attributes, Env, Uint
from tidegate.predicate.work import BUDGET

__all__ = [
    "BUDGET",
    "NAMES",
    "UNKNOWN",
    "Attributes",
    "Env",
    "Function",
    "Predicate",
    "PredicateError",
    "PredicateFailed",
    "Ranking",
    "Uint",
    "compile",
    "function",
    "load_function",
    "quoted",
]
