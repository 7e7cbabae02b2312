"""What is measured: scopes in a chain, publishers at the first one and subscribers at the last one.

This is the experiment of the scopes seed (chapter 5) with its names. There each scope was a broker of its own on a
machine of its own; here all of them are in one node. A monitor stands where events enter a scope, one for each scope:
from the clients into the first, and over the link from the one before into every other.

Monitors that rename do it by a table of all topics, and each scope has other names. All names are of one length, so
that messages can be counted by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from types import MappingProxyType

from bench.harness.servers import Setting
from bench.load.job import Job, Shape

TOPICS = 14
PUBLISHERS = 100
LENGTHS = (1, 3, 5)
RATES = (5_000, 10_000, 15_000, 20_000, 25_000, 30_000)
LIMITS = "limits: {inflight: 65535, receive_maximum: 65535, queue: {messages: 1000000, bytes: 1GiB}}"
_ORIGINAL = "bench"


class Monitor(Enum):
    """The monitors of the seed, as the configuration calls them."""

    SIMPLE = "simple_em"
    COMPLEX = "complex_em"
    HALF = "hsup_em"
    TWICE = "multi_em"

    @property
    def renames(self) -> bool:
        return self in (Monitor.SIMPLE, Monitor.COMPLEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One line of a figure."""

    name: str
    title: str
    brokering: bool = True
    monitor: Monitor | None = None
    more: int = 1
    """What a monitor makes of one event: this many,"""
    fewer: int = 1
    """or one of this many."""
    best: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """By number of scopes, the highest rate that was optimal in the seed; 0 if none was. It does not tell all."""

    @property
    def factor(self) -> float:
        """Z: events that come out of a monitor for each that goes in."""
        return self.more / self.fewer

    def calculated(self, rate: float, scopes: int) -> float:
        """CMT: what arrives if nothing takes time."""
        return rate * self.factor**scopes

    def arriving(self, sent: int, scopes: int) -> int:
        """How many arrive of so many, exactly."""
        more: int = self.more**scopes
        fewer: int = self.fewer**scopes
        return -(-sent * more // fewer)


def _best(*rates: int) -> Mapping[int, int]:
    return MappingProxyType({scopes: rate * 1000 for scopes, rate in zip(LENGTHS, rates, strict=True)})


ORI = Configuration(
    name="ORI",
    title="scopes that are linked, and everything passes",
    brokering=False,
    best=_best(30, 25, 20),
)
NEW = Configuration(name="NEW", title="types of links and `allow`, no monitors", best=_best(30, 20, 20))
SEM = Configuration(name="SEM", title="`simple_em` renames in each scope", monitor=Monitor.SIMPLE)
CEM = Configuration(
    name="CEM",
    title="`complex_em` renames and makes a new payload in each scope",
    monitor=Monitor.COMPLEX,
    best=_best(20, 15, 15),
)
HSUP = Configuration(
    name="HSUP",
    title="`hsup_em` suppresses every other event in each scope",
    monitor=Monitor.HALF,
    fewer=2,
    best=_best(30, 25, 20),
)
MULTI = Configuration(
    name="MULTI",
    title="`multi_em` doubles every event in each scope",
    monitor=Monitor.TWICE,
    more=2,
    best=_best(20, 5, 0),
)
CONFIGURATIONS = (ORI, NEW, SEM, CEM, HSUP, MULTI)
COMPARABLE = (ORI, NEW, SEM, CEM)
"""Those of the first analysis, with Z = 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One node that is measured."""

    configuration: Configuration
    scopes: int
    extra: int = 0
    """Further monitors of the same kind where events enter the first scope."""

    @property
    def name(self) -> str:
        return f"{self.configuration.name}, {counted(self.scopes)}"

    @property
    def monitors(self) -> int:
        return self.scopes + self.extra if self.configuration.monitor else 0

    @property
    def first(self) -> str:
        return "s1"

    @property
    def last(self) -> str:
        return f"s{self.scopes}"

    def arrives(self, topic: str) -> str:
        """What a topic of the load is called in the last scope."""
        monitor = self.configuration.monitor
        return _named(self.monitors, topic.partition("/")[2]) if monitor and monitor.renames else topic

    def job(self, *, qos: int = 0, window: int = 0, publishers: int = PUBLISHERS) -> Job:
        """Publishers at the first scope, subscribers at the last; a window, or rates."""
        kind = self.configuration
        return Job(
            shape=Shape.WINDOW if window else Shape.RATE,
            publishers=publishers,
            subscribers=TOPICS,
            qos=qos,
            window=window,
            arrives=self.arrives(f"{_ORIGINAL}/").rstrip("/"),
            more=kind.more**self.scopes,
            fewer=kind.fewer**self.scopes,
            rewritten=kind.monitor is Monitor.COMPLEX,
            patient=True,
        )

    def setting(self) -> Setting:
        """A node with a listener at either end."""
        return Setting(text=lambda ports: configuration(self, *ports), listeners=2, far=True)

    def rules(self) -> str:
        """The scopes, what links them and what stands on the links, as the configuration of a node says it."""
        names = [f"s{number}" for number in range(1, self.scopes + 1)]
        lines = ["policies: open", f"scopes: {{{', '.join(f'{name}: {{}}' for name in names)}}}"]
        if self.scopes > 1:
            lines += ["links:", *(f"  - {{from: {one}, to: {other}}}" for one, other in pairwise(names))]
        if self.configuration.brokering:
            lines += [
                "brokering:",
                "  allow: [[said, passed], [said, heard], [passed, passed], [passed, heard]]",
                "  default: {in: said, out: heard, link: passed}",
            ]
        if self.configuration.monitor is not None:
            lines += ["monitors:", *self._monitors(self.configuration.monitor)]
        return "\n".join(lines)

    def _monitors(self, monitor: Monitor) -> Iterator[str]:
        before = self.monitors - self.scopes
        for number in range(self.monitors):
            entered = max(1, number + 1 - before)
            where = (
                f'link: "s{entered - 1}->s{entered}"' if entered > 1 else "scope: s1, direction: im_pub, each: scope"
            )
            table = f", map: {{{_table(number)}}}" if monitor.renames else ""
            yield f"  - {{id: m{number + 1}, {where}, use: {monitor.value}{table}}}"


def counted(scopes: int) -> str:
    return "1 scope" if scopes == 1 else f"{scopes} scopes"


def topics() -> list[str]:
    """Those of the load."""
    return [f"{_ORIGINAL}/k{number:02d}" for number in range(TOPICS)]


def _named(renamed: int, rest: str) -> str:
    """After so many monitors; of one length while there are at most nine."""
    return f"step{renamed}/{rest}" if renamed else f"{_ORIGINAL}/{rest}"


def _table(number: int) -> str:
    rests = [topic.partition("/")[2] for topic in topics()]
    return ", ".join(f"{_named(number, rest)}: {_named(number + 1, rest)}" for rest in rests)


def configuration(chain: Chain, near: int, far: int) -> str:
    """For a node with a listener at either end; nothing is dropped and nobody is asked for a password."""
    url = "mqtt://127.0.0.1"
    return f"""\
version: 1
node: {{name: bench}}
listeners:
  - {{url: "{url}:{near}", scope: {chain.first}, anonymous: true}}
  - {{url: "{url}:{far}", scope: {chain.last}, anonymous: true}}
{chain.rules()}
{LIMITS}
log: {{level: error}}
"""
