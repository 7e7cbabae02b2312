"""Topic filters with placeholders: `+/performance/{s.user}/#`.

A placeholder stands for an attribute of the acting subject, as a level or a part of one. `{{` and `}}` are braces.

Invariants
- A value never widens a filter: one that holds `/`, `+` or `#`, is empty, is no string or is absent fits nothing, and
  so does one that would make the topic begin with `$`.
- `+` and `#` never match a leading `$` [MQTT-4.7.2-1].
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegate import topics
from tidegate.errors import ConfigError

_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PATH: Final = re.compile(r"s(\.[A-Za-z_][A-Za-z0-9_]*)+")


@dataclass(frozen=True, slots=True)
class Template:
    """A topic filter, or a function from a subject to one."""

    text: str
    pieces: tuple[str | tuple[str, ...], ...]
    """Literal text, and the paths below `s` between it."""

    @classmethod
    def parse(cls, text: str) -> Template:
        """Reads a template; ConfigError says what is wrong."""
        pieces: list[str | tuple[str, ...]] = []
        literal, end = "", 0
        for token in _PIECE.finditer(text):
            literal += text[end : token.start()]
            end = token.end()
            if token[0] in ("{{", "}}"):
                literal += token[0][0]
                continue
            path = token[1]
            if path is None:
                raise ConfigError(
                    f"`{text}` has a single `{token[0]}`: write `{token[0] * 2}` for the character itself"
                )
            if not _PATH.fullmatch(path):
                raise ConfigError(f"`{{{path}}}` is no attribute of the subject: write for instance `{{s.user}}`")
            pieces += [literal, tuple(path.split(".")[1:])]
            literal = ""
        pieces.append(literal + text[end:])
        sample = "".join(piece if isinstance(piece, str) else "x" for piece in pieces)
        group, _ = topics.share(sample)
        if group is not None:
            raise ConfigError(f"`{text}` is shared: policies speak of the filter without `$share/{group}/`")
        if not topics.valid_filter(sample):
            raise ConfigError(f"`{text}` is no topic filter: `+` is a whole level, `#` the whole last one")
        return cls(text, tuple(piece for piece in pieces if piece))

    @property
    def fixed(self) -> str | None:
        match self.pieces:
            case [str() as text]:
                return text
            case _:
                return None

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(".".join(("s", *piece)) for piece in self.pieces if not isinstance(piece, str))

    @property
    def levels(self) -> list[str]:
        """Its levels for an index: one that holds a placeholder may be any, so it reads `+`."""
        marked = "".join(piece if isinstance(piece, str) else "\0" for piece in self.pieces)
        return ["+" if "\0" in level else level for level in marked.split("/")]

    def fill(self, s: Mapping[str, Any]) -> str | None:
        """The filter for a subject with these attributes; None if it has none."""
        filled: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                filled.append(piece)
                continue
            value: Any = s
            for name in piece:
                if not isinstance(value, Mapping) or name not in value:
                    return None
                value = value[name]
            if not isinstance(value, str) or not _harmless(value, first=not filled):
                return None
            filled.append(value)
        return "".join(filled)

    def matches(self, s: Mapping[str, Any], topic: str) -> bool:
        filter = self.fill(s)
        return filter is not None and topics.matches(filter, topic)

    def overlaps(self, s: Mapping[str, Any], filter: str) -> bool:
        """Whether some topic matches both it, for this subject, and a plain filter."""
        own = self.fill(s)
        return own is not None and topics.overlaps(own, filter)

    def __str__(self) -> str:
        return self.text


def _harmless(value: str, *, first: bool) -> bool:
    if not value or "/" in value or "+" in value or "#" in value or "\0" in value:
        return False
    return not (first and value[0] == "$")  # nobody gets at $SYS by being called that


def plain_filter(text: str) -> str:
    """A topic filter where placeholders have no meaning; ConfigError says what is wrong."""
    filter = Template.parse(text).fixed
    if filter is None:
        raise ConfigError(f"`{text}` has a placeholder, which only policies can have")
    return filter
