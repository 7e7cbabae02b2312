"""Levels of connections, what clients demand of them, and the floor of a message (semantics, *Levels and demands*).

A level is a name with a rank. A connection has the highest level whose condition its facts meet.

Invariants
- The lowest level has no condition, so every connection has a level; a condition that fails is not met.
- A demand that nobody here understands is never met: an unknown name, a rank that does not exist.
- A floor never rises; a level unknown here counts as the lowest.

The predicate of a configured level reads the facts as `s`: `s.listener`, `s.address`, `s.tls.version`, `s.tls.cipher`,
`s.certificate` (a client certificate was verified), `s.trusted` (it is on the trust list).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate.errors import ConfigError
from tidegate.predicate import Function, Predicate, PredicateFailed, compile

REQUIRE: Final = "require"
SHORT: Final = "s"
NONE: Final = "none"
"""The value of `require` that relaxes."""

PLAIN, TLS, MTLS, TRUSTED = "plain", "tls", "mtls", "trusted"
ORDER: Final = (PLAIN, TLS, MTLS, TRUSTED)

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a connection. `certificate` and `trusted` are what the trust list leaves of them."""

    listener: str = ""
    address: str = ""
    tls_version: str | None = None
    tls_cipher: str | None = None
    certificate: bool = False
    trusted: bool = False

    def degraded(self) -> Facts:
        """The same with its encryption alone, as if it had shown no certificate."""
        return replace(self, certificate=False, trusted=False)

    def attributes(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "listener": self.listener,
            "address": self.address,
            "certificate": self.certificate,
            "trusted": self.trusted,
        }
        if self.tls_version is not None:
            values["tls"] = {"version": self.tls_version, "cipher": self.tls_cipher or ""}
        return values


@dataclass(frozen=True, slots=True)
class Demand:
    """The level that somebody demands; None demands nothing, and relaxes what would be demanded otherwise."""

    level: str | None = None


RELAXED: Final = Demand()


def _met_by_tls(facts: Facts) -> bool:
    return facts.tls_version is not None


def _met_by_certificate(facts: Facts) -> bool:
    return facts.tls_version is not None and facts.certificate


def _met_by_trust(facts: Facts) -> bool:
    return facts.tls_version is not None and facts.certificate and facts.trusted


_BUILT_IN: Final[dict[str, Callable[[Facts], bool]]] = {
    TLS: _met_by_tls,
    MTLS: _met_by_certificate,
    TRUSTED: _met_by_trust,
}


def _met_by(predicate: Predicate) -> Callable[[Facts], bool]:
    def met(facts: Facts) -> bool:
        try:
            return predicate({"s": facts.attributes()})
        except PredicateFailed:
            return False  # a connection is no better than it can be shown to be

    return met


class Levels:
    """The levels of a node in their order, lowest first."""

    def __init__(
        self,
        order: Sequence[str] = ORDER,
        conditions: Mapping[str, str] | None = None,
        *,
        implied: bool = False,
        functions: Mapping[str, Function] | None = None,
    ) -> None:
        conditions = conditions or {}
        self.order = tuple(order)
        self.implied = implied
        """Whether a connection demands its own level unless relaxed, so that unchanged clients are covered."""
        self._ranks = {name: rank for rank, name in enumerate(self.order)}
        _check(self.order, conditions)
        met: list[tuple[str, Callable[[Facts], bool]]] = []
        for name in self.order[1:]:
            if name in conditions:
                met.append((name, _met_by(compile(conditions[name], functions=functions, names=frozenset("s")))))
            else:
                met.append((name, _BUILT_IN[name]))
        self._met = tuple(reversed(met))

    @property
    def lowest(self) -> str:
        return self.order[0]

    @property
    def highest(self) -> str:
        """The level of links inside a node."""
        return self.order[-1]

    def level_of(self, facts: Facts) -> str:
        """The highest level whose condition the connection meets."""
        for name, met in self._met:
            if met(facts):
                return name
        return self.lowest

    def rank(self, name: str) -> int | None:
        """Its place in the order; None for a name that is not known here."""
        return self._ranks.get(name)

    # -- demands -------------------------------------------------------------------------------------------------

    def demand(self, properties: Iterable[tuple[str, str]]) -> Demand | None:
        """What user properties of CONNECT, PUBLISH or SUBSCRIBE demand; None if they say nothing.

        Of several the strictest counts. A level's name is kept as it came, since it may be known elsewhere.
        """
        strictest: Demand | None = None
        for key, value in properties:
            if key == REQUIRE:
                demand = RELAXED if value == NONE else Demand(value)
            elif key == SHORT:
                demand = Demand(self._at(value))
            else:
                continue
            strictest = demand if strictest is None else self.strictest(strictest, demand)
        return strictest

    def _at(self, rank: str) -> str:
        if rank.isascii() and rank.isdigit() and len(rank) <= 3 and int(rank) < len(self.order):
            return self.order[int(rank)]
        return f"rank {rank[:16]}"  # no level is called so: names have no spaces

    def effective(self, own: str, *demands: Demand | None) -> Demand:
        """What counts: the innermost that says something, else what the level of the own connection implies.

        `said` is from the inside out: the message's or subscription's demand, then the connection's.
        """
        for demand in demands:
            if demand is not None:
                return demand
        return Demand(own) if self.implied else RELAXED

    def strictest(self, a: Demand, b: Demand) -> Demand:
        """The higher of two demands, for what is derived from several messages. One not known here wins."""
        if a.level is None:
            return b
        if b.level is None:
            return a
        left, right = self.rank(a.level), self.rank(b.level)
        if left is None or right is None:
            return a if left is None else b
        return a if left >= right else b

    # -- deciding ------------------------------------------------------------------------------------------------

    def admits(self, publisher: Demand, level: str) -> bool:
        """Whether a message may cross a link of this level."""
        return self._meets(publisher, level)

    def satisfies(self, subscriber: Demand, floor: str) -> bool:
        """Whether a message with this floor is good enough for a subscriber."""
        return self._meets(subscriber, floor)

    def _meets(self, demand: Demand, level: str) -> bool:
        if demand.level is None:
            return True
        wanted = self._ranks.get(demand.level)
        return wanted is not None and self._ranks.get(level, 0) >= wanted

    def floor(self, *levels: str) -> str:
        """The lowest of the levels of the links crossed; without any, the highest level."""
        return self.order[min((self._ranks.get(level, 0) for level in levels), default=len(self.order) - 1)]


def _check(order: Sequence[str], conditions: Mapping[str, str]) -> None:
    if not order:
        raise ConfigError("no levels: leave `order` out for plain, tls, mtls, trusted")
    for name in (*order, *conditions):
        if not _NAME.fullmatch(name):
            raise ConfigError(f"`{name}` is no level: a name begins with a letter, and has letters, digits, `_.-`")
        if name == NONE:
            raise ConfigError("no level can be called `none`: that relaxes a demand")
    if len(set(order)) < len(order):
        raise ConfigError("a level stands in the order twice")
    for name in conditions:
        if name in ORDER:
            raise ConfigError(f"`{name}` has its meaning already: give the level with a condition another name")
        if name not in order:
            raise ConfigError(f"`{name}` has a condition but no place in the order")
    if order[0] in conditions or order[0] in _BUILT_IN:
        raise ConfigError(f"`{order[0]}` is the lowest level, which every connection has: put `plain` below it")
    for name in order[1:]:
        if name not in conditions and name not in _BUILT_IN:
            raise ConfigError(f"`{name}` needs a condition that says which connections have that level")
