"""`$SYS/` statistics, under the names other brokers use, and the same numbers for the control socket."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tidegate import __version__
from tidegate.compiled import running
from tidegate.config import Config, shadow
from tidegate.net.control_socket import Command
from tidegate.node.number_history import NumberHistory
from tidegate.policy import Demand
from tidegate.scope import Scope
from tidegate.scope.subjects import service_subject
from tidegate.session import Link, Site
from tidegate.session.usage import NAMES, Accounts

if TYPE_CHECKING:
    from tidegate.node.node import Node

SLICE = 2000  # users looked at before somebody else's turn: less than a millisecond


def numbers(site: Site, scopes: Iterable[Scope], started: float, longest: float) -> dict[str, Any]:
    """What the node counts. Everything is since its start."""
    counters = site.counters
    spent = resource.getrusage(resource.RUSAGE_SELF)
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
        "publish/messages/would be denied": counters.shadowed,
        "messages/sent": counters.frames_sent,
        "bytes/received": counters.bytes_received,
        "bytes/sent": counters.bytes_sent,
        "subscriptions/count": sum(len(scope.subscriptions) + len(scope.shares) for scope in scopes),
        "retained messages/count": sum(len(scope.retained) for scope in scopes),
        "plans/count": sum(len(scope.gate.cache) for scope in scopes),
        "store/backlog": site.store.backlog,
        "loop/longest delay": round(longest, 4),
        "memory/maximum": spent.ru_maxrss * 1024,
        "cpu/seconds": round(spent.ru_utime + spent.ru_stime, 3),
    }


def bounds(site: Site) -> dict[str, Any]:
    """What the node holds of everything that has a bound, for `tidegate status`."""
    limits = site.limits
    state = site.accounts.state(limits.user, limits.node)
    return {**state, "session_expiry": limits.session_expiry, "unreleased_time": limits.unreleased_time}


async def largest(accounts: Accounts) -> dict[str, dict[str, Any]]:
    """Of everything that has a bound, the user who holds most. There may be many users: in pieces."""
    found: dict[str, dict[str, Any]] = {name: {"user": None, "used": 0} for name in NAMES}
    for number, usage in enumerate(list(accounts.users.values()), 1):
        for name in NAMES:
            if (used := getattr(usage, name)) > found[name]["used"]:
                found[name] = {"user": usage.name, "used": used}
        if number % SLICE == 0:
            await asyncio.sleep(0)
    return found


def not_enforced(config: Config) -> dict[str, Any]:
    """What is decided and not obeyed, for `tidegate status`: empty if everything is enforced."""
    scopes, rules = shadow.unenforced(config), shadow.watched(config)
    return {"SHADOW MODE": f"{', '.join(scopes)}: everything passes"} if scopes else {"rules": rules} if rules else {}


class StatusCommands:
    """Control commands that tell how the node is doing."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._history = NumberHistory(node)

    def commands(self) -> dict[str, Command]:
        return {"status": self.status, "metrics": self.metrics, "history": self._history.rows}

    async def status(self, users: bool = False) -> dict[str, Any]:
        """`status`; with `users`, also who holds most of what has a bound."""
        status = {
            "rooms": running(),
            **self._node.status(),
            "not_enforced": not_enforced(self._node.config),
        }
        if users is True:
            for name, most in (await largest(self._node.site.accounts)).items():
                status["limits"][name]["largest"] = most
        return status

    async def metrics(self) -> dict[str, Any]:
        """`metrics`, for Prometheus."""
        node = self._node
        await node.audit.counted()  # of what plans have decided for many messages at once
        told = metrics(node.status(), node.scopes, node.turns.latency.state(), node.audit.log.by_rule)
        would = [(*key, count) for key, count in node.audit.log.shadowed.items()]
        return {**told, "would_deny": would, "not_enforced": not_enforced(node.config)}


def metrics(
    status: dict[str, Any],
    scopes: Mapping[str, Scope],
    latency: dict[str, Any],
    denials: Mapping[tuple[str, str], int],
) -> dict[str, Any]:
    """The control command `metrics`: `status`, the numbers of each scope, how long messages are in the node, and who
    denied how much."""
    by_scope = {
        name: {
            "sessions": len(scope.sessions),
            "connected": scope.connected,
            "subscriptions": len(scope.subscriptions) + len(scope.shares),
            "retained": len(scope.retained),
            "plans": len(scope.gate.cache),
            "enforced": int(scope.gate.rules.enforcing),
        }
        for name, scope in scopes.items()
    }
    by_rule = [(stage, rule, count) for (stage, rule), count in denials.items()]
    return {**status, "scopes": by_scope, "latency": latency, "denials": by_rule}


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
        return Link(service_subject(self.scope, "sys"), True, "in", Demand())  # what is implied is for clients
