"""The audit of a node: what was decided against whom, by which rule, and under which version of the rules.

- `decisions` makes rows of single decisions; `plan_counts` accounts for what plans decide for many messages at once.
- Connections that come and go are rows of their own, within the limits of a rule of that name; there are no counts of
  them but of what was left out.
- With `record: decisions` what passes is counted, too, and written at each flush; with `record: traffic` everything
  that a replay needs is (see `traffic`).

Nothing here waits, and nothing takes long: what may be much is done in pieces (`job_queue`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Any

from tidegate.audit.decisions import ADDRESSES, CONNECT, DecisionLog, reason_text
from tidegate.audit.job_queue import JobQueue
from tidegate.audit.journals import Journals, journal_warning
from tidegate.audit.plan_counts import PlanCounts
from tidegate.audit.query import Query
from tidegate.audit.sink import RECENT, AuditSink
from tidegate.audit.traffic import Traffic
from tidegate.config import Config, Record
from tidegate.errors import TidegateError
from tidegate.gate import Deny
from tidegate.scope import Scope
from tidegate.session import Grant, Link, Message, Session, Site, Subject
from tidegate.store.journal import AUDIT, TRAFFIC
from tidegate.store.journal.rows import Kind

FLUSH = 10.0  # seconds
PATIENCE = 5.0  # seconds that somebody who looks waits for the disk


class Auditor:
    """Writes down what scopes report (scope.Audit)."""

    def __init__(self, site: Site, journals: Journals, *, node: str, rate: float = 20.0) -> None:
        self.site = site
        self.sink = AuditSink()
        self.log = DecisionLog(self.sink.write, site, node=node, rate=rate)
        self.traffic: Traffic | None = None
        self.scopes: dict[str, Scope] = {}
        self._journals = journals
        self._jobs = JobQueue(site)
        self._plans = PlanCounts(site, self.log, self._jobs)
        self._flushing = False
        self.failed, self.refused, self.delivered = self.log.failed, self.log.refused, self.log.delivered
        self.compiled, self.retired = self._plans.compiled, self._plans.retired

    @property
    def version(self) -> str:
        """The version of the rules in force."""
        return self.log.version

    # -- what scopes report ----------------------------------------------------------------------------------------

    def denied(
        self,
        action: str,
        link: Link,
        topic: str,
        why: Deny,
        publishers: str | None = None,
        message: Message | None = None,
        *,
        shadow: bool = False,
    ) -> None:
        self.log.denied(action, link, topic, why, publishers, message=message, shadow=shadow)
        if self.traffic is not None and action == "write" and not shadow:
            self.traffic.refused(link, topic)

    def connected(self, session: Session) -> None:
        subject = session.subject
        detail = f"from {subject.address} over {subject.listener}, {subject.level}"
        self.log.happened(self.log.row(Kind.CONNECT, session.inward, rule=CONNECT, detail=detail))
        if self.traffic is not None:
            self.traffic.connected(session)

    def disconnected(self, session: Session, reason: int) -> None:
        row = self.log.row(Kind.DISCONNECT, session.inward, rule=CONNECT, detail=reason_text(reason))
        self.log.happened(row)
        if self.traffic is not None:
            self.traffic.disconnected(session)
            self._jobs.call(partial(self.traffic.look_at, session))  # it may end right after this

    def subscribed(self, session: Session, grant: Grant) -> None:
        if self.log.records_allowed:
            detail = f"QoS {grant.qos}" + (", held" if grant.held else "")
            self.log.allowed(session.outward, "subscribe", grant.filter, detail)
        if self.traffic is not None:
            self.traffic.subscribed(session, grant)

    def unsubscribed(self, session: Session, filter: str) -> None:
        if self.log.records_allowed:
            self.log.allowed(session.outward, "unsubscribe", filter)
        if self.traffic is not None:
            self.traffic.unsubscribed(session, filter)

    def published(self, message: Message, subject: Subject) -> None:
        if self.traffic is not None:
            self.traffic.published(message, subject)

    def handed(self, link: Link, topic: str, key: str) -> None:
        """Somebody was given a key."""
        self.log.allowed(link, "key", topic, f"key {key}")

    def ruled(self, subject: Subject, sequence: int, ids: Iterable[str]) -> None:
        row = self.log.row(
            Kind.CHANGE,
            user=subject.user,
            client=subject.client,
            action="rules",
            rule="rules",
            detail=f"sequence {sequence}: {', '.join(ids)}",
        )
        self.log.happened(row)

    def changed(self, version: str, source: str, *, action: str = "reload") -> None:
        """Other rules are in force, or the same after a start or a reload."""
        self.site.open()
        self.log.version = version
        self.sink.write(self.log.row(Kind.CHANGE, action=action, detail=source))
        if self.traffic is not None:
            self.traffic.version = version
            self.traffic.restate()  # attributes may have changed

    # -- what is written -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Writes everything that was only counted; called every `FLUSH` seconds."""
        if not self._flushing:
            self._flushing = True
            self._jobs.add(self._flushed())

    def _flushed(self) -> Iterator[None]:
        try:
            yield from self._plans.settle()
            yield from self.log.flush()
            if self.traffic is not None:
                yield from self.traffic.look()
        finally:
            self._flushing = False

    async def open(self, config: Config) -> None:
        """Opens what the configuration asks for; StoreError if that cannot be."""
        self.sink.journal = await self._journals.open(config, AUDIT)
        self.sink.logged = journal_warning(config) is not None
        await self.prepare(config)

    async def prepare(self, config: Config) -> None:
        """What may fail of `configure`."""
        self._journals.check(config)
        if config.record is Record.TRAFFIC:
            await self._journals.open(config, TRAFFIC, rolled=self._rolled)

    def _rolled(self, _: int) -> None:
        if self.traffic is not None:
            self.traffic.restate()

    def configure(self, config: Config) -> None:
        """The configuration counts from now on. Plans are made anew after it, then `changed` is told."""
        self.log.denials.limit(config.audit.rate)
        self.log.address_rate = config.audit.address_rate
        self.log.records_allowed = config.record is not Record.OFF
        recording = config.record is Record.TRAFFIC
        if not recording:
            self.traffic = None
        elif self.traffic is None:
            self.traffic = Traffic(self._journals[TRAFFIC], self.scopes, self.site)
            self.traffic.version = self.version
            self.traffic.restate()
        if self.traffic is not None:
            self.traffic.payloads = config.traffic.payloads
        for scope in self.scopes.values():
            scope.gate.watched, scope.gate.counts_allowed = recording, self.log.records_allowed

    async def settle(self) -> None:
        """Closes the journal that `configure` has done with."""
        if self.traffic is None:
            await self._journals.close(TRAFFIC)

    def close(self) -> None:
        """Writes everything. On the loop: nothing else is left to do."""
        self._jobs.add(self._flushed())
        self._jobs.finish()
        self._journals.close_all()

    # -- for those who look ----------------------------------------------------------------------------------------

    async def stream(self, limit: int = RECENT, follow: bool = False, **wanted: Any) -> AsyncIterator[list[list[Any]]]:
        """The control command `audit`: rows that the node remembers, in pieces; then those that come."""
        query = Query.of(wanted)
        if not isinstance(limit, int) or limit < 0:
            raise TidegateError("`limit` is a number of rows")
        await self.counted()
        async for piece in self.sink.stream(query, limit, follow=follow):
            yield piece

    async def written(self) -> dict[str, Any]:
        """The control command `audit_written`: answers when everything that has happened is in the journals."""
        await self.counted()
        journal = self.sink.journal
        if journal is None:
            return {"journal": False}
        journals = [journal] if self.traffic is None else [journal, self.traffic.journal]
        try:
            async with asyncio.timeout(PATIENCE):
                for each in journals:
                    done = asyncio.Event()
                    each.after(done.set)
                    await done.wait()
        except TimeoutError:
            return {"journal": True, "trouble": journal.trouble or f"the disk took more than {PATIENCE:g} s"}
        return {"journal": True, "trouble": None}

    async def counted(self) -> None:
        """Until everything that has happened is among the rows."""
        done = asyncio.Event()
        self.site.open()
        self._jobs.add(self._flushed())
        self._jobs.call(done.set)
        await done.wait()

    def bound(self) -> dict[str, Any]:
        """Of refused connections, for `tidegate status`: addresses that are limited, and what exceeded the rate."""
        return {
            "used": len(self.log.addresses),
            "limit": ADDRESSES,
            "address_rate": self.log.address_rate,
            "reached": self.log.unwritten,
        }

    def state(self) -> dict[str, Any]:
        """For `tidegate status`."""
        recording = "traffic" if self.traffic is not None else "decisions" if self.log.records_allowed else "denials"
        return {"recording": recording, "rows": self.sink.written, **self._journals.state()}
