"""Administration while the node runs: documents of a registry over the file, changed by people and by other nodes.

- A change is checked as part of the whole configuration before it is stored; a broken one is refused whole. Then it is
  stored, then it is in force here, then it is answered. Other nodes on the registry follow within a second.
- Changes happen one after the other, reloads of the file among them (`AdministeredNode.changing`). Of
  several nodes, one that was overtaken checks again with what the other has changed (`documents`, the fence).
- A node whose registry cannot be read does not start. If it goes away later, the node goes on with what it has, and
  says so; nothing can be changed until it is back.
- What another node has stored may be impossible here: with another file, or because of who is connected. Then the last
  good configuration stays, that is said, and it is tried again.

Everything is audited: who, what, why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import structlog

from tidegate.admin import documents
from tidegate.admin.change_audit import ChangeAudit
from tidegate.admin.documents import (
    FENCE,
    Draft,
    Key,
    RegistryState,
    RequestedChange,
    check_kind,
    conflict_problem,
    content,
    history_entry,
    unless_changed,
)
from tidegate.admin.registry_follower import RegistryFollower
from tidegate.admin.registry_threads import RegistryThreads
from tidegate.admin.reverting import changes_to_revert
from tidegate.admin.token_administration import TokenAdministration
from tidegate.admin.tokens import ROOM as TOKENS
from tidegate.admin.tokens import Tokens
from tidegate.audit.auditor import Auditor
from tidegate.authentication.authentication import Authentication
from tidegate.config import Config, ConfigErrors, OverlayDocument, Source
from tidegate.errors import ConfigError, Problem, StoreError, TidegateError
from tidegate.explain.comparison import compare
from tidegate.store.journal.rows import Kind
from tidegate.store.registry import Applied, Change, Conflict, Entry, Registry

PATIENCE: Final = 5.0  # seconds that a change waits for a registry that is away
OVERTAKEN: Final = 10.0  # seconds to get in between the changes of other nodes
RETRY: Final = 5.0  # seconds until what could not be put in force is tried again
SHOWING: Final = 4.0  # seconds after which a node that has not shown the first token is taken for dead
THREADS: Final = 2

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("tidegate.node")


class AdministeredNode(Protocol):
    """What is needed of a node."""

    config: Config
    """In force."""
    source: Source | None
    """Its file, alone."""
    audit: Auditor
    changing: asyncio.Lock

    async def run_change(self, do: Callable[[], T]) -> T:
        """On the thread on which configurations are made, which gives way to the loop."""
        ...

    async def run_query(self, do: Callable[[], T]) -> T:
        """On another one, for those who only look."""
        ...

    def build_config(self, pieces: Sequence[OverlayDocument], strict: Collection[str] = ()) -> Config:
        """The file with documents over it, checked and tried; blocks. `strict`: preferences that must be right."""
        ...

    async def examine(self, config: Config) -> Authentication:
        """ConfigError if it cannot be put in force now."""
        ...

    async def enforce(self, config: Config, authentication: Authentication, *, what: str, action: str) -> str:
        """From now on it counts; the version of its rules."""
        ...


class Administration:
    """The documents of one node: read, changed, reverted, and followed when another node changes them."""

    def __init__(self, host: AdministeredNode, registry: Registry, *, node: str, valid: float, most: int) -> None:
        self.registry = registry
        self.trouble: str | None = None
        """Why what is stored is not in force here; None: it is."""
        self.on_secrets_changed: dict[str, Callable[[], None]] = {}
        """By namespace of secrets: called on the loop when somebody has put or removed one there."""
        self._host = host
        self._threads = RegistryThreads()
        self._audit = ChangeAudit(host, node=node)
        self.tokens = TokenAdministration(host, Tokens(registry, valid=valid, most=most), self._threads, self._audit)
        self._state = RegistryState(sequence=0, documents={}, fence=None)
        self._follower = RegistryFollower(registry, catch_up=self._follow, failing=lambda: self.trouble is not None)
        # Up to which change the secrets of others are known. A change of our own gets documents further: it has seen
        # the newest fence, and no secret.
        self._secrets = 0

    # -- starting and stopping -------------------------------------------------------------------------------------

    async def open(self) -> list[OverlayDocument]:
        """The stored documents of the configuration. StoreError with the remedy if they cannot be read."""
        await self._threads.call(self.registry.open)
        self._state = RegistryState.of(await self._threads.call(self.registry.load))
        self._secrets = self._state.sequence
        await self.tokens.load()
        return await self._threads.compute(self._state.pieces)

    def follow(self) -> None:
        """Changes by other nodes are put in force from now on."""
        self._follower.start(after=self._state.sequence)

    async def close(self) -> None:
        await self._follower.stop()
        await asyncio.get_running_loop().run_in_executor(None, self.registry.close)
        self._threads.close()

    def document_body(self, kind: str, id: str) -> dict[str, Any] | None:
        """The content of a document as this node knows it; None: there is none. Does not ask the database."""
        document = self._state.documents.get((kind, id))
        return None if document is None else content(document.body)

    def pieces(self) -> list[OverlayDocument]:
        """All documents that belong over the file. Slow if there are many."""
        return self._state.pieces()

    def reloaded(self) -> None:
        """The file was read again, and everything that is stored is in force with it."""
        self.trouble = None

    def status(self) -> dict[str, Any]:
        """For `tidegate status`."""
        unreachable = self._follower.trouble
        return {
            "reachable": unreachable is None,
            "trouble": unreachable or self.trouble,
            "in_force": self.trouble is None,
            "sequence": self._state.sequence,
            "documents": len(self._state.documents),
            "tokens": len(self.tokens.list()),
        }

    # -- reading ---------------------------------------------------------------------------------------------------

    async def list_documents(self, kind: str) -> list[dict[str, Any]]:
        """All documents of a kind, and what stands in the file."""
        return await self._threads.compute(documents.list_documents, self._state, self._source(), kind)

    async def page_documents(
        self, kind: str, *, after: str | None, limit: int, owner: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Some of them, by id, and where the next page begins."""
        return await self._threads.compute(
            documents.page_documents, self._state, self._source(), kind, after=after, limit=limit, owner=owner
        )

    async def get_document(self, kind: str, id: str) -> dict[str, Any]:
        return await self._threads.compute(documents.get_document, self._state, self._source(), kind, id)

    async def documents_of(self, kind: str) -> dict[str, Any]:
        """Those alone, `id` and `body` of each, in their order; and a `version` that grows with any change."""
        state = self._state
        return {"documents": await self._threads.compute(state.documents_of_kind, kind), "version": state.fence or 0}

    async def history(self, kind: str, id: str) -> list[dict[str, Any]]:
        """The versions of a document, the oldest first."""
        check_kind(kind)
        return [history_entry(each) for each in await self._threads.request(self.registry.history, kind, id)]

    # -- changing --------------------------------------------------------------------------------------------------

    async def apply(
        self,
        requested: Sequence[RequestedChange] | Draft,
        *,
        by: str,
        why: str,
        action: str = "change",
        about: Sequence[Key] = (),
    ) -> dict[str, Any]:
        """All of these, or a Problem and none. `about` says of a draft what it is about, if it is refused."""
        try:
            async with self._host.changing:
                return await self._applied(requested, by, why, action)
        except Problem as problem:
            keys = about if callable(requested) else [each.key for each in requested]
            self._audit.documents(keys, "refused", by, f"{problem.problem}: {problem}", Kind.ERROR)
            raise

    async def preview(self, requested: Sequence[RequestedChange] | Draft, *, compared: bool = True) -> dict[str, Any]:
        """What these changes would do, if they can be made. Nothing is changed.

        What would be decided differently tells of others: without `compared` it is left out.
        """
        _, config = await self._drafted(requested, self._state)
        await self._examined(config)
        effect = None
        if compared:
            await self._host.audit.counted()
            rows = self._host.audit.sink.recent()
            effect = await self._host.run_query(partial(compare, self._host.config, config, rows))
        return {"sequence": None, "rules": self._host.audit.version, "effect": effect}

    async def revert(
        self, sequence: int, *, by: str, why: str, dry_run: bool = False, fence: int | None = None
    ) -> dict[str, Any]:
        """Takes back what was changed together; with a `fence` only if nothing has changed since that."""
        requested = await self._threads.request(changes_to_revert, self.registry, sequence)
        if dry_run:
            return await self.preview(requested)
        about = [each.key for each in requested]
        draft = requested if fence is None else unless_changed(requested, fence)
        why = why or f"change {sequence} taken back"
        return await self.apply(draft, by=by, why=why, action="revert", about=about)

    async def draft(self, kind: str, requested: Sequence[RequestedChange] | int) -> dict[str, Any]:
        """The documents of a kind before and after these changes, or after a change is taken back; and the fence.

        For whoever checks what the node cannot, and then says with the change that this is what was seen.
        """
        if isinstance(requested, int):
            requested = await self._threads.request(changes_to_revert, self.registry, requested)
        return await self._threads.compute(_both, self._state, requested, self._source(), kind)

    async def _applied(
        self, requested: Sequence[RequestedChange] | Draft, by: str, why: str, action: str
    ) -> dict[str, Any]:
        deadline = time.monotonic() + OVERTAKEN
        while True:
            state, at = self._state, time.time()
            changes, config = await self._drafted(requested, state)
            authentication = await self._examined(config)
            answer = await self._threads.request(self.registry.apply, changes, by=by, why=why, at=at)
            match answer:
                case Applied(sequence=sequence):
                    self._state = await self._threads.compute(state.after, _entries(changes, sequence, by, why, at))
                    keys = [(each.kind, each.id) for each in changes if (each.kind, each.id) != FENCE]
                    self._audit.documents(keys, action, by, why)
                    done = await self._enforced(config, authentication, sequence, by, why)
                    gone = [each.id for each in changes if each.kind == "user" and each.body is None]
                    return {**done, **await self._revoke_tokens(gone, by)}
                case Conflict() as conflict:
                    try:
                        await self._catch_up()
                    except StoreError as error:
                        raise Problem(str(error), problem="unavailable") from error
                    if (conflict.kind, conflict.id) != FENCE:
                        raise conflict_problem(conflict)
                    if time.monotonic() > deadline:
                        raise Problem("other nodes change things all the time; try again", problem="unavailable")
                case _:
                    raise Problem(answer.what, problem="invalid")

    async def _enforced(
        self, config: Config, authentication: Authentication, sequence: int, by: str, why: str
    ) -> dict[str, Any]:
        """It is stored, so it is done, whatever comes."""
        what = f"change {sequence} by {by}" + (f": {why}" if why else "")
        try:
            version = await self._host.enforce(config, authentication, what=what, action="administration")
        except TidegateError as error:
            log.error("a change is stored and cannot be put in force yet", reason=str(error))
            self.trouble = str(error)
            self._follower.retry()
            return {"sequence": sequence, "rules": self._host.audit.version, "trouble": self.trouble}
        self.trouble = None
        return {"sequence": sequence, "rules": version}

    async def _revoke_tokens(self, users: Sequence[str], by: str) -> dict[str, Any]:
        """Their tokens are revoked, so that nobody who is called the same later has them."""
        if not users:
            return {}
        try:
            await self.tokens.revoke_of(users, by=by)
        except Problem as problem:
            log.error("the tokens of users who were removed could not be revoked", reason=str(problem))
            return {"trouble": f"tokens of who was removed are not revoked yet ({problem}): revoke them"}
        return {}

    async def _drafted(
        self, requested: Sequence[RequestedChange] | Draft, state: RegistryState
    ) -> tuple[Sequence[Change], Config]:
        """The changes to store, and the configuration that they make."""
        source = self._source()

        def draft() -> tuple[Sequence[Change], Config]:
            changes = state.changes(requested(state, source) if callable(requested) else requested, source)
            after = state.after(_entries(changes, state.sequence + 1))
            return changes, self._host.build_config(after.pieces(), {f"{each.kind}/{each.id}" for each in changes})

        try:
            return await self._host.run_change(draft)
        except ConfigError as error:
            raise invalid(error) from None

    async def _examined(self, config: Config) -> Authentication:
        try:
            return await self._host.examine(config)
        except ConfigError as error:
            raise invalid(error) from None

    # -- following -------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        async with self._host.changing:
            await self._catch_up(again=self.trouble is not None)

    async def _catch_up(self, *, again: bool = False) -> None:
        """What the registry has by now is known, and in force if that is possible."""
        state, newest = self._state, self._follower.newest
        entries = await self._threads.call(self.registry.since, state.sequence)
        namespaces = await self._threads.call(self.registry.secrets.changed, self._secrets)
        if TOKENS in namespaces:
            await self.tokens.load()
        for namespace in namespaces & self.on_secrets_changed.keys():
            self.on_secrets_changed[namespace]()
        if entries is None:
            self._state = RegistryState.of(await self._threads.call(self.registry.load))
            self._secrets = self._state.sequence
        else:
            self._state = await self._threads.compute(state.after, entries, newest)
            self._secrets = max(self._secrets, newest)
        if entries is None or again or any((each.kind, each.id) != FENCE for each in entries):
            await self._follow_up(entries or ())

    async def _follow_up(self, entries: Sequence[Entry]) -> None:
        state = self._state
        try:
            config = await self._host.run_change(lambda: self._host.build_config(state.pieces()))
            authentication = await self._host.examine(config)
            what = f"change {state.sequence} of the registry"
            await self._host.enforce(config, authentication, what=what, action="administration")
        except TidegateError as error:
            if str(error) != self.trouble:
                log.error("what is stored cannot be put in force here, the last good one stays", reason=str(error))
                self._audit.write(Kind.ERROR, "refused", "registry", None, str(error))
            self.trouble = str(error)
            return
        self.trouble = None
        for each in entries:
            if (each.kind, each.id) != FENCE:
                self._audit.documents([(each.kind, each.id)], "followed", each.by, each.why)

    # -- the rest --------------------------------------------------------------------------------------------------

    def _source(self) -> Source:
        source = self._host.source
        assert source is not None
        return source


def _both(state: RegistryState, requested: Sequence[RequestedChange], source: Source, kind: str) -> dict[str, Any]:
    after = state.after(_entries(state.changes(requested, source), state.sequence + 1))
    return {"before": state.documents_of_kind(kind), "after": after.documents_of_kind(kind), "fence": state.fence or 0}


def invalid(error: ConfigError) -> Problem:
    """What is told of a change that breaks the configuration."""
    problems = error.problems if isinstance(error, ConfigErrors) else (error,)
    details = [{"at": _place(each), "error": str(each.args[0])} for each in problems]
    return Problem(str(error), problem="invalid", details=details)


def _place(error: ConfigError) -> str:
    return f"{error.file}:{error.line}" if error.line else error.file


def _entries(changes: Sequence[Change], sequence: int, by: str = "", why: str = "", at: float = 0.0) -> list[Entry]:
    """The changes as the registry will tell of them."""
    return [
        Entry(sequence=sequence, kind=each.kind, id=each.id, body=each.body, at=at, by=by, why=why) for each in changes
    ]
