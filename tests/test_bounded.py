"""Bounded dictionaries: what they forget, and when."""

from __future__ import annotations

import pytest

from tidegate.bounded import Bounded, Newest


def test_a_new_key_in_a_full_one_forgets_all_others() -> None:
    cache: Bounded[str, int] = Bounded(2)
    cache["a"] = 1
    cache["b"] = 2
    cache["b"] = 3  # not new
    assert cache == {"a": 1, "b": 3}
    cache["c"] = 4
    assert cache == {"c": 4}


def test_missing_values_are_made_once() -> None:
    made: list[str] = []

    def length(key: str) -> int:
        made.append(key)
        return len(key)

    cache = Bounded(2, length)
    assert [cache["a"], cache["a"], cache["bb"]] == [1, 1, 2]
    assert made == ["a", "bb"]
    assert cache["ccc"] == 3
    assert list(cache) == ["ccc"]
    assert cache.get("a") is None


def test_nothing_is_made_without_a_maker() -> None:
    with pytest.raises(KeyError):
        Bounded[str, int](2)["a"]


def test_what_fails_to_be_made_is_not_kept() -> None:
    cache: Bounded[str, int] = Bounded(2, int)
    with pytest.raises(ValueError, match="invalid literal"):
        cache["a"]
    assert not cache


def test_the_newest_are_kept() -> None:
    cache: Newest[str, int] = Newest(2)
    cache["a"] = 1
    cache["b"] = 2
    cache["a"] = 3
    cache["c"] = 4
    assert list(cache.items()) == [("a", 3), ("c", 4)]


def test_the_last_used_are_kept_if_uses_are_told() -> None:
    cache: Newest[str, int] = Newest(2)
    cache["a"] = 1
    cache["b"] = 2
    cache.move_to_end("a")
    cache["c"] = 3
    assert list(cache) == ["a", "c"]
