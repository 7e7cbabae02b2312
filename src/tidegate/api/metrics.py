"""The numbers of node and process, as Prometheus reads them.

Those of the node are made from what it tells when they are asked for; nothing is kept between. Each of its numbers has
a name and a meaning here; one that is new there and not yet here goes out under the name it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = exposition.CONTENT_TYPE_PLAIN_0_0_4
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    "connections/accepted": ("connections_accepted", "Connections accepted."),
    "connections/refused": ("connections_refused", "Connections refused."),
    "publish/messages/received": ("messages_received", "Messages published to this node."),
    "publish/messages/dropped": ("messages_dropped", "Messages dropped by full queues and slow consumers."),
    "publish/messages/expired": ("messages_expired", "Messages that expired before they were delivered."),
    "publish/messages/denied": ("messages_denied", "Deliveries and publishes denied by a rule."),
    "publish/messages/would be denied": (
        "messages_would_be_denied",
        "Deliveries and publishes that a rule would deny which is not enforced.",
    ),
    "messages/sent": ("packets_sent", "Packets sent."),
    "bytes/received": ("bytes_received", "Bytes received from clients."),
    "bytes/sent": ("bytes_sent", "Bytes sent to clients."),
    "cpu/seconds": ("cpu_seconds", "Processor time that the node has used."),
}
_GAUGES: Final[Mapping[str, tuple[str, str]]] = {
    "uptime": ("uptime_seconds", "Seconds since the node was started."),
    "clients/connected": ("clients_connected", "Clients that are connected."),
    "clients/disconnected": ("clients_disconnected", "Sessions of clients that are away."),
    "clients/total": ("sessions", "Sessions."),
    "subscriptions/count": ("subscriptions", "Subscriptions."),
    "retained messages/count": ("retained_messages", "Retained messages."),
    "plans/count": ("gate_plans", "Compiled plans of the gate."),
    "store/backlog": ("store_backlog", "What waits to be written."),
    "loop/longest delay": ("loop_longest_delay_seconds", "The longest delay of the event loop since the start."),
    "memory/maximum": ("memory_maximum_bytes", "The most memory that the node had."),
}
_COUNTING: Final = frozenset(
    {
        *("audit_rows", "audit_dropped", "ingest_rows", "ingest_lost", "http_restarts"),
        *("keys_made", "keys_forgotten", "keys_handed", "keys_refused"),
    }
)
"""Numbers in parts of the status that only grow."""
_NAMING: Final = frozenset({"http_pid", "http_port", "http_metrics_port"})
"""Numbers there that name something, and count nothing."""
_TOTALS: Final[Mapping[str, str]] = {
    "batches": "Batches that the pipeline has done.",
    "messages": "Messages that it has read from the journal.",
    "records": "Records that it has made of them.",
    "quarantined": "Records that fitted no mapping, or were broken.",
    "published": "Records that it has published.",
    "denied": "Records that it was not allowed to publish.",
}
_STRANGE: Final = re.compile(r"[^a-zA-Z0-9]+")


class Meters:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(namespace="tidegate_http", registry=self._registry)
        self._requests = Counter(
            "tidegate_http_requests", "Requests answered.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "tidegate_http_seconds", "Time until the answer.", ("route",), registry=self._registry, buckets=_SECONDS
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        if method not in ("GET", "POST", "PUT", "DELETE"):
            method = "other"  # anybody may make up methods
        self._requests.labels(method, route, str(status or "none")).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, status: Mapping[str, Any] | None, pipeline: Mapping[str, Any] | None = None) -> bytes:
        """Everything, with what the node said (None: nothing) and how its pipeline is doing, if it has one."""
        told = _Families([*_told(status), *(_flowing(pipeline) if pipeline is not None else ())])
        return exposition.generate_latest(told) + exposition.generate_latest(self._registry)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _told(status: Mapping[str, Any] | None) -> Iterator[Metric]:
    yield GaugeMetricFamily("tidegate_up", "Whether the node answers.", value=float(status is not None))
    if status is None:
        return
    version = str(status.get("rules") or "").partition("-")[0]
    yield GaugeMetricFamily(
        "tidegate_rules_version", "The number of the rules in force.", value=float(version if version.isdigit() else 0)
    )
    yield CounterMetricFamily("tidegate_bugs", "Failures that nobody foresaw.", value=status.get("bugs", 0))
    refusing = float(bool(status.get("refusing")))
    yield GaugeMetricFamily("tidegate_store_refusing", "Whether the store cannot be written to.", value=refusing)
    listeners = {one["url"]: one for one in status.get("listeners", ())}
    yield _labelled(
        GaugeMetricFamily, "listener_connections", "Connections by listener.", "url", listeners, "connections"
    )
    yield _labelled(
        CounterMetricFamily, "listener_turned_away", "Connections turned away.", "url", listeners, "turned_away"
    )
    yield from _links(status.get("links", ()))
    yield from _guards(status.get("guards", ()))
    for room in ("audit", "ingest", "keys", "registry", "http"):
        said = status.get(room) or {}
        yield from _numbers(room, said)
        if said and room != "http":
            trouble = float(bool(said.get("trouble")))
            yield GaugeMetricFamily(f"tidegate_{room}_trouble", "Whether `tidegate status` says why.", value=trouble)
    scopes = status.get("scopes", {})
    for name in sorted({name for numbers in scopes.values() for name in numbers}):
        yield _labelled(GaugeMetricFamily, f"scope_{name}", f"{name} by scope.", "scope", scopes, name)
    yield from _bounds(status.get("limits", {}))
    denials = CounterMetricFamily("tidegate_denials", "Denials by stage and rule.", labels=["stage", "rule"])
    for stage, rule, count in status.get("denials", ()):
        denials.add_metric([stage, rule], count)
    yield denials
    would = CounterMetricFamily(
        "tidegate_would_deny",
        "What rules would deny that are not enforced, by stage and rule.",
        labels=["stage", "rule"],
    )
    for stage, rule, count in status.get("would_deny", ()):
        would.add_metric([stage, rule], count)
    yield would
    yield from _latency(status.get("latency"))
    for name, value in status.get("numbers", {}).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name in _COUNTERS:
            said, meaning = _COUNTERS[name]
            yield CounterMetricFamily(f"tidegate_{said}", meaning, value=value)
        else:
            said, meaning = _GAUGES.get(name, (_STRANGE.sub("_", name), f"{name}, as the node counts it."))
            yield GaugeMetricFamily(f"tidegate_{said}", meaning, value=value)


def _links(links: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """The links to other nodes."""
    rows = {
        row["link"]: {
            **row,
            "connected": float(row["state"] == "connected"),
            "on_backup": float(row["on_backup"]),
            "degraded": float(row["degraded"] is not None),
        }
        for row in links
    }
    aged = {name: {"oldest": row["oldest"] or 0.0} for name, row in rows.items()}
    timed = {name: row for name, row in rows.items() if row["round_trip"] is not None}
    for name, meaning, member, those in (
        ("link_connected", "Whether the other node is connected.", "connected", rows),
        ("link_standby", "Connections that are open beside the one that carries.", "standby", rows),
        ("link_on_backup", "Whether another connection than the default carries.", "on_backup", rows),
        ("link_degraded", "Whether the connection that carries is not trusted.", "degraded", rows),
        ("link_queue", "Messages that the other node has not acknowledged.", "queue", rows),
        ("link_queue_bytes", "Bytes of these.", "bytes", rows),
        ("link_oldest_seconds", "How long the oldest of these has waited; 0: none waits.", "oldest", aged),
        (
            "link_round_trip_seconds",
            "Time until the other node answers, at the end that connects.",
            "round_trip",
            timed,
        ),
    ):
        yield _labelled(GaugeMetricFamily, name, meaning, "link", those, member)
    meaning = "1: the level of the connection that carries, which bounds the floor behind it, and its address."
    carried = GaugeMetricFamily("tidegate_link_floor", meaning, labels=["link", "level", "address"])
    for name, row in rows.items():
        if row["connected"] and row["level"] is not None:
            carried.add_metric([name, row["level"], row["address"] or ""], 1.0)
    yield carried
    meaning = "How often another connection has taken over."
    yield _labelled(CounterMetricFamily, "link_switches", meaning, "link", rows, "switches")


def _guards(guards: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """The scopes that guard a broker."""
    rows = {row["scope"]: {**row, "connected": float(row["state"] == "connected")} for row in guards}
    for name, meaning, member in (
        ("guard_connected", "Whether the guarded broker is there.", "connected"),
        ("guard_clients", "Clients with a connection to the guarded broker.", "clients"),
        ("guard_waiting", "Wills and other messages of the guard that the broker has not acknowledged.", "waiting"),
    ):
        yield _labelled(GaugeMetricFamily, name, meaning, "scope", rows, member)


def _bounds(limits: Mapping[str, Any]) -> Iterator[Metric]:
    """What the node holds of everything that has a bound."""
    bounds = {name: bound for name, bound in limits.items() if isinstance(bound, Mapping)}
    for family, name, meaning, member in (
        (GaugeMetricFamily, "limit_used", "What the node holds of what is limited.", "used"),
        (GaugeMetricFamily, "limit", "The most that the node may hold of it.", "limit"),
        (CounterMetricFamily, "limit_reached", "How often a user or the node had reached a limit.", "reached"),
    ):
        yield _labelled(family, name, meaning, "limit", bounds, member)


def _latency(latency: Mapping[str, Any] | None) -> Iterator[Metric]:
    if latency is None:
        return
    buckets, total = [], 0
    for seconds, count in zip((*map(str, latency["seconds"]), "+Inf"), latency["counts"], strict=True):
        total += count
        buckets.append((seconds, total))
    yield HistogramMetricFamily(
        "tidegate_delivery_seconds",
        "Time from reading a message until it is written to its receivers; a sample.",
        buckets=buckets,
        sum_value=latency["sum"],
    )


def _flowing(pipeline: Mapping[str, Any]) -> Iterator[Metric]:
    running = float(pipeline["state"] == "running")
    yield GaugeMetricFamily("tidegate_pipeline_up", "Whether the job of the pipeline runs.", value=running)
    if (lag := pipeline["lag"]) is not None:
        yield GaugeMetricFamily("tidegate_pipeline_lag_records", "Records that it has not done yet.", value=lag)
    totals = (pipeline["job"] or {}).get("totals") or {}
    for key, meaning in _TOTALS.items():
        if isinstance(value := totals.get(key), int | float):
            yield CounterMetricFamily(f"tidegate_pipeline_{key}", meaning, value=value)


def _labelled(
    family: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    meaning: str,
    label: str,
    rows: Mapping[Any, Mapping[str, Any]],
    member: str,
) -> Metric:
    """A member of each of the rows that have it, by the key of the row."""
    made = family(f"tidegate_{name}", meaning, labels=[label])
    for key, row in rows.items():
        if member in row:
            made.add_metric([str(key)], row[member])
    return made


def _numbers(room: str, said: Mapping[str, Any]) -> Iterator[Metric]:
    """The numbers in a part of the status, however deep they are."""
    for key, value in said.items():
        name = f"{room}_{_STRANGE.sub('_', str(key))}"
        if isinstance(value, Mapping):
            yield from _numbers(name, value)
        elif name in _NAMING:
            continue
        elif name in _COUNTING:
            yield CounterMetricFamily(f"tidegate_{name}", f"{key} of {room}, as the node tells it.", value=value)
        elif isinstance(value, int | float):
            yield GaugeMetricFamily(f"tidegate_{name}", f"{key} of {room}, as the node tells it.", value=float(value))
