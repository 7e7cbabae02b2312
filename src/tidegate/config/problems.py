"""What is wrong with a configuration: how problems are found, worded and reported together.

`ConfigErrors` is itself a `ConfigError`, so that callers who only want "it is wrong" catch one type. The text of a
problem completes the sentence "`path` ..." and names a remedy after a semicolon.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from tidegate.errors import ConfigError

DocumentPath = tuple[str | int, ...]
"""From the top of a file or document to a value: keys of mappings, and positions in lists."""
Finding = tuple[DocumentPath, str]
"""A problem or warning: the path it is about, and its text."""
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


def alternatives(words: Iterable[str]) -> str:
    """The words as people list them: `a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def remedy(wrong: str, known: Iterable[str], otherwise: str) -> str:
    """A question for the known word that was probably meant, or another remedy if there is none."""
    meant = suggestion(wrong, known)
    return f"did you mean `{meant}`?" if meant else otherwise


def unknown(kind: str, wrong: str, known: Iterable[str], where: str) -> str:
    """The text for a name that nothing has."""
    return f"names the unknown {kind} `{wrong}`; {remedy(wrong, known, f'add it under `{where}`')}"


def unknown_key(key: str, path: DocumentPath, known: Sequence[str]) -> str:
    """The text for a key that the mapping at a path does not know."""
    where = f" in {path_text(path)}" if path else ""
    otherwise = f"known here: {', '.join(known)}" if known else "nothing can be set here; remove it"
    return f"unknown key `{key}`{where}; {remedy(key, known, otherwise)}"


def refusal(text: str) -> PydanticCustomError:
    """The validation error for one value."""
    return PydanticCustomError("tidegate", "{text}", {"text": text})  # type: ignore[arg-type,unused-ignore]


def requires(test: Callable[[str], object], text: str) -> AfterValidator:
    """Refuses every text that fails a test. `{written}` in the message stands for the text itself."""

    def check(written: str) -> str:
        if not test(written):
            raise refusal(text.replace("{written}", written))
        return written

    return AfterValidator(check)


def combined_problems(findings: list[Finding]) -> PydanticCustomError:
    """The validation error for a section with several problems, each at a path below the section."""
    text = "\n".join(f"{path_text(path)} {text}" for path, text in findings)
    return PydanticCustomError("together", "{text}", {"text": text, "problems": findings})


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
