"""Values by topic, looked up by topic or by filter: retained messages, and the topics of cached plans.

Values are in one dict by topic. Beside it stands a tree of dicts over levels that only serves to find topics
by wildcard: an entry is the branch of the topics that go on this way or, if only one does, that topic itself.

Invariants
- Every branch except the root holds at least two topics, so the shape depends only on which topics are there.
- The tree ends after 16 levels: whatever follows is one key. So a topic costs at most 16 branches even if it
  is 65,535 bytes of `/`. Only filters of more than 16 levels pay for it: they look at every topic that agrees
  with their first 16.
- What is found in the tree is checked against the filter where the way to it does not prove that it matches.

Worst case of a look-up: it visits every branch that agrees with the filter so far, each once, so `+/+/+/x`
looks at nearly every topic of four levels or more to find those that end in `x`. `iterate` spreads the work
over as many turns as the caller likes, but a stretch without a match is one turn; at most, all topics.

What it will not do: validate, expire, or sort. The entries of a branch come in the order in which they first
appeared there: the same history gives the same order.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator
from typing import Final, Generic, TypeAlias, TypeVar

from tidegate.topics import agree

V = TypeVar("V")

Branch: TypeAlias = "dict[str, str | Branch]"

_DEPTH: Final = 16
_SELF: Final = "#"
"""The key of the topic that ends at a branch: no level is written like this."""


class TopicTree(Generic[V]):
    """topic -> value, and all (topic, value) that match a filter."""

    __slots__ = ("_root", "_values")

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._root: Branch = {}

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> ItemsView[str, V]:
        """Everything, oldest topic first; a view, so not to be changed while it is walked through."""
        return self._values.items()

    def get(self, topic: str) -> V | None:
        """The value of exactly this topic."""
        return self._values.get(topic)

    def set(self, topic: str, value: V) -> None:
        """Stores the value, in place of the one that was there."""
        known = topic in self._values
        self._values[topic] = value
        if known:
            return
        parts = topic.split("/", _DEPTH)
        branch = self._root
        for depth, part in enumerate(parts, 1):
            entry = branch.get(part)
            if entry is None:
                branch[part] = topic
                return
            if isinstance(entry, str):
                _part_ways(branch, part, depth, topic, parts, entry)
                return
            branch = entry
        branch[_SELF] = topic

    def pop(self, topic: str) -> V | None:
        """Removes the topic and returns its value."""
        if topic not in self._values:
            return None
        value = self._values.pop(topic)
        branch = self._root
        trail: list[tuple[Branch, str]] = []
        for part in topic.split("/", _DEPTH):
            trail.append((branch, part))
            entry = branch[part]
            if isinstance(entry, str):
                break
            branch = entry
        else:
            trail.append((branch, _SELF))
        branch, part = trail.pop()
        del branch[part]
        # One topic left: it moves up to where it meets others. The branch itself keeps it as well: an
        # iteration may come to it later.
        while trail and len(branch) == 1:
            (entry,) = branch.values()
            if not isinstance(entry, str):
                break
            branch, part = trail.pop()
            branch[part] = entry
        return value

    def dismantled(self) -> tuple[dict[str, V], Branch]:
        """What it is made of, for whoever lets go of it piece by piece; it is not used any more."""
        return self._values, self._root

    def match(self, filter: str) -> list[tuple[str, V]]:
        """All topics that match, with their values."""
        return list(self.iterate(filter))

    def iterate(self, filter: str) -> Iterator[tuple[str, V]]:
        """Like `match`, one at a time. The tree may change between any two steps.

        A topic that is there all the time comes exactly once, one that comes or goes meanwhile at most once,
        always with the value it has at that moment.
        """
        values = self._values
        if "+" not in filter and "#" not in filter:
            if filter in values:
                yield filter, values[filter]
            return
        path = filter.split("/")
        many = path[-1] == "#"
        if many:
            path.pop()
        size = len(path)
        if filter[0] == "+" or filter == "#":
            # [MQTT-4.7.2-1] the keys of the root begin like their topics
            entries = iter([entry for key, entry in self._root.items() if key[:1] != "$"])
        else:
            entries = _candidates(self._root, path, many, 0)
        depth = 1
        above: list[Iterator[str | Branch]] = []
        while True:
            for entry in entries:
                if isinstance(entry, str):
                    length = entry.count("/") + 1
                    if (
                        (length == size or (many and length > size))
                        # A way of `size` levels has agreed with the filter at each of them.
                        and (size <= depth <= _DEPTH or agree(path, entry.split("/")))
                        and entry in values
                    ):
                        yield entry, values[entry]
                else:
                    above.append(entries)
                    entries = _candidates(entry, path, many, depth)
                    depth += 1
                    break
            else:
                if not above:
                    return
                entries = above.pop()
                depth -= 1


def _part_ways(branch: Branch, part: str, depth: int, topic: str, parts: list[str], other: str) -> None:
    """Makes room for `topic` where `other` was alone: branches as far as they agree, then one entry each."""
    theirs = other.split("/", _DEPTH)
    fork: Branch = {}
    branch[part] = fork
    while depth < len(parts) and depth < len(theirs) and parts[depth] == theirs[depth]:
        deeper: Branch = {}
        fork[parts[depth]] = deeper
        fork = deeper
        depth += 1
    fork[theirs[depth] if depth < len(theirs) else _SELF] = other
    fork[parts[depth] if depth < len(parts) else _SELF] = topic


def _candidates(branch: Branch, path: list[str], many: bool, depth: int) -> Iterator[str | Branch]:
    """The entries of a branch that may lead to a match, as they are now."""
    if depth >= len(path):
        if many:
            return iter(list(branch.values()))
        wanted = _SELF
    elif depth >= _DEPTH or path[depth] == "+":
        return iter(list(branch.values()))
    else:
        wanted = path[depth]
    entry = branch.get(wanted)
    return iter(() if entry is None else (entry,))
