"""XML as a small tree with line numbers, from a text that nobody vouches for.

Invariants
- A document type declaration is refused before anything of it is read. So there are no entities but the five of XML:
  none that grow, and none that read a file or an address.
- Size, depth and the number of elements are bounded.
- Whatever is wrong raises ConfigError with its line.

It knows nothing of policies but their namespaces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NoReturn
from xml.parsers import expat

from tidegate.errors import ConfigError

MAX_BYTES: Final = 8 << 20
MAX_DEPTH: Final = 60
MAX_ELEMENTS: Final = 200_000

NAMESPACES: Final = (
    "",
    "urn:oasis:names:tc:xacml:1.0:policy",
    "urn:oasis:names:tc:xacml:2.0:policy:schema:os",
)
_PIECE: Final = 1 << 16


@dataclass(slots=True, kw_only=True)
class Element:
    """One element, without its namespace."""

    name: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its own text, without the white space around it."""
        return "".join(self.pieces).strip()

    def named(self, *names: str) -> list[Element]:
        return [child for child in self.children if child.name in names]


def parsed(text: str, source: str) -> Element:
    """The root element."""
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise ConfigError("not UTF-8 text; save the file as UTF-8", file=source) from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES >> 20} MiB; split it", file=source)
    builder = _Builder(source)
    try:
        # in pieces, so that what is refused early costs little
        for start in range(0, len(content), _PIECE):
            builder.parser.Parse(content[start : start + _PIECE], False)
        builder.parser.Parse(b"", True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise ConfigError(f"no well-formed XML: {what}; mend it there", file=source, line=error.lineno) from None
    if builder.root is None:
        raise ConfigError("no XML; is it the right file?", file=source)
    return builder.root


class _Builder:
    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        # the text is UTF-8 whatever its declaration says
        self.parser = expat.ParserCreate("utf-8", " ")
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text

    def _wrong(self, what: str) -> NoReturn:
        raise ConfigError(what, file=self.source, line=self.parser.CurrentLineNumber)

    def _doctype(self, *declared: object) -> None:
        self._wrong("has a document type declaration, which could read files or grow without end; remove it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition(" ")
        if namespace not in NAMESPACES:
            self._wrong(f"`{namespace[:100]}` is no namespace of XACML 2.0 or 1.0; save the policy in XACML 2.0")
        self.count += 1
        if self.count > MAX_ELEMENTS:
            self._wrong(f"has more than {MAX_ELEMENTS} elements; split it")
        if len(self.open) >= MAX_DEPTH:
            self._wrong(f"nested more than {MAX_DEPTH} deep; simplify it")
        plain = {key: " ".join(value.split()) for key, value in attributes.items() if " " not in key}
        started = Element(name=local, attributes=plain, line=self.parser.CurrentLineNumber)
        if self.open:
            self.open[-1].children.append(started)
        else:
            self.root = started
        self.open.append(started)

    def _end(self, name: str) -> None:
        self.open.pop()

    def _text(self, data: str) -> None:
        self.open[-1].pieces.append(data)
