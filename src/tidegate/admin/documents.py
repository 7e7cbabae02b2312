"""What people administer, as one node knows it: the documents of the registry, in the order in which they were made.

A document is stored as `{"place": n, "content": {...}}`: places grow with every new document of whatever kind, so that
all nodes put them in the same order, and one that is changed or restored keeps its place.

Every change also writes the *fence*, a document that lists what was changed. Whoever changes anything says which fence
it has seen, so that two changes that were each checked without the other cannot both be made.

Nothing here waits or asks anybody. Values are replaced, never changed, so that threads can look at them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import orjson
from pydantic import ConfigDict

from tidegate.config import OverlayDocument, Source
from tidegate.config.overlay import KINDS, Form, document_body, entries_in_file
from tidegate.errors import Problem, StoreError
from tidegate.net.control_command import Version
from tidegate.store.registry import Body, Change, Conflict, Entry, Reason, Snapshot
from tidegate.store.registry.state import conflict

if TYPE_CHECKING:
    from tidegate.admin.control_commands import ListDocuments

FENCE: Final = ("fence", "documents")
PIPELINE: Final = "pipeline"  # the kind of the rules of the pipeline
KEPT: Final = frozenset(("application", "source", PIPELINE))
"""Kinds that are stored for others, and are no part of the configuration."""
PASSWORD: Final = "password"  # noqa: S105 - the name of the key
APPLICATION: Final = "application"  # the attribute of users that says to which application they belong
OWNER: Final = "owner"  # the key of a preference that says whose it is, by id
PAGE: Final = 1 << 20  # bytes of a page; then it ends, however few there are on it
MOST: Final = 1000  # documents on a page
_PLACE: Final = "place"
_CONTENT: Final = "content"
_OWN: Final = re.compile(r"own-[0-9a-f]{16}-")  # see `own_id`

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedChange:
    """What somebody wants a document to become. A password that is not told again stays as it is."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    kind: str
    id: str
    body: Body | None = None  # None deletes it
    expected: Version | None = None  # the version that is changed. None: there must be none yet, or for a deletion, any

    @property
    def key(self) -> Key:
        return self.kind, self.id

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration(RequestedChange):
    """A document that is put back where it was, with exactly this body."""

    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryState:
    """The registry after the change `sequence`."""

    sequence: int
    documents: Mapping[Key, Entry]
    fence: int | None  # the version of the fence; None: nothing was ever administered

    @classmethod
    def of(cls, snapshot: Snapshot) -> RegistryState:
        documents = {(each.kind, each.id): each for each in snapshot.documents}
        fence = documents.pop(FENCE, None)
        return cls(sequence=snapshot.sequence, documents=documents, fence=None if fence is None else fence.sequence)

    def after(self, entries: Iterable[Entry], newest: int = 0) -> RegistryState:
        """With these changes, of which the last may have been followed by some that changed no document."""
        documents, fence, sequence = dict(self.documents), self.fence, max(self.sequence, newest)
        for entry in entries:
            key = entry.kind, entry.id
            sequence = max(sequence, entry.sequence)
            if key == FENCE:
                fence = entry.sequence
            elif entry.body is None:
                documents.pop(key, None)
            else:
                documents[key] = entry
        return RegistryState(sequence=sequence, documents=documents, fence=fence)

    def pieces(self) -> list[OverlayDocument]:
        """What belongs into the configuration, in its order."""
        return [OverlayDocument(kind=each.kind, id=each.id, body=content(each.body)) for each in self.ordered(KINDS)]

    def documents_of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [{"id": each.id, "body": content(each.body)} for each in self.ordered((kind,))]

    def ordered(self, kinds: Container[str]) -> list[Entry]:
        """The documents of some kinds, in the order in which they were made."""
        documents = [each for each in self.documents.values() if each.kind in kinds]
        return sorted(documents, key=lambda each: (place(each.body), each.kind, each.id))

    def changes(self, requested: Sequence[RequestedChange], source: Source) -> list[Change]:
        """The changes of the registry, the fence among them. Problem if something cannot be so."""
        if not requested:
            raise Problem("there is nothing to change", problem="invalid")
        newest = max((place(each.body) for each in self.documents.values()), default=0)
        changes: list[Change] = []
        for each in requested:
            self._check(each, source)
            stored = self.documents.get(each.key)
            body = None
            if isinstance(each, Restoration):
                body = {_PLACE: each.place, _CONTENT: each.body}
            elif each.body is not None:
                newest += 1
                body = {_PLACE: newest if stored is None else place(stored.body), _CONTENT: _filled(each, stored)}
            restores = isinstance(each, Restoration)
            own = _OWN.match(each.id) if each.kind == "preference" else None
            changes.append(
                Change(
                    kind=each.kind,
                    id=each.id,
                    body=body,
                    expected=each.expected,
                    restores=restores,
                    group=None if own is None else own[0],
                )
            )
        fence = {"changed": [list(each.key) for each in requested]}
        return [*changes, Change(kind=FENCE[0], id=FENCE[1], body=fence, expected=self.fence)]

    def _check(self, requested: RequestedChange, source: Source) -> None:
        check_kind(requested.kind)
        if requested.id in _in_file(source, requested.kind):
            why = "stands in the file of the node: change it there"
            raise Problem(f"{requested.name} {why}", problem="readonly", details=[{"at": requested.name, "error": why}])
        stored = self.documents.get(requested.key)
        if stored is None and requested.body is None and requested.expected is None:
            raise not_found(requested.kind, requested.id)
        version = None if stored is None else stored.sequence
        wrong = conflict(*requested.key, version, requested.expected, removing=requested.body is None)
        if wrong is not None:
            raise conflict_problem(wrong)


