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
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import structlog

from tidegate.admin import control_commands as control
from tidegate.admin import documents
from tidegate.admin.change_audit import ChangeAudit
from tidegate.admin.documents import FENCE, OWNER, Draft, Key, RegistryState, RequestedChange, content
from tidegate.admin.identities import NodeIdentities
from tidegate.admin.registry_follower import RegistryFollower
from tidegate.admin.registry_threads import RegistryThreads
from tidegate.admin.rehashing import Rehashing
from tidegate.admin.token_administration import TokenAdministration
from tidegate.admin.tokens import ROOM as TOKENS
from tidegate.admin.tokens import Tokens
from tidegate.admin.tried_draft import TriedDraft, entries_of, source_of, try_draft
from tidegate.audit.auditor import Auditor
from tidegate.authentication.authentication import Authentication
from tidegate.config import Config, OverlayDocument, Source
from tidegate.errors import Problem, StoreError, TidegateError
from tidegate.net.control_command import SignedCommand
from tidegate.policy.identities import KINDS as IDENTIFIED
from tidegate.store.journal.rows import AuditRow, Kind
from tidegate.store.registry import IDENTITIES, Applied, Change, Conflict, Entry, Refused, Registry

PATIENCE: Final = 5.0  # seconds that a change waits for a registry that is away
OVERTAKEN: Final = 10.0  # seconds to get in between the changes of other nodes
BOUND: Final = 500  # preferences that are bound to identities together

T = TypeVar("T")

log = structlog.get_logger("tidegate.node")


class AdministeredNode(Protocol):
    """What is needed of a node."""

    config: Config  # in force
    source: Source | None  # its file, alone
    audit: Auditor
    authentication: Authentication
    identities: NodeIdentities
    changing: asyncio.Lock

    async def run_change(self, do: Callable[[], T]) -> T:
        """On the thread on which configurations are made, which gives way to the loop."""

    async def run_query(self, do: Callable[[], T]) -> T:
        """On another one, for those who only look."""

    def mention(self, name: str) -> str | None:
        """What is said of a user or a client by name, in rules of the configuration or of publishers, or that somebody
        else uses it; None: nothing."""

    def build_config(self, pieces: Sequence[OverlayDocument], strict: Collection[str] = ()) -> Config:
        """The file with documents over it, checked and tried; blocks. `strict`: preferences that must be right."""

    async def examine(self, config: Config) -> Authentication:
        """ConfigError if it cannot be put in force now."""

    async def enforce(
        self, config: Config, authentication: Authentication, *, what: str, action: str, by: str = "file"
    ) -> str:
        """From now on it counts; the version of its rules."""


