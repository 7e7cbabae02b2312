"""The trie against brute force: every subscription asked one by one whether it matches."""

from __future__ import annotations

import time
from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidegate.routing import Subscriptions
from tidegate.routing.subscriptions import Crowd, Node
from tidegate.topics import MAX, matches

FILTER_LEVELS = ["", "a", "b", "$", "$a", "+"]
TOPIC_LEVELS = ["", "a", "b", "c", "$", "$a"]

filters = st.builds(
    lambda path, many: "/".join([*path, "#"] if many else path),
    st.lists(st.sampled_from(FILTER_LEVELS), max_size=5),
    st.booleans(),
).filter(bool)
topics = st.lists(st.sampled_from(TOPIC_LEVELS), min_size=1, max_size=6).map("/".join).filter(bool)
subscribers = st.integers(0, 12)

SHORT_TOPICS = [t for n in (1, 2, 3) for t in map("/".join, product(["", "a", "b", "$"], repeat=n)) if t]

Trie = Subscriptions[int, int]
Shape = tuple[object, ...]


def shape(node: Node[int, int]) -> Shape:
    """A node and all below it as a value that can be compared."""
    return (
        node.tail,
        frozenset(node.here or ()),
        frozenset(node.rest or ()),
        None if node.plus is None else shape(node.plus),
        None if node.children is None else {key: shape(child) for key, child in node.children.items()},
    )


def whole_shape(trie: Trie) -> Shape:
    exact = {key: frozenset(bucket) for key, bucket in trie._exact.items()}
    return exact, shape(trie._root), shape(trie._dollar), trie.nodes, len(trie)


def built(subscriptions: dict[tuple[str, int], int]) -> Trie:
    trie: Trie = Subscriptions()
    for (filter, subscriber), options in subscriptions.items():
        assert trie.add(filter, subscriber, options)
    return trie


def brute_force(subscriptions: dict[tuple[str, int], int], topic: str) -> Counter[tuple[int, int]]:
    return Counter((who, options) for (filter, who), options in subscriptions.items() if matches(filter, topic))


class Churn(RuleBasedStateMachine):
    """Adds, replacements and removals in any order, with a plain dict as the model."""

    def __init__(self) -> None:
        super().__init__()
        self.trie: Trie = Subscriptions()
        self.model: dict[tuple[str, int], int] = {}

    @rule(filter=filters, subscriber=subscribers, options=st.integers(0, 3))
    def add(self, filter: str, subscriber: int, options: int) -> None:
        assert self.trie.add(filter, subscriber, options) == ((filter, subscriber) not in self.model)
        self.model[filter, subscriber] = options

    @rule(filter=filters, first=st.integers(0, 6), count=st.integers(1, 12))
    def add_a_crowd(self, filter: str, first: int, count: int) -> None:
        for subscriber in range(first, first + count):
            self.add(filter, subscriber, 9)

    @rule(filter=filters, subscriber=subscribers)
    def remove_whatever(self, filter: str, subscriber: int) -> None:
        known = self.model.pop((filter, subscriber), None) is not None
        assert self.trie.remove(filter, subscriber) == known

    @rule(data=st.data())
    def remove_known(self, data: st.DataObject) -> None:
        if self.model:
            filter, subscriber = data.draw(st.sampled_from(sorted(self.model)))
            del self.model[filter, subscriber]
            assert self.trie.remove(filter, subscriber)
            assert not self.trie.remove(filter, subscriber)

    @rule(data=st.data(), options=st.integers(0, 3))
    def replace(self, data: st.DataObject, options: int) -> None:
        if self.model:
            filter, subscriber = data.draw(st.sampled_from(sorted(self.model)))
            self.model[filter, subscriber] = options
            assert not self.trie.add(filter, subscriber, options)

    @rule(topic=topics)
    def match(self, topic: str) -> None:
        assert Counter(self.trie.match(topic.split("/"))) == brute_force(self.model, topic)

    @invariant()
    def nothing_is_left_behind(self) -> None:
        assert whole_shape(self.trie) == whole_shape(built(self.model))

    def teardown(self) -> None:
        for topic in SHORT_TOPICS:
            self.match(topic)
        for filter, subscriber in list(self.model):
            assert self.trie.remove(filter, subscriber)
        assert whole_shape(self.trie) == whole_shape(Subscriptions())


Churn.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestChurn = Churn.TestCase


@settings(deadline=None)
@given(st.dictionaries(st.tuples(filters, subscribers), st.integers(0, 3), max_size=60), topics)
def test_match_is_brute_force(subscriptions: dict[tuple[str, int], int], topic: str) -> None:
    trie = built(subscriptions)
    assert len(trie) == len(subscriptions)
    assert Counter(trie.match(topic.split("/"))) == brute_force(subscriptions, topic)
    assert Counter(trie.match(tuple(topic.split("/")))) == brute_force(subscriptions, topic)


@settings(deadline=None)
@given(st.dictionaries(st.tuples(filters, subscribers), st.integers(0, 3), max_size=30), st.randoms())
def test_the_order_of_subscribing_does_not_matter(subscriptions: dict[tuple[str, int], int], random: Random) -> None:
    shuffled = list(subscriptions.items())
    random.shuffle(shuffled)
    assert whole_shape(built(subscriptions)) == whole_shape(built(dict(shuffled)))


