"""Documents: made, changed, deleted, told, taken back; all or nothing, and never over what somebody else did."""

from __future__ import annotations

from typing import Any

import pytest

from store.registry.places import NOW, Place, bodies, drop, made, make, put, revert
from tidegate.errors import ConfigError, StoreError
from tidegate.store.registry import Applied, Change, Conflict, Entry, Limits, Reason, Refused, registry


def test_an_empty_one(place: Place) -> None:
    empty = place.registry()
    assert (empty.load().sequence, empty.load().documents) == (0, ())
    assert empty.since(0) == []
    assert empty.history("policy", "p1") == []
    place.check()


def test_what_is_made_is_there_with_who_when_and_why(place: Place) -> None:
    one = place.registry()
    body = {"topic": "a/#", "when": "s.x == 'é\u0000😀'", "n": [1, 2.5, None, True, {"deep": {}}]}
    answer = make(one, put("policy", "p1", body), by="user:ann", why="asked for", at=NOW + 0.25)
    assert answer == Applied(sequence=1, id=answer.id)  # type: ignore[union-attr]
    entry = Entry(sequence=1, kind="policy", id="p1", body=body, at=NOW + 0.25, by="user:ann", why="asked for")
    assert one.load().documents == (entry,)
    assert place.registry().load() == one.load()
    assert one.since(0) == one.history("policy", "p1") == [entry]
    assert one.since(1) == []


def test_it_outlives_the_registry(place: Place) -> None:
    one = place.registry()
    made(one, put("policy", "p1", {"a": 1}))
    one.close()
    with pytest.raises(StoreError, match="closed"):
        one.load()
    assert bodies(place.registry()) == {("policy", "p1"): {"a": 1}}


def test_changing_needs_the_version_that_is_there(place: Place) -> None:
    one = place.registry()
    first = made(one, put("policy", "p1", {"a": 1}))
    second = made(one, put("policy", "p1", {"a": 2}, first))
    for expected in (first, second + 1, 0):
        answer = make(one, put("policy", "p1", {"a": 3}, expected))
        assert answer == Conflict(kind="policy", id="p1", reason=Reason.CHANGED, version=second)
    assert make(one, drop("policy", "p1", first)) == answer
    assert str(answer) == "policy p1 was changed in the meantime (version 2)"
    assert one.load().documents[0].sequence == one.load().sequence == second
    made(one, drop("policy", "p1", second))
    assert bodies(one) == {}


def test_creating_what_exists_and_changing_or_deleting_what_does_not(place: Place) -> None:
    one = place.registry()
    assert make(one, drop("user", "bob")) == Conflict(kind="user", id="bob", reason=Reason.MISSING, version=None)
    assert make(one, put("user", "bob", {}, 4)) == Conflict(kind="user", id="bob", reason=Reason.MISSING, version=None)
    version = made(one, put("user", "bob", {}))
    assert make(one, put("user", "bob", {})) == Conflict(kind="user", id="bob", reason=Reason.EXISTS, version=version)
    made(one, drop("user", "bob"))
    assert make(one, drop("user", "bob")) == Conflict(kind="user", id="bob", reason=Reason.MISSING, version=None)
    assert one.load().sequence == 2


def test_a_version_is_never_used_again(place: Place) -> None:
    """Whoever saw the first Bob cannot change the second one."""
    one = place.registry(limits=Limits(deleted=0))
    seen = made(one, put("user", "bob", {"n": 1}))
    made(one, drop("user", "bob"))
    again = made(one, put("user", "bob", {"n": 2}))
    assert make(one, put("user", "bob", {"n": 3}, seen)) == Conflict(
        kind="user", id="bob", reason=Reason.CHANGED, version=again
    )


def test_all_or_nothing(place: Place) -> None:
    one = place.registry()
    version = made(one, put("a", "1", {"n": 1}), put("a", "2", {"n": 1}))
    before = one.load()
    answer = make(one, put("a", "1", {"n": 2}, version), put("a", "3", {}), drop("a", "2", version + 7))
    assert answer == Conflict(kind="a", id="2", reason=Reason.CHANGED, version=version)
    assert one.load() == before
    assert one.history("a", "3") == []
    together = made(one, put("a", "1", {"n": 2}, version), put("a", "3", {}), drop("a", "2", version))
    assert bodies(one) == {("a", "1"): {"n": 2}, ("a", "3"): {}}
    assert [(entry.sequence, entry.id, entry.body) for entry in one.since(version) or ()] == [
        (together, "1", {"n": 2}),
        (together, "2", None),
        (together, "3", {}),
    ]
    place.check()


