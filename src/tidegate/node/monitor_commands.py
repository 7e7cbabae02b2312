"""What `tidegate monitor` asks of a running node: which monitors there are, their states, and back to the start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from tidegate.config.problems import suggestion
from tidegate.errors import ConfigError
from tidegate.monitor import Attachment, Instance
from tidegate.net.control_socket import Command
from tidegate.scope import Scope

ROWS: Final = 10_000  # states told in one answer


class MonitorCommands:
    """The monitors of a node, for its control socket. `changed` writes down what was done to them, `safe` waits
    until everything noted so far is on the disk.
    """

    def __init__(
        self, scopes: Mapping[str, Scope], changed: Callable[[str], None], safe: Callable[[], Awaitable[None]]
    ) -> None:
        self._scopes = scopes
        self._changed = changed
        self._safe = safe

    def _deciding(self) -> list[tuple[str, Scope]]:
        """Each scope, or in shadow mode its shadow: there the monitors move."""
        return [(name, scope.shadow or scope) for name, scope in self._scopes.items()]

    def commands(self) -> dict[str, Command]:
        return {
            "monitor_list": self.list,
            "monitor_state": self.state,
            "monitor_drawing": self.drawing,
            "monitor_reset": self.reset,
        }

    def list(self) -> dict[str, Any]:
        """Each monitor with what it has seen since the node was started."""
        found = []
        for name, scope in self._deciding():
            states = scope.path.monitoring.states
            held: dict[str, int] = {}
            for id, _ in states.instances:
                held[id] = held.get(id, 0) + 1
            for one in scope.gate.rules.monitors:
                if one.place != name:
                    continue
                tally = states.tallies[one.id]
                found.append(
                    {
                        "monitor": one.id,
                        "scope": name,
                        "acts on": _place(one),
                        "each": one.each.value,
                        "states": held.get(one.id, 0),
                        "seen": tally.seen,
                        "suppressed": tally.suppressed,
                        "made": tally.added,
                        "failed": tally.failed,
                        "seconds": round(tally.spent, 6),
                    }
                )
        return {"monitors": found}

    def state(self, id: str, key: str | None = None) -> dict[str, Any]:
        """The states of one monitor, or the one of `key`."""
        rows = [{"of": one.key, "state": one.state} for _, one in self._found(id, key)[: ROWS + 1]]
        return {"monitor": id, "states": rows[:ROWS], "more": len(rows) > ROWS}

    def drawing(self, id: str) -> dict[str, Any]:
        """The automaton of a monitor as a picture."""
        from tidegate.flow.drawing.automaton import svg

        self._found(id, None)
        found = next(one for _, scope in self._deciding() for one in scope.gate.rules.monitors if one.id == id)
        return {"svg": svg(id, found.monitor.graph())}

    async def reset(self, id: str, key: str | None = None) -> dict[str, Any]:
        """Back to the start, and safe there."""
        count = 0
        for _, scope in self._deciding():
            scope.site.open()
        for scope, instance in self._found(id, key):
            scope.path.monitoring.states.reset(instance)
            count += 1
        self._changed(f"monitor {id}" if key is None else f"monitor {id} of {key}")
        await self._safe()
        return {"monitor": id, "reset": count}

    def _found(self, id: str, key: str | None) -> Sequence[tuple[Scope, Instance]]:
        known = [one.id for _, scope in self._deciding() for one in scope.gate.rules.monitors]
        if id not in known:
            meant = suggestion(id, known)
            remedy = f"did you mean {meant}?" if meant else f"there are {', '.join(known) or 'none'}"
            raise ConfigError(f"there is no monitor {id}; {remedy}")
        found = [
            (scope, instance)
            for _, scope in self._deciding()
            for (name, whose), instance in scope.path.monitoring.states.instances.items()
            if name == id and key in (None, whose)
        ]
        if key is not None and not found:
            raise ConfigError(f"monitor {id} has no state of {key!r}; `tidegate monitor state {id}` lists them")
        return found


def _place(attachment: Attachment) -> str:
    if attachment.link is not None:
        return "->".join(attachment.link)
    assert attachment.direction is not None
    return f"{attachment.scope}: {attachment.direction.value}{' (default)' if attachment.default else ''}"