Draft: TypeAlias = Callable[[RegistryState, Source], Sequence[RequestedChange]]
"""What somebody wants, if that depends on what there is: asked again whenever that has changed."""


def bound_preferences(
    requested: Sequence[RequestedChange], state: RegistryState, owner: Callable[[str], str]
) -> list[RequestedChange]:
    """The same with preferences bound to the ids of their owners, which `owner` knows by name."""

    def bound(change: RequestedChange) -> RequestedChange:
        if change.kind != "preference" or change.body is None or isinstance(change, Restoration):
            return change
        stored = state.documents.get(change.key)
        before = {} if stored is None else content(stored.body)
        user = change.body.get("user")
        id = change.body.get(OWNER) or (before.get(OWNER) if before.get("user") == user else None)
        id = id or (owner(user) if isinstance(user, str) else None)
        return replace(change, body={**change.body, OWNER: id}) if id else change

    return [bound(each) for each in requested]


def unless_changed(requested: Sequence[RequestedChange], fence: int | None) -> Draft:
    """The same, unless anything has changed since somebody saw the fence at this version (0: there was none)."""

    def draft(state: RegistryState, _: Source) -> Sequence[RequestedChange]:
        if fence is not None and (state.fence or 0) != fence:
            kind, id = FENCE
            raise conflict_problem(Conflict(kind=kind, id=id, reason=Reason.CHANGED, version=state.fence))
        return requested

    return draft


def if_owned(draft: Draft, owner: str, identity: str | None) -> Draft:
    """The same, if it is about preferences of this owner alone: those that there are, and those that it makes."""

    def owned(state: RegistryState, source: Source) -> Sequence[RequestedChange]:
        requested = draft(state, source)
        for each in requested:
            stored = state.documents.get(each.key)
            standing = _in_file(source, each.kind).get(each.id)
            before = document_body(standing, each.kind, each.id) if standing is not None else None
            before = content(stored.body) if stored is not None else before
            if before is not None and not owns(before, owner, identity):
                raise not_found(each.kind, each.id)
            if before is None and not _is_own_id(each.id, identity or owner):
                raise Problem("a new preference has an id that the node makes up; leave it out", problem="forbidden")
            body = each.body
            if body is not None and (
                body.get("user") != owner or (body.get(OWNER) or identity or "") != (identity or "")
            ):
                raise Problem("a preference of somebody else cannot be made here", problem="forbidden")
        return requested

    return owned


def place(body: Body | None) -> int:
    number = (body or {}).get(_PLACE)
    if not isinstance(number, int):
        raise StoreError("a document of the registry has no place. Remedy: restore the registry from a backup.")
    return number


def content(body: Body | None) -> dict[str, Any]:
    members = (body or {}).get(_CONTENT)
    if not isinstance(members, dict):
        raise StoreError("a document of the registry has no content. Remedy: restore the registry from a backup.")
    return members


def _filled(requested: RequestedChange, stored: Entry | None) -> dict[str, Any]:
    """Its body. A password is never told, so whoever sends a user back without one does not mean to remove it."""
    body = dict(requested.body or {})
    if requested.kind == "user" and stored is not None and PASSWORD not in body:
        password = content(stored.body).get(PASSWORD)
        return body if password is None else {**body, PASSWORD: password}
    return body


def not_found(kind: str, id: str) -> Problem:
    named = "rule" if kind == PIPELINE else kind
    return Problem(f"there is no {named} {id[:200]!r}; list what there is", problem="unknown")


def conflict_problem(conflict: Conflict) -> Problem:
    """What is told of a change that came too late."""
    detail = {"at": f"{conflict.kind}/{conflict.id}", "error": conflict.reason.value, "version": conflict.version}
    return Problem(f"{conflict}; look at it as it is now, and decide again", problem="conflict", details=[detail])