def test_the_order_is_that_of_the_bytes(place: Place) -> None:
    one = place.registry()
    names = ["b", "a", "B", "é", "a-", "a b", "Z", "z", "10", "9"]
    made(one, *(put("k", name, {}) for name in names))
    assert [document.id for document in one.load().documents] == sorted(names)


def test_history_has_every_version_and_the_deletions(place: Place) -> None:
    one = place.registry()
    first = made(one, put("view", "v", {"n": 1}), by="ann", why="new", at=NOW)
    made(one, put("view", "other", {}))
    second = made(one, put("view", "v", {"n": 2}, first), by="bob", why="better", at=NOW + 1)
    third = made(one, drop("view", "v"), by="cid", why="", at=NOW + 2)
    fourth = made(one, put("view", "v", {"n": 4}), by="ann", why="again", at=NOW + 3)
    assert [(e.sequence, e.body, e.by, e.why, e.at) for e in one.history("view", "v")] == [
        (first, {"n": 1}, "ann", "new", NOW),
        (second, {"n": 2}, "bob", "better", NOW + 1),
        (third, None, "cid", "", NOW + 2),
        (fourth, {"n": 4}, "ann", "again", NOW + 3),
    ]


def test_taking_a_change_back(place: Place) -> None:
    one = place.registry()
    first = made(one, put("a", "kept", {"n": 1}), put("a", "gone", {"n": 1}))
    second = made(one, put("a", "kept", {"n": 2}, first), drop("a", "gone"), put("a", "new", {}))
    answer = revert(one, second, by="ann", why="a mistake", at=NOW)
    assert isinstance(answer, Applied)
    assert bodies(one) == {("a", "kept"): {"n": 1}, ("a", "gone"): {"n": 1}}
    assert {(entry.by, entry.why) for entry in one.since(second) or ()} == {("ann", "a mistake")}
    # that was a change as well
    assert isinstance(revert(one, answer.sequence, by="ann", why="no mistake", at=NOW), Applied)
    assert bodies(one) == {("a", "kept"): {"n": 2}, ("a", "new"): {}}
    place.check()


def test_taking_back_what_was_changed_since(place: Place) -> None:
    one = place.registry()
    first = made(one, put("a", "1", {"n": 1}), put("a", "2", {"n": 1}))
    second = made(one, put("a", "2", {"n": 2}, first))
    before = one.load()
    answer = revert(one, first, by="ann", why="", at=NOW)
    assert answer == Conflict(kind="a", id="2", reason=Reason.CHANGED, version=second)
    made(one, drop("a", "2"))
    answer = revert(one, second, by="ann", why="", at=NOW)
    assert answer == Conflict(kind="a", id="2", reason=Reason.MISSING, version=None)
    assert bodies(one) == {("a", "1"): before.documents[0].body}


@pytest.mark.parametrize("sequence", [0, 2, -1, 10**30, -(10**30)])
def test_taking_back_what_never_was(place: Place, sequence: int) -> None:
    one = place.registry()
    made(one, put("a", "1", {}))
    assert revert(one, sequence, by="ann", why="", at=NOW) == Refused(
        what=f"there was no change {sequence}: the newest one is 1"
    )


def test_the_same_id_is_the_same_change(place: Place) -> None:
    one, other = place.registry(), place.registry()
    assert one.outcome("x") is None
    first = make(one, put("a", "1", {"n": 1}), id="x")
    assert first == Applied(sequence=1, id="x")
    assert make(other, put("a", "1", {"n": 1}), id="x") == first
    assert other.outcome("x") == first
    assert one.load().sequence == 1


def test_a_conflict_does_not_use_up_the_id(place: Place) -> None:
    one = place.registry()
    assert isinstance(make(one, drop("a", "1"), id="x"), Conflict)
    assert one.outcome("x") is None
    assert make(one, put("a", "1", {}), id="x") == Applied(sequence=1, id="x")


