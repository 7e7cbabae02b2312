"""The system schema χ = ⟨CG, EP, BP, sub, ⊑⟩ (scopes, 3.3.2 and 3.3.3).

Names follow the seed. Sets that may be infinite (what is subscribed by a filter) are anything that answers `in`.

Invariants, refused with the remedy if broken
- Devices and scopes are disjoint; `link` is symmetric, irreflexive, and joins no two devices.
- Every link has a type; subscriptions and automata are on links that exist.

Beyond the seed
- EP may put an automaton on a notify link too. A link without one has `IDENTITY`, which changes nothing.
- `echo`: notify links over which a device hears its own events again, as MQTT wants it unless No Local is set. The seed
  has none: there z ≠ x always.
- `loops`: whether an event may enter a scope again that it has passed. In the seed it may, and in a cycle of scopes it
  then travels forever; a node refuses it (semantics, *Envelope*).
- `once`: whether an event that comes to a scope by several ways leaves over each link only once, as in a node. In the
  seed it leaves as often as it came.
"""
# ruff: noqa: RUF001, RUF002  the letters are those of the seed

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from tidegate.errors import ConfigError

Entity: TypeAlias = str
Link: TypeAlias = tuple[Entity, Entity]
Type: TypeAlias = str

Symbol: TypeAlias = Any
"""A member of Σ: any hashable value, such as a topic or a `monitor.Event`."""

Id: TypeAlias = tuple[Hashable, ...]
"""Which event it is: the number of its publication, and how automata made it from that."""


class EditAutomaton(Protocol):
    """⟨Σ, Q, q₀, δ⟩ (3.3.2). States and symbols are hashable."""

    def start(self) -> Hashable:
        """q₀"""

    def step(self, state: Any, symbol: Symbol) -> tuple[Hashable, Sequence[Symbol]]:
        """δ : Q × Σ → Q × Σ*. No output suppresses the event."""


class Identity:
    """The automaton that changes nothing: δ(q₀, a) = (q₀, a)."""

    def start(self) -> Hashable:
        return "q0"

    def step(self, state: Any, symbol: Symbol) -> tuple[Hashable, Sequence[Symbol]]:
        return state, (symbol,)


IDENTITY: Final = Identity()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionGraph:
    """CG = ⟨D, S, link⟩."""

    devices: frozenset[Entity]
    scopes: frozenset[Entity]
    link: frozenset[Link]

    def __post_init__(self) -> None:
        for both in sorted(self.devices & self.scopes):
            raise ConfigError(f"`{both}` is a device and a scope: give one of them another name")
        for x, y in sorted(self.link):
            for each in (x, y):
                if each not in self.entities:
                    raise ConfigError(f"link {x} -> {y}: there is no `{each}`: add it to the devices or the scopes")
            if x == y:
                raise ConfigError(f"link {x} -> {y} joins `{x}` to itself: remove it")
            if (y, x) not in self.link:
                raise ConfigError(f"link {x} -> {y} has no way back: add {y} -> {x}, and let no type pair allow it")
            if x in self.devices and y in self.devices:
                raise ConfigError(f"link {x} -> {y} joins two devices: put a scope between them")

    @property
    def entities(self) -> frozenset[Entity]:
        """E = D ∪ S"""
        return self.devices | self.scopes

    def publish(self, x: Entity, y: Entity) -> bool:
        """link ∩ (D × S)"""
        return (x, y) in self.link and x in self.devices

    def notify(self, x: Entity, y: Entity) -> bool:
        """link ∩ (S × D)"""
        return (x, y) in self.link and y in self.devices

    def bridge(self, x: Entity, y: Entity) -> bool:
        """link ∩ (S × S)"""
        return (x, y) in self.link and x in self.scopes and y in self.scopes

    def monitored(self, x: Entity, y: Entity) -> bool:
        """link ∖ notify: the links that end in a scope."""
        return (x, y) in self.link and y in self.scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokeringPolicy:
    """BP = ⟨T, type, allow⟩. T is what `type` and `allow` speak of."""

    type: Mapping[Link, Type]
    allow: Container[tuple[Type, Type]]


@dataclass(frozen=True, slots=True)
class Transmit:
    """transmit(x, y, a): event a is on its way from x to y."""

    x: Entity
    y: Entity
    a: Symbol

    def __str__(self) -> str:
        return f"transmit({self.x}, {self.y}, {self.a})"


@dataclass(frozen=True, slots=True)
class Broker:
    """broker(x, y, w): the sequence w came from x, and scope y has yet to pass it on."""

    x: Entity
    y: Entity
    w: tuple[Symbol, ...]

    def __str__(self) -> str:
        return f"broker({self.x}, {self.y}, {' '.join(map(str, self.w))})"


Task: TypeAlias = Transmit | Broker


@dataclass(frozen=True, slots=True)
class Annotated:
    """α = τ[t_gen, t_pub]: when the task was generated, and when the publication was from which it derives."""

    task: Task
    gen: int
    pub: int
    path: tuple[Entity, ...] = ()
    """Beyond the seed: the scopes that have passed it on, if `loops` are refused."""
    ids: tuple[Id, ...] = ()
    """Beyond the seed: which events those of the task are, if each crosses a link `once`."""

    def __str__(self) -> str:
        return f"{self.task}[{self.gen}, {self.pub}]"


WorkList: TypeAlias = frozenset[Annotated]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """⊑, the quality of service. What is before something else is processed before it."""

    name: str
    before: Callable[[ConnectionGraph, Annotated, Annotated], bool]
    """α ⊑ α′, for α ≠ α′."""
    renumber: Callable[[ConnectionGraph, WorkList], WorkList]
    """The work list with other timestamps, and the same for work lists that ⊑ cannot tell apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """χ = ⟨CG, EP, BP, sub, ⊑⟩."""

    cg: ConnectionGraph
    ep: Mapping[Link, EditAutomaton] = field(default_factory=dict)
    """Δ, with its q₀; links that are absent have `IDENTITY`."""
    bp: BrokeringPolicy
    sub: Mapping[Link, Container[Symbol]] = field(default_factory=dict)
    """sub : notify → 2^Σ; links that are absent have ∅."""
    order: Order
    echo: frozenset[Link] = frozenset()
    loops: bool = True
    once: bool = False

    def __post_init__(self) -> None:
        for x, y in sorted(self.cg.link):
            if (x, y) not in self.bp.type:
                raise ConfigError(f"link {x} -> {y} has no type: assign one")
        for x, y in sorted(self.ep.keys() - self.cg.link):
            raise ConfigError(f"an automaton is on {x} -> {y}, which is no link: add the link, or remove the automaton")
        for what, links in (("a subscription", frozenset(self.sub)), ("an echo", self.echo)):
            for x, y in sorted(links):
                if not self.cg.notify(x, y):
                    raise ConfigError(f"{what} is on {x} -> {y}: only links from a scope to a device have one")

    def automaton(self, x: Entity, y: Entity) -> EditAutomaton:
        """M(x, y)"""
        return self.ep.get((x, y), IDENTITY)

    def propagate(self, x: Entity, y: Entity, z: Entity) -> bool:
        """link(x, y) ∧ link(y, z) ∧ allow(type(x, y), type(y, z))"""
        link, bp = self.cg.link, self.bp
        return (x, y) in link and (y, z) in link and (bp.type[x, y], bp.type[y, z]) in bp.allow