def test_overlapping_filters_of_one_subscriber_all_appear() -> None:
    trie: Subscriptions[str, str] = Subscriptions()
    for filter in ("a/b", "a/+", "a/#", "+/b", "#", "a/b/#"):
        trie.add(filter, "me", filter)
    assert sorted(trie.match(["a", "b"])) == [("me", filter) for filter in ("#", "+/b", "a/#", "a/+", "a/b", "a/b/#")]


def test_leading_wildcards_leave_dollar_topics_alone() -> None:
    trie: Trie = Subscriptions()
    for number, filter in enumerate(("#", "+/a", "+/#", "$SYS/#", "$SYS/+", "$SYS/a", "a/#")):
        trie.add(filter, number, 0)
    assert sorted(trie.match(["$SYS", "a"])) == [(3, 0), (4, 0), (5, 0)]
    assert sorted(trie.match(["a", "$a"])) == [(0, 0), (2, 0), (6, 0)]
    assert trie.match(["$other", "a"]) == []


def test_match_returns_a_list_of_its_own() -> None:
    trie: Trie = Subscriptions()
    trie.add("a", 1, 0)
    trie.add("a/#", 2, 0)
    trie.match(["a"]).clear()
    assert trie.match(["a"]) == [(1, 0), (2, 0)]


@pytest.mark.parametrize("filter", ["a/b", "a/+", "a/#"])
def test_a_crowd_keeps_its_order_and_goes_back_to_few(filter: str) -> None:
    trie: Trie = Subscriptions()
    for subscriber in range(1000):
        assert trie.add(filter, subscriber, 1)
    assert not trie.add(filter, 500, 2)
    assert trie.match(["a", "b"]) == [(n, 2 if n == 500 else 1) for n in range(1000)]
    assert not trie.remove(filter, 1000)
    for subscriber in range(997):
        assert trie.remove(filter, subscriber)
    assert trie.match(["a", "b"]) == [(997, 1), (998, 1), (999, 1)]
    buckets = [
        *trie._exact.values(),
        *(b for n in _nodes(trie._root) for b in (n.here, n.rest) if b is not None),
    ]
    assert len(buckets) == 1
    assert not isinstance(buckets[0], Crowd)


def _nodes(node: Node[int, int]) -> list[Node[int, int]]:
    below = list((node.children or {}).values())
    if node.plus is not None:
        below.append(node.plus)
    return [node, *(n for child in below for n in _nodes(child))]


def test_subscribers_are_compared_by_equality_like_dict_keys() -> None:
    trie: Subscriptions[tuple[str, int], str] = Subscriptions()
    assert trie.add("a/+", ("x", 1), "old")
    assert not trie.add("a/+", ("x", int("1")), "new")
    assert trie.match(["a", "b"]) == [(("x", 1), "new")]
    assert trie.remove("a/+", ("x", int("1")))


def test_long_filters_cost_few_nodes_and_linear_time() -> None:
    # Two filters that part at the very end share one long tail; a node per level would be 65,000 of them.
    trie: Trie = Subscriptions()
    pluses = "/".join("+" * 32767)
    slashes = "/" * (MAX - 1)
    started = time.process_time()
    long = [slashes + "#", pluses + "/#", pluses + "/a", pluses + "/b", pluses[:-1] + "#", "+" + slashes[:-1]]
    for number, filter in enumerate(long):
        assert trie.add(filter, number, 0)
    assert trie.nodes <= 2 * len(long)
    assert sorted(trie.match([""] * 32768)) == [(1, 0), (4, 0)]
    assert sorted(trie.match([*[""] * 32767, "b"])) == [(1, 0), (3, 0), (4, 0)]
    assert sorted(trie.match([""] * MAX)) == [(0, 0), (1, 0), (4, 0)]
    assert trie.match(["a"]) == []
    for number, filter in enumerate(long):
        assert trie.remove(filter, number)
    assert trie.nodes == len(trie) == 0
    assert time.process_time() - started < 10


def test_a_branch_at_every_level_is_no_problem() -> None:
    # One node per level after all, because somebody subscribed at each: no recursion, not even to drop it.
    trie: Trie = Subscriptions()
    depth = 1500
    for n in range(1, depth):
        trie.add("+/" * n + "#", n, 0)
    assert trie.nodes == depth - 1
    assert len(trie.match(["x"] * depth)) == depth - 1
    assert len(trie.match(["x"] * MAX)) == depth - 1
    del trie


def test_pathological_pluses_visit_no_more_than_the_trie() -> None:
    trie: Trie = Subscriptions()
    depth = 10
    for number, path in enumerate(product("a+", repeat=depth)):
        trie.add("/".join(path) + "/z", number, 0)
    assert trie.nodes < 2 ** (depth + 1) + depth
    assert trie.match(["a"] * (depth + 1)) == []
    assert len(trie.match([*["a"] * depth, "z"])) == 2**depth
    assert len(trie.match(["b"] * depth + ["z"])) == 1
