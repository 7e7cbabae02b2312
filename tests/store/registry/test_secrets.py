"""Small binary records: compare and set, and an end."""

from __future__ import annotations

from typing import Any

import pytest

from store.registry.places import NOW, Place, at_once, drop, made, put, revert
from tidegate.store.registry import Answer, Applied, Conflict, Limits, Reason, Refused, Registry, Secret
from tidegate.store.registry.secrets import GRACE


def keep(where: Registry, key: str, value: bytes | None, expected: int | None = None, **options: Any) -> Answer:
    return where.secrets.put("token", key, value, **{"expected": expected, "at": NOW, **options})


def test_there_and_gone(place: Place) -> None:
    one, other = place.registry(), place.registry()
    value = bytes(range(256))
    assert isinstance(keep(one, "b", value, expires=NOW + 60), Applied)
    assert isinstance(keep(one, "a", b""), Applied)
    b = Secret(room="token", key="b", value=value, version=1, expires=NOW + 60)
    a = Secret(room="token", key="a", value=b"", version=2, expires=None)
    assert other.secrets.get("token", "b", at=NOW) == b
    assert other.secrets.all("token", at=NOW) == [a, b]
    assert other.secrets.all("key", at=NOW) == []
    assert other.secrets.get("key", "b", at=NOW) is None
    assert isinstance(keep(other, "b", None, 1), Applied)
    assert one.secrets.all("token", at=NOW) == [a]
    place.check()


def test_nothing_of_it_is_printed() -> None:
    assert "hush" not in repr(Secret(room="r", key="k", value=b"hush", version=1, expires=None))


def test_compare_and_set(place: Place) -> None:
    one = place.registry()
    assert keep(one, "k", None) == Conflict(kind="token", id="k", reason=Reason.MISSING, version=None)
    assert keep(one, "k", b"1", 3) == Conflict(kind="token", id="k", reason=Reason.MISSING, version=None)
    assert keep(one, "k", b"1", id="x") == Applied(sequence=1, id="x")
    assert keep(one, "k", b"1", id="x") == Applied(sequence=1, id="x")
    assert keep(one, "k", b"2") == Conflict(kind="token", id="k", reason=Reason.EXISTS, version=1)
    assert isinstance(keep(one, "k", b"2", 1), Applied)
    assert keep(one, "k", b"3", 1) == Conflict(kind="token", id="k", reason=Reason.CHANGED, version=2)
    assert keep(one, "k", None, 1) == Conflict(kind="token", id="k", reason=Reason.CHANGED, version=2)
    found = one.secrets.get("token", "k", at=NOW)
    assert found is not None
    assert found.value == b"2"
    assert isinstance(keep(one, "k", None), Applied)
    place.check()


def test_of_several_at_once_one_wins(place: Place) -> None:
    nodes = [place.registry() for _ in range(4)]
    for version in (None, 1, 2, 3, 4):
        answers = at_once(*(lambda n=n, v=version: keep(n, "k", b"%d" % id(n), v) for n in nodes))
        assert sorted(type(answer).__name__ for answer in answers) == ["Applied", "Conflict", "Conflict", "Conflict"]


def test_the_end(place: Place) -> None:
    one = place.registry()
    keep(one, "k", b"1", expires=NOW + 10)
    assert one.secrets.get("token", "k", at=NOW + 9.9) is not None
    assert one.secrets.get("token", "k", at=NOW + 10) is None
    assert one.secrets.all("token", at=NOW + 10) == []
    # what has expired does not exist
    assert keep(one, "k", b"2", 1, at=NOW + 10) == Conflict(kind="token", id="k", reason=Reason.MISSING, version=None)
    assert isinstance(keep(one, "k", b"2", at=NOW + 10, expires=NOW + 20), Applied)
    # it is removed when nobody's clock can take it for valid
    keep(one, "other", b"", at=NOW + 20 + GRACE)
    assert place.sql("SELECT count(*) FROM tidegate_secret") == [(2,)]
    keep(one, "third", b"", at=NOW + 21 + GRACE)
    assert place.sql("SELECT key FROM tidegate_secret ORDER BY key") == [("other",), ("third",)]
    place.check()


def test_rooms_with_changes(place: Place) -> None:
    one = place.registry()
    keep(one, "k", b"1")
    one.secrets.put("key", "k", b"1", expected=None, at=NOW)
    made(one, put("a", "1", {}))
    assert one.secrets.changed(0) == {"token", "key"}
    assert one.secrets.changed(1) == {"key"}
    assert one.secrets.changed(2) == one.secrets.changed(3) == frozenset()
    keep(one, "k", None)
    assert one.secrets.changed(3) == {"token"}
    # put back: anything may be different
    assert one.secrets.changed(99) == one.secrets.changed(-(10**30)) == {"token", "key"}
    # documents and secrets share their numbers, not their changes
    assert [entry.id for entry in one.since(0) or ()] == ["1"]
    answer = revert(one, 1, by="ann", why="", at=NOW)
    assert isinstance(answer, Refused)
    assert "secrets" in answer.what
    made(one, drop("a", "1"))


def test_bounds(place: Place) -> None:
    one = place.registry(limits=Limits(secret=3, secrets=2))
    assert keep(one, "k", b"1234") == Refused(what="token k has 4 bytes: up to 3 are taken")
    assert isinstance(keep(one, "k", b"123"), Applied)
    assert isinstance(keep(one, "l", b"123"), Applied)
    assert keep(one, "m", b"") == Refused(what="there are 2 secrets, and no more than 2 may be stored")
    assert isinstance(keep(one, "k", b"", 1), Applied)
    assert isinstance(keep(one, "k", None), Applied)
    assert isinstance(keep(one, "m", b""), Applied)
    place.check()


@pytest.mark.parametrize(("room", "key"), [("", "k"), ("Token", "k"), ("token", ""), ("token", "\0"), ("t\0", "k")])
def test_names(place: Place, room: str, key: str) -> None:
    one = place.registry()
    assert isinstance(one.secrets.put(room, key, b"", expected=None, at=NOW), Refused)
    assert one.secrets.get(room, key, at=NOW) is None
    assert one.secrets.all(room, at=NOW) == []


def test_times(place: Place) -> None:
    one = place.registry()
    assert isinstance(keep(one, "k", b"", expires=float("nan")), Refused)
    assert isinstance(keep(one, "k", b"", expires=float("inf")), Refused)
    assert isinstance(keep(one, "k", b"", at=float("nan")), Refused)
