"""Levels and facts of connections, and the floor of a message (semantics, *Levels and demands*).

A level is a name with a rank. A connection has the highest level whose condition it meets. Besides, it has each of the
named *facts* whose condition it meets; facts have no order.

Invariants
- The lowest level has no condition, so every connection has a level; a condition that fails is not met.
- A floor never rises and gains no fact; a level unknown here counts as the lowest, an unknown fact as not held.

The condition of a configured level or fact reads what is known of the connection as `s`: `s.listener`, `s.address`,
`s.tls.version`, `s.tls.cipher`, `s.certificate` (a client certificate was verified), `s.trusted` (it is on the trust
list).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate.errors import ConfigError
from tidegate.policy.certificate_packets import Vouched
from tidegate.predicate import Function, Predicate, PredicateFailed, Ranking, compile

NONE: Final = "none"
"""What relaxes a demand (`demands`). It is no level."""
SIGNED: Final = "signed"
"""The fact of a message whose proof was verified. It is no fact of a connection."""

PLAIN, TLS, MTLS, TRUSTED = "plain", "tls", "mtls", "trusted"
ORDER: Final = (PLAIN, TLS, MTLS, TRUSTED)
RANKED: Final = ("s.level", "p.level", "p.floor")
"""The attributes that hold levels: conditions compare them by rank."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """What is known of a connection. `certificate` and `trusted` are what the trust list leaves of them."""

    listener: str = ""
    address: str = ""
    tls_version: str | None = None
    tls_cipher: str | None = None
    certificate: bool = False
    trusted: bool = False
    degraded: bool = False
    """It is not on the trust list: whatever certificate it showed names nobody."""
    vouched: Vouched | None = None
    """It is not on the trust list, and a neighbour vouches for its certificate."""

    @classmethod
    def over_http(cls, listener: str, address: str, level: str) -> Transport:
        """Of a request: of its encryption only the level is known here."""
        return cls(
            listener=listener, address=address, tls_version=None if level == PLAIN else "", certificate=level == MTLS
        )

    def degrade(self) -> Transport:
        """The same with its encryption alone, as if it had shown no certificate."""
        return replace(self, certificate=False, trusted=False, degraded=True)

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


_BUILT_IN: Final[dict[str, Callable[[Transport], bool]]] = {
    TLS: lambda transport: transport.tls_version is not None,
    MTLS: lambda transport: transport.tls_version is not None and transport.certificate,
    TRUSTED: lambda transport: transport.tls_version is not None and transport.certificate and transport.trusted,
}


def _met_by(predicate: Predicate) -> Callable[[Transport], bool]:
    def met(transport: Transport) -> bool:
        try:
            return predicate({"s": transport.attributes()})
        except PredicateFailed:
            return False  # a connection is no better than it can be shown to be

    return met


def ranking(order: Sequence[str]) -> Ranking:
    return Ranking(order, RANKED, "level")


DEFAULT_RANKING: Final = ranking(ORDER)


class Levels:
    """The levels of a node in their order, lowest first, and the facts that its connections may have besides."""

    def __init__(
        self,
        order: Sequence[str] = ORDER,
        conditions: Mapping[str, str] | None = None,
        facts: Mapping[str, str] | None = None,
        *,
        implied: bool = False,
        functions: Mapping[str, Function] | None = None,
    ) -> None:
        conditions, facts = conditions or {}, facts or {}
        self.order = tuple(order)
        self.facts = tuple(facts)
        """The facts of a connection that can be demanded; links inside a node have all of them."""
        self.implied = implied
        """Whether a connection demands its own level unless relaxed, so that unchanged clients are covered."""
        self.ranks: Mapping[str, int] = {name: rank for rank, name in enumerate(self.order)}
        _check(self.order, conditions)
        _check_facts(self.order, facts)
        self.ranking = ranking(self.order)

        def met_by(text: str) -> Callable[[Transport], bool]:
            return _met_by(compile(text, functions=functions, names=frozenset("s")))

        met = _BUILT_IN | {name: met_by(text) for name, text in conditions.items()}
        self._met = tuple((name, met[name]) for name in reversed(self.order[1:]))
        self._held = tuple((name, met_by(text)) for name, text in facts.items())

    @property
    def lowest(self) -> str:
        return self.order[0]

    @property
    def highest(self) -> str:
        """The level of links inside a node."""
        return self.order[-1]

    def level_of(self, transport: Transport) -> str:
        for name, met in self._met:
            if met(transport):
                return name
        return self.lowest

    def facts_of(self, transport: Transport) -> tuple[str, ...]:
        """The facts whose condition the connection meets, in the order of the file."""
        return tuple(name for name, met in self._held if met(transport))

    def rank(self, name: str) -> int | None:
        """Its place in the order; None for a name that is not known here."""
        return self.ranks.get(name)

    def floor(self, *levels: str) -> str:
        """The lowest of the levels of the links crossed; without any, the highest level."""
        return self.order[min((self.ranks.get(level, 0) for level in levels), default=len(self.order) - 1)]

    def floor_facts(self, *links: Iterable[str], signed: bool = False) -> tuple[str, ...]:
        """The facts that held on all links crossed, of those known here, and that of the message if it is `signed`."""
        held = tuple(name for name in self.facts if all(name in facts for facts in links))
        return (*held, SIGNED) if signed else held

    def told(self, level: str, facts: Iterable[str]) -> str:
        """A level and facts as clients are told them: with commas between them, the level first."""
        return ",".join((self.floor(level), *facts))


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


def _check_facts(order: Sequence[str], facts: Mapping[str, str]) -> None:
    for name in facts:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"`{name}` is no fact: a name begins with a letter, and has letters, digits, `_.-`")
        if name in (NONE, SIGNED):
            raise ConfigError(f"`{name}` has its meaning already: give the fact another name")
        if name in order:
            raise ConfigError(f"`{name}` is a level: give the fact another name")
