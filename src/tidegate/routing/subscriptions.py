"""Who subscribed to what: filters with wildcards on one side, the subscribers of a topic on the other.

Filters without wildcards are keys of one dict. The others form a trie over levels, its chains compressed: a
node stands for the level it is found under and for the levels in its `tail`. Subscribers of `a/+/#` are the
`rest` of the node `a/+`, because `#` includes the parent; subscribers of `a/+` are `here`.

Invariants
- Every node except the two roots has subscribers or at least two nodes below it, so the shape depends only on
  what is subscribed, never on what once was. A subscription adds at most two nodes, whatever its length:
  memory is proportional to the characters of the filters, also for filters of 65,535 bytes.
- Filters that begin with `$` live under a root of their own, which is where topics that begin with `$` are
  looked up: this is all there is to [MQTT-4.7.2-1].

Worst case of `match`: where a level and a `+` both exist the walk goes both ways, so a topic of d levels
visits fewer than 2^(d+1) nodes, each at most once. To get there somebody must hold about half as many
subscriptions: with all filters of 16 levels made of `a` and `+`, 65,535 of which have a `+`, the topic
`a/a/.../a` visits all 131,068 nodes and costs tens of milliseconds. No set of subscriptions can do this to topics
of few levels. Whoever admits subscriptions bounds it by limiting how many one session may hold or how many
levels they may have; `nodes` tells how large the trie is.

What it will not do: validate, merge overlapping subscriptions of one subscriber, or share (see `share_groups`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from sys import intern
from typing import Final, Generic, TypeAlias, TypeVar

from tidegate.native import mypyc_attr

S = TypeVar("S", bound=Hashable)
O = TypeVar("O")  # noqa: E741  the options of one subscription

_FEW: Final = 8
"""Up to so many subscribers of one filter are a tuple: a dict of one entry costs four times as much."""


class Crowd(Generic[S, O]):
    """The subscribers of one filter when there are many: iterates like the tuple it replaces."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: tuple[tuple[S, O], ...]) -> None:
        self.pairs = {pair[0]: pair for pair in pairs}

    def __iter__(self) -> Iterator[tuple[S, O]]:
        return iter(self.pairs.values())


Bucket: TypeAlias = tuple[tuple[S, O], ...] | Crowd[S, O]


class Node(Generic[S, O]):
    """One place in the trie. Everything is None (or empty) until it is needed."""

    __slots__ = ("children", "here", "plus", "rest", "tail")

    def __init__(self, tail: tuple[str, ...] = ()) -> None:
        self.tail = tail
        self.children: dict[str, Node[S, O]] | None = None
        self.plus: Node[S, O] | None = None
        self.here: Bucket[S, O] | None = None
        self.rest: Bucket[S, O] | None = None

    def child(self, level: str) -> Node[S, O] | None:
        """The node below for this level of a filter."""
        if level == "+":
            return self.plus
        return None if self.children is None else self.children.get(level)

    def attach(self, level: str, node: Node[S, O]) -> None:
        """Puts `node` below, in place of what was there."""
        if level == "+":
            self.plus = node
        elif self.children is None:
            self.children = {level: node}
        else:
            self.children[level] = node

    def detach(self, level: str) -> None:
        """Takes the node for this level off."""
        if level == "+":
            self.plus = None
        else:
            assert self.children is not None
            del self.children[level]
            if not self.children:
                self.children = None

    def only(self) -> tuple[str, Node[S, O]] | None:
        """The one node below, if there is exactly one."""
        if self.children is None:
            return None if self.plus is None else ("+", self.plus)
        if self.plus is not None or len(self.children) > 1:
            return None
        return next(iter(self.children.items()))


