"""What is written down: the three streams and a row of each.

A row holds the columns of formats.md but `shard` and `offset`, which the writer adds; the first column is the time.
Rows are plain tuples of plain values (`Kind.DENY.value`): they are made on the event loop, the garbage collector
forgets about them at once, and `zip` (on another thread) turns them into columns. Times are UTC wall clock in
seconds. There is no pyarrow here, so that importing it is free.

`audit`: one row per thing that somebody may have to account for. `count` is how many it stands for.
`publisher` is whom the message came from, as on the command line (`user:mary/client:tr1`), several with commas between
them; segments of before it was there have none.

`ingest`: one row per message for the pipeline. `properties` are the MQTT user properties, in order. Of a registered
source `source` is its NodeId, `source_kind` its NodeType and `mode` its CommunicationMode; `registered` is false of
whoever is not one, and nothing is said of it. What came over HTTP has a topic only if it is published under it.
A message has one row, made where it entered the node, after monitors and under its topic key if its topic is protected;
that key is in the row's context, wrapped for the node. `id` tells rows apart, but for a QoS 2 message that was sent
again because the node had crashed before its PUBREC: that may have two rows with the same id.

`traffic`: what a replay needs to know who would have received what. `event` says what the other columns mean:
- `message`: as in `ingest`, when the message arrived, as the gate's ingress saw it. The payload is absent where
  payloads are not recorded. With `target` it is not an arrival but a delivery decided later, to that client alone: a
  retained message after a subscription, a queued one after a resume. Then `id` is that of the message as it arrived.
- `connect`: `client` and `user` have a connection with `attributes` (JSON of `s`: roles, groups, level, address,
  scope, listener and what the directory adds) and `level`; `properties` are those of CONNECT (with its demand). Once
  more with other attributes means that they have changed. It says nothing about subscriptions.
- `subscribe`: `client` has `filter`, as written (`$share/…` included), with `options` (the byte of SUBSCRIBE: QoS, No
  Local, Retain As Published, Retain Handling) and `properties` (with `where` and `require`). Replaces the same filter.
- `unsubscribe`: `client` has `filter` no more; none of its filters if `filter` is absent, which is how a session ends.
- `disconnect`: the connection ended. Subscriptions stay until `unsubscribe` says otherwise.
- `lost`: at this point rows are missing because the disk was too slow; `attributes` is `{"rows": n}`.
In every row `policy_version` is the version in force, `context` the opaque bytes of the publisher's context.
A replay that starts in the middle needs the state there. So each segment should begin with a `connect` and its
`subscribe` rows for every session; the writer says when a segment begins (`rolled`). They may repeat what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

Row: TypeAlias = tuple[Any, ...]
Pairs: TypeAlias = Sequence[tuple[str, str]]

ROW: Final = 512  # bytes that a waiting row takes in memory, besides its long texts


class Kind(StrEnum):
    DENY = "deny"
    SHADOW = "shadow"  # it would be denied, if the rule or the scope were enforced
    ALLOWED = "allowed"
    CHANGE = "change"
    CONNECT = "connect"
    DISCONNECT = "disconnect"
    ERROR = "error"


class Happening(StrEnum):
    MESSAGE = "message"
    CONNECT = "connect"
    DISCONNECT = "disconnect"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    LOST = "lost"


class AuditRow(NamedTuple):
    at: float
    node: str | None = None
    kind: str = Kind.DENY.value
    link: str | None = None
    user: str | None = None
    client: str | None = None
    action: str | None = None
    topic: str | None = None
    stage: str | None = None
    rule: str | None = None
    policy_version: str | None = None
    count: int = 1  # type: ignore[assignment]  # the column's name; nobody counts in a row
    detail: str | None = None
    publisher: str | None = None


def audit_row(*columns: Any, **named: Any) -> Row:
    """A row of `audit` as a plain tuple."""
    return tuple(AuditRow(*columns, **named))


class IngestRow(NamedTuple):
    received_at: float
    id: str | None = None
    topic: str | None = None
    payload: bytes | None = None
    qos: int | None = None
    retain: bool | None = None
    content_type: str | None = None
    properties: Pairs | None = None
    source: str | None = None
    source_kind: str | None = None
    registered: bool | None = None
    mode: str | None = None
    client: str | None = None
    user: str | None = None
    level: str | None = None
    floor: str | None = None
    context: bytes | None = None
    policy_version: str | None = None


def ingest_row(*columns: Any, **named: Any) -> Row:
    """A row of `ingest` as a plain tuple."""
    return tuple(IngestRow(*columns, **named))


def traffic_row(
    *message: Any,
    event: str = Happening.MESSAGE.value,
    filter: str | None = None,
    options: int | None = None,
    attributes: str | None = None,
    target: str | None = None,
    **columns: Any,
) -> Row:
    """A row of `traffic`: the columns of `ingest` and five more."""
    return (*ingest_row(*message, **columns), event, filter, options, attributes, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    name: str
    row: Callable[..., Row]  # makes a row
    columns: tuple[str, ...]  # of a row; the first is the time
    weigh: Callable[[Row], int]  # bytes that a row takes while it waits; hot
    lost: Callable[[float, int], Row] | None  # the row that stands for so many lost ones; None: nothing may be lost

    @property
    def time(self) -> str:
        return self.columns[0]


def _audit_weight(row: Row) -> int:
    return ROW + sum(len(row[column]) for column in (7, 12, 13) if row[column])  # topic, detail, publisher


def _message_weight(row: Row) -> int:
    topic, payload = row[2], row[3]
    weight = ROW + (len(topic) if topic else 0) + (len(payload) if payload else 0)
    for name, value in row[7] or ():
        weight += len(name) + len(value)
    return weight


def _traffic_weight(row: Row) -> int:
    filter, attributes = row[19], row[21]
    return _message_weight(row) + (len(filter) if filter else 0) + (len(attributes) if attributes else 0)


def _audit_lost(at: float, rows: int) -> Row:
    detail = f"{rows} audit rows were lost because the disk was too slow or full"
    return audit_row(at, kind=Kind.ERROR.value, action="journal", count=rows, detail=detail)


def _traffic_lost(at: float, rows: int) -> Row:
    return traffic_row(at, event=Happening.LOST.value, attributes=f'{{"rows": {rows}}}')


AUDIT: Final = Stream(name="audit", row=audit_row, columns=AuditRow._fields, weigh=_audit_weight, lost=_audit_lost)
TRAFFIC: Final = Stream(
    name="traffic",
    row=traffic_row,
    columns=(*IngestRow._fields, "event", "filter", "options", "attributes", "target"),
    weigh=_traffic_weight,
    lost=_traffic_lost,
)
INGEST: Final = Stream(name="ingest", row=ingest_row, columns=IngestRow._fields, weigh=_message_weight, lost=None)
STREAMS: Final = {stream.name: stream for stream in (AUDIT, TRAFFIC, INGEST)}
