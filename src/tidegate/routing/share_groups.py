"""Shared subscriptions: each message that matches `$share/group/filter` goes to one member of the group.

A group is identified by its name **and** its filter (MQTT 5, 4.8.2), so the same name over two filters makes
two groups, and a message that matches both goes to one member of each.

Invariants
- The order of `Group.members` is the order of turns: the first is next, the last was chosen last or has just
  joined. A member that leaves takes nothing but its own turn with it.
- A group exists in `Shares` only while it has members.

What it will not do: know what makes a member usable (connected, allowed this message, room in its window);
that comes in as an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from tidegate.routing.subscriptions import Subscriptions

S = TypeVar("S", bound=Hashable)
O = TypeVar("O")  # noqa: E741  the options of one subscription


class Group(Generic[S, O]):
    """The members that share one filter, and whose turn it is."""

    __slots__ = ("filter", "members", "name")

    def __init__(self, name: str, filter: str) -> None:
        self.name = name
        self.filter = filter
        # Ordered by turn: `move_to_end` costs the same at any size, a plain dict used as a queue does not.
        self.members: OrderedDict[S, O] = OrderedDict()

    def __len__(self) -> int:
        return len(self.members)

    def add(self, subscriber: S, options: O) -> bool:
        """Joins at the end of the turns; False if it was there, which replaces options and keeps its turn."""
        new = subscriber not in self.members
        self.members[subscriber] = options
        return new

    def remove(self, subscriber: S) -> bool:
        """Leaves; False if it was no member."""
        if subscriber not in self.members:
            return False
        del self.members[subscriber]
        return True

    def pick(self, usable: Callable[[S], bool]) -> tuple[S, O] | None:
        """The next usable member, or None after each was asked once. `usable` may add and remove members."""
        members = self.members
        for _ in range(len(members)):
            if not members:
                return None
            subscriber = next(iter(members))
            members.move_to_end(subscriber)
            if usable(subscriber) and subscriber in members:
                return subscriber, members[subscriber]
        return None


class Shares(Generic[S, O]):
    """All groups, found by the topics they match."""

    __slots__ = ("_groups", "_size", "_trie")

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], Group[S, O]] = {}
        self._trie: Subscriptions[Group[S, O], None] = Subscriptions()
        self._size = 0

    def __len__(self) -> int:
        """The number of (group, filter, subscriber) triples."""
        return self._size

    def add(self, group: str, filter: str, subscriber: S, options: O) -> bool:
        """Joins the group; False if this replaced the options of a member."""
        shared = self._groups.get((group, filter))
        if shared is None:
            shared = self._groups[group, filter] = Group(group, filter)
            self._trie.add(filter, shared, None)
        new = shared.add(subscriber, options)
        self._size += new
        return new

    def remove(self, group: str, filter: str, subscriber: S) -> bool:
        """Leaves the group, which ends with its last member; False if it was no member."""
        shared = self._groups.get((group, filter))
        if shared is None or not shared.remove(subscriber):
            return False
        if not shared.members:
            del self._groups[group, filter]
            self._trie.remove(filter, shared)
        self._size -= 1
        return True

    @property
    def visited(self) -> int:
        """Places that the last `match` has looked at."""
        return self._trie.visited

    def get(self, group: str, filter: str) -> Group[S, O] | None:
        """The group of this name over this filter, if it has members."""
        return self._groups.get((group, filter))

    def over(self, filter: str) -> list[Group[S, O]]:
        """The groups over exactly this filter."""
        return [group for group, _ in self._trie.over(filter)]

    def match(self, levels: Sequence[str]) -> list[Group[S, O]]:
        """The groups of which one member each should get a message on this topic."""
        return [group for group, _ in self._trie.match(levels)]
