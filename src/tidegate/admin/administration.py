"""Administration while the node runs: documents of a registry over the file, changed by people and by other nodes.

- A change is checked as part of the whole configuration before it is stored; a broken one is refused whole. Then it is
  stored, then it is in force here, then it is answered. Other nodes on the registry follow within a second.
- Changes happen one after the other, reloads of the file among them (`Host.changing`). Of several nodes, one that was
  overtaken checks again with what the other has changed (`administered`, the fence).
- A node whose registry cannot be read does not start. If it goes away later, the node goes on with what it has, and
  says so; nothing can be changed until it is back.
- What another node has stored may be impossible here: with another file, or because of who is connected. Then the last
  good configuration stays, that is said, and it is tried again.

Everything is audited: who, what, why.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import structlog

from tidegate.admin.documents import (
    FENCE,
    Draft,
    Key,
    Known,
    Wanted,
    check_kind,
    conflicting,
    content,
    found,
    listed,
    paged,
    place,
    seen,
    told,
    unknown,
)
from tidegate.admin.tokens import ROOM, First, Role, Token, Tokens
from tidegate.audit.auditor import Auditor
from tidegate.audit.rows import AuditRow
from tidegate.authentication.authentication import Authentication
from tidegate.config import Config, ConfigErrors, OverlayDocument, Source
from tidegate.config.overlay import KINDS, Form
from tidegate.errors import ConfigError, Problem, StoreError, TidegateError, Uncertain
from tidegate.explain.comparison import compare
from tidegate.store.journal.rows import Kind
from tidegate.store.registry import Applied, Change, Conflict, Entry, Listening, Registry

PATIENCE: Final = 5.0  # seconds that a change waits for a registry that is away
OVERTAKEN: Final = 10.0  # seconds to get in between the changes of other nodes
RETRY: Final = 5.0  # seconds until what could not be put in force is tried again
SHOWING: Final = 4.0  # seconds after which a node that has not shown the first token is taken for dead
THREADS: Final = 2

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("tidegate.node")


class Host(Protocol):
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
    """Of one node."""

    def __init__(self, host: Host, registry: Registry, *, node: str, valid: float, most: int) -> None:
        self.registry = registry
        self.tokens = Tokens(registry, valid=valid, most=most)
        self.trouble: str | None = None
        """Why what is stored is not in force here; None: it is."""
        self._host = host
        self._node = node
        self._known = Known(sequence=0, documents={}, fence=None)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="registry")
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="known")
        self._listening: Listening | None = None
        self._following: asyncio.Task[None] | None = None
        self._noticed = asyncio.Event()
        self._newest = 0  # change that was noticed
        self.on_room: dict[str, Callable[[], None]] = {}
        """Who is told, on the loop, that secrets of a room were put or removed, by whomever."""
        # Up to which change the secrets of others are known. A change of our own gets documents further: it has seen
        # the newest fence, and no secret.
        self._secrets = 0

    # -- starting and stopping -------------------------------------------------------------------------------------

    async def open(self) -> list[OverlayDocument]:
        """What is stored. StoreError with the remedy if that cannot be read."""
        await self._call(self.registry.open)
        self._known = Known.of(await self._call(self.registry.load))
        self._secrets = self._known.sequence
        await self._call(self.tokens.load, time.time())
        return await self._look(self._known.pieces)

    async def first_token(self) -> None:
        """Makes the first token for an administrator, and shows it this once.

        The registry names it before it is shown, and says afterwards that one was. A node that finds the token of
        another one named waits: that one shows it soon, or is dead and never will. Then the node makes another, and
        those before do not count any more.
        """
        mine: tuple[Token, str] | None = None
        seen, until = None, 0.0
        while not (note := await self._call(self.tokens.first, time.time())).shown:
            if note != seen:
                ours = not note.named or (mine is not None and note.named[-1] == mine[0].id)
                seen, until = note, time.monotonic() + (0.0 if ours else SHOWING)
            if time.monotonic() < until:
                await asyncio.sleep(SHOWING / 50)
                continue
            if mine is None:
                make = partial(self.tokens.make, role=Role.ADMIN, user=None, name="first", seconds=None, by="node")
                mine = await self._call(make, now=time.time())
            begun = time.monotonic()
            named = await self._call(self.tokens.name_first, mine[0].id, note, time.time())
            if named is not None and time.monotonic() - begun < SHOWING / 2:  # or others may take us for dead
                await self._show(*mine, named)
                return
        if mine is not None:
            await self._call(self.tokens.discard, mine[0], time.time())  # nobody has seen it

    async def _show(self, token: Token, text: str, named: First) -> None:
        self._token("make", token.id, "node", "the first one")
        log.warning("the first token of an administrator, shown only this once", token=text, id=token.id)
        others = await self._call(self.tokens.shown_first, named, time.time())
        if others is None:
            log.warning("another node shows the first token: the one shown here does not count", id=token.id)
        for each in others or ():
            self._token("revoke", each, "node", "made first, and perhaps never shown")

    def follow(self) -> None:
        """Changes by others are put in force from now on."""
        loop = asyncio.get_running_loop()

        def notice(sequence: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has stopped
                loop.call_soon_threadsafe(self._notice, sequence)

        self._listening = self.registry.listen(notice, after=self._known.sequence)
        self._following = loop.create_task(self._follow())

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait((self._following,))
        await asyncio.get_running_loop().run_in_executor(None, self.registry.close)
        for pool in (self._pool, self._looking):
            pool.shutdown(wait=False, cancel_futures=True)

    def kept(self, kind: str, id: str) -> dict[str, Any] | None:
        """What a document says, as it is known here; None: there is none. Asks nobody."""
        document = self._known.documents.get((kind, id))
        return None if document is None else content(document.body)

    def pieces(self) -> list[OverlayDocument]:
        """All that belongs over the file. Takes a while if there are many."""
        return self._known.pieces()

    def reloaded(self) -> None:
        """The file was read again, and everything that is stored is in force with it."""
        self.trouble = None

    def state(self) -> dict[str, Any]:
        """For `tidegate status`."""
        away = None if self._listening is None else self._listening.trouble
        return {
            "reachable": away is None,
            "trouble": away or self.trouble,
            "in_force": self.trouble is None,
            "sequence": self._known.sequence,
            "documents": len(self._known.documents),
            "tokens": len(self.tokens.all(time.time())),
        }

    # -- looking ---------------------------------------------------------------------------------------------------

    async def every(self, kind: str) -> list[dict[str, Any]]:
        """All documents of a kind, and what stands in the file."""
        return await self._look(listed, self._known, self._source(), kind)

    async def page(
        self, kind: str, *, after: str | None, limit: int, owner: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Some of them, by id, and where the next page begins."""
        return await self._look(paged, self._known, self._source(), kind, after=after, limit=limit, owner=owner)

    async def one(self, kind: str, id: str) -> dict[str, Any]:
        return await self._look(found, self._known, self._source(), kind, id)

    async def documents_of(self, kind: str) -> dict[str, Any]:
        """Those alone, `id` and `body` of each, in their order; and a `version` that grows with any change."""
        known = self._known
        return {"documents": await self._look(known.told, kind), "version": known.fence or 0}

    async def history(self, kind: str, id: str) -> list[dict[str, Any]]:
        """The versions of a document, the oldest first."""
        check_kind(kind)
        return [told(each) for each in await self._stored(self.registry.history, kind, id)]

    # -- changing --------------------------------------------------------------------------------------------------

    async def apply(
        self,
        wanted: Sequence[Wanted] | Draft,
        *,
        by: str,
        why: str,
        action: str = "change",
        about: Sequence[Key] = (),
    ) -> dict[str, Any]:
        """All of these, or a Problem and none. `about` says of a draft what it is about, if it is refused."""
        try:
            async with self._host.changing:
                return await self._applied(wanted, by, why, action)
        except Problem as problem:
            keys = about if callable(wanted) else [each.key for each in wanted]
            self._record(keys, "refused", by, f"{problem.problem}: {problem}", Kind.ERROR)
            raise

    async def try_out(self, wanted: Sequence[Wanted] | Draft, *, compared: bool = True) -> dict[str, Any]:
        """What these changes would do, if they can be made. Nothing is changed.

        What would be decided differently tells of others: without `compared` it is left out.
        """
        _, config = await self._drafted(wanted, self._known)
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
        wanted = await self._stored(self._reverting, sequence)
        if dry_run:
            return await self.try_out(wanted)
        about = [each.key for each in wanted]
        draft = wanted if fence is None else seen(wanted, fence)
        why = why or f"change {sequence} taken back"
        return await self.apply(draft, by=by, why=why, action="revert", about=about)

    async def draft(self, kind: str, wanted: Sequence[Wanted] | int) -> dict[str, Any]:
        """The documents of a kind before and after these changes, or after a change is taken back; and the fence.

        For whoever checks what the node cannot, and then says with the change that this is what was seen.
        """
        if isinstance(wanted, int):
            wanted = await self._stored(self._reverting, wanted)
        return await self._look(_both, self._known, wanted, self._source(), kind)

    async def _applied(self, wanted: Sequence[Wanted] | Draft, by: str, why: str, action: str) -> dict[str, Any]:
        deadline = time.monotonic() + OVERTAKEN
        while True:
            known, at = self._known, time.time()
            changes, config = await self._drafted(wanted, known)
            authentication = await self._examined(config)
            answer = await self._stored(self.registry.apply, changes, by=by, why=why, at=at)
            match answer:
                case Applied(sequence=sequence):
                    self._known = await self._look(known.after, _entries(changes, sequence, by, why, at))
                    keys = [(each.kind, each.id) for each in changes if (each.kind, each.id) != FENCE]
                    self._record(keys, action, by, why)
                    done = await self._enforced(config, authentication, sequence, by, why)
                    gone = [each.id for each in changes if each.kind == "user" and each.body is None]
                    return {**done, **await self._disowned(gone, by)}
                case Conflict() as conflict:
                    try:
                        await self._catch_up()
                    except StoreError as error:
                        raise Problem(str(error), problem="unavailable") from error
                    if (conflict.kind, conflict.id) != FENCE:
                        raise conflicting(conflict)
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
            self._noticed.set()
            return {"sequence": sequence, "rules": self._host.audit.version, "trouble": self.trouble}
        self.trouble = None
        return {"sequence": sequence, "rules": version}

    async def _disowned(self, users: Sequence[str], by: str) -> dict[str, Any]:
        """Their tokens are revoked, so that nobody who is called the same later has them."""
        if not users:
            return {}
        try:
            await self.revoke_tokens_of(users, by=by)
        except Problem as problem:
            log.error("the tokens of users who were removed could not be revoked", reason=str(problem))
            return {"trouble": f"tokens of who was removed are not revoked yet ({problem}): revoke them"}
        return {}

    async def _drafted(self, wanted: Sequence[Wanted] | Draft, known: Known) -> tuple[Sequence[Change], Config]:
        """The changes to store, and the configuration that they make."""
        source = self._source()

        def draft() -> tuple[Sequence[Change], Config]:
            changes = known.changes(wanted(known, source) if callable(wanted) else wanted, source)
            after = known.after(_entries(changes, known.sequence + 1))
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

    def _reverting(self, sequence: int) -> list[Wanted]:
        entries = self.registry.since(sequence - 1) if sequence > 0 else []
        late = f"change {sequence} cannot be told whole any more; put back what you want from the history"
        if entries is None:
            raise Problem(late, problem="invalid")
        made = {(each.kind, each.id): each for each in entries if each.sequence == sequence}
        if not made:
            raise Problem(f"there is no change {sequence} of documents; look into the history", problem="unknown")
        fence = made.pop(FENCE, None)
        names = [] if fence is None or fence.body is None else [tuple(each) for each in fence.body["changed"]]
        if set(names) != made.keys():
            raise Problem(late, problem="invalid")
        return [self._before(kind, id, sequence) for kind, id in made]

    def _before(self, kind: str, id: str, sequence: int) -> Wanted:
        *earlier, last = self.registry.history(kind, id)
        if last.sequence != sequence:
            text = f"{kind}/{id} was changed again since (version {last.sequence}); take that back first"
            raise Problem(text, problem="conflict", details=[{"at": f"{kind}/{id}", "version": last.sequence}])
        was = earlier[-1].body if earlier else None
        expected = None if last.body is None else sequence
        if was is None:
            return Wanted(kind=kind, id=id, body=None, expected=expected)
        return Wanted(kind=kind, id=id, body=content(was), expected=expected, place=place(was))

    # -- following -------------------------------------------------------------------------------------------------

    def _notice(self, sequence: int) -> None:
        self._newest = sequence
        self._noticed.set()

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY if self.trouble is not None else None):
                    await self._noticed.wait()
            self._noticed.clear()
            try:
                async with self._host.changing:
                    await self._catch_up(again=self.trouble is not None)
            except StoreError as error:
                log.warning("the registry has changed and cannot be read", reason=str(error))
                await asyncio.sleep(1)
                self._noticed.set()
            except Exception:
                log.exception("changes of the registry could not be followed")

    async def _catch_up(self, *, again: bool = False) -> None:
        """What the registry has by now is known, and in force if that is possible."""
        known, newest = self._known, self._newest
        entries = await self._call(self.registry.since, known.sequence)
        rooms = await self._call(self.registry.secrets.changed, self._secrets)
        if ROOM in rooms:
            await self._call(self.tokens.load, time.time())
        for room in rooms & self.on_room.keys():
            self.on_room[room]()
        if entries is None:
            self._known = Known.of(await self._call(self.registry.load))
            self._secrets = self._known.sequence
        else:
            self._known = await self._look(known.after, entries, newest)
            self._secrets = max(self._secrets, newest)
        if entries is None or again or any((each.kind, each.id) != FENCE for each in entries):
            await self._follow_up(entries or ())

    async def _follow_up(self, entries: Sequence[Entry]) -> None:
        known = self._known
        try:
            config = await self._host.run_change(lambda: self._host.build_config(known.pieces()))
            authentication = await self._host.examine(config)
            what = f"change {known.sequence} of the registry"
            await self._host.enforce(config, authentication, what=what, action="administration")
        except TidegateError as error:
            if str(error) != self.trouble:
                log.error("what is stored cannot be put in force here, the last good one stays", reason=str(error))
                self._write(Kind.ERROR, "refused", "registry", None, str(error))
            self.trouble = str(error)
            return
        self.trouble = None
        for each in entries:
            if (each.kind, each.id) != FENCE:
                self._record([(each.kind, each.id)], "followed", each.by, each.why)

    # -- tokens ----------------------------------------------------------------------------------------------------

    async def make_token(
        self, *, role: str, user: str | None, name: str, seconds: float | None, by: str, why: str = ""
    ) -> dict[str, Any]:
        self._check_user(user)
        make = partial(self.tokens.make, role=role, user=user, name=name, seconds=seconds, by=by, now=time.time())
        token, text = await self._stored(make)
        about = f"{token.role}{f' of {user}' if user else ''} {name}".rstrip()
        self._token("make", token.id, by, f"{about}: {why}" if why else about)
        return {**token.shown(), "token": text}

    def try_token(self, *, role: str, user: str | None, name: str, seconds: float | None) -> dict[str, Any]:
        """What a token would be, if it can be made. None is made."""
        self._check_user(user)
        now = time.time()
        expires = now + self.tokens.admitted(role=role, user=user, name=name, seconds=seconds, now=now)
        return {"role": role, "user": user, "name": name, "expires": expires}

    async def revoke_token(self, id: str, *, by: str, why: str = "", dry_run: bool = False) -> dict[str, Any]:
        """What is known of it then; in a dry run, now."""
        if dry_run:
            return (await self._stored(self.tokens.find, id, time.time())).shown()
        token = await self._stored(partial(self.tokens.revoke, id, by=by, now=time.time()))
        self._token("revoke", id, by, why)
        return token.shown()

    async def revoke_tokens_of(self, users: Collection[str], *, by: str) -> int:
        """How many there were."""
        revoked = await self._stored(partial(self.tokens.revoke_of, frozenset(users), by=by, now=time.time()))
        for token in revoked:
            self._token("revoke", token.id, by, f"of {token.user}")
        return len(revoked)

    def list_tokens(self) -> list[dict[str, Any]]:
        return [each.shown() for each in self.tokens.all(time.time())]

    def check_token(self, text: str) -> dict[str, Any]:
        """Whose it is, if it counts: that of somebody who is gone does not."""
        token = self.tokens.check(text, time.time())
        if token is None or (token.user is not None and not self._exists(token.user)):
            raise Problem("this token is unknown, expired or revoked; have one made", problem="unknown")
        return token.shown()

    def _check_user(self, user: str | None) -> None:
        if user is not None and not self._exists(user):
            raise unknown("user", user)

    def _exists(self, user: str) -> bool:
        config = self._host.config
        return user in config.directory.users or bool(config.authentication.methods)

    # -- the rest --------------------------------------------------------------------------------------------------

    def _source(self) -> Source:
        source = self._host.source
        assert source is not None
        return source

    async def _call(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(do, *args, **kwargs))

    async def _look(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """On a thread that waits for no database."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._looking, partial(do, *args, **kwargs))

    async def _stored(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for whoever asked: a registry that is away is a Problem."""
        try:
            return await self._call(do, *args, **kwargs)
        except Uncertain as error:
            raise Problem(str(error), problem="uncertain") from error
        except StoreError as error:
            raise Problem(str(error), problem="unavailable") from error

    def _record(
        self, keys: Iterable[tuple[str, str]], action: str, by: str, why: str, kind: Kind = Kind.CHANGE
    ) -> None:
        for sort, id in keys:
            name = f"{sort}/{id}"
            rule = id if sort in KINDS and KINDS[sort].form is Form.RULE else name
            self._write(kind, action, by, rule, f"{name}: {why}" if why else name)

    def _token(self, action: str, id: str, by: str, why: str) -> None:
        self._write(Kind.CHANGE, f"token {action}", by, f"token:{id}", why)

    def _write(self, kind: Kind, action: str, by: str, rule: str | None, detail: str) -> None:
        audit = self._host.audit
        audit.site.open()
        audit.sink.write(
            AuditRow(
                audit.site.wall,
                node=self._node,
                kind=kind.value,
                user=by[:1000],
                action=action,
                rule=rule,
                policy_version=audit.version,
                detail=detail[:1000] or None,
            )
        )


def _both(known: Known, wanted: Sequence[Wanted], source: Source, kind: str) -> dict[str, Any]:
    after = known.after(_entries(known.changes(wanted, source), known.sequence + 1))
    return {"before": known.told(kind), "after": after.told(kind), "fence": known.fence or 0}


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
