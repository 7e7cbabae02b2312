"""Reads YAML documents and reports every problem with its place: `file:line: what is wrong; how to mend it`.

The one reader for the configuration, documents laid over it, the key service's file, the pipeline's rules and
scenarios. `read_source` reads a file, `source_of` a text, `document_tree` plain data. A tree is checked by a pydantic
model (`validation`), or value by value with `DocumentValue`. `tree` has the YAML itself.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from tidegate.config.problems import PLAIN_NAME, ConfigErrors, alternatives, remedy, unknown_key
from tidegate.config.tree import MAX_BYTES, MAX_DEPTH, Location, Node, compose
from tidegate.errors import ConfigError
from tidegate.policy import pointers
from tidegate.policy.pointers import Pointer

MAX_TEXT: Final = 256
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file as it was read, before anything in it was checked; maybe with documents laid over it."""

    file: str
    """Its name in messages; relative paths start beside it."""
    text: str = field(repr=False)
    tree: Node = field(repr=False)
    problems: tuple[ConfigError, ...] = ()
    """What is wrong with it already."""
    base: Source | None = None
    """The file alone, if documents are laid over it."""

    @property
    def alone(self) -> Source:
        """Without any documents."""
        return self.base or self


def read_source(path: Path | str, variables: Mapping[str, str] = os.environ, *, first: str = "version: 1") -> Source:
    """A file, before anything in it is checked. Raises `ConfigErrors` if it cannot even be read.

    `first` is what people are advised to begin an empty file with.
    """

    def refused(text: str, line: int = 0) -> ConfigErrors:
        return ConfigErrors([ConfigError(text, file=str(path), line=line)])

    try:
        with Path(path).open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise refused(f"cannot be read ({error.strerror}); check its name and permissions") from None
    if len(content) > MAX_BYTES:
        raise refused(f"larger than {MAX_BYTES >> 20} MiB; make it smaller")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise refused("not UTF-8 text; save the file as UTF-8", line) from None
    return source_of(text, path, variables, first=first)


def source_of(text: str, file: Path | str, variables: Mapping[str, str] | None, *, first: str = "version: 1") -> Source:
    """A text as if it had been read from a file. Without `variables`, a `${NAME}` in it is a problem."""
    tree, problems = compose(text, str(file), variables, first=first)
    return Source(file=str(file), text=text, tree=tree, problems=tuple(problems))


