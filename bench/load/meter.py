"""When measuring starts and ends, and what both CPUs did in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.harness import procfs
from bench.load.job import LoadError, Outcome

FEWEST: Final = 150  # messages that a closed loop waits for
LONGER: Final = 20.0  # seconds that it waits for them at most: the machine may have been busy with others


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One reading of all clocks and counters."""

    at: float
    delivered: int
    server_cpu: float
    linked_cpu: float
    own_cpu: float
    machine_cpu: float
    steal: float


def mark(server: int, delivered: int, linked: int = 0, between: Sequence[int] = ()) -> Mark:
    try:
        server_cpu = procfs.family_seconds(server) + sum(map(procfs.family_seconds, between))
        linked_cpu = procfs.family_seconds(linked) if linked else 0.0
    except (FileNotFoundError, ProcessLookupError):
        raise LoadError("the server process is gone") from None
    machine_cpu, steal = procfs.machine_seconds()
    return Mark(
        at=time.perf_counter(),
        delivered=delivered,
        server_cpu=server_cpu + linked_cpu,
        linked_cpu=linked_cpu,
        own_cpu=time.process_time(),
        machine_cpu=machine_cpu,
        steal=steal,
    )


class Meter:
    """Warm-up by time and by count, then `duration` seconds that count, and at least `fewest` messages.

    `turn` is called once per turn of the loop and answers whether to go on offering load.
    """

    __slots__ = (
        "_between",
        "_deadline",
        "_duration",
        "_enough",
        "_fewest",
        "_linked",
        "_server",
        "_stopped",
        "begin",
        "end",
        "on_begin",
    )

    def __init__(
        self,
        *,
        server: int,
        warmup: float,
        duration: float,
        at_least: int,
        linked: int = 0,
        between: Sequence[int] = (),
        fewest: int = 0,
    ) -> None:
        self._server = server
        self._between = between
        self._fewest = fewest
        self._linked = linked
        self._duration = duration
        self._enough = at_least
        self._stopped = False
        self._deadline = time.perf_counter() + warmup
        self.begin: Mark | None = None
        self.end: Mark | None = None
        self.on_begin: Callable[[], None] | None = None

    def stop(self) -> None:
        """What has been measured so far is enough."""
        if self.begin is not None:
            self._deadline = 0.0
            self._stopped = True

    def left(self, now: float) -> float:
        """Seconds until the warm-up or the measurement ends; not positive while more messages are waited for."""
        return self._deadline - now

    def turn(self, now: float, delivered: int) -> bool:
        if now < self._deadline:
            return True
        if self.begin is None:
            if delivered < self._enough:
                return True
            self.begin = mark(self._server, delivered, self._linked, self._between)
            self._deadline = self.begin.at + self._duration
            if self.on_begin is not None:
                self.on_begin()
            return True
        if self.end is None:
            if delivered - self.begin.delivered < self._fewest and now < self._deadline + LONGER and not self._stopped:
                return True
            self.end = mark(self._server, delivered, self._linked, self._between)
        return False

    def outcome(self, **more: Any) -> Outcome:
        """What the marks say, with `more` of the fields that only the loop knows."""
        begin, end = self.begin, self.end
        if begin is None or end is None:
            raise LoadError("nothing was measured")
        seconds = end.at - begin.at
        server, own = end.server_cpu - begin.server_cpu, end.own_cpu - begin.own_cpu
        return Outcome(
            messages=end.delivered - begin.delivered,
            seconds=seconds,
            server_cpu=server,
            linked_cpu=end.linked_cpu - begin.linked_cpu,
            load_cpu=own,
            foreign=max(0.0, end.machine_cpu - begin.machine_cpu - server - own) / seconds,
            steal=(end.steal - begin.steal) / seconds,
            **more,
        )
