"""A monitor of a running node, tried with a trace: what it does with each event, without touching its states.

The trace is one that somebody sends (`simulate.monitor_trace` says how it is written), or the last messages of the
journal `traffic`. Those come without payloads: what was in a message is for its readers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import orjson
from annotated_types import MaxLen

from tidegate.audit.auditor import Auditor
from tidegate.config import Config, Record
from tidegate.errors import ConfigError, Problem
from tidegate.monitor import Attachment, Event
from tidegate.monitor.python import PythonMonitor
from tidegate.net.control_command import ControlCommand, Flag, Text, command, typed
from tidegate.net.control_socket import Command
from tidegate.simulate.monitor_trace import Row, play, read
from tidegate.store.journal import TRAFFIC, Reader
from tidegate.store.journal.rows import Happening
from tidegate.store.journal.selection import Selection

LONGEST: Final = 256 << 10
ROWS: Final = 500
"""Steps of one trace."""
RECORDED: Final = 200
"""Messages of the journal."""
WINDOW: Final = 50_000
"""Rows of it that are looked at."""
SHOWN: Final = 200  # characters of a payload


@command("monitor_try")
class TryMonitor(ControlCommand):
    """With lines of a trace, or with what was recorded; `client`: of that publisher only."""

    id: Text
    trace: Annotated[str, MaxLen(LONGEST)] = ""
    recorded: Flag = False
    client: Text | None = None


class TryingNode(Protocol):
    """What is needed of a node."""

    config: Config
    audit: Auditor

    async def run_query(self, do: Any) -> Any:
        """On the thread for those who only look."""


class MonitorTraces:
    """Tries the monitors that are in force."""

    def __init__(self, node: TryingNode) -> None:
        self._node = node

    def commands(self) -> dict[str, Command]:
        return dict((typed(TryMonitor, self.tried),))

    async def tried(self, command: TryMonitor) -> dict[str, Any]:
        """Each step, with the state after it, and whether there were more."""
        config = self._node.config
        found = config.built.rules.monitors.by_id.get(command.id)
        if found is None:
            raise Problem(f"there is no monitor {command.id[:200]}; list them", problem="unknown")
        if isinstance(found.monitor, PythonMonitor):
            text = "what an administrator wrote in Python is not run here: try it with `tidegate monitor try`"
            raise Problem(text, problem="invalid")
        trace = command.trace
        if command.recorded:
            trace = await self._recorded(config, found, command.client)
        try:
            told: dict[str, Any] = await self._node.run_query(partial(_played, config, found, trace))
        except ConfigError as error:
            raise Problem(str(error), problem="invalid") from None
        return {**told, "trace": trace}

    async def _recorded(self, config: Config, found: Attachment, client: str | None) -> str:
        if config.record is not Record.TRAFFIC or config.node.data is None:
            raise Problem("nothing is recorded here: `record: traffic` would", problem="unavailable")
        await self._node.audit.written()
        lines = await self._node.run_query(partial(_lines, config.node.data, found, client))
        return "\n".join(lines)


def _lines(data: Path, found: Attachment, client: str | None) -> list[str]:
    """The last messages that the monitor listens to, as lines of a trace; blocks."""
    where: dict[str, object] = {"event": Happening.MESSAGE.value}
    if client is not None:
        where["client"] = client
    with Reader(data, TRAFFIC) as reader:
        first, stop = reader.bounds()
    with Reader(data, TRAFFIC, start=max(first, stop - WINDOW), stop=stop, select=Selection(where=where)) as reader:
        rows = [row for row in reader.rows() if row["topic"] and found.monitor.hears(row["topic"])][-RECORDED:]
    began = _seconds(rows[0]) if rows else 0.0
    return [
        orjson.dumps({"topic": row["topic"], "at": round(max(0.0, _seconds(row) - began), 3)}).decode() for row in rows
    ]


def _seconds(row: dict[str, Any]) -> float:
    at = row["received_at"]
    return float(at.timestamp() if hasattr(at, "timestamp") else at)


def _played(config: Config, found: Attachment, trace: str) -> dict[str, Any]:
    lines = read(trace.splitlines(), config.built.rules, file="trace", wall=time.time())
    rows = list(islice(_rows(found, lines), ROWS + 1))
    graph = found.monitor.graph()
    return {"id": found.id, "start": graph.start, "rows": rows[:ROWS], "more": len(rows) > ROWS}


def _rows(found: Attachment, lines: Iterator[Any]) -> Iterator[dict[str, Any]]:
    for row in play(found.monitor, lines):
        yield {
            "at": row.at,
            "event": None if row.event.is_tick else _event(row.event),
            "state": row.state,
            "outputs": _outputs(row),
            "failure": row.failure,
        }


def _outputs(row: Row) -> list[dict[str, Any] | None]:
    """None: the event itself."""
    return [None if each is row.event else _event(each) for each in row.outputs]


def _event(event: Event) -> dict[str, Any]:
    return {"topic": event.topic, "payload": event.payload.decode(errors="replace")[:SHOWN], "qos": event.qos}