# -- for whoever looks -------------------------------------------------------------------------------------------------


def list_documents(state: RegistryState, source: Source, command: ListDocuments) -> dict[str, Any]:
    """Everything of a kind: what stands in the file first, then the documents in their order.

    With a limit, an id or an owner, a page of them: those after the id, by id, at most so many, and what to ask for
    next, if that was not all. Of an owner: the preferences of that user, or the users of that application, and of other
    kinds none.
    """
    kind, after, owner = command.kind, command.after, command.owner
    check_kind(kind)
    file = {id: document_body(node, kind, id) for id, node in _in_file(source, kind).items()}
    if command.limit is None and after is None and owner is None:
        shown = [_standing(kind, id, body) for id, body in file.items()]
        return {"documents": shown + [_shown(each) for each in state.ordered((kind,))]}
    bodies = {id: content(each.body) for (sort, id), each in state.documents.items() if sort == kind} | file
    if owner is not None:
        bodies = {id: body for id, body in bodies.items() if _belongs(kind, id, body, owner, command.identity)}
    limit = min(command.limit or MOST, MOST)
    requested = nsmallest(limit + 1, (id for id in bodies if after is None or id > after))
    items: list[dict[str, Any]] = []
    size = 0
    for id in requested[:limit]:
        if size > PAGE:
            break
        items.append(_standing(kind, id, file[id]) if id in file else _shown(state.documents[kind, id]))
        size += len(orjson.dumps(items[-1]))
    return {"documents": items, "next": items[-1]["id"] if len(items) < len(requested) else None}


def _belongs(kind: str, id: str, body: Body, owner: str, identity: str | None) -> bool:
    match kind, body:
        case "preference", _:
            return owns(body, owner, identity)
        case "user", {"attributes": {"application": application}} if application != id:
            return bool(application == owner)
        case _:
            return False


def own_id(owner: str) -> str:
    """A new id for a preference that somebody makes; all of one owner begin alike, and share a bound."""
    return f"{own_group(owner)}{secrets.token_hex(8)}"


def own_group(owner: str) -> str:
    """How the ids of all preferences begin that somebody makes."""
    return f"own-{hashlib.sha256(owner.encode()).hexdigest()[:16]}-"


def _is_own_id(id: str, owner: str) -> bool:
    return id.startswith(own_group(owner))


def owns(preference: Body, user: str, identity: str | None) -> bool:
    """Whether a preference is of this user, and with an identity, not of another who had the name."""
    bound = preference.get(OWNER)
    return preference.get("user") == user if bound is None or identity is None else bound == identity


def get_document(state: RegistryState, source: Source, kind: str, id: str) -> dict[str, Any]:
    check_kind(kind)
    node = _in_file(source, kind).get(id)
    if node is not None:
        return _standing(kind, id, document_body(node, kind, id))
    document = state.documents.get((kind, id))
    if document is None:
        raise not_found(kind, id)
    return _shown(document)


def history_entry(entry: Entry) -> dict[str, Any]:
    said = None if entry.body is None else _open(entry.kind, content(entry.body))
    return {"sequence": entry.sequence, "body": said, "at": entry.at, "by": entry.by, "why": entry.why}


def check_kind(kind: str) -> None:
    if kind not in KINDS and kind not in KEPT:
        raise Problem(
            f"there is no kind {kind[:40]!r}; there is {', '.join((*KINDS, *sorted(KEPT)))}", problem="unknown"
        )


def _in_file(source: Source, kind: str) -> Mapping[str, Any]:
    """What stands in the file, by id."""
    return entries_in_file(source, kind) if kind in KINDS else {}


def _standing(kind: str, id: str, said: dict[str, Any]) -> dict[str, Any]:
    nobody = {"version": None, "changed_at": None, "changed_by": None, "why": None}
    return {"kind": kind, "id": id, "body": _open(kind, said), "source": "file", **nobody}


def _shown(document: Entry) -> dict[str, Any]:
    return {
        "kind": document.kind,
        "id": document.id,
        "body": _open(document.kind, content(document.body)),
        "source": "api",
        "version": document.sequence,
        "changed_at": document.at,
        "changed_by": document.by,
        "why": document.why,
    }


def _open(kind: str, said: dict[str, Any]) -> dict[str, Any]:
    """What everybody who may look may see, and without the id, which stands beside it."""
    hidden = {PASSWORD} if kind == "user" else {"id"} if kind in KINDS and KINDS[kind].form is Form.RULE else set()
    return {key: value for key, value in said.items() if key not in hidden}
