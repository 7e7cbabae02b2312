"""The topic tree against a plain dict and brute force."""

from __future__ import annotations

import time
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidegate.routing import TopicTree
from tidegate.routing.tree import Branch
from tidegate.topics import MAX, matches

topic_levels = st.sampled_from(["", "a", "b", "c", "$", "$a"])
filter_levels = st.sampled_from(["", "a", "b", "$", "$a", "+", "+"])

short_topics = st.lists(topic_levels, min_size=1, max_size=5).map("/".join).filter(bool)
# Around the depth where the tree ends, with nearly the same levels so that they meet there.
deep_topics = st.builds(
    lambda middle, end: "/".join(["a"] * middle + end),
    st.integers(12, 17),
    st.lists(topic_levels, min_size=1, max_size=4),
)
topics = short_topics | deep_topics

short_filters = st.builds(
    lambda path, many: "/".join([*path, "#"] if many else path),
    st.lists(filter_levels, max_size=5),
    st.booleans(),
).filter(bool)
deep_filters = st.builds(
    lambda middle, end, many: "/".join(middle + end + ["#"] * many),
    st.lists(st.sampled_from(["a", "a", "a", "+"]), min_size=12, max_size=17),
    st.lists(filter_levels, min_size=1, max_size=4),
    st.booleans(),
)
filters = short_filters | deep_filters

FILTERS = ["#", "+", "+/#", "+/+", "a/#", "a/+", "a", "$/#", "+/a", "/#", "a/b/+"]
FILTERS += ["/".join(["+"] * n + end) for n in (15, 16, 17) for end in ([], ["#"], ["a"], ["a", "#"])]


def brute_force(model: dict[str, int], filter: str) -> dict[str, int]:
    return {topic: value for topic, value in model.items() if matches(filter, topic)}


def built(model: dict[str, int]) -> TopicTree[int]:
    tree: TopicTree[int] = TopicTree()
    for topic, value in model.items():
        tree.set(topic, value)
    return tree


def held(branch: Branch) -> int:
    """How many topics are below a branch; fails on branches that need not exist."""
    counts = [(entry, 1 if isinstance(entry, str) else held(entry)) for entry in branch.values()]
    assert all(isinstance(entry, str) or count > 1 for entry, count in counts)
    return sum(count for _, count in counts)


