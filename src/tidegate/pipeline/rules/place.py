"""A value of the rules and where it stands, so that whatever is wrong with it is told with its place.

A reader asks a `Place` for what it expects there. What is something else is noted as a problem and answered with None,
so that reading goes on and all problems are told at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from tidegate.config.problems import PLAIN_NAME, path_text, suggestion
from tidegate.config.tree import Location, Node, Path
from tidegate.errors import ConfigError, PipelineError
from tidegate.policy import pointers
from tidegate.policy.pointers import Pointer

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONGEST: Final = 256

Choice = TypeVar("Choice", bound=StrEnum)


class WrongRules(PipelineError):
    """All that is wrong with the rules; `str()` is one `file:line: what is wrong; how to mend it` per line."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        # A document has no lines: there the order of reading stays.
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.file, problem.line)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A value, where it stands, and where problems are noted."""

    node: Node
    location: Location
    problems: list[ConfigError]

    def wrong(self, text: str) -> None:
        """Notes a problem; `text` completes the sentence "`path` ..."."""
        self.problems.append(self.location.problem(text))

    def _below(self, step: str | int, node: Node) -> Place:
        line = self.node.key_lines.get(step, node.line) if isinstance(step, str) else node.line
        path: Path = (*self.location.path, step)
        return Place(
            node=node, location=Location(file=self.location.file, line=line, path=path), problems=self.problems
        )

    def entries(self, known: Sequence[str], *, needed: Iterable[str] = ()) -> dict[str, Place] | None:
        """What stands under the known keys, without what is null. Other keys are problems, and missing ones."""
        if self.node.broken:
            return None  # told already
        if not isinstance(self.node.value, dict):
            self.wrong(f"must be a mapping; write {{{', '.join(f'{key}: …' for key in known[:2])}}}")
            return None
        found: dict[str, Place] = {}
        for key, node in self.node.value.items():
            below = self._below(key, node)
            if key not in known:
                meant = suggestion(key, known)
                remedy = f"did you mean `{meant}`?" if meant else f"known here: {', '.join(known)}"
                where = f" in {path_text(self.location.path)}" if self.location.path else ""
                said = f"unknown key `{key[:_LONGEST]}`{where}; {remedy}"
                self.problems.append(ConfigError(said, file=below.location.file, line=below.location.line))
            elif node.value is not None or node.broken:
                found[key] = below
        for key in needed:
            if key not in found:
                location = Location(file=self.location.file, line=self.location.line, path=(*self.location.path, key))
                self.problems.append(location.problem("is missing; add it"))
        return found

    def items(self, most: int) -> list[Place]:
        """The entries of a list; none if it is something else."""
        if self.node.broken:
            return []
        if not isinstance(self.node.value, list):
            self.wrong("must be a list; begin each entry with `- `")
            return []
        if len(self.node.value) > most:
            self.wrong(f"has {len(self.node.value)} entries; at most {most} are allowed, so remove some")
            return []
        return [self._below(index, node) for index, node in enumerate(self.node.value)]

    def text(self) -> str | None:
        """A text of a line that is not too long."""
        if self.node.broken:
            return None
        found = self.node.value
        if not isinstance(found, str):
            self.wrong("must be a text; put it in quotes")
            return None
        if not found or len(found) > _LONGEST or _CONTROL.search(found):
            self.wrong(f"must have 1 to {_LONGEST} characters and no control characters; write another text")
            return None
        return found

    def long_text(self, most: int) -> str | None:
        """A text that may have several lines."""
        if self.node.broken:
            return None
        found = self.node.value
        if not isinstance(found, str) or not found.strip() or len(found) > most:
            self.wrong(f"must be a text of 1 to {most} characters; put it in quotes")
            return None
        return found

    def name(self) -> str | None:
        """A word that can stand in ids, topics and columns."""
        found = self.text()
        if found is not None and not PLAIN_NAME.fullmatch(found):
            self.wrong("must be a name; write at most 64 letters, digits, `.`, `_` and `-`")
            return None
        return found

    def texts(self, most: int) -> tuple[str, ...]:
        """A text or a list of them."""
        places = self.items(most) if isinstance(self.node.value, list) else [self]
        if not places and self.node.value == []:
            self.wrong("is an empty list, which would fit nothing; name one, or leave it out")
        return tuple(found for place in places if (found := place.text()) is not None)

    def pointer(self) -> Pointer | None:
        """A JSON pointer (RFC 6901)."""
        if self.node.broken:
            return None
        found = self.node.value
        if not isinstance(found, str) or len(found) > _LONGEST:
            self.wrong(f'must be a JSON pointer of at most {_LONGEST} characters; write for example "/a/0"')
            return None
        try:
            return pointers.parse(found)
        except ValueError as broken:
            self.wrong(f"must be a JSON pointer; {broken}")
            return None

    def number(self) -> float | None:
        """A finite number."""
        found = self.node.value
        if self.node.broken:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            self.wrong("must be a number; write for example `2` or `0.5`")
            return None
        return float(found)

    def switch(self) -> bool | None:
        """True or false."""
        found = self.node.value
        if self.node.broken:
            return None
        if not isinstance(found, bool):
            self.wrong("must be `true` or `false`; write one of the two")
            return None
        return found

    def choice(self, choices: type[Choice]) -> Choice | None:
        """One of a closed set."""
        found = self.word(tuple(choices))
        return None if found is None else choices(found)

    def word(self, words: Sequence[str]) -> str | None:
        """One of some words."""
        if self.node.broken:
            return None
        found = self.node.value
        if isinstance(found, str) and found in words:
            return found
        meant = suggestion(found, words) if isinstance(found, str) else ""
        remedy = f"did you mean `{meant}`?" if meant else "write one of these"
        self.wrong(f"must be {_either(words)}; {remedy}")
        return None

    def plain(self) -> dict[str, Any] | None:
        """A mapping of whatever."""
        if self.node.broken:
            return None
        if not isinstance(self.node.value, dict):
            self.wrong("must be a mapping; write {name: value, …}")
            return None
        found: dict[str, Any] = self.node.data()
        return found


def _either(words: Sequence[str]) -> str:
    *others, last = (f"`{word}`" for word in words)
    return f"{', '.join(others)} or {last}" if others else last
