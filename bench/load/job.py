"""What the load generator is asked to do and what it answers; both cross the process border as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from enum import Enum

PAYLOAD = 175
MEASURING = "measuring"
"""The line with which a generator that writes a trace says that it has started to."""


class Shape(Enum):
    """How the load is offered."""

    WINDOW = "window"
    """Closed loop: a new message whenever fewer than `window` are outstanding."""
    RATE = "rate"
    """Open loop: `rate` messages a second, evenly spaced, each with its time of sending."""
    IDLE = "idle"
    """Connections that do nothing, or no more than `speaks`."""


class LoadError(Exception):
    """The load could not be applied: the server died, refused, or answered something unexpected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One measurement, from the generator's point of view."""

    shape: Shape = Shape.WINDOW
    port: int = 0
    server: int = 0
    """Process id of the server, whose CPU time is read when measuring starts and ends."""
    version: int = 4
    publishers: int = 100
    subscribers: int = 14
    qos: int = 0
    window: int = 5000
    batch: int = 1
    """Messages per call of send()."""
    rate: int = 0
    topics: int = 0
    """0: one topic per subscriber. Otherwise this many, spread over the subscribers' wildcards."""
    fanout: bool = False
    """Every subscriber receives every message."""
    churn: int = 0
    """Subscription changes per second beside the load."""
    wildcards: int = 0
    """Wildcard subscriptions held by further sessions."""
    persistent: bool = False
    login: bool = False
    """Every session is a user of its own, called like its client id; so is the password."""
    content: str = ""
    """The payload, of `size` bytes; otherwise nothing in particular, of `PAYLOAD`."""
    size: int = PAYLOAD
    copies: int = 1
    """Subscribers that each topic has."""
    shown: tuple[str, ...] = ()
    """What the subscribers of a topic see of `content`, each in turn; of one length. Otherwise all of it."""
    where: str = ""
    """The condition that every subscription has; only in version 5."""
    barred: int = 0
    """Further sessions that subscribe to everything, and must receive nothing."""
    trace: str = ""
    """Open loops: the file for what `pace` saw of each message. The generator then says when it starts measuring,
    and SIGUSR1 ends it early."""
    subscriber_port: int = 0
    """Where subscribers connect, if not where publishers do."""
    linked: int = 0
    """So many of the subscribers, the last ones, are at a second server that is linked with the first: the one that
    listens on `linked_port`, whose process is `linked_server`."""
    linked_port: int = 0
    linked_server: int = 0
    between: tuple[int, ...] = ()
    """Processes of the servers between these two."""
    arrives: str = ""
    """The first level of every topic as it arrives, of the same length, if the server renames it."""
    more: int = 1
    """What the server makes of `fewer` messages: this many deliveries."""
    fewer: int = 1
    rewritten: bool = False
    """The server makes another payload, of the same length."""
    patient: bool = False
    """Open loops: payloads may change, so nothing is timed; a server that is behind is sent no more for a while."""
    naps: bool = False
    """Open loops: sleeps while nothing is to be sent, instead of spinning, because servers may have its core."""
    connections: int = 0
    speaks: bool = False
    """Each of these connections has published one message, which nobody receives."""
    warmup: float = 0.7
    duration: float = 3.0

    def arriving(self, sent: int) -> int:
        """How many deliveries so many messages make, exactly."""
        return -(-sent * self.more // self.fewer)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self) | {"shape": self.shape.value})

    @classmethod
    def from_json(cls, text: str) -> Job:
        fields = json.loads(text)
        return cls(
            **fields
            | {"shape": Shape(fields["shape"]), "shown": tuple(fields["shown"]), "between": tuple(fields["between"])}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one measurement found. Times in seconds; `messages` are deliveries to a subscriber."""

    messages: int = 0
    seconds: float = 0.0
    server_cpu: float = 0.0
    """Of all, if further servers are linked with the first."""
    linked_cpu: float = 0.0
    """The part of it that the second or last server used."""
    load_cpu: float = 0.0
    working: float = 0.0
    """Open loops spin: the time of the turns that had work to do."""
    foreign: float = 0.0
    """CPU, in cores, that neither the server nor the generator used: the neighbours."""
    steal: float = 0.0
    """CPU, in cores, that the hypervisor took away."""
    outstanding: float = 0.0
    """Closed loops: messages outstanding on average."""
    lost: int = 0
    overrun: bool = False
    """The server could not keep the offered rate."""
    p50: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    slowest: float = 0.0
    late: float = 0.0
    """99th percentile of how much later than planned the generator sent; not part of the latency."""
    histogram: list[tuple[float, int]] = field(default_factory=list)
    """Latency: (upper bound in seconds, count)."""
    changes: int = 0
    """Subscription changes made while measuring."""
    connections: int = 0
    bytes_each: float = 0.0
    generator: str = "Python"
    """What made the load: `C` or `Python`."""

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def micros(self) -> float:
        """CPU of the server per message, in microseconds."""
        return self.server_cpu / self.messages * 1e6 if self.messages else 0.0

    @property
    def busy(self) -> float:
        """Share of one core that the server used."""
        return self.server_cpu / self.seconds if self.seconds else 0.0

    @property
    def kib_each(self) -> float:
        return self.bytes_each / 1024

    @property
    def load_busy(self) -> float:
        """Share of one core that the generator needed."""
        return (self.working or self.load_cpu) / self.seconds if self.seconds else 0.0

    @property
    def load_micros(self) -> float:
        """CPU of the generator per message, in microseconds; a million divided by it is its ceiling."""
        return (self.working or self.load_cpu) / self.messages * 1e6 if self.messages else 0.0

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        fields = json.loads(text)
        fields["histogram"] = [(bound, count) for bound, count in fields["histogram"]]
        return cls(**fields)