class Churn(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree: TopicTree[int] = TopicTree()
        self.model: dict[str, int] = {}

    @rule(topic=topics, value=st.integers())
    def set(self, topic: str, value: int) -> None:
        self.tree.set(topic, value)
        self.model[topic] = value

    @rule(topic=topics)
    def pop_whatever(self, topic: str) -> None:
        assert self.tree.pop(topic) == self.model.pop(topic, None)

    @rule(data=st.data())
    def pop_known(self, data: st.DataObject) -> None:
        if self.model:
            topic = data.draw(st.sampled_from(sorted(self.model)))
            assert self.tree.pop(topic) == self.model.pop(topic)
            assert self.tree.pop(topic) is None

    @rule(topic=topics)
    def get(self, topic: str) -> None:
        assert self.tree.get(topic) == self.model.get(topic)

    @rule(filter=filters)
    def match(self, filter: str) -> None:
        found = self.tree.match(filter)
        assert len(dict(found)) == len(found)
        assert dict(found) == brute_force(self.model, filter)

    @invariant()
    def same_as_the_model(self) -> None:
        assert len(self.tree) == len(self.model)
        assert dict(self.tree.items()) == self.model

    @invariant()
    def nothing_is_left_behind(self) -> None:
        assert held(self.tree._root) == len(self.model)
        assert self.tree._root == built(self.model)._root

    def teardown(self) -> None:
        for filter in FILTERS:
            self.match(filter)
        for topic in list(self.model):
            self.tree.pop(topic)
        assert self.tree._root == {}


Churn.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestChurn = Churn.TestCase


@settings(deadline=None)
@given(st.dictionaries(topics, st.integers(), max_size=60), filters)
def test_match_is_brute_force(model: dict[str, int], filter: str) -> None:
    assert dict(built(model).match(filter)) == brute_force(model, filter)


def test_every_filter_over_every_small_topic() -> None:
    every = ["/".join(path) for n in (1, 2, 3) for path in product(["", "a", "$"], repeat=n)]
    model = {topic: number for number, topic in enumerate(filter(None, every))}
    tree = built(model)
    plain = ["/".join(path) for n in (1, 2, 3, 4) for path in product(["", "a", "$", "+"], repeat=n)]
    for wanted in [*filter(None, plain), "#", *(f"{path}/#" for path in plain)]:
        found = tree.match(wanted)
        assert len(found) == len(dict(found)), wanted
        assert dict(found) == brute_force(model, wanted), wanted


# Few topics, so that a change often hits what the iteration holds on to.
crowded = st.sampled_from(["/".join(path) for n in (1, 2, 3) for path in product("ab", repeat=n)])
broad = st.sampled_from(["#", "+/#", "a/#", "a/+/#", "+/+", "+/+/+", "a/+/+", "+/b/#"])
changes = st.lists(st.tuples(crowded, st.booleans()), max_size=30)


@settings(deadline=None, max_examples=500)
@given(st.dictionaries(crowded, st.just(0), min_size=4), broad, changes, st.integers(1, 5))
def test_the_tree_may_change_while_it_is_iterated(
    model: dict[str, int], filter: str, changes: list[tuple[str, bool]], pace: int
) -> None:
    tree = built(model)
    constant = set(brute_force(model, filter))
    ever = set(constant)
    seen: list[str] = []
    for step, (topic, value) in enumerate(tree.iterate(filter), 1):
        assert tree.get(topic) == value
        seen.append(topic)
        for changed, present in changes[(step - 1) * pace : step * pace]:
            if present:
                tree.set(changed, step)
                ever.add(changed)
            else:
                tree.pop(changed)
                constant.discard(changed)
    assert len(set(seen)) == len(seen)
    assert constant <= set(seen) <= ever
    assert all(matches(filter, topic) for topic in seen)


def test_a_topic_that_moves_up_is_not_missed() -> None:
    tree = built({"x": 0, "a/1/p": 1, "a/1/q": 2, "a/2": 3})
    pieces = tree.iterate("#")
    assert next(pieces) == ("x", 0)
    tree.pop("a/1/p")
    tree.pop("a/2")
    assert list(pieces) == [("a/1/q", 2)]


def test_a_topic_that_is_gone_does_not_come() -> None:
    tree = built({"a/1": 1, "a/2": 2, "a/3": 3})
    pieces = tree.iterate("a/#")
    assert next(pieces) == ("a/1", 1)
    tree.pop("a/2")
    tree.set("a/3", 4)
    tree.set("a/4", 5)
    assert list(pieces) in ([("a/3", 4)], [("a/3", 4), ("a/4", 5)])


def test_iterating_may_stop_early() -> None:
    tree = built({f"a/{n}": n for n in range(100)})
    pieces = tree.iterate("a/+")
    assert [next(pieces) for _ in range(3)] == [("a/0", 0), ("a/1", 1), ("a/2", 2)]
    del pieces
    for n in range(100):
        assert tree.pop(f"a/{n}") == n
    assert tree.match("#") == []


def test_the_same_history_gives_the_same_order() -> None:
    tree = built({"b/1": 0, "a": 1, "b": 2, "a/x/y": 3, "b/0": 4, "$SYS": 5})
    assert tree.match("#") == [("b/1", 0), ("b", 2), ("b/0", 4), ("a", 1), ("a/x/y", 3)]
    assert tree.match("b/#") == [("b/1", 0), ("b", 2), ("b/0", 4)]
    assert next(iter(tree.items())) == ("b/1", 0)


def test_false_values_are_values() -> None:
    tree: TopicTree[int | None] = TopicTree()
    tree.set("a/b", 0)
    tree.set("a/c", None)
    assert tree.match("a/+") == [("a/b", 0), ("a/c", None)]
    assert tree.match("a/c") == [("a/c", None)]
    assert tree.pop("a/b") == 0
    assert tree.pop("a/c") is None
    assert len(tree) == 0


def test_setting_again_replaces() -> None:
    tree = built({"a": 1})
    tree.set("a", 2)
    assert tree.match("#") == [("a", 2)]
    assert len(tree) == 1


def branches(branch: Branch) -> int:
    return 1 + sum(0 if isinstance(entry, str) else branches(entry) for entry in branch.values())


def test_sixty_five_thousand_levels_cost_few_branches_and_linear_time() -> None:
    tree: TopicTree[int] = TopicTree()
    started = time.process_time()
    slashes = "/" * (MAX - 3)
    for n in range(20):
        tree.set(f"{slashes}{n:02}", n)
    assert branches(tree._root) <= 17
    assert len(tree.match("#")) == 20
    assert tree.match(f"{slashes}07") == [(f"{slashes}07", 7)]
    assert tree.match(f"+{slashes}07") == [(f"{slashes}07", 7)]
    assert tree.match(f"+/{slashes}07") == []
    assert len(tree.match(f"+{slashes}#")) == 20
    assert len(tree.match(f"{slashes}+")) == 20
    assert len(tree.match("/".join("+" * 32768))) == 0
    assert len(tree.match("/".join("+" * 32767) + "/#")) == 20
    for n in range(20):
        assert tree.pop(f"{slashes}{n:02}") == n
    assert tree._root == {}
    assert time.process_time() - started < 20
