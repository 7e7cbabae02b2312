"""All that is wrong with a configuration, told at once.

`ConfigErrors` is itself a `ConfigError`, so that callers who only want "it is wrong" catch one type.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from tidegate.errors import ConfigError

PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wrong.lower(), names, n=1, cutoff=0.6)
    return names[close[0]] if close else ""


def path_text(path: Sequence[str | int]) -> str:
    """A path as people write it: `listeners[0].url`, in backquotes."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif not PLAIN_NAME.fullmatch(step):
            text += f'["{step}"]'
        else:
            text += f".{step}" if text else step
    return f"`{text}`" if text else "the file"
