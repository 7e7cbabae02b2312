"""Erasures: what somebody owns goes from the node, its journals and the lake, when they ask for it.

- Whoever asks shows the password again, or has signed in a moment ago. `me: {erase}` says whether that is enough,
  whether an administrator has to grant it, or that it is not done here.
- It goes in this order: wills, what waits for PUBREL and what monitors in Python remember of them alone, retained
  messages and what waits in queues, the content of the rows in the journals, then the lake with quarantine and
  statistics. What was received before the request goes.
- The request and its receipt are in the store. What a crash interrupts is done again at the next start.
- Not reached: what others own or were sent, the audit, preferences (they go on binding), other nodes, and where other
  monitors stand: that holds no content, and nobody gets round a monitor by an erasure.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

import orjson
import structlog

from tidegate.admin import slices
from tidegate.admin.me import commands as me
from tidegate.admin.me.kept_data import KeptData
from tidegate.admin.me.people import Owned, OwnersNode, devices_of
from tidegate.authentication.passwords import Outcome
from tidegate.config import Config
from tidegate.config.me import Erase
from tidegate.errors import Problem, TidegateError
from tidegate.monitor.python import PythonMonitor
from tidegate.policy.identities import USER
from tidegate.scope import Scope
from tidegate.scope.sessions import FIRST
from tidegate.session import unreleased_qos2
from tidegate.store.journal import INGEST, TRAFFIC
from tidegate.store.journal.rows import Kind
from tidegate.wire import Reason

ROOM: Final = "erasures"  # in the store
RULE: Final = "erase"
MOST: Final = 1000
"""Requests and receipts that are kept; beyond that the oldest receipt goes, or a request is refused."""
FRESH: Final = 300.0  # seconds that signing in counts as showing the password again
SLICE: Final = 50  # messages or sessions looked at in a turn
AGAIN: Final = 60.0  # seconds until what failed is tried again
ASKED, RUNNING, DONE, REFUSED = "asked", "running", "done", "refused"
LEFT: Final = (
    "the audit",
    "your preferences: they go on binding what others have",
    "what others own, also if it names you, and what they were sent",
    "where monitors stand after what you have sent: that holds no content",
    "other nodes, backups and copies",
)

log = structlog.get_logger("tidegate.node")
Erasure = dict[str, Any]


class Erasures:
    """Those of one node."""

    def __init__(self, node: OwnersNode, records: Mapping[str, bytes]) -> None:
        self._node = node
        self._erasures: dict[str, Erasure] = {id: orjson.loads(data) for id, data in records.items()}
        self._kept = KeptData()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    def start(self) -> None:
        for erasure in self._erasures.values():
            if erasure["state"] == RUNNING:
                self._begin(erasure)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._kept.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- asking --------------------------------------------------------------------------------------------------------

    async def ask(self, command: me.EraseOwn) -> Erasure:
        rule = self._node.config.me.erase
        if rule is Erase.NO:
            raise Problem("nothing is erased here on request; ask the administrator", problem="forbidden")
        await self._check_person(command)
        for each in self._erasures.values():
            if each["owner"] == (command.identity or command.user) and each["state"] in (ASKED, RUNNING):
                raise Problem("you have asked already; see what becomes of it", problem="conflict")
        self._make_room()
        devices = devices_of(self._node.config, command.user)
        erasure: Erasure = {
            "id": secrets.token_hex(8),
            "user": command.user,
            "owner": command.identity or command.user,
            "identity": command.identity,
            "devices": {each: self._node.identities.owner(each) for each in devices},
            "asked_at": time.time(),
            "state": ASKED,
            "by": None,
            "decided_at": None,
            "why": command.why,
            "done_at": None,
            "erased": {},
            "left": [],
            "trouble": None,
        }
        self._erasures[erasure["id"]] = erasure
        self._written(erasure, f"user:{command.user}", "asked", command.why)
        if rule is Erase.YES:
            self._decide(erasure, RUNNING, f"user:{command.user}")
        self._keep(erasure)
        await self._stored()
        if rule is Erase.YES:
            self._begin(erasure)
        return shown(erasure)

    async def _check_person(self, command: me.EraseOwn) -> None:
        """It is really them: by the password, or because they have just signed in with it."""
        if command.password is None:
            if command.signed_in is None or time.time() - command.signed_in > FRESH:
                text = "show that it is you: send your `password`, or sign in again"
                raise Problem(text, problem="forbidden")
            return
        node, user = self._node, command.user
        entry = node.config.directory.users.get(user)
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        stored = None if entry is None else entry.password
        node.passwords.verify(user, command.password.encode(), stored, command.address, answered.set_result)
        match await answered:
            case Outcome.ACCEPTED if (node.identities.table.id(USER, user) or "") == command.identity:
                return
            case Outcome.BUSY:
                raise Problem("too many are signing in; come again", problem="unavailable")
            case Outcome.LIMITED:
                raise Problem("too many wrong passwords; wait a minute", problem="too-many")
            case _:
                node.audit.site.open()
                reason = Reason.BAD_USER_NAME_OR_PASSWORD
                node.audit.log.refused(command.address, "", user, reason, "wrong password", RULE)
                raise Problem("wrong password; try again", problem="forbidden")

    def _make_room(self) -> None:
        if len(self._erasures) < MOST:
            return
        oldest = next((id for id, each in self._erasures.items() if each["state"] in (DONE, REFUSED)), None)
        if oldest is None:
            raise Problem("too many requests wait for an administrator; come again", problem="unavailable")
        del self._erasures[oldest]
        self._node.site.open()
        self._node.site.store.keep(ROOM, oldest, None, urgent=False)

    def own(self, command: me.ListOwnErasures) -> dict[str, Any]:
        owner = command.identity or command.user
        return {"items": [shown(each) for each in self._newest() if each["owner"] == owner][: command.limit]}

    # -- deciding ------------------------------------------------------------------------------------------------------

    def listed(self, command: me.ListErasures) -> dict[str, Any]:
        return {"items": [shown(each) for each in self._newest()][: command.limit]}

    def _newest(self) -> list[Erasure]:
        return sorted(self._erasures.values(), key=lambda each: float(each["asked_at"]), reverse=True)

    async def decide(self, command: me.DecideErasure) -> Erasure:
        erasure = self._erasures.get(command.id)
        if erasure is None:
            raise Problem(f"nobody has asked for {command.id[:40]!r}; list the requests", problem="unknown")
        if erasure["state"] != ASKED:
            raise Problem(f"it is {erasure['state']} already", problem="conflict")
        if command.dry_run:
            return shown(erasure)
        self._decide(erasure, RUNNING if command.grant else REFUSED, command.by)
        erasure["why"] = command.why or erasure["why"]
        self._written(erasure, command.by, "granted" if command.grant else "refused", command.why)
        self._keep(erasure)
        await self._stored()
        if command.grant:
            self._begin(erasure)
        return shown(erasure)

    @staticmethod
    def _decide(erasure: Erasure, state: str, by: str) -> None:
        erasure.update(state=state, by=by, decided_at=time.time())

    # -- erasing -------------------------------------------------------------------------------------------------------

    def _begin(self, erasure: Erasure) -> None:
        task = asyncio.get_running_loop().create_task(self._erase(erasure))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _erase(self, erasure: Erasure) -> None:
        """Until it is done: what fails is said in the receipt, and tried again."""
        while True:
            try:
                async with self._turn:
                    erased = await self._erased(erasure)
                break
            except (TidegateError, OSError) as error:
                log.error("what somebody has asked to be erased could not be; it is tried again", reason=str(error))
                erasure["trouble"] = str(error)
                self._keep(erasure)
                await asyncio.sleep(AGAIN)
        # after a crash the first try has taken some already: what it counted is not known any more
        erasure.update(state=DONE, done_at=time.time(), erased=erased, trouble=None, left=self._left())
        counts = ", ".join(f"{name} {count}" for name, count in erased.items())
        self._written(erasure, str(erasure["by"]), "done", counts)
        self._keep(erasure)

    def _left(self) -> list[str]:
        guarded = [name for name, each in self._node.config.scopes.items() if each.backend is not None]
        brokers = [f"what the broker of scope {name} has retained or queued" for name in guarded]
        return [*LEFT, *brokers]

    async def _erased(self, erasure: Erasure) -> dict[str, int]:
        """What went, by place."""
        config, before = self._node.config, erasure["asked_at"]
        own: dict[str | None, str] = {erasure["user"]: erasure["identity"], **erasure["devices"]}
        erased = {"wills": 0, "unreleased": 0, "monitors": 0, "retained": 0, "queued": 0}
        for scope in list(self._node.scopes.values()):
            theirs = Owned(scope, own, before)
            await self._unpublished(scope, theirs, before, erased)
            erased["monitors"] += await self._remembered(scope, theirs)
            erased["retained"] += await self._retained(scope, theirs)
            erased["queued"] += await self._queued(scope, theirs)
        await self._stored()
        if config.node.data is None or not self._kept.anything(config):
            return erased
        for stream in (INGEST, TRAFFIC):
            if not await self._node.journals.roll(stream):
                raise TidegateError(f"the journal {stream.name} cannot begin another segment")
        table = self._node.identities.table
        since = {
            name: 0.0 if not identity or (record := table.record(identity)) is None else record.since
            for name, identity in own.items()
            if name is not None
        }
        done = await self._kept.do(config, "erase", since=since, before=before)
        if done["unread"]:
            log.warning("damaged segments of a journal were not erased from", segments=done["unread"])
        return erased | {"journals": done["journals"]} | {f"lake {name}": n for name, n in (done["lake"] or {}).items()}

    async def _unpublished(self, scope: Scope, theirs: Owned, before: float, erased: dict[str, int]) -> None:
        """Wills, and QoS 2 messages that are not released."""
        place = FIRST
        while sessions := scope.sessions.after(place, SLICE):
            self._node.site.open()
            for _, session in sessions:
                newer = session.connection is not None and session.connection.since >= before
                if session.will is not None and theirs.are(session.subject) and not newer:
                    scope.wills.drop(session)
                    erased["wills"] += 1
                erased["unreleased"] += unreleased_qos2.withdraw(session, theirs)
            place = sessions[-1][0]
            await asyncio.sleep(0)

    async def _remembered(self, scope: Scope, theirs: Owned) -> int:
        """What monitors in Python remember, which may be content; other states are places in a rule."""
        states, count = scope.path.monitoring.states, 0
        for number, instance in enumerate(list(states.instances.values()), 1):
            sources = instance.sources
            if (
                isinstance(instance.attachment.monitor, PythonMonitor)
                and sources
                and all(theirs.alone(each.context) for each in sources)
            ):
                self._node.site.open()
                states.reset(instance)
                count += 1
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return count

    async def _retained(self, scope: Scope, theirs: Owned) -> int:
        count, last = 0, ""
        while names := scope.retained.names.after(last, SLICE):
            self._node.site.open()
            for message in filter(None, map(scope.retained.get, names)):
                if theirs(message):
                    scope.retained.drop(message.topic)
                    count += 1
            last = names[-1]
            await asyncio.sleep(0)
        return count

    async def _queued(self, scope: Scope, theirs: Owned) -> int:
        count, place = 0, FIRST
        while sessions := scope.sessions.after(place, SLICE):
            for _, session in sessions:
                if session.queued or session.inflight or session.deferred:
                    self._node.site.open()
                    count += session.withdraw(theirs)
                    await asyncio.sleep(0)
            place = sessions[-1][0]
            await asyncio.sleep(0)
        return count

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read_lake(self, config: Config, since: Mapping[str, float], rows: int, size: int) -> dict[str, Any]:
        """What the lake has of somebody; says so if there is none, or it cannot be read now."""
        if config.pipeline is None or config.node.data is None:
            return {"rows": {}, "complete": True}
        try:
            return await self._kept.do(config, "read", patience=me.READING, since=since, rows=rows, size=size)
        except (TidegateError, OSError, TimeoutError) as error:
            log.warning("the lake could not be read for an export", reason=str(error))
            return {"rows": {}, "complete": False}

    # -- keeping -------------------------------------------------------------------------------------------------------

    def _keep(self, erasure: Erasure) -> None:
        self._node.site.open()
        self._node.site.store.keep(ROOM, erasure["id"], orjson.dumps(erasure))

    async def _stored(self) -> None:
        with contextlib.suppress(TimeoutError):
            await slices.stored(self._node.site, 5.0)

    def _written(self, erasure: Erasure, by: str, what: str, more: str) -> None:
        audit = self._node.audit
        audit.site.open()
        columns: dict[str, Any] = {"user": by, "action": RULE, "rule": RULE}
        detail = f"{erasure['id']} of {erasure['user']} {what}" + (f": {more}" if more else "")
        audit.sink.write(audit.log.row(Kind.CHANGE, **columns, detail=detail[:1000]))


def shown(erasure: Erasure) -> Erasure:
    """A receipt."""
    return {name: value for name, value in erasure.items() if name not in ("owner", "identity", "devices")}
