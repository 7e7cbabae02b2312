"""How a predicate goes wrong: when it is loaded (`PredicateError`) and when it is asked (`PredicateFailed`).

`CelError` never leaves this package: it is an error value of CEL, which `&&`, `||`, `all` and `exists` may absorb.
`PredicateFailed` raised inside an evaluation is not absorbed: a bound that was exceeded ends the evaluation.
"""

from __future__ import annotations

from tidegate.errors import ConfigError, TidegateError


class PredicateError(ConfigError):
    """The text is no predicate: what is wrong, and where in the text (both counted from one)."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message, line=line)
        self.message = message
        self.column = column

    def __str__(self) -> str:
        place = f"{self.file}: " if self.file else ""
        return f"{place}{self.line}:{self.column}: {self.message}"


class PredicateFailed(TidegateError):
    """The predicate has no answer: an unknown attribute, a type error, a bound exceeded.

    What follows depends on who asked. An applicable policy denies (`policy/access_policies.py`). A preference or a
    publisher rule counts as false, and one that denies forbids (`policy/preferences.py`, `policy/publisher_rules.py`).
    A monitor suppresses the event (`monitor/matching.py`, `scope/monitors.py`).
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CelError(Exception):
    """A run-time error of CEL."""
