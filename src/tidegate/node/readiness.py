"""Whether a node does its work: what `/health/ready` answers, and what the log says, are one thing.

The node looks at itself every second, when its HTTP process ends, and whenever that asks for `/health/ready`. The log
says `ready` when that has become true, and `not ready` when it has ceased to be. With `http` in the configuration a
node is ready once its HTTP process answers, which asks before it accepts its first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

if TYPE_CHECKING:
    from tidegate.node.node import Node

INTERVAL: Final = 1.0  # seconds

log = structlog.get_logger("tidegate.node")


def readiness(status: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a node with this status is ready: the checks, and why those failed that did."""
    registry = status.get("registry") or {}
    checks = {
        "node": True,
        "rules": bool(status.get("rules")),
        "store": not status.get("refusing"),
        "registry": bool(registry) and not registry.get("trouble"),
    }
    ready = all(checks.values())
    # with these in trouble messages still pass as they should
    checks["journals"] = not (status.get("audit") or {}).get("trouble")
    checks["keys"] = not (status.get("keys") or {}).get("trouble")
    reasons = []
    if not checks["rules"]:
        reasons.append("no rules are in force yet")
    if not checks["store"]:
        reasons.append("the node cannot write to its store, and acknowledges nothing meanwhile")
    if registry and not registry.get("reachable"):
        reasons.append("what is administered cannot be read or changed: its database is away")
    elif not checks["registry"]:
        reasons.append("what is administered cannot be put in force here; `tidegate status` on the node says why")
    if not checks["journals"]:
        reasons.append("the journals cannot be written: what is audited waits, and data of sources is refused")
    if not checks["keys"]:
        reasons.append("topic keys cannot be shared with other nodes at the moment; this one goes on with its own")
    return {"ready": ready, "checks": checks, "reasons": reasons}


class Readiness:
    """What one node says of itself."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._said: bool | None = None
        self._listening = False

    def asked(self) -> dict[str, Any]:
        """For the HTTP process, which is there if it asks."""
        if self._node.http is not None:
            self._node.http.serving = True
        return self.look()

    def look(self) -> dict[str, Any]:
        """The state of this moment. The log is told if it is another one than before."""
        state = readiness(self._status())
        starting = self._said is None and state["ready"]
        http = self._node.http
        if http is not None and not http.serving:
            state = {**state, "ready": False, "reasons": [*state["reasons"], "the HTTP process does not answer"]}
        ready = bool(state["ready"])
        if self._listening and not self._node.stopping and ready is not self._said:
            self._said = ready
            if ready or not starting:  # that its HTTP process starts after the node is no news
                self._tell(ready, state["reasons"])
        return state

    async def watch(self) -> None:
        """From now on: everything listens."""
        self._listening = True
        while True:
            self.look()
            await asyncio.sleep(INTERVAL)

    def _status(self) -> dict[str, Any]:
        node = self._node
        administration = node.administration
        return {
            "rules": node.realm.rules.version,
            "refusing": node.site.store.refusing,
            "audit": node.audit.state(),
            "keys": node.keys.state(),
            "registry": {"reachable": True} if administration is None else administration.condition(),
        }

    def _tell(self, ready: bool, reasons: list[str]) -> None:
        name = self._node.config.node.name
        if not ready:
            log.warning("not ready", node=name, reasons=reasons)
            return
        mqtt = next((one for one in self._node.listeners.bound.values() if one.endpoint.path is None), None)
        if mqtt is not None and mqtt.endpoint.tls is None:
            log.info("ready", try_next=f"tidegate sub -v -p {mqtt.port} -t '#'", node=name)
        else:
            log.info("ready", node=name)
