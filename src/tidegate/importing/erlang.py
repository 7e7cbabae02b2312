"""The Erlang terms of which EMQX's `acl.conf` is made: atoms, strings, integers, tuples, lists, each ended by a dot.

Everything is read once from left to right; size and depth are bounded. A text that is no such term raises ConfigError
with its line. Variables, funs, floats, maps and the other terms of the language are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from tidegate.errors import ConfigError

MAX_TEXT: Final = 16 << 20
MAX_DEPTH: Final = 32
MAX_DIGITS: Final = 20

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|%[^\n]*)
    |(?P<string>"(?:[^"\\]|\\[\s\S])*")
    |(?P<quoted>'(?:[^'\\]|\\[\s\S])*')
    |(?P<atom>[a-z][A-Za-z0-9_@]*)
    |(?P<number>-?[0-9]+)
    |(?P<mark><<|>>|/utf8\b|[{}\[\],.])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:x\{([0-9a-fA-F]{1,8})\}|x([0-9a-fA-F]{2})|([0-7]{1,3})|\^([\s\S])|([\s\S]))")
_NAMED: Final = {"b": "\b", "d": "\x7f", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "s": " ", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Atom:
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Text:
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Number:
    value: int
    line: int


@dataclass(frozen=True, slots=True)
class Tuple:
    items: tuple[Term, ...]
    line: int


@dataclass(frozen=True, slots=True)
class List:
    items: tuple[Term, ...]
    line: int


Term = Atom | Text | Number | Tuple | List


@dataclass(frozen=True, slots=True)
class _Token:
    sort: str
    text: str
    line: int
    start: int


def terms(text: str, source: str) -> Iterator[tuple[Term, str]]:
    """Each term of a file, and how it is written."""
    if len(text) > MAX_TEXT:
        raise ConfigError(f"has more than {MAX_TEXT >> 20} Mi characters; split it", file=source)
    reader = _Reader(text, source)
    while reader.token is not None:
        start = reader.token.start
        term = reader.term(0)
        end = reader.expect(".").start
        yield term, text[start:end]


class _Reader:
    """Looks one token ahead."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.tokens = self._tokens(text)
        self.line = 1
        self.token: _Token | None = next(self.tokens, None)

    def _tokens(self, text: str) -> Iterator[_Token]:
        at, line = 0, 1
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                self._wrong(f"`{text[at : at + 20].splitlines()[0]}` is no part of a rule", line)
            if token.lastgroup != "space":
                yield _Token(str(token.lastgroup), token[0], line, at)
            line += token[0].count("\n")
            at = token.end()

    def _wrong(self, what: str, line: int) -> NoReturn:
        remedy = 'write rules such as `{allow, all, publish, ["a/#"]}.`'
        raise ConfigError(f"{what}; {remedy}", file=self.source, line=line)

    def take(self) -> _Token:
        if self.token is None:
            self._wrong("the file ends inside a rule", self.line)
        taken, self.token = self.token, next(self.tokens, None)
        self.line = taken.line
        return taken

    def expect(self, mark: str) -> _Token:
        taken = self.take()
        if taken.sort != "mark" or taken.text != mark:
            self._wrong(f"`{mark}` is missing before `{taken.text[:20]}`", taken.line)
        return taken

    def term(self, depth: int) -> Term:
        if depth > MAX_DEPTH:
            self._wrong(f"nested more than {MAX_DEPTH} deep", self.line)
        taken = self.take()
        match taken.sort, taken.text:
            case "atom", name:
                return Atom(name, taken.line)
            case "quoted", written:
                return Atom(self._unescaped(written, taken.line), taken.line)
            case "string", written:
                return Text(self._unescaped(written, taken.line), taken.line)
            case "number", digits if len(digits) <= MAX_DIGITS:
                return Number(int(digits), taken.line)
            case "mark", "{":
                return Tuple(self._items("}", depth), taken.line)
            case "mark", "[":
                return List(self._items("]", depth), taken.line)
            case "mark", "<<":
                return self._binary(taken.line)
            case _:
                self._wrong(f"`{taken.text[:20]}` is no value", taken.line)

    def _items(self, end: str, depth: int) -> tuple[Term, ...]:
        items: list[Term] = []
        while not self._comes(end):
            if items:
                self.expect(",")
            items.append(self.term(depth + 1))
        return tuple(items)

    def _comes(self, mark: str) -> bool:
        """Whether this mark is next; then it is taken."""
        if self.token is None or self.token.sort != "mark" or self.token.text != mark:
            return False
        self.take()
        return True

    def _binary(self, line: int) -> Text:
        if self._comes(">>"):
            return Text("", line)
        written = self.take()
        if written.sort != "string":
            self._wrong(f"`{written.text[:20]}` is no text", written.line)
        self._comes("/utf8")
        self.expect(">>")
        return Text(self._unescaped(written.text, line), line)

    def _unescaped(self, written: str, line: int) -> str:
        def character(escape: re.Match[str]) -> str:
            long, two, octal, control, simple = escape.groups()
            if simple is not None:
                return _NAMED.get(simple, simple)
            code = ord(control) & 31 if control is not None else int(octal, 8) if octal else int(long or two, 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                self._wrong(f"`{escape[0]}` is no character", line)
            return chr(code)

        return _ESCAPE.sub(character, written[1:-1])
