"""The audit of a node: what was decided against whom, by which rule, and under which version of the rules.

- The first denial of its kind (link, action, topic, stage, rule, version) is written at once; repeats are counted and
  written as one row at the next flush. See `rate_limit` for the limits.
- What a plan denies it denies without asking: that is read off the plan's counter, soon after it was made, at each
  flush, and when it is retired.
- A denial because a condition failed is one row of kind `deny` whose `detail` is the error; kind `error` is for
  conditions that failed and counted as false, which by itself denies nothing.
- A refused connection is a denial by the rule `connect`, or by a capability. Connections that come and go are rows of
  their own, within the limits of a rule of that name; there are no counts of them but of what was left out.
- With `record: decisions` what passes is counted by source, topic and receiver, and written at each flush: that of
  targets which nothing is left to ask of. Deliveries that depend on the message, and those of shared subscriptions,
  are not counted. The source is one of those that share a plan.

Nothing here waits, and nothing takes long: what may be much is done in pieces (`site.unfinished`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from tidegate.audit.journals import Journals, journal_warning
from tidegate.audit.rate_limit import RateLimit
from tidegate.audit.rows import AuditRow, Query
from tidegate.audit.sink import RECENT, AuditSink
from tidegate.audit.traffic import Traffic
from tidegate.config import Config, Record
from tidegate.errors import TidegateError
from tidegate.gate import Deny, Lane, Plan, Step
from tidegate.scope import Scope
from tidegate.session import Counters, Grant, Link, Message, Session, Subject
from tidegate.store.journal import AUDIT, TRAFFIC
from tidegate.store.journal.rows import Kind
from tidegate.wire import Reason

FLUSH = 10.0  # seconds
PIECE = 2000  # plans looked at at a time: less than a millisecond
COSTLY = 16  # how many of them a denial or a delivery that is accounted for is worth
LONG = 1000  # characters of a text in a row; clients choose how long topics and names are
CONNECT = "connect"
PATIENCE = 5.0  # seconds that somebody who looks waits for the disk

Known = tuple[Subject, str]


class Turns(Protocol):
    """What is needed of a site: the time of this turn, and a place for long work."""

    now: float
    wall: float
    counters: Counters
    unfinished: deque[Callable[[], bool]]

    def open(self) -> None: ...


class Auditor:
    """Writes down what scopes report (scope.Audit)."""

    def __init__(self, site: Turns, journals: Journals, *, node: str, rate: float = 20.0) -> None:
        self.site = site
        self.node = node
        self.version = ""
        self.decisions = False
        self.sink = AuditSink()
        self.traffic: Traffic | None = None
        self.scopes: dict[str, Scope] = {}
        self._journals = journals
        self._denials = RateLimit(self.sink.write, node=node, rate=rate)
        self._passed = RateLimit(self.sink.write, node=node)
        self._plans: OrderedDict[Plan, Known] = OrderedDict()  # in use: a source, and the version they were made under
        self._fresh: deque[Plan] = deque()
        self._retired: deque[tuple[Plan, Known | None]] = deque()
        self._jobs: deque[Iterator[None]] = deque()
        self._working = False
        self._flushing = False
        self._spent = 0  # of this piece
        self._states = 0

    # -- denials ---------------------------------------------------------------------------------------------------

    def denied(self, action: str, link: Link, topic: str, why: Deny) -> None:
        # hot: a repeated denial is one lookup and one increment
        key = _key(action, link.subject, topic, why, self.version)
        if not self._denials.again(key):
            self._first(key, Kind.DENY.value, link, action, topic, why.step, why.rule, why.error)
        if self.traffic is not None and action == "write":
            self.traffic.refused(link, topic)

    def failed(self, link: Link, topic: str, errors: Iterable[tuple[str, str]]) -> None:
        subject = link.subject
        for rule, text in errors:
            key = ("error", subject.client, subject.user, subject.scope, subject.kind, topic, rule, self.version)
            if not self._denials.again(key):
                self._first(key, Kind.ERROR.value, link, "read", topic, Step.READ, rule, text)

    def refused(self, address: str, client: str, user: str | None, reason: int, text: str, rule: str = CONNECT) -> None:
        key = (CONNECT, address, client, user, reason, rule, text, self.version)
        if self._denials.again(key):
            return
        if not self._denials.admits(
            Kind.DENY.value, rule, self.site.now, action=CONNECT, stage=CONNECT, version=self.version
        ):
            return
        row = AuditRow(
            self.site.wall,
            node=self.node,
            kind=Kind.DENY.value,
            user=_cut(user),
            client=_cut(client),
            action=CONNECT,
            stage=CONNECT,
            rule=rule,
            policy_version=self.version,
            detail=_cut(f"{text or _reason(reason)}, from {address}"),
        )
        self._denials.first(key, row, weight=len(client) + len(user or ""))

    def _first(
        self,
        key: tuple[Any, ...],
        kind: str,
        link: Link,
        action: str,
        topic: str,
        step: Step,
        rule: str,
        detail: str,
        times: int = 1,
        version: str | None = None,
    ) -> None:
        version = version or self.version
        stage: str = step._value_
        denials = self._denials
        if not denials.admits(kind, rule, self.site.now, action=action, stage=stage, version=version, times=times):
            return
        subject = link.subject
        row = AuditRow(
            self.site.wall,
            self.node,
            kind,
            _cut(str(link)),
            _cut(subject.user),
            _cut(subject.client),
            action,
            _cut(topic),
            stage,
            rule,
            version,
            times,
            _cut(detail) or None,
        )
        weight = len(topic) + len(subject.client) + len(subject.user or "")
        denials.first(key, row, weight=weight)

    # -- plans -----------------------------------------------------------------------------------------------------

    def compiled(self, lane: Lane, plan: Plan) -> None:
        if plan.denied or self.decisions or any(other.denied for _, other in plan.flat):
            self._plans[plan] = (lane.context.subject, self.version)
            # its first message is counted after this
            if not self._fresh:
                self._later(self._settle_fresh())
            self._fresh.append(plan)

    def retired(self, plan: Plan) -> None:
        known = self._plans.pop(plan, None)
        if plan.uncounted and (plan.denied or plan.flat or known is not None):
            if not self._retired:
                self._later(self._settle_retired())
            self._retired.append((plan, known))

    def _settle_fresh(self) -> Iterator[None]:
        while self._fresh:
            plan = self._fresh.popleft()
            if plan in self._plans:  # else it is among the retired
                yield from self._settle(plan, self._plans[plan])
            elif self._tired():
                yield

    def _settle_retired(self) -> Iterator[None]:
        while self._retired:
            yield from self._settle(*self._retired.popleft())

    def _settle_all(self) -> Iterator[None]:
        """Those in use."""
        for _ in range(len(self._plans)):
            if not self._plans:
                return
            plan = next(iter(self._plans))
            self._plans.move_to_end(plan)  # those that nobody has looked at stay in front, whatever comes and goes
            if plan.uncounted:
                yield from self._settle(plan, self._plans[plan])
            elif self._tired():
                yield

    def _settle(self, plan: Plan, known: Known | None) -> Iterator[None]:
        """Accounts for the messages that a plan has passed on since the last time."""
        source, version = known or (None, self.version)
        for times, part in plan.take_counts():
            for link, why in part.denied:
                self._denied_by_plan(link, part.topic, why, times, version)
                if self._tired(COSTLY):
                    yield
            for grant in part.targets if self.decisions and known else ():
                self._allowed(source, grant, part.topic, times, version)
                if self._tired(COSTLY):
                    yield
        if self._tired(COSTLY):
            yield

    def _tired(self, effort: int = 1) -> bool:
        """Whether it is somebody else's turn."""
        self._spent += effort
        if self._spent < PIECE:
            return False
        self._spent = 0
        return True

    def _denied_by_plan(self, link: Link, topic: str, why: Deny, times: int, version: str) -> None:
        self.site.counters.denied += times
        action = "write" if why.step is Step.WRITE else "read"  # a link forwards, or imports
        key = _key(action, link.subject, topic, why, version)
        if not self._denials.again(key, times):
            self._first(key, Kind.DENY.value, link, action, topic, why.step, why.rule, why.error, times, version)

    def _allowed(self, source: Subject | None, grant: Grant, topic: str, times: int, version: str) -> None:
        link = grant.session.outward
        subject = link.subject
        origin = "" if source is None else source.name
        key = (origin, subject.client, subject.user, subject.scope, topic, version)
        if self._passed.again(key, times):
            return
        told = f"from {origin} or one alike" if origin else None  # plans are shared by sources that are decided alike
        row = self._row(Kind.ALLOWED.value, link, "read", topic, detail=told)
        row = row._replace(policy_version=version, count=times)
        self._passed.quietly(key, row, weight=len(topic) + len(subject.client) + len(origin))

    # -- those who come and go -------------------------------------------------------------------------------------

    def connected(self, session: Session) -> None:
        subject = session.subject
        detail = f"from {subject.address} over {subject.listener}, {subject.level}"
        self._denials.once(self._row(Kind.CONNECT.value, session.inward, rule=CONNECT, detail=detail), self.site.now)
        if self.traffic is not None:
            self.traffic.connected(session)

    def disconnected(self, session: Session, reason: int) -> None:
        row = self._row(Kind.DISCONNECT.value, session.inward, rule=CONNECT, detail=_reason(reason))
        self._denials.once(row, self.site.now)
        if self.traffic is not None:
            self.traffic.disconnected(session)
            self._later(_once(partial(self.traffic.look_at, session)))  # it may end right after this

    def subscribed(self, session: Session, grant: Grant) -> None:
        if self.decisions:
            detail = f"QoS {grant.qos}" + (", held" if grant.held else "")
            self._decided(self._row(Kind.ALLOWED.value, session.outward, "subscribe", grant.filter, detail=detail))
        if self.traffic is not None:
            self.traffic.subscribed(session, grant)

    def unsubscribed(self, session: Session, filter: str) -> None:
        if self.decisions:
            self._decided(self._row(Kind.ALLOWED.value, session.outward, "unsubscribe", filter))
        if self.traffic is not None:
            self.traffic.unsubscribed(session, filter)

    def published(self, message: Message, subject: Subject) -> None:
        if self.traffic is not None:
            self.traffic.published(message, subject)

    def handed(self, link: Link, topic: str, key: str) -> None:
        """Somebody was given a key."""
        self._decided(self._row(Kind.ALLOWED.value, link, "key", topic, detail=f"key {key}"))

    def ruled(self, subject: Subject, sequence: int, ids: Iterable[str]) -> None:
        row = AuditRow(
            self.site.wall,
            node=self.node,
            kind=Kind.CHANGE.value,
            user=_cut(subject.user),
            client=_cut(subject.client),
            action="rules",
            rule="rules",
            policy_version=self.version,
            detail=_cut(f"sequence {sequence}: {', '.join(ids)}"),
        )
        self._denials.once(row, self.site.now)

    def _decided(self, row: AuditRow) -> None:
        key = row[3:]
        if not self._passed.again(key):
            self._passed.first(key, row, weight=len(row.topic or "") + len(row.client or ""))

    def _row(
        self,
        kind: str,
        link: Link,
        action: str | None = None,
        topic: str | None = None,
        *,
        rule: str | None = None,
        detail: str | None = None,
    ) -> AuditRow:
        subject = link.subject
        return AuditRow(
            self.site.wall,
            node=self.node,
            kind=kind,
            link=_cut(str(link)),
            user=_cut(subject.user),
            client=_cut(subject.client),
            action=action,
            topic=_cut(topic),
            rule=rule,
            policy_version=self.version,
            detail=_cut(detail),
        )

    def changed(self, version: str, source: str, *, action: str = "reload") -> None:
        """Other rules are in force, or the same after a start or a reload."""
        self.site.open()
        self.version = version
        self.sink.write(
            AuditRow(
                self.site.wall,
                node=self.node,
                kind=Kind.CHANGE.value,
                action=action,
                policy_version=version,
                detail=_cut(source),
            )
        )
        if self.traffic is not None:
            self.traffic.version = version
            self._restate()  # attributes may have changed

    # -- counts ----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Everything that was only counted is written; every `FLUSH` seconds."""
        if not self._flushing:
            self._flushing = True
            self._later(self._flushed())

    def _flushed(self) -> Iterator[None]:
        try:
            yield from self._settle_retired()
            yield from self._settle_all()
            for rate_limit in (self._denials, self._passed):
                yield from rate_limit.flush(lambda: self.site.wall)
            if self.traffic is not None:
                yield from self.traffic.look()
        finally:
            self._flushing = False

    def _later(self, job: Iterator[None]) -> None:
        self._jobs.append(job)
        if not self._working:
            self._working = True
            self.site.unfinished.append(self._piece)

    def _piece(self) -> bool:
        """One piece of the first job; True if there is more to do."""
        self._working = False  # also if it fails
        if not self._jobs:
            return False
        job = self._jobs.popleft()
        try:
            next(job)
        except StopIteration:
            pass
        else:
            self._jobs.appendleft(job)
        self._working = bool(self._jobs)
        return self._working

    def _finish(self) -> None:
        """All of it, now."""
        while self._jobs:
            for _ in self._jobs.popleft():
                pass

    # -- what is written -------------------------------------------------------------------------------------------

    async def open(self, config: Config) -> None:
        """Opens what the configuration asks for; StoreError if that cannot be."""
        self.sink.journal = await self._journals.open(config, AUDIT)
        self.sink.logged = journal_warning(config) is not None
        await self.prepare(config)

    async def prepare(self, config: Config) -> None:
        """What may fail of `configure`."""
        self._journals.check(config)
        if config.record is Record.TRAFFIC:
            await self._journals.open(config, TRAFFIC, rolled=self._restate)

    def configure(self, config: Config) -> None:
        """The configuration counts from now on. Plans are made anew after it, then `changed` is told."""
        self._denials.limit(config.audit.rate)
        self.decisions = config.record is not Record.OFF
        recording = config.record is Record.TRAFFIC
        if not recording:
            self.traffic = None
        elif self.traffic is None:
            journal = self._journals[TRAFFIC]
            self.traffic = Traffic(journal, self.scopes, time=lambda: self.site.wall)
            self.traffic.version = self.version
            self._restate()
        if self.traffic is not None:
            self.traffic.payloads = config.traffic.payloads
        for scope in self.scopes.values():
            scope.gate.watched = recording

    async def settle(self) -> None:
        """Closes the journal that `configure` has done with."""
        if self.traffic is None:
            await self._journals.close(TRAFFIC)

    def close(self) -> None:
        """Writes everything. On the loop: nothing else is left to do."""
        while self._jobs:
            for _ in self._jobs.popleft():
                pass
        for _ in self._flushed():
            pass
        self._journals.close_all()

    def _restate(self, *_: object) -> None:
        """The traffic begins anew, or its segment does: every session is written down, in pieces of its own."""
        if self.traffic is not None:
            self._states += 1
            self.site.unfinished.append(partial(self._stated, self._states, self.traffic.state()))

    def _stated(self, number: int, state: Iterator[None]) -> bool:
        return number == self._states and next(state, self) is None  # unless another one has begun

    # -- for those who look ----------------------------------------------------------------------------------------

    async def told(self, limit: int = RECENT, follow: bool = False, **wanted: Any) -> AsyncIterator[list[list[Any]]]:
        """The control command `audit`: rows that the node remembers, in pieces; then those that come."""
        query = Query.of(wanted)
        if not isinstance(limit, int) or limit < 0:
            raise TidegateError("`limit` is a number of rows")
        await self.counted()
        async for piece in self.sink.told(query, limit, follow=follow):
            yield piece

    async def written(self) -> dict[str, Any]:
        """The control command `audit_written`: answers when everything that has happened is in the journal."""
        await self.counted()
        journal = self.sink.journal
        if journal is None:
            return {"journal": False}
        done = asyncio.Event()
        journal.after(done.set)
        try:
            async with asyncio.timeout(PATIENCE):
                await done.wait()
        except TimeoutError:
            return {"journal": True, "trouble": journal.trouble or f"the disk took more than {PATIENCE:g} s"}
        return {"journal": True, "trouble": None}

    async def counted(self) -> None:
        """Until everything that has happened is among the rows."""
        done = asyncio.Event()
        self.site.open()
        self._later(self._flushed())
        self._later(_once(done.set))
        await done.wait()

    def state(self) -> dict[str, Any]:
        """For `tidegate status`."""
        recording = "traffic" if self.traffic is not None else "decisions" if self.decisions else "denials"
        return {"recording": recording, "rows": self.sink.written, **self._journals.state()}


def _key(action: str, subject: Subject, topic: str, why: Deny, version: str) -> tuple[object, ...]:
    """What makes a denial the same as an earlier one."""
    # hot: the hash of an Enum is computed in Python, that of its value is not
    return (
        subject.client,
        subject.user,
        subject.scope,
        subject.kind,
        action,
        topic,
        why.rule,
        why.step._value_,
        why.error,
        version,
    )


def _once(do: Callable[[], object]) -> Iterator[None]:
    do()
    yield from ()


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONG else f"{text[: LONG - 1]}…"


def _reason(code: int) -> str:
    match code:
        case Reason.SUCCESS:
            return "the client left"
        case Reason.UNSPECIFIED_ERROR:
            return "connection lost"
        case _:
            return f"{Reason(code).name.lower().replace('_', ' ')} (0x{code:02x})"