class Administration:
    """The documents of one node: read, changed, reverted, and followed when another node changes them."""

    def __init__(self, host: AdministeredNode, registry: Registry, *, node: str, valid: float, most: int) -> None:
        self.registry = registry
        self.trouble: str | None = None  # why what is stored is not in force here; None: it is
        self.on_secrets_changed: dict[str, Callable[[], None]] = {}
        """By namespace of secrets: called on the loop when somebody has put or removed one there."""
        self._host = host
        self.threads = RegistryThreads()
        self._audit = ChangeAudit(host, node=node)
        self.tokens = TokenAdministration(host, Tokens(registry, valid=valid, most=most), self.threads, self._audit)
        self._state = RegistryState(sequence=0, documents={}, fence=None)
        self.rehashing = Rehashing(self, host)
        self._in_force = 0  # the newest change that is in force here; behind `_state` while one is being put in force
        self._follower = RegistryFollower(
            registry, catch_up=self._follow, failing=lambda: self.trouble is not None or host.identities.untold
        )
        # Up to which change the secrets of others are known. A change of our own gets documents further: it has seen
        # the newest fence, and no secret.
        self._secrets = 0

    # -- starting and stopping -------------------------------------------------------------------------------------

    async def open(self) -> list[OverlayDocument]:
        """The stored documents of the configuration. StoreError with the remedy if they cannot be read."""
        await self.threads.call(self.registry.open)
        self._state = RegistryState.of(await self.threads.call(self.registry.load))
        self._secrets = self._in_force = self._state.sequence
        await self.tokens.load()
        return await self.threads.compute(self._state.pieces)

    async def identified(self, *, first: bool) -> None:
        """The node knows who has which identity; `first`: what was stored refers to names, and is bound to ids now."""
        if first:
            await self.tokens.bind()
            await self._bind_preferences()
        await self.tokens.revoke_retired(by="node")

    async def _bind_preferences(self) -> None:
        """Those that were made before there were identities belong to whoever has the name of their user now.

        One that another node changes at the same moment stays as it is: it then speaks of everybody of that name.
        """
        state, at, why = self._state, time.time(), "preferences belong to identities"
        requested = [
            RequestedChange(kind=each.kind, id=each.id, body=content(each.body), expected=each.sequence)
            for each in state.ordered(("preference",))
            if OWNER not in content(each.body)
        ]
        changed = [
            each
            for each in documents.bound_preferences(requested, state, self._host.identities.owner)
            if OWNER in (each.body or {})
        ]
        for index in range(0, len(changed), BOUND):
            changes = self._state.changes(changed[index : index + BOUND], source_of(self._host))
            match await self.threads.call(self.registry.apply, changes, by="node", why=why, at=at):
                case Applied(sequence=sequence):
                    self._state = self._state.after(entries_of(changes, sequence, "node", why, at))
                case answer:
                    log.warning("preferences could not be bound to identities", reason=str(answer))
                    return

    def people(self) -> frozenset[Key]:
        return frozenset(key for key in self._state.documents if key[0] in IDENTIFIED)

    def follow(self) -> None:
        """Changes by other nodes are put in force from now on."""
        self._follower.start(after=self._state.sequence)

    async def close(self) -> None:
        await self.rehashing.close()
        await self._follower.stop()
        await asyncio.to_thread(self.registry.close)
        self.threads.close()

    def document_body(self, kind: str, id: str) -> dict[str, Any] | None:
        """The content of a document as this node knows it; None: there is none. Does not ask the database."""
        document = self._state.documents.get((kind, id))
        return None if document is None else content(document.body)

    def pieces(self) -> list[OverlayDocument]:
        """All documents that belong over the file. Slow if there are many."""
        return self._state.pieces()

    async def pieces_with(self, requested: Sequence[RequestedChange]) -> list[OverlayDocument]:
        """All documents as they would be with these changes; a Problem if they cannot be made."""
        drafted = await try_draft(self._host, documents.unless_changed(requested, None), self._state, narrow=False)
        return self._state.after(entries_of(drafted.changes, self._state.sequence + 1)).pieces()

    def reloaded(self) -> None:
        """The file was read again, and everything that is stored is in force with it."""
        self._settled()
        if self._host.identities.untold:
            self._follower.retry()

    def condition(self) -> dict[str, Any]:
        """Whether the registry can be reached, and what is wrong."""
        unreachable = self._follower.trouble
        return {"reachable": unreachable is None, "trouble": unreachable or self.trouble}

    def status(self) -> dict[str, Any]:
        return {
            **self.condition(),
            "in_force": self.trouble is None and self._in_force == self._state.sequence,
            "sequence": self._state.sequence,
            "documents": len(self._state.documents),
            "tokens": len(self.tokens.list()),
        }

    # -- reading ---------------------------------------------------------------------------------------------------

    async def list_documents(self, command: control.ListDocuments) -> dict[str, Any]:
        return await self.threads.compute(documents.list_documents, self._state, source_of(self._host), command)

    async def get_document(self, command: control.GetDocument) -> dict[str, Any]:
        state, source = self._state, source_of(self._host)
        document = await self.threads.compute(documents.get_document, state, source, command.kind, command.id)
        if command.owner is not None and not documents.owns(document["body"], command.owner, command.identity):
            raise documents.not_found(command.kind, command.id)
        return document

    async def documents_of(self, kind: str) -> dict[str, Any]:
        """Those alone, `id` and `body` of each, in their order; and a `version` that grows with any change."""
        state = self._state
        return {"documents": await self.threads.compute(state.documents_of_kind, kind), "version": state.fence or 0}

    async def history(self, command: control.GetHistory) -> dict[str, Any]:
        documents.check_kind(command.kind)
        entries = await self.threads.request(self.registry.history, command.kind, command.id)
        return {"entries": [documents.history_entry(each) for each in entries]}

    # -- changing --------------------------------------------------------------------------------------------------

    async def apply(
        self, draft: Draft, *, by: str, why: str, action: str, about: Sequence[Key], narrow: bool = False
    ) -> dict[str, Any]:
        """All changes of a draft, or a Problem and none; the audit of a refusal names `about`. `narrow`: nobody may see
        more by them than before."""
        try:
            async with self._host.changing:
                return await self._applied(draft, by, why, action, narrow=narrow)
        except Problem as problem:
            self._audit.documents(about, "refused", by, f"{problem.problem}: {problem}", Kind.ERROR)
            raise

    async def preview(self, draft: Draft, *, compared: bool = True, narrow: bool = False) -> dict[str, Any]:
        """What these changes would do, if they can be made. Nothing is changed.

        What would be decided differently tells of others: without `compared` it is left out.
        """
        drafted = await try_draft(self._host, draft, self._state, narrow=narrow)
        effect = None
        if compared:
            await self._host.audit.counted()
            rows = self._host.audit.sink.recent()
            effect = await self._host.run_query(partial(_compare, self._host.config, drafted.config, rows))
        rules = self._host.audit.version
        answer = {"sequence": None, "rules": rules, "effect": effect, "warnings": drafted.warnings}
        if any(each.kind == "monitor" for each in drafted.changes):
            answer["automata"] = await self._host.run_query(partial(_automata, drafted.config, drafted.changes))
        return answer

    async def change(
        self, command: SignedCommand, draft: Draft, *, action: str, about: Sequence[Key], narrow: bool = False
    ) -> dict[str, Any]:
        """The changes of a draft, or what they would do, as the command asks."""
        if command.dry_run:
            return await self.preview(draft, compared=command.compared, narrow=narrow)
        return await self.apply(draft, by=command.by, why=command.why, action=action, about=about, narrow=narrow)

    async def apply_changes(self, command: control.ApplyChanges) -> dict[str, Any]:
        about = [each.key for each in command.changes]
        draft = documents.unless_changed(command.changes, command.fence)
        if command.owner is not None:
            draft = documents.if_owned(draft, command.owner, command.identity)
        return await self.change(command, draft, action="change", about=about, narrow=command.narrow)

    async def revert(self, command: control.RevertChange) -> dict[str, Any]:
        """Takes back what was changed together; with a fence only if nothing has changed since that."""
        requested = await self.threads.request(_changes_to_revert, self.registry, command.sequence)
        command = replace(command, why=command.why or f"change {command.sequence} taken back")
        about = [each.key for each in requested]
        if command.kinds is not None and (others := {kind for kind, _ in about}.difference(command.kinds)):
            text = f"change {command.sequence} is also one of {', '.join(sorted(others))}: ask an administrator"
            self._audit.documents(about, "refused", command.by, f"forbidden: {text}", Kind.ERROR)
            raise Problem(text, problem="forbidden")
        draft = documents.unless_changed(requested, command.fence)
        return await self.change(command, draft, action="revert", about=about, narrow=command.narrow)

    async def draft(self, command: control.DraftPipelineRules) -> dict[str, Any]:
        """The rules of the pipeline before and after these changes, or after a change is taken back; and the fence.

        For whoever checks what the node cannot, and then says with the change that this is what was seen.
        """
        if command.sequence is not None:
            requested = await self.threads.request(_changes_to_revert, self.registry, command.sequence)
        elif command.changes is not None:
            requested = command.changes
        else:
            raise Problem("say which `changes`, or which `sequence`", problem="invalid")
        return await self.threads.compute(_both, self._state, requested, source_of(self._host))

    async def _applied(self, draft: Draft, by: str, why: str, action: str, *, narrow: bool) -> dict[str, Any]:
        deadline = time.monotonic() + OVERTAKEN
        while True:
            state, at = self._state, time.time()
            drafted = await try_draft(self._host, draft, state, narrow=narrow)
            changes = drafted.changes
            answer = await self.threads.request(self.registry.apply, changes, by=by, why=why, at=at)
            match answer:
                case Applied(sequence=sequence):
                    self._state = await self.threads.compute(state.after, entries_of(changes, sequence, by, why, at))
                    keys = [(each.kind, each.id) for each in changes if (each.kind, each.id) != FENCE]
                    self._audit.documents(keys, action, by, why)
                    done = await self._enforced(drafted, sequence, by, why)
                    gone = any(each.kind == "user" and each.body is None for each in changes)
                    trouble = await self.tokens.revoke_retired(by=by) if gone else None
                    done |= {"warnings": drafted.warnings}
                    return done if trouble is None else {**done, "trouble": trouble}
                case Conflict() as conflict:
                    try:
                        await self._catch_up()
                    except StoreError as error:
                        raise Problem(str(error), problem="unavailable") from error
                    if (conflict.kind, conflict.id) != FENCE:
                        raise documents.conflict_problem(conflict)
                    if time.monotonic() > deadline:
                        raise Problem("other nodes change things all the time; try again", problem="unavailable")
                case _:
                    raise Problem(answer.what, problem="too-large" if answer.full else "invalid")

    async def _enforced(self, drafted: TriedDraft, sequence: int, by: str, why: str) -> dict[str, Any]:
        """It is stored, so it is done, whatever comes."""
        what = f"change {sequence} by {by}" + (f": {why}" if why else "")
        try:
            version = await self._host.enforce(
                drafted.config, drafted.authentication, what=what, action="administration", by=by
            )
        except TidegateError as error:
            away = isinstance(error, StoreError)
            (log.warning if away else log.error)("a change is stored and cannot be put in force yet", reason=str(error))
            self.trouble = str(error)
            self._follower.retry()
            return {"sequence": sequence, "rules": self._host.audit.version, "trouble": self.trouble}
        self._settled()
        return {"sequence": sequence, "rules": version}

    def check_stranger(self, name: str) -> None:
        """Problem if rules mention a name, or somebody else has it: whoever registers by himself must not get what they
        say of it, nor be taken for the other."""
        if (place := self._host.mention(name)) is not None:
            log.warning("a stranger asked for a name that rules mention or others use", name=name, rule=place)
            text = f"the name {name[:200]} is not free: choose another, or ask an administrator to register it"
            raise Problem(text, problem="forbidden")

    # -- following -------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        async with self._host.changing:
            await self._catch_up(again=self.trouble is not None)

    async def _catch_up(self, *, again: bool = False) -> None:
        """What the registry has by now is known, and in force if that is possible."""
        state, newest = self._state, self._follower.newest
        entries = await self.threads.call(self.registry.since, state.sequence)
        namespaces = await self.threads.call(self.registry.secrets.changed, self._secrets)
        if TOKENS in namespaces:
            await self.tokens.load()
        for namespace in namespaces & self.on_secrets_changed.keys():
            self.on_secrets_changed[namespace]()
        if entries is None:
            self._state = RegistryState.of(await self.threads.call(self.registry.load))
            self._secrets = self._state.sequence
        else:
            self._state = await self.threads.compute(state.after, entries, newest)
            self._secrets = max(self._secrets, newest)
        identities = self._host.identities
        others = (IDENTITIES in namespaces or identities.untold) and await identities.behind()
        if entries is None or again or others or any((each.kind, each.id) != FENCE for each in entries):
            await self._follow_up(entries or ())
        else:
            self._settled()

    async def _follow_up(self, entries: Sequence[Entry]) -> None:
        state = self._state
        try:
            config = await self._host.run_change(lambda: self._host.build_config(state.pieces()))
            authentication = await self._host.examine(config)
            what = f"change {state.sequence} of the registry"
            by = ", ".join(dict.fromkeys(each.by for each in entries if (each.kind, each.id) != FENCE)) or "registry"
            await self._host.enforce(config, authentication, what=what, action="administration", by=by)
        except StoreError as error:  # the registry went away in between: the follower says so and tries again
            self.trouble = str(error)
            raise
        except TidegateError as error:
            if str(error) != self.trouble:
                log.error("what is stored cannot be put in force here, the last good one stays", reason=str(error))
                self._audit.write(Kind.ERROR, "refused", "registry", None, str(error))
            self.trouble = str(error)
            return
        self._settled()
        for each in entries:
            if (each.kind, each.id) != FENCE:
                self._audit.documents([(each.kind, each.id)], "followed", each.by, each.why)

    def _settled(self) -> None:
        """Everything that is known of the registry is in force."""
        self.trouble = None
        self._in_force = self._state.sequence


