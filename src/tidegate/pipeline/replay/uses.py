"""Who did what with recorded traffic, added up: the rows that `tidegate learn` learns from.

Each message is decided once more by the rules of the configuration, to know who received it: deliveries are not
recorded. What passed is a use; what the policies denied is one with the rule that did.

- A message that was let in when it was recorded passed, whatever the rules say now.
- What was denied by anything but access policies (preferences, levels, brokering, a view) is neither: policies do not
  decide it.
- Only clients are learned from. What services, monitors and links publish counts for those who received it.
- What depends on content that was not recorded is counted as undecided, and not learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import orjson
import pyarrow as pa

from tidegate.bounded import Bounded
from tidegate.gate import Deny, Step, undecided
from tidegate.learn.table import MOST, PERSON, READ, SUBSCRIBE, WRITE, Times, Use, Who, rows
from tidegate.learn.table import Row as UseRow
from tidegate.pipeline.replay import report
from tidegate.pipeline.replay.comparer import Row, message_options, recorded_message
from tidegate.pipeline.replay.partitions import Partition, Work, decided
from tidegate.pipeline.replay.recipients import Delivered, Offers, Verdict, answer, offers_for
from tidegate.pipeline.replay.recorded_sessions import RecordedSession, RecordedSessions
from tidegate.pipeline.replay.replay_engine import (
    FieldNotRecorded,
    Pairs,
    Publisher,
    RecordedSubscription,
    ReplayEngine,
)
from tidegate.policy import ALL, DEFAULT, View
from tidegate.policy.demands import read_demand
from tidegate.policy.subject import attributes_of
from tidegate.session import Context, Subject
from tidegate.topics import share

TOTAL: Final = "total"
KEPT: Final = 20_000
_PLAIN: Final = (str, bool, int, float)

SCHEMA: Final = pa.schema(
    [
        pa.field("user", pa.string()),
        pa.field("client", pa.string()),
        pa.field("action", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("hour", pa.int64()),
        pa.field("rule", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("count", pa.int64()),
        pa.field("first", pa.float64()),
        pa.field("last", pa.float64()),
    ]
)
SPARK: Final = (
    "user string, client string, action string, topic string, hour bigint, rule string, detail string, "
    "count bigint, first double, last double"
)
"""The same for Spark."""


class UseTally:
    """The uses of one part, added up."""

    def __init__(self, zone: ZoneInfo) -> None:
        self.totals = dict.fromkeys(report.TOTALS, 0)
        self._zone = zone
        self._uses: dict[Use, Times] = {}
        self._hours: Bounded[int, int] = Bounded(KEPT, self._hour)

    @property
    def full(self) -> bool:
        return len(self._uses) >= MOST

    def used(self, who: Who, action: str, topic: str, at: float, rule: str = "", detail: str = "") -> None:
        use = Use(*who, action, topic, 0 if action == PERSON else self._hours[int(at // 900)], rule, detail)
        times = self._uses.get(use)
        if times is None:
            self._uses[use] = Times(1, at, at)
        else:
            times.add(1, at, at)

    def _hour(self, quarter: int) -> int:
        return datetime.fromtimestamp(quarter * 900, self._zone).hour

    def take(self) -> pa.RecordBatch:
        found: list[tuple[object, ...]] = [*rows(self._uses)]
        found += [(None, "", TOTAL, name, 0, "", "", count, 0.0, 0.0) for name, count in self.totals.items() if count]
        columns = list(zip(*found, strict=True)) or [()] * len(SCHEMA)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        self._uses = {}
        self.totals = dict.fromkeys(report.TOTALS, 0)
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class _WatchedSessions(RecordedSessions):
    """Sessions whose attributes and subscriptions are uses, too."""

    def __init__(self, engine: ReplayEngine, tally: UseTally) -> None:
        super().__init__((engine,))
        self._tally = tally

    def connected(
        self, key: Who, kind: str, level: str | None, attributes: str, properties: Pairs, offset: int
    ) -> None:
        super().connected(key, kind, level, attributes, properties, offset)
        recorded = self.by_key.get(key)
        if recorded is not None and kind == "client":
            self._tally.used(key, PERSON, "", self.at, detail=described(recorded.subject))

    def subscribed(self, key: Who, subscription: RecordedSubscription) -> None:
        recorded = self.by_key.get(key)
        new = recorded is not None and recorded.subscriptions.get(subscription.filter) != subscription
        super().subscribed(key, subscription)
        session = recorded.sessions[0] if recorded is not None else None
        if recorded is None or session is None or not new or recorded.subject.kind != "client":
            return
        filter = share(subscription.filter)[1]
        gate = self.engines[0].realm.scopes[session.home].gate
        verdict = gate.grant(filter, session.outward)
        if filter[:1] != "$":
            self._tally.used(key, SUBSCRIBE, filter, self.at, verdict.rule if isinstance(verdict, Deny) else "")


def described(subject: Subject) -> str:
    """What can be learned of somebody, as JSON: what a connection has by itself is left out."""
    s = attributes_of(subject, subject.domain)
    said = {name: value for name, value in s.items() if name not in ("address", "listener", "level", "facts", "tls")}
    said |= {"roles": subject.roles, "groups": subject.groups}
    return orjson.dumps(said, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()


class UseCollector:
    """Decides one part of the record by the rules of the configuration, and notes who did what."""

    def __init__(self, engine: ReplayEngine, zone: ZoneInfo) -> None:
        self.engine = engine
        self.tally = UseTally(zone)
        self.sessions: RecordedSessions = _WatchedSessions(engine, self.tally)
        policies = engine.rules.policies
        self._policies = {DEFAULT} | {each.id for each in (() if policies is None else policies.policies)}
        self._contexts = Bounded(KEPT, Context.decode)
        self._publishers: Bounded[tuple[bytes, Pairs, bool], Publisher | Deny] = Bounded(KEPT)

    def decide(self, row: Row) -> None:
        self.engine.at(row.at)
        self.tally.totals[report.MESSAGES] += row.target is None
        if row.context is None:
            self._refused(row)
            return
        publisher = self._publisher(row, row.context)
        context = self._contexts[row.context]
        if row.target is not None:
            self._later(row, publisher)
            return
        if context.subject.kind == "client" and not row.topic.startswith("$") and not _derived(row):
            self._used((context.subject.user, context.subject.client), WRITE, row.topic, row.at)
        if isinstance(publisher, Publisher):
            self._delivered(row, publisher)

    def _used(self, who: Who, action: str, topic: str, at: float, rule: str = "") -> None:
        self.tally.used(who, action, topic, at, rule)

    def _refused(self, row: Row) -> None:
        if row.kind != "client":
            return
        recorded = self.sessions.by_key.get((row.user, row.client))
        rule = DEFAULT
        if recorded is not None:
            context = Context(subject=recorded.subject)
            demand = read_demand(self.engine.rules.levels, recorded.properties)
            publisher = self.engine.publisher(
                context, b"", demand, message_options(self.engine, context, recorded.properties), False
            )
            if isinstance(publisher, Publisher):
                plan = self.engine.plan(publisher, self.engine.lane(publisher), row.topic.encode())
                rule = plan.refusal.rule if plan.refusal is not None else rule
        if rule in self._policies:
            self._used((row.user, row.client), WRITE, row.topic, row.at, rule)

    def _publisher(self, row: Row, data: bytes) -> Publisher | Deny:
        context = self._contexts[data]
        recorded = self.sessions.by_key.get((context.subject.user, context.subject.client))
        properties: Pairs = () if recorded is None else recorded.properties
        key = (data, properties, _derived(row))
        publisher = self._publishers.get(key)
        if publisher is None:
            options = message_options(self.engine, context, properties)
            demand = read_demand(self.engine.rules.levels, properties)
            publisher = self._publishers[key] = self.engine.publisher(context, data, demand, options, key[2])
        return publisher

    # -- who received it -----------------------------------------------------------------------------------------

    def _delivered(self, row: Row, publisher: Publisher) -> None:
        engine = self.engine
        lane = engine.lane(publisher)
        plan = engine.plan(publisher, lane, row.topic.encode())
        if plan.control:
            return
        message = recorded_message(row, publisher, sealed=plan.sealing is not None, hidden=False)
        try:
            if plan.refusal is not None or undecided(plan.admission, message) is not None:
                return  # other rules let it in
            arrivals = engine.arrivals(publisher, lane, plan, message)
        except FieldNotRecorded:
            self.tally.totals[report.OPEN] += 1
            return
        source = self.sessions.by_key.get((row.user, row.client))
        offers: Offers = offers_for(engine, self.sessions, arrivals, (row.qos or 0) > 0, source)
        for (recorded, _), offered in offers.items():
            try:
                verdict: Verdict = answer(offered, message)
            except FieldNotRecorded as missing:
                verdict = missing
            self._read(recorded, row, verdict, offered[0].arrival.plan.topic)

    def _later(self, row: Row, publisher: Publisher | Deny) -> None:
        """A delivery of something retained, or that has waited."""
        if isinstance(publisher, Deny):
            return
        for recorded in list(self.sessions.named(row.target or "")):
            session = recorded.sessions[0]
            if session is None:
                continue
            gate = self.engine.realm.scopes[session.home].gate
            message = recorded_message(row, publisher, sealed=False, hidden=False)
            try:
                permitted = gate.permits(message, session)
            except FieldNotRecorded:
                self.tally.totals[report.OPEN] += 1
                continue
            verdict: Verdict = permitted if isinstance(permitted, Deny) else ALL
            self._read(recorded, row, verdict, row.topic)

    def _read(self, recorded: RecordedSession, row: Row, verdict: Verdict, topic: str) -> None:
        subject = recorded.subject
        if subject.kind != "client" or topic.startswith("$"):
            return
        who = (subject.user, subject.client)
        match verdict:
            case Deny(step=Step.READ, rule=rule) if rule in self._policies:
                self._used(who, READ, topic, row.at, rule)
            case Delivered() | View():
                self.tally.totals[report.DELIVERIES] += 1
                self._used(who, READ, topic, row.at)
            case FieldNotRecorded():
                self.tally.totals[report.OPEN] += 1


def _derived(row: Row) -> bool:
    """Whether a monitor made it of something that its publisher said."""
    return row.id is not None and "." in row.id[row.id.rfind("-") :]


def collect(work: Work, part: Partition, zone: str) -> Iterator[pa.RecordBatch]:
    """The uses of a part: by the rules `before`."""
    return decided(work, part, UseCollector(ReplayEngine(work.before, work.node), ZoneInfo(zone)))


def as_rows(batch: pa.RecordBatch) -> Iterator[UseRow]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
