"""The connection graph: who is joined to whom, by links of which type (scopes, 3.3.3; semantics, *Flows*).

Entities are named with their kind: `scope:gym`, `client:treadmill-1`, `service:http`. Whatever is no scope is a device
of the seed. A link is directed and there is at most one from x to y; a connection is two links. The graph also holds
which types of links may follow which.

Invariants
- No link joins an entity to itself, and none joins two devices.
- Everything is listed in the order of names, scopes first, whatever the order in which it came: graphs with the same
  links give the same answers, the same routes and the same pictures.
- A change of one link costs the same in a small and in a large graph, so that a connecting client can be tried out.

The seed's links are symmetric. Here one direction may be missing, as in a bridge that only forwards.
It does not know what is subscribed to nor which events a monitor lets through: a flow is what is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from tidegate.errors import ConfigError

Allow = Callable[[str, str], bool]
"""Whether what came over a link of the first type may leave over one of the second."""

SCOPE: Final = "scope:"
KINDS: Final = (SCOPE, "client:", "service:")


def is_scope(name: str) -> bool:
    return name.startswith(SCOPE)


def bare_name(name: str) -> str:
    return name.partition(":")[2]


def entity(name: str) -> str:
    """The name, if it is one of an entity."""
    if not any(name.startswith(kind) and len(name) > len(kind) for kind in KINDS):
        raise ConfigError(f"`{name}` names no entity: write `client:NAME`, `scope:NAME` or `service:NAME`")
    return name


def in_order(names: Iterable[str]) -> list[str]:
    """Scopes first, then by name."""
    return sorted(names, key=lambda name: (not is_scope(name), name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directed pair of entities. Every hop of a message crosses one."""

    source: str
    target: str
    type: str = ""
    trusted: bool = False

    @property
    def ends(self) -> tuple[str, str]:
        return self.source, self.target

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


class ConnectionGraph:
    """Entities, links, and which types may follow which. Without `allow` every type may follow every other."""

    def __init__(
        self,
        links: Iterable[Link] = (),
        entities: Iterable[str] = (),
        allow: Allow | Iterable[tuple[str, str]] | None = None,
    ) -> None:
        self.allow: Allow
        if allow is None:
            self.allow = _anything
        elif callable(allow):
            self.allow = allow
        else:
            pairs = frozenset(allow)
            self.allow = lambda first, second: (first, second) in pairs
        self._bridges: dict[str, dict[str, Link]] = {}
        """From each entity, the links to scopes."""
        self._notices: dict[str, dict[str, Link]] = {}
        """From each scope, the links to devices."""
        self._entering: dict[str, dict[str, Link]] = {}
        for name in entities:
            self.join(name)
        for link in links:
            self.add(link)

    def join(self, name: str) -> None:
        """Takes an entity in, with or without links."""
        if entity(name) not in self._bridges:
            self._bridges[name], self._notices[name], self._entering[name] = {}, {}, {}

    def leave(self, name: str) -> None:
        for link in (*self.leaving(name), *self.entering(name)):
            self.remove(link.source, link.target)
        if name in self._bridges:
            del self._bridges[name], self._notices[name], self._entering[name]

    def add(self, link: Link) -> None:
        """Takes a link in, and its ends if they are new. A link between the same two is replaced."""
        if link.source == link.target:
            raise ConfigError(f"`{link}` joins an entity to itself: name two")
        if not is_scope(link.source) and not is_scope(link.target):
            raise ConfigError(f"`{link}` joins two devices: put a scope between them")
        self.join(link.source)
        self.join(link.target)
        (self._bridges if is_scope(link.target) else self._notices)[link.source][link.target] = link
        self._entering[link.target][link.source] = link

    def remove(self, source: str, target: str) -> None:
        """Takes a link out; its ends stay."""
        if self.link(source, target) is not None:
            del (self._bridges if is_scope(target) else self._notices)[source][target]
            del self._entering[target][source]

    def __contains__(self, name: str) -> bool:
        return name in self._bridges

    def link(self, source: str, target: str) -> Link | None:
        return self._entering.get(target, {}).get(source)

    @property
    def entities(self) -> list[str]:
        return in_order(self._bridges)

    @property
    def scopes(self) -> list[str]:
        return sorted(name for name in self._bridges if is_scope(name))

    @property
    def devices(self) -> list[str]:
        return sorted(name for name in self._bridges if not is_scope(name))

    @property
    def links(self) -> list[Link]:
        return list(chain.from_iterable(map(self.leaving, self.entities)))

    def bridges(self, name: str) -> list[Link]:
        """From an entity to scopes, in order."""
        return _ordered(self._bridges.get(name, {}))

    def notices(self, name: str) -> list[Link]:
        """From a scope to devices, in order."""
        return _ordered(self._notices.get(name, {}))

    def leaving(self, name: str) -> list[Link]:
        return [*self.bridges(name), *self.notices(name)]

    def entering(self, name: str) -> list[Link]:
        links = self._entering.get(name, {})
        return [links[source] for source in in_order(links)]

    @property
    def types(self) -> list[str]:
        return sorted({link.type for links in self._entering.values() for link in links.values()})

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The allowed pairs among the types that links have."""
        types = self.types
        return ((first, second) for first in types for second in types if self.allow(first, second))

    def follows(self, first: Link, second: Link) -> bool:
        """Whether a scope may pass on over the second link what it got over the first (semantics, step 6).

        A scope never gets back what it sent. For clients MQTT's No Local decides, which a client may leave out, so
        that it can get its own messages. The seed has `x != z` for both.
        """
        return (
            first.target == second.source
            and not (first.source == second.target and is_scope(second.target))
            and self.allow(first.type, second.type)
        )


def connection(one: str, other: str, there: str = "", back: str = "", *, trusted: bool = False) -> tuple[Link, Link]:
    """The two links of a connection, with the type of each."""
    return (
        Link(source=one, target=other, type=there, trusted=trusted),
        Link(source=other, target=one, type=back, trusted=trusted),
    )


def _ordered(links: dict[str, Link]) -> list[Link]:
    return [links[target] for target in sorted(links)]


def _anything(first: str, second: str) -> bool:
    return True
