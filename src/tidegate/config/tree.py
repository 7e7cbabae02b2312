"""YAML text as a tree that remembers its lines.

Built from parser events with a stack of its own, never by recursion, so that no file can exhaust the
interpreter's stack; nesting, file size and the size after expanding aliases are bounded. Scalars follow the
YAML 1.2 core schema: `on`, `yes`, `12:30` and `2024-01-01` are text, and so is every key. A key that stands
twice is an error, tags other than `!!str` are errors, nothing is ever constructed but text, numbers, true,
false and null. Merge keys (`<<: *name`) work, as people know them from elsewhere.

`${NAME}` in a value is replaced by an environment variable, `$${` stands for a literal `${`. A dollar sign that is not
followed by `{` means nothing, so argon2 hashes (`$argon2id$v=19$...`) stay as they are. The replacement happens after
YAML was parsed: a variable can change a value, never the structure of the file. What a variable contained is never
repeated in a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from tidegate.config.problems import ConfigErrors, DocumentPath, path_text
from tidegate.errors import ConfigError

MAX_BYTES: Final = 16 << 20
MAX_NODES: Final = 2_000_000
MAX_DEPTH: Final = 50

Scalar = str | int | float | bool | None

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT: Final = re.compile(r"[-+]?[0-9]{1,18}|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,16}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]{1,18}|[0-9]{1,18}(\.[0-9]{0,18})?)([eE][-+]?[0-9]{1,3})?")
_WORDS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_REFERENCE: Final = re.compile(r"\$?\$\{([^}]*)(\}?)")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where something is said: on a line of a file, or in a document that has no lines."""

    file: str
    line: int
    """0 in a document, and where nobody knows."""
    path: DocumentPath
    """From the top of the file, or of the document."""

    @property
    def name(self) -> str:
        """As people write it: `listeners[0].url`, in backquotes."""
        return "the document" if not self.path and not self.line else path_text(self.path)

    def problem(self, text: str) -> ConfigError:
        """That something is wrong there; `text` completes the sentence "`path` ..."."""
        return ConfigError(f"{self.name} {text}", file=self.file, line=self.line)

    def warning(self, text: str) -> str:
        """The same as text, with the document but without the line, which is shown by other means."""
        warning = f"{self.name} {text}"
        return warning if self.line or not self.file else f"{self.file}: {warning}"


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """A value and where it stands. A mapping also knows the line of each of its keys."""

    line: int
    value: dict[str, Node] | list[Node] | Scalar
    written: str = ""
    """A scalar as it stands in the file, before variables were replaced."""
    key_lines: dict[str, int] = field(default_factory=dict)
    size: int = 1
    """How many nodes this is once aliases are written out."""
    depth: int = 1
    """How many levels deep it goes, aliases included."""
    broken: bool = False
    """A problem was already reported for it."""
    span: tuple[int, int] | None = None
    """Where in the text a scalar begins and ends."""
    style: str | None = None
    """How a scalar is written: one of `'`, `"`, `|`, `>`, or nothing for a plain one."""
    document: str = ""
    """The document that begins here, as `kind/id`; empty where it is the file's."""

    def data(self) -> Any:
        """The plain Python value."""
        match self.value:
            case dict() as entries:
                return {key: node.data() for key, node in entries.items()}
            case list() as items:
                return [item.data() for item in items]
            case scalar:
                return scalar

    def along(self, path: Sequence[str | int]) -> Iterator[Node]:
        """This node and those below it on a path, as far as the path exists."""
        node = self
        yield node
        for step in path:
            match node.value:
                case dict() as entries if (key := str(step)) in entries:
                    node = entries[key]
                case list() as items if isinstance(step, int) and 0 <= step < len(items):
                    node = items[step]
                case _:
                    return
            yield node

    def line_of(self, path: Sequence[str | int]) -> int:
        """The line of a path: of its key, if it is in a mapping; of the nearest thing above it otherwise."""
        line, node = self.line, self
        for step, below in zip(path, list(self.along(path))[1:], strict=False):
            line = node.key_lines.get(str(step), below.line) if isinstance(node.value, dict) else below.line
            node = below
        return line

    def location(self, path: Sequence[str | int], file: str) -> Location:
        """Where a path is said: in the file, whose name is `file`, or in a document below."""
        for depth, node in enumerate(self.along(path)):
            if node.document:
                return Location(file=node.document, line=0, path=tuple(path[depth:]))
        return Location(file=file, line=self.line_of(path), path=tuple(path))


