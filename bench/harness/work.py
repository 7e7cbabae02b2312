"""A work: a load, the setting of the servers, what is compared, and its goal. And choosing some by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from bench.harness.servers import BenchError, Setting
from bench.load.job import Job, Shape


class Figure(Enum):
    """What is compared."""

    FLOW = "messages per second, and CPU of the server per message"
    LATENCY = "99th percentile of latency"
    MEMORY = "resident memory per connection"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`ratio`: at least this many times as good as the reference. `kib`: at most this much memory."""

    ratio: float | None = None
    kib: float | None = None

    def __str__(self) -> str:
        return f"≥ {self.ratio:.1f}" if self.ratio is not None else f"≤ {self.kib:.0f} KiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One line of the table."""

    name: str
    title: str
    job: Job
    figure: Figure = Figure.FLOW
    goal: Goal | None = None
    setting: Setting = field(default_factory=Setting)
    half: bool = False
    """The rate is half of the reference's maximum in the same run."""
    grows: bool = False
    """The cost is also compared with that of `BASE`: it should grow no faster than the reference's."""

    @property
    def key(self) -> str:
        return f"{self.name}/{self.job.window}" if self.job.shape is Shape.WINDOW else self.name

    @property
    def window(self) -> str:
        return f"{self.job.window}" if self.job.shape is Shape.WINDOW else "-"


def chosen(wanted: Iterable[str], known: Sequence[str], matches: Callable[[str, str], bool] = str.__eq__) -> list[str]:
    """Of the names `known`, in their order, those that one of `wanted` matches; all of them if nothing is wanted."""
    names = list(wanted)
    for text in names:
        if not any(matches(name, text) for name in known):
            raise BenchError(f"there is no work named {text}; there are {', '.join(known)}")
    return [name for name in known if not names or any(matches(name, text) for text in names)]
