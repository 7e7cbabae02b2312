"""The numbers of a node for people: what it did in the last hour, and what it does now.

The node keeps the hour (`node.number_history`). It is asked at most every other second, whoever looks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from tidegate.api.requests import channel

FRESH: Final = 1.5  # seconds
RATES: Final = ("received", "sent", "denied", "dropped", "cpu")


@dataclass(frozen=True, slots=True)
class Numbers:
    rows: Sequence[Mapping[str, Any]]
    status: Mapping[str, Any]
    """What `metrics` says."""

    @property
    def at(self) -> float:
        return float(self.rows[-1]["at"])

    def rates(self) -> dict[str, float]:
        """By second, over the last moment."""
        older = next((row for row in reversed(self.rows) if row["at"] <= self.at - 4.0), self.rows[0])
        return _rates(older, self.rows[-1]) | {"connected": float(self.rows[-1]["connected"])}

    def hour(self) -> list[tuple[float, dict[str, float]]]:
        """By second, at each time of the last hour."""
        return [(row["at"], _rates(before, row)) for before, row in zip(self.rows, self.rows[1:], strict=False)]

    def denied(self) -> dict[str, int]:
        """By step, in the hour; the most first."""
        first, last = self.rows[0]["denied"], self.rows[-1]["denied"]
        found = {step: count - first.get(step, 0) for step, count in last.items()}
        return dict(sorted(((step, count) for step, count in found.items() if count), key=lambda each: -each[1]))

    def changes(self, before: Numbers | None) -> Iterator[str]:
        """The names of what is new since then."""
        yield "now"
        if before is None or before is self:
            return
        old, new = before.rows[-1], self.rows[-1]
        if old["denied"] != new["denied"]:
            yield "denials"
        accepted = [each.status["numbers"]["connections/accepted"] for each in (before, self)]
        if old["connected"] != new["connected"] or accepted[0] != accepted[1]:
            yield "clients"
        if before.status["rules"] != self.status["rules"]:
            yield "rules"


def _rates(before: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, float]:
    seconds = max(row["at"] - before["at"], 1e-3)
    found = {}
    for name in RATES:
        older, newer = before[name], row[name]
        if name == "denied":
            older, newer = sum(older.values()), sum(newer.values())
        found[name] = max(0.0, (newer - older) / seconds)
    return found


class _Shared:
    """The last numbers, for everybody of this process."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.until = 0.0
        self.numbers: Numbers | None = None


async def numbers_of(request: Request) -> Numbers:
    state = request.app.state
    shared: _Shared | None = getattr(state, "console_numbers", None)
    if shared is None:
        shared = state.console_numbers = _Shared()
    async with shared.lock:
        if shared.numbers is None or time.monotonic() >= shared.until:
            status = await channel(request).ask("metrics")
            rows = (await channel(request).ask("history"))["rows"]
            shared.numbers = Numbers(rows, status)
            shared.until = time.monotonic() + FRESH
        return shared.numbers
