"""`$SYS/` statistics, under the names other brokers use, and the same numbers for the control socket."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from typing import Any

from tidegate import __version__
from tidegate.policy import Demand
from tidegate.scope import Scope
from tidegate.session import Link, Site, Subject


def numbers(site: Site, scopes: Iterable[Scope], started: float, longest: float) -> dict[str, Any]:
    """What the node counts. Everything is since its start."""
    counters = site.counters
    scopes = list(scopes)
    sessions = sum(len(scope.sessions) for scope in scopes)
    connected = sum(scope.connected for scope in scopes)
    return {
        "version": f"tidegate {__version__}",
        "uptime": round(site.now - started),
        "clients/connected": connected,
        "clients/disconnected": sessions - connected,
        "clients/total": sessions,
        "connections/accepted": counters.connections,
        "connections/refused": counters.refused,
        "publish/messages/received": counters.publishes_received,
        "publish/messages/dropped": counters.dropped,
        "publish/messages/expired": counters.expired,
        "publish/messages/denied": counters.denied,
        "messages/sent": counters.frames_sent,
        "bytes/received": counters.bytes_received,
        "bytes/sent": counters.bytes_sent,
        "subscriptions/count": sum(len(scope.subscriptions) + len(scope.shares) for scope in scopes),
        "retained messages/count": sum(len(scope.retained) for scope in scopes),
        "plans/count": sum(len(scope.gate.cache) for scope in scopes),
        "store/backlog": site.store.backlog,
        "loop/longest delay": round(longest, 4),
        "memory/maximum": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


class Publisher:
    """Publishes them, retained, through the gate as `service:sys`; only what has changed."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._last: dict[str, str] = {}

    def publish(self, values: dict[str, Any]) -> None:
        link = self._link()
        for name, value in values.items():
            text = f"{value} seconds" if name == "uptime" else str(value)
            if self._last.get(name) != text:
                self._last[name] = text
                self.scope.path.send(link, f"$SYS/broker/{name}", text.encode(), retain=True)

    def _link(self) -> Link:
        """A link inside the node, which has the highest level that there is and demands nothing of others."""
        scope, rules = self.scope, self.scope.gate.rules
        subject = Subject(
            kind="service",
            client="sys",
            user=None,
            scope=scope.name,
            node=scope.node,
            domain=rules.domain,
            level=rules.levels.highest,
        )
        return Link(subject, True, "in", Demand())  # what is implied is for clients
