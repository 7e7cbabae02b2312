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

Bounds: 16 KiB of text, nesting of 64, lists of 10,000 elements to run over or to compute, 200,000 operations in the
macros of one evaluation, strings of 1 MiB, patterns of 1,024 characters. An environment's values must not change
while a predicate that has been partially evaluated with them is in use.
"""

from __future__ import annotations

from tidegate.policy.predicate.compile import NAMES, Predicate, compile, evaluate_text
from tidegate.policy.predicate.failure import PredicateError, PredicateFailed
from tidegate.policy.predicate.signature import Function, function, load_function
from tidegate.policy.predicate.types import UNKNOWN, Attributes, Env, Kind, Uint

__all__ = [
    "NAMES",
    "UNKNOWN",
    "Attributes",
    "Env",
    "Function",
    "Kind",
    "Predicate",
    "PredicateError",
    "PredicateFailed",
    "Uint",
    "compile",
    "evaluate_text",
    "function",
    "load_function",
]
