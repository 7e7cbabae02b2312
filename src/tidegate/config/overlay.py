"""Documents laid over the file: what is administered while the node runs, as if it stood in the file.

- What stands in the file comes first and cannot be changed by a document. Documents follow in the order given.
- The result is checked like any file. What is wrong with a document is told with `kind/id` instead of file and line.
- A document cannot do what only the owner of the machine may: it names no Python code, and `${NAME}` is plain text in
  it. It holds no password in plain.

Pure: nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    said = {key: value for key, value in piece.body.items() if key in ("user", "topic", "to")}
    return OverlayDocument(kind=piece.kind, id=piece.id, body={**said, "when": "false"})


def with_documents(source: Source, pieces: Iterable[OverlayDocument]) -> Source:
    """The file with documents laid over it, to be checked as a whole."""
    file = source.alone
    laying = _Laying(file.tree)
    for piece in pieces:
        laying.lay(piece)
    return Source(
        file=file.file, text=file.text, tree=laying.root, problems=(*file.problems, *laying.problems), base=file
    )


class _Laying:
    """Copies what it changes: the file's own tree stays as it is."""

    def __init__(self, tree: Node) -> None:
        self.root = _copy(tree)
        self.problems: list[ConfigError] = []
        self._own: set[int] = {id(self.root)}

    def lay(self, piece: OverlayDocument) -> None:
        place = KINDS[piece.kind]
        problems = list(document_problems(piece))
        self.problems += problems
        node = document_tree(piece.body, piece.name)
        if problems or node is None:
            if node is None:
                self._object(piece, f"is nested deeper than {MAX_DEPTH} levels; flatten it")
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
        found = self._opened(at, [])
        if found is None:
            return  # the file is wrong there, which is told anyway
        match found.value:
            case list() as items:
                items.append(node)
            case str() as word:
                remedy = f"make `{'.'.join(at)}` a list in the file, which may be empty: `[]`"
                self._object(piece, f"cannot count while the file says `{'.'.join(at)}: {word}`; {remedy}")

    def _name(self, piece: OverlayDocument, place: Placement, node: Node) -> None:
        found = self._opened(place.at, {})
        if found is None or not isinstance(found.value, dict):
            return
        if piece.id in found.value:
            self._object(piece, "stands in the file as well; remove one of the two")
            return
        found.value[piece.id] = node
        found.key_lines[piece.id] = 0

    def _opened(self, at: tuple[str, ...], empty: dict[str, Node] | list[Node]) -> Node | None:
        """The section at a path, as a copy that may be changed; None if the file has something else on the way."""
        node = self.root
        for depth, step in enumerate(at):
            if not isinstance(node.value, dict):
                return None
            below = node.value.get(step)
            if below is None or below.value is None:
                last = depth == len(at) - 1
                below = Node(line=node.line, value=empty if last else {})
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
    """What of a kind stands in the file, by id; what has none is called by its position, as rules are."""
    place = KINDS[kind]
    found: dict[str, Node] = {}
    for at in [(*place.at, name) for name in place.lists] or [place.at]:
        section = _at(source.alone.tree, at)
        match section.value if section is not None else None:
            case dict() as entries if place.form is Form.NAMED:
                found |= entries
            case list() as items if place.form is not Form.NAMED:
                for index, node in enumerate(items):
                    found[_id(node, place.form) or f"{'.'.join(at)}[{index}]"] = node
    return found


def document_body(node: Node, kind: str, id: str) -> dict[str, Any]:
    """What stands in the file, as the body of a document."""
    data = node.data()
    if KINDS[kind].form is Form.TEXT:
        return {id.rpartition(".")[2].partition("[")[0]: data}
    return data if isinstance(data, dict) else {}


def _id(node: Node, form: Form) -> str:
    written = node.value.get("id") if form is Form.RULE and isinstance(node.value, dict) else None
    return written.value if written is not None and isinstance(written.value, str) else ""


def _at(tree: Node, path: Sequence[str]) -> Node | None:
    *_, node = nodes = list(tree.along(tuple(path)))
    return node if len(nodes) == len(path) + 1 else None