def _changes_to_revert(registry: Registry, sequence: int) -> list[RequestedChange]:
    """The changes that take back everything that was changed together as `sequence`; blocks. Problem if they cannot."""
    match registry.reverting(sequence, besides=FENCE):
        case Refused(what=what):
            raise Problem(f"{what}; look into the history", problem="invalid")
        case Conflict(kind=kind, id=id, version=version):
            since = "removed since" if version is None else f"changed again since (version {version})"
            text = f"{kind}/{id} was {since}; take that back first"
            raise Problem(text, problem="conflict", details=[{"at": f"{kind}/{id}", "version": version}])
        case changes:
            return [_restoring(each) for each in changes]


def _restoring(change: Change) -> RequestedChange:
    kind, id, body, expected = change.kind, change.id, change.body, change.expected
    if body is None:
        return RequestedChange(kind=kind, id=id, expected=expected)
    return documents.Restoration(kind=kind, id=id, body=content(body), expected=expected, place=documents.place(body))


def _both(state: RegistryState, requested: Sequence[RequestedChange], source: Source) -> dict[str, Any]:
    after = state.after(entries_of(state.changes(requested, source), state.sequence + 1))
    before = state.documents_of_kind(documents.PIPELINE)
    return {"before": before, "after": after.documents_of_kind(documents.PIPELINE), "fence": state.fence or 0}


def _compare(before: Config, after: Config, rows: Sequence[AuditRow]) -> dict[str, Any]:
    """What would be different. Runs in a thread, which also imports what compares."""
    from tidegate.explain.effects import effects

    return effects(before, after, rows)


def _automata(config: Config, changes: Sequence[Change]) -> dict[str, str]:
    from tidegate.explain.effects import automata

    return automata(config, (each.id for each in changes if each.kind == "monitor"))
