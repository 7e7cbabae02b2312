"""The numbers of node and process, as Prometheus reads them.

Those of the node are made from what it tells when they are asked for; nothing is kept between. Each of its numbers has
a name and a meaning here; one that is new there and not yet here goes out under the name it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
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
    "messages/sent": ("packets_sent", "Packets sent."),
    "bytes/received": ("bytes_received", "Bytes received from clients."),
    "bytes/sent": ("bytes_sent", "Bytes sent to clients."),
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
    """What this process counts, and what it tells of the node."""

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
        once = CollectorRegistry()
        once.register(_Told(status))
        if pipeline is not None:
            once.register(_Flowing(pipeline))
        return exposition.generate_latest(once) + exposition.generate_latest(self._registry)


class _Told(Collector):
    """The status of a node."""

    def __init__(self, status: Mapping[str, Any] | None) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status
        yield GaugeMetricFamily("tidegate_up", "Whether the node answers.", value=float(status is not None))
        if status is None:
            return
        yield _labelled("tidegate_rules", "The version of the rules in force.", "version", [(status.get("rules"), 1)])
        yield CounterMetricFamily("tidegate_bugs", "Failures that nobody foresaw.", value=status.get("bugs", 0))
        refusing = float(bool(status.get("refusing")))
        yield GaugeMetricFamily("tidegate_store_refusing", "Whether the store cannot be written to.", value=refusing)
        listeners = status.get("listeners", ())
        connections = [(one["url"], one["connections"]) for one in listeners]
        yield _labelled("tidegate_listener_connections", "Connections by listener.", "url", connections)
        turned = CounterMetricFamily("tidegate_listener_turned_away", "Connections turned away.", labels=["url"])
        for one in listeners:
            turned.add_metric([one["url"]], one["turned_away"])
        yield turned
        yield from _numbers("audit", status.get("audit", {}))
        yield from _numbers("ingest", status.get("ingest") or {})
        yield from _numbers("keys", status.get("keys") or {})
        for room in ("audit", "ingest", "keys", "registry"):
            if said := status.get(room):
                trouble = float(bool(said.get("trouble")))
                yield GaugeMetricFamily(
                    f"tidegate_{room}_trouble", "Whether `tidegate status` says why.", value=trouble
                )
        yield from _numbers("registry", status.get("registry") or {})
        yield from _numbers("http", status.get("http") or {})
        yield from _by_scope(status.get("scopes", {}))
        for name, value in status.get("numbers", {}).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if name in _COUNTERS:
                said, meaning = _COUNTERS[name]
                yield CounterMetricFamily(f"tidegate_{said}", meaning, value=value)
            else:
                said, meaning = _GAUGES.get(name, (_STRANGE.sub("_", name), f"{name}, as the node counts it."))
                yield GaugeMetricFamily(f"tidegate_{said}", meaning, value=value)


class _Flowing(Collector):
    """The pipeline of a node."""

    def __init__(self, pipeline: Mapping[str, Any]) -> None:
        self._pipeline = pipeline

    def collect(self) -> Iterator[Metric]:
        running = float(self._pipeline["state"] == "running")
        yield GaugeMetricFamily("tidegate_pipeline_up", "Whether the job of the pipeline runs.", value=running)
        if (lag := self._pipeline["lag"]) is not None:
            yield GaugeMetricFamily("tidegate_pipeline_lag_records", "Records that it has not done yet.", value=lag)
        totals = (self._pipeline["job"] or {}).get("totals") or {}
        for key, meaning in _TOTALS.items():
            if isinstance(value := totals.get(key), int | float):
                yield CounterMetricFamily(f"tidegate_pipeline_{key}", meaning, value=value)


def _by_scope(scopes: Mapping[str, Mapping[str, float]]) -> Iterator[Metric]:
    names = sorted({name for numbers in scopes.values() for name in numbers})
    for name in names:
        values = [(scope, numbers[name]) for scope, numbers in scopes.items() if name in numbers]
        yield _labelled(f"tidegate_scope_{name}", f"{name} by scope.", "scope", values)


def _labelled(name: str, meaning: str, label: str, values: Iterable[tuple[Any, float]]) -> GaugeMetricFamily:
    found = GaugeMetricFamily(name, meaning, labels=[label])
    for said, value in values:
        found.add_metric([str(said)], value)
    return found


def _numbers(room: str, said: Mapping[str, Any]) -> Iterator[Metric]:
    """The numbers in a part of the status, however deep they are."""
    for key, value in said.items():
        name = f"{room}_{_STRANGE.sub('_', str(key))}"
        if isinstance(value, Mapping):
            yield from _numbers(name, value)
        elif isinstance(value, int | float):
            yield GaugeMetricFamily(f"tidegate_{name}", f"{key} of {room}, as the node tells it.", value=float(value))
