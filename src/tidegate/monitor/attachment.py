"""Where monitors act: on which links of which scopes, in which order.

A link attachment acts once: where the event enters the target if that is a scope of this node, otherwise where it
leaves the source. One by scope and direction acts on every link that touches the scope that way. Several act in file
order. A default one acts where no other does.

What it will not do: run them. It knows nothing of states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tidegate.monitor.machine import Machine
from tidegate.monitor.suppressed import Suppressed


class Direction(StrEnum):
    """How an event crosses the border of a scope (scopes, 4.3.2)."""

    IM_PUB = "im_pub"
    """It comes from a child: a client, or a scope below."""
    IM_SUB = "im_sub"
    """It goes to a child."""
    EX_PUB = "ex_pub"
    """It goes to a parent."""
    EX_SUB = "ex_sub"
    """It comes from a parent."""

    @property
    def enters(self) -> bool:
        """Whether the event comes into the scope."""
        return self in _ENTERS


_ENTERS: Final = frozenset((Direction.IM_PUB, Direction.EX_SUB))


class Each(StrEnum):
    """What has a state of its own."""

    LINK = "link"
    CLIENT = "client"
    SCOPE = "scope"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A monitor, and where it acts."""

    id: str
    monitor: Machine
    link: tuple[str, str] | None = None
    """Source and target by full name, such as `client:lock` and `scope:home`."""
    leaves: bool = False
    """With `link`: the target is a scope of another node, so it acts where events leave for it."""
    scope: str | None = None
    """Without `link`: the scope, by its bare name."""
    direction: Direction | None = None
    """Without `link`: how the link touches that scope."""
    each: Each = Each.LINK
    default: bool = False
    """It acts only where no other does."""
    suppressed: Suppressed = Suppressed.ACCEPT
    """What the publisher of an event is told that it suppresses."""
    made: bool = False
    """It is a filter that nobody has written as a monitor: it is decided with the plan."""
    silent: bool = False
    """What it suppresses goes elsewhere, and nobody has to be told."""
    renames: bool = False
    """It may put out events with other topics than those that come in."""

    @property
    def place(self) -> str:
        """The scope where it acts, by its bare name."""
        if self.link is None:
            return self.scope or ""
        source, target = self.link
        return (target if target.startswith("scope:") and not self.leaves else source).removeprefix("scope:")


class Monitors:
    """All attachments of a node, in file order. Immutable."""

    __slots__ = ("_all", "_by_border", "_by_link", "by_id")

    def __init__(self, attachments: Iterable[Attachment] = ()) -> None:
        self._all = tuple(attachments)
        self.by_id: Mapping[str, Attachment] = MappingProxyType({each.id: each for each in self._all})
        self._by_link: dict[tuple[str, str], list[int]] = {}
        self._by_border: dict[tuple[str | None, Direction | None], list[int]] = {}
        for index, each in enumerate(self._all):
            if each.link is not None:
                self._by_link.setdefault(each.link, []).append(index)
            else:
                self._by_border.setdefault((each.scope, each.direction), []).append(index)

    def over(self, source: str, target: str, *, kind: Direction, scope: str) -> tuple[Attachment, ...]:
        """Those that act on a link where it touches a scope, in file order. `kind` says how it does."""
        indices = self._by_border.get((scope, kind), [])
        # semantics.md, Monitors: a link's acts on entering a scope of this node, else on leaving one
        linked = self._by_link.get((source, target), [])
        if linked and self._all[linked[0]].place == scope:
            indices = sorted(indices + linked)
        acting = tuple(self._all[index] for index in indices)
        return tuple(each for each in acting if not each.default) or acting

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Attachment]:
        return iter(self._all)