class BadReference(ValueError):
    """A `${...}` that cannot be replaced; the text says what is wrong and how to mend it."""


def expand(text: str, variables: Mapping[str, str] | None) -> str:
    """The text with every `${NAME}` replaced; without `variables` there must be none."""
    if "${" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return found[0][1:]
        if not found[2]:
            raise BadReference("`${` is never closed; write `${NAME}`, or `$${` for a literal `${`")
        name = found[1]
        if not _NAME.fullmatch(name):
            raise BadReference(f"`${{{name}}}` names no variable; write `${{NAME}}`, or `$${{` for a literal `${{`")
        if variables is None:
            raise BadReference(f"`${{{name}}}` is not replaced in this file; write the value, or `$${{` for `${{`")
        if name not in variables:
            raise BadReference(f"the environment variable `{name}` is not set; set it, or write a value")
        return variables[name]

    return _REFERENCE.sub(value, text)


@dataclass(slots=True, kw_only=True)
class _Open:
    """A mapping or list that has begun and not ended yet."""

    node: Node
    anchor: str | None
    key: str | None = None
    key_line: int = 0
    merged: list[Node] = field(default_factory=list)


class _Composer:
    def __init__(self, file: str, variables: Mapping[str, str] | None) -> None:
        self.file = file
        self.variables = variables
        self.problems: list[ConfigError] = []
        self.anchors: dict[str, Node] = {}
        self.stack: list[_Open] = []
        self.root: Node | None = None
        self.documents = 0
        self.total = 0

    def problem(self, line: int, text: str) -> None:
        self.problems.append(ConfigError(text, file=self.file, line=line))

    def fatal(self, line: int, text: str) -> ConfigErrors:
        return ConfigErrors([*self.problems, ConfigError(text, file=self.file, line=line)])

    def event(self, event: yaml.Event) -> None:
        assert event.start_mark is not None
        line = event.start_mark.line + 1
        match event:
            case yaml.DocumentStartEvent():
                self.documents += 1
                if self.documents > 1:
                    raise self.fatal(line, "a second document begins here; keep one document per file")
            case yaml.ScalarEvent():
                self._scalar(event, line)
            case yaml.AliasEvent():
                self._alias(event, line)
            case yaml.MappingStartEvent():
                self._begin(Node(line=line, value={}), event)
            case yaml.SequenceStartEvent():
                self._begin(Node(line=line, value=[]), event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end()

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        if self._awaits_key():
            self._key(event.value, line, plain=event.implicit[0])
            return
        assert event.start_mark is not None
        assert event.end_mark is not None
        span = (event.start_mark.index, event.end_mark.index)
        node = Node(line=line, value=event.value, written=event.value, span=span, style=event.style)
        self._check_tag(event.tag, line, node, text_only=True)
        try:
            expanded = expand(event.value, self.variables)
        except BadReference as broken:
            self.problem(line, str(broken))
            node.broken = True
        else:
            # A replaced value stays text: the schema reads numbers from text, and a PIN keeps its zeros.
            node.value = resolve(expanded) if event.implicit[0] and expanded == event.value else expanded
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self._add(node)

    def _alias(self, event: yaml.AliasEvent, line: int) -> None:
        if self._awaits_key():
            raise self.fatal(line, "an alias cannot be a key; write the key out")
        target = self.anchors.get(event.anchor or "")
        if target is None:
            raise self.fatal(line, f"nothing before this is named `&{event.anchor}`; define it first")
        self._add(target)

    def _begin(self, node: Node, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if self._awaits_key():
            raise self.fatal(node.line, "a list or mapping cannot be a key; write a plain word as the key")
        if len(self.stack) >= MAX_DEPTH:
            raise self._too_deep(node.line)
        self._check_tag(event.tag, node.line, node, text_only=False)
        self.stack.append(_Open(node=node, anchor=event.anchor))

    def _end(self) -> None:
        done = self.stack.pop()
        if isinstance(done.node.value, dict):
            for other in done.merged:
                assert isinstance(other.value, dict)
                for key, below in other.value.items():
                    if key not in done.node.value:
                        done.node.value[key] = below
                        done.node.key_lines[key] = other.key_lines[key]
                        done.node.size += below.size
        # Only now: an alias inside the very thing it names would never end.
        if done.anchor is not None:
            self.anchors[done.anchor] = done.node
        self._add(done.node)

    def _awaits_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].node.value, dict) and self.stack[-1].key is None

    def _key(self, key: str, line: int, *, plain: bool) -> None:
        parent = self.stack[-1]
        if key in parent.node.key_lines and not (key == "<<" and plain):
            first = parent.node.key_lines[key]
            self.problem(line, f"`{key}` stands here again (first on line {first}); keep one of the two")
        parent.key, parent.key_line = key, line
        if not (key == "<<" and plain):
            parent.node.key_lines.setdefault(key, line)

    def _add(self, node: Node) -> None:
        self.total += 1
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        parent.node.size += node.size
        parent.node.depth = max(parent.node.depth, node.depth + 1)
        if parent.node.depth > MAX_DEPTH:
            raise self._too_deep(node.line)
        if max(parent.node.size, self.total) > MAX_NODES:
            text = f"more than {MAX_NODES:,} values once aliases are expanded; use fewer aliases"
            raise self.fatal(node.line, text)
        match parent.node.value:
            case dict() as entries:
                assert parent.key is not None
                key, parent.key = parent.key, None
                if key not in parent.node.key_lines:
                    self._merge(parent, node)
                else:
                    entries.setdefault(key, node)
            case list() as items:
                items.append(node)

    def _too_deep(self, line: int) -> ConfigErrors:
        return self.fatal(line, f"nested deeper than {MAX_DEPTH} levels; flatten it")

    def _merge(self, parent: _Open, node: Node) -> None:
        sources = node.value if isinstance(node.value, list) else [node]
        if all(isinstance(source.value, dict) for source in sources):
            parent.merged.extend(sources)
        else:
            self.problem(parent.key_line, "`<<` merges mappings only; name one: `<<: *name`")

    def _check_tag(self, tag: str | None, line: int, node: Node, *, text_only: bool) -> None:
        if tag is None or (text_only and tag in ("!", "tag:yaml.org,2002:str")):
            return
        self.problem(line, f"the tag `{tag}` is not supported; remove it")
        node.broken = True


