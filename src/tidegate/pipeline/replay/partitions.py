"""The journal `traffic` in parts that can be decided one by one, and how one of them is read.

A part is a range of offsets. To know who was there when it begins, whatever is about sessions is read from `BEHIND`
segments before it on: each segment begins with the state of all sessions, but that is written a few sessions at a time
while messages go on, so the segment that a part begins in is not enough. Of a record whose beginning is gone, or that
was begun while clients were connected, whoever was not written down yet is missing at first; rows about such sessions
are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
import pyarrow as pa

from tidegate.errors import PipelineError
from tidegate.gate import RuleSet
from tidegate.pipeline.replay import report
from tidegate.pipeline.replay.comparer import DecisionComparer, Row
from tidegate.pipeline.replay.recorded_sessions import RecordedSessions
from tidegate.pipeline.replay.replay_engine import Pairs, RecordedSubscription, ReplayEngine
from tidegate.pipeline.replay.report import Tally
from tidegate.store.journal import TRAFFIC, Happening, Reader
from tidegate.store.journal.index import read_last
from tidegate.store.journal.segment import first_offsets, folder_of, index_of, segment_of

BEHIND: Final = 2  # segments read before the one that a part begins in
LEAST: Final = 50_000  # rows of a part, so that reading what comes before it is worth while
BUCKETS: Final = 60  # into which changes fall by their time
FLOOR: Final = "floor"  # a user property that the node adds, and nobody else can
_MICRO: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What is replayed: offsets, and times in seconds."""

    start: int
    stop: int
    low: float
    high: float
    cut: bool  # what was before it is gone

    @property
    def width(self) -> float:
        """Seconds of a bucket of time."""
        return max((self.high - self.low) / BUCKETS, 1e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Rows `start` to before `stop`; who is there is read from `state` on."""

    state: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    data: Path
    node: str
    before: RuleSet
    after: RuleSet
    since: float
    until: float
    whole: Span


def span(data: Path, since: float, until: float) -> Span:
    """What the journal has of a time; PipelineError if that is nothing."""
    folder = folder_of(data, TRAFFIC, 0)
    firsts = first_offsets(folder)
    if not firsts:
        raise PipelineError(
            f"no traffic was recorded in {data}; set `record: traffic`, and come back when there has been some"
        )
    _, end = Reader(data, TRAFFIC).bounds()
    segments: list[tuple[int, int, float, float]] = []
    for first, following in zip(firsts, (*firsts[1:], end), strict=True):
        last = read_last(index_of(segment_of(folder, first)))
        low, high = (0.0, until) if last is None else (last.low * _MICRO, last.high * _MICRO)
        if following > first and high >= since and low < until:
            segments.append((first, following, low, high))
    if not segments:
        raise PipelineError("no traffic was recorded in that time; choose another with --since and --until")
    return Span(
        start=segments[0][0],
        stop=segments[-1][1],
        low=max(since, min(low for _, _, low, _ in segments)),
        high=min(until, max(high for _, _, _, high in segments)),
        cut=firsts[0] > 0 and segments[0][0] == firsts[0],
    )


def partitions(data: Path, whole: Span, tasks: int, least: int = LEAST) -> list[Partition]:
    firsts = first_offsets(folder_of(data, TRAFFIC, 0))
    rows = whole.stop - whole.start
    number = max(1, min(tasks, rows // least))
    cuts = [whole.start + rows * at // number for at in range(number)] + [whole.stop]
    cut: list[Partition] = []
    for start, stop in pairwise(cuts):
        within = max((at for at, first in enumerate(firsts) if first <= start), default=0)
        cut.append(Partition(state=firsts[max(0, within - BEHIND)], start=start, stop=stop))
    return cut


class Sums(Protocol):
    """What is found, as long as it is not handed on."""

    totals: dict[str, int]

    @property
    def full(self) -> bool: ...

    def take(self) -> pa.RecordBatch: ...


class Decider(Protocol):
    """Decides recorded messages."""

    sessions: RecordedSessions

    @property
    def tally(self) -> Sums: ...

    def decide(self, row: Row) -> None: ...


def replay(work: Work, part: Partition) -> Iterator[pa.RecordBatch]:
    """Decides a part; what was found, now and then and at the end."""
    tally = Tally(work.whole.low, work.whole.width)
    comparer = DecisionComparer(ReplayEngine(work.before, work.node), ReplayEngine(work.after, work.node), tally)
    return decided(work, part, comparer)


def decided(work: Work, part: Partition, comparer: Decider) -> Iterator[pa.RecordBatch]:
    """What `comparer` finds in a part, now and then and at the end."""
    tally = comparer.tally
    sessions = comparer.sessions
    digest = work.before.version.partition("-")[2]
    with Reader(work.data, TRAFFIC, start=part.state, stop=part.stop) as reader:
        for batch in reader.batches():
            first = batch.column("offset")[0].as_py()
            before = max(0, min(part.start - first, batch.num_rows))
            for piece, begun in ((batch.slice(0, before), False), (batch.slice(before), True)):
                if not piece.num_rows:
                    continue
                _take(piece, comparer, work, digest, decided=begun)
                if not begun:
                    sessions.unknown = sessions.confused = 0  # before the part begins nobody is missed
                if tally.full:
                    yield tally.take()
        tally.totals[report.MISSED] += reader.missed
    tally.totals[report.UNKNOWN] += sessions.unknown
    tally.totals[report.CONFUSED] += sessions.confused
    yield tally.take()


def _take(batch: pa.RecordBatch, comparer: Decider, work: Work, digest: str, *, decided: bool) -> None:
    """The rows of one batch. Columns as lists: that is much quicker than rows as mappings."""

    def column(name: str) -> list[Any]:
        values = batch.column(name)
        return [None] * len(values) if values.null_count == len(values) else values.to_pylist()

    events, ids = column("event"), column("id")
    run = next((id for id in ids if id is not None), None)
    if run is not None:
        comparer.sessions.running(run[: run.rfind("-")], batch.column("offset")[-1].as_py())
    wanted: Iterable[int] = range(batch.num_rows)
    if not decided:
        wanted = [at for at, event in enumerate(events) if event != Happening.MESSAGE.value]
        if not wanted:
            return
    times = batch.column("received_at").cast(pa.int64()).to_pylist()
    topics, payloads, qos, retain = column("topic"), column("payload"), column("qos"), column("retain")
    types, properties, kinds = column("content_type"), column("properties"), column("source_kind")
    clients, users, levels, contexts = column("client"), column("user"), column("level"), column("context")
    filters, options, attributes = column("filter"), column("options"), column("attributes")
    targets, versions = column("target"), column("policy_version")
    start = batch.column("offset")[0].as_py()
    totals, sessions = comparer.tally.totals, comparer.sessions
    for at in wanted:
        event, time = events[at], times[at] * _MICRO
        if event == Happening.MESSAGE.value:
            if not work.since <= time < work.until:
                continue
            totals[report.OTHER_RULES] += (versions[at] or "").partition("-")[2] != digest
            row = Row(
                at=time,
                id=ids[at],
                topic=topics[at],
                payload=payloads[at],
                qos=qos[at],
                retain=bool(retain[at]),
                content_type=types[at],
                properties=_message_pairs(properties[at]),
                kind=kinds[at] or "client",
                client=clients[at] or "",
                user=users[at],
                context=contexts[at],
                target=targets[at],
            )
            comparer.decide(row)
            continue
        sessions.at = time
        key = (users[at], clients[at] or "")
        match event:
            case Happening.LOST.value:
                if decided and work.since <= time < work.until:
                    totals[report.LOST] += orjson.loads(attributes[at])["rows"]
            case Happening.CONNECT.value:
                kind, pairs = kinds[at] or "client", _pairs(properties[at])
                sessions.connected(key, kind, levels[at], attributes[at], pairs, start + at)
            case Happening.DISCONNECT.value:
                sessions.disconnected(key)
            case Happening.SUBSCRIBE.value:
                pairs = _pairs(properties[at])
                subscription = RecordedSubscription(filter=filters[at], options=options[at] or 0, properties=pairs)
                sessions.subscribed(key, subscription)
            case Happening.UNSUBSCRIBE.value if filters[at] is None:
                sessions.ended(key)
            case Happening.UNSUBSCRIBE.value:
                sessions.unsubscribed(key, filters[at])
            case _:
                raise PipelineError(f"the journal speaks of `{event}`; use the Tidegate that wrote it")


def _pairs(entries: list[dict[str, str]] | None) -> Pairs:
    return tuple((pair["name"], pair["value"]) for pair in entries) if entries else ()


def _message_pairs(entries: list[dict[str, str]] | None) -> Pairs:
    """What the publisher said: the floor is told by the node, last."""
    if not entries:
        return ()
    pairs = _pairs(entries)
    return pairs[:-1] if pairs[-1][0] == FLOOR else pairs
