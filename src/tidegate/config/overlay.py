"""Documents laid over the file: what is administered while the node runs, as if it stood in the file.

- Entries of the file come first, and documents cannot change them. Documents follow in the order given.
- The result is checked like any file. A problem with a document names `kind/id` instead of file and line.
- A document cannot do what only the owner of the machine may: it names no Python code, and `${NAME}` is plain text in
  it. It holds no password in plain.

Pure: nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from tidegate.config.document import Source, document_tree
from tidegate.config.tree import MAX_DEPTH, Node
from tidegate.errors import ConfigError


class Form(Enum):
    """How a document stands in the file."""

    RULE = "an entry of a list, with its id"
    ITEM = "an entry of a list"
    NAMED = "an entry of a mapping, under its id"
    TEXT = "a text in one of several lists; its key says in which"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where documents of a kind belong."""

    at: tuple[str, ...]
    form: Form
    lists: tuple[str, ...] = ()
    """For `Form.TEXT`: the names of the lists."""


KINDS: Final[Mapping[str, Placement]] = {
    "policy": Placement(at=("policies",), form=Form.RULE),
    "preference": Placement(at=("preferences",), form=Form.RULE),
    "view": Placement(at=("views",), form=Form.RULE),
    "monitor": Placement(at=("monitors",), form=Form.RULE),
    "user": Placement(at=("directory", "users"), form=Form.NAMED),
    "client": Placement(at=("directory", "clients"), form=Form.NAMED),
    "role": Placement(at=("directory", "roles"), form=Form.NAMED),
    "group": Placement(at=("directory", "groups"), form=Form.NAMED),
    "link": Placement(at=("links",), form=Form.ITEM),
    "flow": Placement(at=("flows",), form=Form.TEXT, lists=("forbid", "require")),
    "rule": Placement(at=("rules",), form=Form.TEXT, lists=("allow",)),
}
"""What can be administered while the node runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayDocument:
    """A document: what would stand in the file."""

    kind: str
    id: str
    body: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.id}"


def closed_preference(piece: OverlayDocument) -> OverlayDocument:
    """A preference that nobody meets."""
    kept = {key: value for key, value in piece.body.items() if key in ("user", "owner", "topic", "to")}
    return OverlayDocument(kind=piece.kind, id=piece.id, body={**kept, "when": "false"})


def with_documents(source: Source, pieces: Iterable[OverlayDocument]) -> Source:
    """The file with documents laid over it, to be checked as a whole."""
    file = source.alone
    overlay = _Overlay(file.tree)
    for piece in pieces:
        overlay.add(piece)
    return replace(file, tree=overlay.root, problems=(*file.problems, *overlay.problems), base=file)


class _Overlay:
    """Copies what it changes: the file's own tree stays as it is."""

    def __init__(self, tree: Node) -> None:
        self.root = _copy(tree)
        self.problems: list[ConfigError] = []
        self._own: set[int] = {id(self.root)}

    def add(self, piece: OverlayDocument) -> None:
        place = KINDS[piece.kind]
        problems = list(document_problems(piece))
        self.problems += problems
        node = document_tree(piece.body, piece.name)
        if node is None:
            self._object(piece, f"is nested deeper than {MAX_DEPTH} levels; flatten it")
        if problems or node is None:
            return
        match place.form:
            case Form.NAMED:
                self._name(piece, place, node)
            case Form.TEXT:
                [(key, below)] = _entries(node).items()
                below.document = piece.name
                self._append(piece, (*place.at, key), below)
            case Form.RULE:
                _entries(node).setdefault("id", Node(line=0, value=piece.id, written=piece.id))
                self._append(piece, place.at, node)
            case Form.ITEM:
                self._append(piece, place.at, node)

    def _append(self, piece: OverlayDocument, at: tuple[str, ...], node: Node) -> None:
        section = self._opened(at, [])
        match None if section is None else section.value:  # a file that is wrong there is reported anyway
            case list() as items:
                items.append(node)
            case str() as word:
                remedy = f"make `{'.'.join(at)}` a list in the file, which may be empty: `[]`"
                self._object(piece, f"cannot count while the file says `{'.'.join(at)}: {word}`; {remedy}")

    def _name(self, piece: OverlayDocument, place: Placement, node: Node) -> None:
        section = self._opened(place.at, {})
        if section is None or not isinstance(section.value, dict):
            return
        if piece.id in section.value:
            self._object(piece, "stands in the file as well; remove one of the two")
            return
        section.value[piece.id] = node
        section.key_lines[piece.id] = 0

    def _opened(self, at: tuple[str, ...], empty: dict[str, Node] | list[Node]) -> Node | None:
        """The section at a path, as a copy that may be changed; None if the file has something else on the way."""
        node = self.root
        for depth, step in enumerate(at):
            if not isinstance(node.value, dict):
                return None
            below = node.value.get(step)
            if below is None or below.value is None:
                below = Node(line=node.line, value=empty if depth == len(at) - 1 else {})
            elif id(below) not in self._own:
                below = _copy(below)
            self._own.add(id(below))
            node.value[step] = below
            node.key_lines.setdefault(step, node.line)
            node = below
        return node

    def _object(self, piece: OverlayDocument, text: str) -> None:
        self.problems.append(ConfigError(f"the document {text}", file=piece.name))