@mypyc_attr(allow_interpreted_subclasses=True)
class Subscriptions(Generic[S, O]):
    """(filter, subscriber) -> options, and all (subscriber, options) whose filter matches a topic."""

    __slots__ = ("_dollar", "_exact", "_nodes", "_root", "_size", "visited")

    def __init__(self) -> None:
        self.visited = 0
        """Nodes that the last `match` has looked at."""
        self._exact: dict[str, Bucket[S, O]] = {}
        self._root: Node[S, O] = Node()
        self._dollar: Node[S, O] = Node()
        self._nodes = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nodes(self) -> int:
        """How many nodes the trie has, which bounds what one `match` may cost."""
        return self._nodes

    def add(self, filter: str, subscriber: S, options: O) -> bool:
        """Subscribes; False if this replaced the options that the subscriber had for the same filter."""
        pair = (subscriber, options)
        if "+" not in filter and "#" not in filter:
            self._exact[filter], new = _joined(self._exact.get(filter), pair)
        else:
            # Levels repeat from filter to filter; interned, all of them share one string.
            path = [intern(level) for level in filter.split("/")]
            if path[-1] == "#":
                path.pop()
                node = self._grow(filter, path)
                node.rest, new = _joined(node.rest, pair)
            else:
                node = self._grow(filter, path)
                node.here, new = _joined(node.here, pair)
        self._size += new
        return new

    def remove(self, filter: str, subscriber: S) -> bool:
        """Unsubscribes; False if there was no such subscription."""
        if "+" not in filter and "#" not in filter:
            left, removed = _parted(self._exact.get(filter), subscriber)
            if left is not None:
                self._exact[filter] = left
            elif removed:
                del self._exact[filter]
            self._size -= removed
            return removed
        path = filter.split("/")
        many = path[-1] == "#"
        if many:
            path.pop()
        trail = self._trail(filter, path)
        if trail is None:
            return False
        node = trail[-1][1]
        left, removed = _parted(node.rest if many else node.here, subscriber)
        if many:
            node.rest = left
        else:
            node.here = left
        self._size -= removed
        if removed and left is None:
            self._prune(trail)
        return removed

    def over(self, filter: str) -> list[tuple[S, O]]:
        """The subscriptions of exactly this filter."""
        if "+" not in filter and "#" not in filter:
            return list(self._exact.get(filter) or ())
        path = filter.split("/")
        many = path[-1] == "#"
        if many:
            path.pop()
        trail = self._trail(filter, path)
        if trail is None:
            return []
        node = trail[-1][1]
        return list((node.rest if many else node.here) or ())

    def match(self, levels: Sequence[str]) -> list[tuple[S, O]]:
        """Every subscription that matches the topic; a subscriber appears once for each of its filters."""
        # hot: one lookup for the whole topic, then per visited node one loop over the tail and one lookup
        out: list[tuple[S, O]] = []
        visited = 0
        matching = self._exact.get("/".join(levels))
        if matching is not None:
            out += matching
        node = self._dollar if levels[0][:1] == "$" else self._root
        size = len(levels)
        at = 0
        forks: list[tuple[Node[S, O], int]] = []
        while True:
            visited += 1
            for level in node.tail:
                if at == size or (level != levels[at] and level != "+"):
                    break
                at += 1
            else:
                matching = node.rest
                if matching is not None:
                    out += matching
                if at == size:
                    matching = node.here
                    if matching is not None:
                        out += matching
                else:
                    plus = node.plus
                    children = node.children
                    if children is not None:
                        child = children.get(levels[at])
                        if child is not None:
                            at += 1
                            if plus is not None:
                                forks.append((plus, at))
                            node = child
                            continue
                    if plus is not None:
                        at += 1
                        node = plus
                        continue
            if not forks:
                self.visited = visited
                return out
            node, at = forks.pop()

    def _grow(self, filter: str, path: list[str]) -> Node[S, O]:
        """The node of `path`, made if need be."""
        node = self._dollar if filter[0] == "$" else self._root
        at = 0
        while at < len(path):
            level = path[at]
            at += 1
            child = node.child(level)
            if child is None:
                child = Node(tuple(path[at:]))
                node.attach(level, child)
                self._nodes += 1
                return child
            tail = child.tail
            agreed = _agreed(tail, path, at)
            if agreed < len(tail):
                fork: Node[S, O] = Node(tail[:agreed])
                fork.attach(tail[agreed], child)
                child.tail = tail[agreed + 1 :]
                node.attach(level, fork)
                self._nodes += 1
                child = fork
            at += agreed
            node = child
        return node

    def _trail(self, filter: str, path: list[str]) -> list[tuple[str, Node[S, O]]] | None:
        """The nodes from the root to the one of `path`, each with the level it is found under."""
        node = self._dollar if filter[0] == "$" else self._root
        trail = [("", node)]
        at = 0
        while at < len(path):
            level = path[at]
            at += 1
            child = node.child(level)
            if child is None or _agreed(child.tail, path, at) < len(child.tail):
                return None
            at += len(child.tail)
            node = child
            trail.append((level, node))
        return trail

    def _prune(self, trail: list[tuple[str, Node[S, O]]]) -> None:
        """Restores the invariant after the last node of `trail` lost its subscribers."""
        level, node = trail.pop()
        if not trail or node.here is not None or node.rest is not None:
            return
        if node.children is None and node.plus is None:
            trail[-1][1].detach(level)
            self._nodes -= 1
            # The node above may have stood only because two ways parted there.
            level, node = trail.pop()
            if not trail or node.here is not None or node.rest is not None:
                return
        below = node.only()
        if below is not None:
            key, child = below
            child.tail = (*node.tail, key, *child.tail)
            trail[-1][1].attach(level, child)
            self._nodes -= 1


def _agreed(tail: tuple[str, ...], path: list[str], at: int) -> int:
    """How many levels of `tail` are the levels of `path` from `at` on."""
    count = 0
    for mine, theirs in zip(tail, path[at : at + len(tail)], strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _joined(bucket: Bucket[S, O] | None, pair: tuple[S, O]) -> tuple[Bucket[S, O], bool]:
    """The bucket with `pair` in it, and whether its subscriber is new there."""
    if bucket is None:
        return (pair,), True
    if isinstance(bucket, Crowd):
        size = len(bucket.pairs)
        bucket.pairs[pair[0]] = pair
        return bucket, len(bucket.pairs) > size
    for i, (subscriber, _) in enumerate(bucket):
        if subscriber == pair[0]:
            return (*bucket[:i], pair, *bucket[i + 1 :]), False
    bucket = (*bucket, pair)
    return (bucket if len(bucket) <= _FEW else Crowd(bucket)), True


def _parted(bucket: Bucket[S, O] | None, subscriber: S) -> tuple[Bucket[S, O] | None, bool]:
    """The bucket without `subscriber` (None if nobody is left), and whether it was there."""
    if bucket is None:
        return None, False
    if isinstance(bucket, Crowd):
        pairs = bucket.pairs
        if pairs.pop(subscriber, None) is None:
            return bucket, False
        # Back at half the size, so that one subscriber coming and going does not copy every time.
        return (bucket if len(pairs) > _FEW // 2 else tuple(pairs.values())), True
    left = tuple(pair for pair in bucket if pair[0] != subscriber)
    return left or None, len(left) < len(bucket)
