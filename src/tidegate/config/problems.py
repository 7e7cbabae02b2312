"""All that is wrong with a configuration, told at once.

`ConfigErrors` is itself a `ConfigError`, so that callers who only want "it is wrong" catch one type.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from tidegate.errors import ConfigError


class ConfigErrors(ConfigError):
    """Every problem found in one file; `str()` is one `file:line: what is wrong; how to mend it` per line."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        if not problems:
            raise ValueError("an error needs at least one problem")
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.file, problem.line)))
        first = self.problems[0]
        super().__init__(str(first.args[0]), file=first.file, line=first.line)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, or nothing."""
    close = difflib.get_close_matches(wrong.lower(), known, n=1, cutoff=0.6)
    return close[0] if close else ""