def document_problems(piece: OverlayDocument) -> Iterator[ConfigError]:
    """What only a document can be wrong about."""
    place, body = KINDS[piece.kind], piece.body

    def wrong(text: str) -> ConfigError:
        return ConfigError(text, file=piece.name)

    if place.form is Form.RULE and body.get("id", piece.id) != piece.id:
        yield wrong(f"`id` is not `{piece.id}`; leave it out, or write that")
    if place.form is Form.TEXT and (len(body) != 1 or next(iter(body)) not in place.lists):
        keys = " or ".join(f"`{key}`" for key in place.lists)
        yield wrong(f"the document must have one key; write {keys}")
    if piece.kind in ("user", "client") and "id" in body:
        yield wrong("`id` is made by the node for what is administered; leave it out")
    if piece.kind == "monitor" and "python" in body:
        yield wrong("`python` runs code of this machine, so it can only stand in the file; write it there")
    if piece.kind == "user" and str(body.get("password") or "").startswith("plain:"):
        yield wrong("`password` is written in plain; send what `tidegate passwd` prints")


def _copy(node: Node) -> Node:
    match node.value:
        case dict() as entries:
            return replace(node, value=dict(entries), key_lines=dict(node.key_lines))
        case list() as items:
            return replace(node, value=list(items))
        case _:
            return node


def _entries(node: Node) -> dict[str, Node]:
    assert isinstance(node.value, dict)
    return node.value


def entries_in_file(source: Source, kind: str) -> dict[str, Node]:
    """The entries of a kind in the file, by id; an entry without one is named by its position, as rules are."""
    place = KINDS[kind]
    nodes: dict[str, Node] = {}
    for path in [(*place.at, name) for name in place.lists] or [place.at]:
        *above, section = source.alone.tree.along(path)
        match section.value if len(above) == len(path) else None:
            case dict() as entries if place.form is Form.NAMED:
                nodes |= entries
            case list() as items if place.form is not Form.NAMED:
                for index, node in enumerate(items):
                    nodes[_id(node, place.form) or f"{'.'.join(path)}[{index}]"] = node
    return nodes


def document_body(node: Node, kind: str, id: str) -> dict[str, Any]:
    """An entry of the file as the body of a document."""
    data = node.data()
    if KINDS[kind].form is Form.TEXT:
        return {id.rpartition(".")[2].partition("[")[0]: data}
    return data if isinstance(data, dict) else {}


def _id(node: Node, form: Form) -> str:
    written = node.value.get("id") if form is Form.RULE and isinstance(node.value, dict) else None
    return written.value if written is not None and isinstance(written.value, str) else ""
