"""Groups take turns; every member is asked at most once."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.routing import Group, Shares


def always(_: str) -> bool:
    return True


def group(*members: str) -> Group[str, int]:
    made: Group[str, int] = Group("g", "a/+")
    for number, member in enumerate(members):
        assert made.add(member, number)
    return made


def turns(chosen: Group[str, int], count: int) -> str:
    return "".join(found[0] if (found := chosen.pick(always)) else "-" for _ in range(count))


def test_members_take_turns() -> None:
    assert turns(group("x", "y", "z"), 7) == "xyzxyzx"


def test_the_options_come_along() -> None:
    chosen = group("x", "y")
    assert chosen.pick(always) == ("x", 0)
    assert chosen.pick(always) == ("y", 1)


def test_nobody_can_be_picked_from_an_empty_group() -> None:
    assert group().pick(always) is None


def test_unusable_members_are_passed_over_and_asked_once() -> None:
    chosen = group("x", "y", "z")
    asked: list[str] = []

    def only_z(member: str) -> bool:
        asked.append(member)
        return member == "z"

    assert chosen.pick(only_z) == ("z", 2)
    assert asked == ["x", "y", "z"]
    asked.clear()

    def nobody(member: str) -> bool:
        asked.append(member)
        return False

    assert chosen.pick(nobody) is None
    assert asked == ["x", "y", "z"]
    assert turns(chosen, 3) == "xyz"


def test_a_new_member_waits_for_its_turn() -> None:
    chosen = group("x", "y")
    assert turns(chosen, 1) == "x"
    chosen.add("n", 9)
    assert turns(chosen, 6) == "yxnyxn"


def test_a_member_that_leaves_takes_only_its_own_turn() -> None:
    for leaver, expected in (("w", "xyzxyz"), ("x", "yzwyzw"), ("y", "xzwxzw"), ("z", "xywxyw")):
        chosen = group("w", "x", "y", "z")
        assert turns(chosen, 1) == "w"
        assert chosen.remove(leaver)
        assert not chosen.remove(leaver)
        assert turns(chosen, 6) == expected


def test_new_options_keep_the_turn() -> None:
    chosen = group("x", "y")
    assert turns(chosen, 1) == "x"
    assert not chosen.add("y", 7)
    assert chosen.pick(always) == ("y", 7)
    assert chosen.pick(always) == ("x", 0)


def test_members_may_leave_while_they_are_asked() -> None:
    chosen = group("x", "y", "z")

    def leaves(member: str) -> bool:
        chosen.remove(member)
        return member == "z"

    assert chosen.pick(leaves) is None
    assert len(chosen) == 0


def test_everybody_may_leave_while_one_is_asked() -> None:
    chosen = group("x", "y", "z")

    def all_leave(_: str) -> bool:
        chosen.members.clear()
        return False

    assert chosen.pick(all_leave) is None


@given(st.integers(1, 20), st.integers(1, 200))
def test_turns_are_even(size: int, count: int) -> None:
    chosen = group(*(chr(97 + n) for n in range(size)))
    counts = Counter(turns(chosen, count))
    assert max(counts.values()) - min(counts.get(member, 0) for member in chosen.members) <= 1


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "pick"]),
        st.sampled_from("abcde"),
        st.sets(st.sampled_from("abcde")),
    ),
    max_size=60,
)


@given(steps)
def test_a_group_is_a_queue(steps: list[tuple[str, str, set[str]]]) -> None:
    chosen: Group[str, int] = Group("g", "a")
    queue: deque[str] = deque()
    for number, (action, member, usable) in enumerate(steps):
        if action == "add":
            assert chosen.add(member, number) == (member not in queue)
            if member not in queue:
                queue.append(member)
        elif action == "remove":
            assert chosen.remove(member) == (member in queue)
            if member in queue:
                queue.remove(member)
        else:
            expected = None
            for _ in range(len(queue)):
                queue.rotate(-1)
                if queue[-1] in usable:
                    expected = queue[-1]
                    break
            found = chosen.pick(usable.__contains__)
            assert (found[0] if found else None) == expected
        assert list(chosen.members) == list(queue)


def test_a_group_is_its_name_and_its_filter() -> None:
    shares: Shares[str, int] = Shares()
    assert shares.add("g", "a/+", "x", 1)
    assert shares.add("g", "a/#", "x", 2)
    assert shares.add("h", "a/+", "x", 3)
    assert shares.add("g", "a/+", "y", 4)
    assert not shares.add("g", "a/+", "y", 5)
    assert len(shares) == 4
    found = {(group.name, group.filter): dict(group.members) for group in shares.match(["a", "b"])}
    assert found == {("g", "a/+"): {"x": 1, "y": 5}, ("g", "a/#"): {"x": 2}, ("h", "a/+"): {"x": 3}}
    assert [(group.name, group.filter) for group in shares.match(["a"])] == [("g", "a/#")]
    assert shares.match(["$a", "b"]) == []


def test_a_group_ends_with_its_last_member() -> None:
    shares: Shares[str, int] = Shares()
    shares.add("g", "a/+", "x", 1)
    shares.add("g", "a/+", "y", 2)
    (first,) = shares.match(["a", "b"])
    assert shares.remove("g", "a/+", "x")
    assert shares.match(["a", "b"]) == [first]
    assert not shares.remove("g", "a/+", "x")
    assert not shares.remove("g", "a/#", "y")
    assert not shares.remove("h", "a/+", "y")
    assert shares.remove("g", "a/+", "y")
    assert shares.match(["a", "b"]) == []
    assert len(shares) == 0
    assert shares._trie.nodes == len(shares._trie) == len(shares._groups) == 0


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.sampled_from("gh"),
            st.sampled_from(["a", "+", "#", "a/+"]),
            st.sampled_from("xyz"),
        )
    )
)
def test_shares_are_a_set_of_triples(steps: list[tuple[bool, str, str, str]]) -> None:
    shares: Shares[str, int] = Shares()
    model: set[tuple[str, str, str]] = set()
    for joins, name, filter, member in steps:
        triple = (name, filter, member)
        if joins:
            assert shares.add(name, filter, member, 0) == (triple not in model)
            model.add(triple)
        else:
            assert shares.remove(name, filter, member) == (triple in model)
            model.discard(triple)
        assert len(shares) == len(model)
    found = {(g.name, g.filter, member) for t in (["a"], ["a", "b"]) for g in shares.match(t) for member in g.members}
    assert found == model