def test_ids_are_remembered_for_a_while(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.store.registry.state.REMEMBERED", 3)
    one = place.registry()
    for number in range(1, 6):
        made(one, put("a", str(number), {}), id=f"id{number}")
    assert [one.outcome(f"id{number}") is not None for number in range(1, 6)] == [False, False, True, True, True]


WRONG: list[tuple[Change, str]] = [
    (Change(kind="", id="x", body={}), "the kind ''"),
    (Change(kind="Policy", id="x", body={}), "the kind 'Policy'"),
    (Change(kind="a" * 65, id="x", body={}), "the kind"),
    (Change(kind="a", id="", body={}), "the a ''"),
    (Change(kind="a", id="x\0", body={}), "without control characters"),
    (Change(kind="a", id="x\ny", body=None), "without control characters"),
    (Change(kind="a", id="\ud800", body={}), "as its name"),
    (Change(kind="a", id="é" * 257, body={}), "1 to 512 bytes"),
    (Change(kind="a", id="x", body={"n": float("nan")}), "a x is not a JSON object"),
    (Change(kind="a", id="x", body={"n": 2**70}), "not a JSON object"),
    (Change(kind="a", id="x", body={"n": (1, 2)}), "not a JSON object"),
    (Change(kind="a", id="x", body={"n": object()}), "not a JSON object"),
    (Change(kind="a", id="x", body={"n": "\ud800"}), "not a JSON object"),
    (Change(kind="a", id="x", body={1: 2}), "not a JSON object"),  # type: ignore[dict-item]
    (Change(kind="a", id="x", body={"n": "y" * 93}), "has 101 bytes: up to 100 are taken"),
]


@pytest.mark.parametrize(("change", "what"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_what_cannot_be_kept_is_refused_whole(place: Place, change: Change, what: str) -> None:
    one = place.registry(limits=Limits(body=100))
    answer = make(one, put("a", "fine", {"n": "y" * 92}), change)
    assert isinstance(answer, Refused)
    assert what in answer.what
    assert one.load().sequence == 0
    assert one.history(change.kind, change.id) == []


@pytest.mark.parametrize(
    ("signature", "what"),
    [
        ({"by": ""}, "nobody signs"),
        ({"by": "x" * 513}, "nobody signs"),
        ({"by": "a\0"}, "nobody signs"),
        ({"why": "x" * 4097}, "the reason"),
        ({"why": "\udfff"}, "the reason"),
        ({"id": "x" * 65}, "the id"),
        ({"at": float("nan")}, "is no time"),
        ({"at": float("inf")}, "is no time"),
    ],
)
def test_who_when_and_why_have_to_be_said(place: Place, signature: dict[str, Any], what: str) -> None:
    one = place.registry()
    answer = make(one, put("a", "1", {}), **signature)
    assert isinstance(answer, Refused)
    assert what in answer.what


def test_too_much_at_once_nothing_and_twice_the_same(place: Place) -> None:
    one = place.registry(limits=Limits(changes=2))
    assert make(one) == Refused(what="there is nothing to change")
    changes = [put("a", str(n), {}) for n in range(3)]
    assert make(one, *changes) == Refused(what="3 changes at once: up to 2 are taken")
    assert make(one, changes[0], drop("a", "0")) == Refused(
        what="a 0 is changed twice at once: leave one of the changes out"
    )


def test_the_number_of_documents_is_bounded(place: Place) -> None:
    one = place.registry(limits=Limits(documents=2))
    first = made(one, put("a", "1", {}), put("a", "2", {}))
    answer = make(one, put("a", "3", {}))
    assert answer == Refused(what="there are 2 documents, and no more than 2 may be stored")
    made(one, put("a", "1", {"n": 1}, first))
    made(one, drop("a", "2"), put("a", "3", {}))
    assert isinstance(make(one, put("a", "2", {})), Refused)
    # fewer than there are: nothing is thrown away, and it may become less
    other = place.registry(limits=Limits(documents=1))
    assert len(other.load().documents) == 2
    made(other, drop("a", "3"))
    place.check()


def test_history_is_bounded_and_the_current_version_is_always_kept(place: Place) -> None:
    one = place.registry(limits=Limits(history=3))
    version = made(one, put("a", "1", {"n": 0}), put("a", "quiet", {}))
    for number in range(1, 6):
        version = made(one, put("a", "1", {"n": number}, version))
    assert [entry.body for entry in one.history("a", "1")] == [{"n": 3}, {"n": 4}, {"n": 5}]
    assert bodies(one) == {("a", "1"): {"n": 5}, ("a", "quiet"): {}}
    # who was away for long still learns of everything that is
    told: dict[str, Any] = {entry.id: entry.body for entry in one.since(0) or ()}
    assert told == {"1": {"n": 5}, "quiet": {}}
    # a change of which a part is forgotten is not taken back by halves
    answer = revert(one, 1, by="ann", why="", at=NOW)
    assert isinstance(answer, Refused)
    assert "no longer kept whole" in answer.what
    assert isinstance(revert(one, version, by="ann", why="", at=NOW), Applied)
    assert bodies(one)["a", "1"] == {"n": 4}


def test_what_was_deleted_is_forgotten_in_the_end(place: Place) -> None:
    one = place.registry(limits=Limits(deleted=2))
    made(one, *(put("a", str(n), {}) for n in range(4)))
    for number in range(3):
        made(one, drop("a", str(number)))
    assert one.history("a", "0") == []
    assert [entry.body for entry in one.history("a", "1")] == [{}, None]
    # who has not heard of the deletion cannot be told any more
    assert one.since(1) is None
    assert [entry.id for entry in one.since(2) or ()] == ["1", "2"]
    assert isinstance(revert(one, 2, by="ann", why="", at=NOW), Refused)
    assert isinstance(revert(one, 3, by="ann", why="", at=NOW), Applied)
    assert bodies(one) == {("a", "1"): {}, ("a", "3"): {}}
    place.check()


def test_a_database_that_was_put_back_cannot_tell(place: Place) -> None:
    one = place.registry()
    made(one, put("a", "1", {}))
    assert one.since(2) is None
    assert one.since(10**30) is None
    assert one.since(-(10**30)) is None


def test_limits_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="at least 2 versions"):
        Limits(history=1)
    with pytest.raises(ConfigError, match="below 1"):
        Limits(documents=0)


def test_opening_twice(place: Place) -> None:
    one = place.registry()
    with pytest.raises(StoreError, match="opened before"):
        one.open()
    closed = registry(place.url)
    with pytest.raises(StoreError, match="not open"):
        closed.listen(print, after=0)


def test_documents_of_a_group_share_a_bound(place: Place) -> None:
    """The oldest versions go first, then what was deleted; `check` of the place finds the counts right."""
    one = place.registry(limits=Limits(group=1000))

    def own(id: str, size: int | None, expected: int | None = None) -> Change:
        body = None if size is None else {"x": "x" * (size - 8)}
        return Change(kind="preference", id=id, body=body, expected=expected, group="own-a-")

    other = made(one, put("preference", "own-b-1", {"x": "x" * 900}))
    version = made(one, own("own-a-1", 300))
    for _ in range(5):
        version = made(one, own("own-a-1", 300, version))
    assert [each.sequence for each in one.history("preference", "own-a-1")] == [version - 2, version - 1, version]
    second = made(one, own("own-a-2", 300))
    assert len(one.history("preference", "own-a-1")) == 2, "the last change can be taken back"
    full = make(one, own("own-a-2", 300, second))
    assert isinstance(full, Refused)
    assert full.full
    assert [each.sequence for each in one.history("preference", "own-a-2")] == [second], "nothing was written"
    for _ in range(5):
        gone = made(one, own("own-a-2", None, second))
        second = made(one, own("own-a-3", 300))
        assert make(one, own("own-a-3", None, second))
        second = made(one, own("own-a-2", 300))
    assert len(one.history("preference", "own-a-1")) == 2
    assert gone
    assert one.since(0) is None, "a follower that is so far behind reads everything again"
    assert one.history("preference", "own-b-1")[-1].sequence == other
    place.check()