def document_tree(value: Any, name: str = "", depth: int = 1) -> Node | None:
    """The tree of plain data, which has no lines; None if it is nested too deep. `name` stands for a file's name."""
    if depth > MAX_DEPTH:
        return None
    match value:
        case Mapping():
            entries: dict[str, Node] = {}
            for key, below in value.items():
                node = document_tree(below, depth=depth + 1)
                if node is None:
                    return None
                entries[str(key)] = node
            return Node(line=0, value=entries, key_lines=dict.fromkeys(entries, 0), document=name)
        case list() | tuple():
            items = [document_tree(below, depth=depth + 1) for below in value]
            nodes = [item for item in items if item is not None]
            return Node(line=0, value=nodes, document=name) if len(nodes) == len(items) else None
        case _:
            return Node(line=0, value=value, written=value if isinstance(value, str) else "", document=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentValue:
    """A value, where it stands, and the list to which its problems are added.

    Each method returns what its caller expects, or notes a problem and returns None, so that all problems are reported
    at once.
    """

    node: Node
    location: Location
    problems: list[ConfigError]

    @classmethod
    def top(cls, node: Node, file: str, problems: list[ConfigError]) -> DocumentValue:
        return cls(node=node, location=Location(file=file, line=node.line, path=()), problems=problems)

    def wrong(self, text: str) -> None:
        """Notes a problem; `text` completes the sentence "`path` ..."."""
        self.problems.append(self.location.problem(text))

    def _below(self, step: str | int, node: Node) -> DocumentValue:
        line = self.node.key_lines.get(step, node.line) if isinstance(step, str) else node.line
        location = replace(self.location, line=line, path=(*self.location.path, step))
        return replace(self, node=node, location=location)

    def _expect(self, accepts: Callable[[Any], bool], text: str) -> Any:
        """The plain value if it is accepted; None and a problem otherwise."""
        if accepts(self.node.value) and not self.node.broken:
            return self.node.value
        if not self.node.broken:  # else its problem is reported already
            self.wrong(text)
        return None

    def mapping(self, example: str = "name: value, …") -> dict[str, DocumentValue] | None:
        """What stands under each key."""
        if self._expect(lambda value: isinstance(value, dict), f"must be a mapping; write {{{example}}}") is None:
            return None
        assert isinstance(self.node.value, dict)
        return {key: self._below(key, node) for key, node in self.node.value.items()}

    def entries(self, known: Sequence[str], *, needed: Iterable[str] = ()) -> dict[str, DocumentValue] | None:
        """The values under the known keys, without null. Unknown and missing keys are problems."""
        mapping = self.mapping(", ".join(f"{key}: …" for key in known[:2]))
        if mapping is None:
            return None
        entries: dict[str, DocumentValue] = {}
        for key, below in mapping.items():
            if key not in known:
                text = unknown_key(key[:MAX_TEXT], self.location.path, known)
                self.problems.append(ConfigError(text, file=below.location.file, line=below.location.line))
            elif below.node.value is not None or below.node.broken:
                entries[key] = below
        for key in needed:
            if key not in entries:
                here = replace(self.location, path=(*self.location.path, key))
                self.problems.append(here.problem("is missing; add it"))
        return entries

    def items(self, most: int | None = None) -> list[DocumentValue]:
        """The entries of a list; none if it is something else."""
        items = self._expect(lambda value: isinstance(value, list), "must be a list; begin each entry with `- `")
        if items is None:
            return []
        if most is not None and len(items) > most:
            self.wrong(f"has {len(items)} entries; at most {most} are allowed, so remove some")
            return []
        return [self._below(index, node) for index, node in enumerate(items)]

    def text(self) -> str | None:
        """A text of a line that is not too long."""
        text: str | None = self._expect(lambda value: isinstance(value, str), "must be a text; put it in quotes")
        if text is not None and (not text or len(text) > MAX_TEXT or _CONTROL.search(text)):
            self.wrong(f"must have 1 to {MAX_TEXT} characters and no control characters; write another text")
            return None
        return text

    def long_text(self, most: int) -> str | None:
        """A text that may have several lines."""

        def accepts(value: Any) -> bool:
            return isinstance(value, str) and bool(value.strip()) and len(value) <= most

        text: str | None = self._expect(accepts, f"must be a text of 1 to {most} characters; put it in quotes")
        return text

    def name(self) -> str | None:
        """A word that can stand in ids, topics and columns."""
        text = self.text()
        if text is not None and not PLAIN_NAME.fullmatch(text):
            self.wrong("must be a name; write at most 64 letters, digits, `.`, `_` and `-`")
            return None
        return text

    def texts(self, most: int) -> tuple[str, ...]:
        values = self.items(most) if isinstance(self.node.value, list) else [self]
        if self.node.value == []:
            self.wrong("is an empty list, which would fit nothing; name one, or leave it out")
        return tuple(text for value in values if (text := value.text()) is not None)

    def pointer(self) -> Pointer | None:
        text = self._expect(
            lambda value: isinstance(value, str) and len(value) <= MAX_TEXT,
            f'must be a JSON pointer of at most {MAX_TEXT} characters; write for example "/a/0"',
        )
        if text is None:
            return None
        try:
            return pointers.parse(text)
        except ValueError as error:
            self.wrong(f"must be a JSON pointer; {error}")
            return None

    def number(self) -> float | None:
        def accepts(value: Any) -> bool:
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

        number = self._expect(accepts, "must be a number; write for example `2` or `0.5`")
        return None if number is None else float(number)

    def switch(self) -> bool | None:
        text = "must be `true` or `false`; write one of the two"
        switch: bool | None = self._expect(lambda value: isinstance(value, bool), text)
        return switch

    def choice(self, choices: type[Choice]) -> Choice | None:
        word = self.word(tuple(choices))
        return None if word is None else choices(word)

    def word(self, words: Sequence[str]) -> str | None:
        how = remedy(str(self.node.value), words, "write one of these")
        text = f"must be {alternatives(f'`{word}`' for word in words)}; {how}"
        word: str | None = self._expect(lambda value: isinstance(value, str) and value in words, text)
        return word

    def plain(self) -> dict[str, Any] | None:
        if self.mapping() is None:
            return None
        plain: dict[str, Any] = self.node.data()
        return plain