def resolve(text: str) -> Scalar:
    """What an unquoted scalar means in the YAML 1.2 core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def compose(
    text: str, file: str, variables: Mapping[str, str] | None, *, first: str = "version: 1"
) -> tuple[Node, list[ConfigError]]:
    """The tree of a document and the problems that leave it readable. Raises `ConfigErrors` for others.

    Without `variables` nothing is replaced: a `${NAME}` is a problem. An empty file is to begin with `first`.
    """
    if len(text) > MAX_BYTES:
        raise ConfigErrors([ConfigError(f"larger than {MAX_BYTES >> 20} MiB; make it smaller", file=file)])
    composer = _Composer(file, variables)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            composer.event(event)
    except yaml.MarkedYAMLError as broken:
        mark = broken.problem_mark or broken.context_mark
        line = mark.line if mark else 0
        here = "".join(text.splitlines()[line : line + 1])
        raise composer.fatal(line + 1, _yaml_text(broken, here)) from None
    except (yaml.reader.ReaderError, UnicodeEncodeError):
        raise composer.fatal(_odd_line(text), "a character that YAML forbids; remove it") from None
    root = composer.root
    if root is None or root.value is None:
        raise composer.fatal(1, f"the file is empty; begin with `{first}`")
    if not isinstance(root.value, dict):
        raise composer.fatal(root.line, f"the file must be a mapping; begin with `{first}`")
    return root, composer.problems


def _yaml_text(broken: yaml.MarkedYAMLError, here: str) -> str:
    what = broken.problem or broken.context or "cannot be parsed"
    match what:
        case _ if "${" in here:
            how = "inside `{…}` and `[…]` put `${NAME}` in quotes"
        case _ if "cannot start any token" in what:
            how = "indent with spaces, and put text that begins with a special character in quotes"
        case _ if "mapping values are not allowed" in what:
            how = "put text that contains `: ` in quotes, or mend the indentation"
        case _ if "did not find expected key" in what or "expected <block end>" in what:
            how = "align it with the lines above it"
        case _:
            how = "mend the quotes, brackets or indentation here"
    return f"not valid YAML ({what}); {how}"


def _odd_line(text: str) -> int:
    odd = re.search(r"[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
    return text.count("\n", 0, odd.start()) + 1 if odd else 1
