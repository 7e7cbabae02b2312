"""Numbers of owners' preferences as a node keeps them: in its store, or in a registry that may be away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from policy.written import preference_of
from tidegate.admin.preference_number_store import ROOM, NodePreferenceNumbers
from tidegate.errors import StoreError
from tidegate.policy import Preferences
from tidegate.policy.home_preferences import HomePreferences
from tidegate.store.registry import Registry, registry


def home(when: str) -> HomePreferences:
    return HomePreferences(Preferences([preference_of(id="u", user="mary", topic="#", when=when)], domain="home"))


class Kept(dict[str, bytes]):
    def keep(self, room: str, key: str, value: bytes | None, *, urgent: bool = True) -> None:
        assert room == ROOM
        if value is None:
            del self[key]
        else:
            self[key] = value


def take(node: NodePreferenceNumbers, when: str) -> int:
    node.adopt(asyncio.run(node.take_up(home(when))))
    return node.numbers["user:mary"].number


def test_without_a_registry_they_are_in_the_store() -> None:
    kept = Kept()
    node = NodePreferenceNumbers(kept, kept.keep, None)
    first = take(node, "true")
    assert first > 1_700_000_000_000
    assert take(node, "true") == first
    again = NodePreferenceNumbers(kept, kept.keep, None)
    assert again.numbers["user:mary"].number == first
    assert take(again, "true") == first
    assert take(again, "false") > first


def test_nothing_counts_before_it_is_adopted() -> None:
    kept = Kept()
    node = NodePreferenceNumbers(kept, kept.keep, None)
    asyncio.run(node.take_up(home("true")))
    assert not node.numbers
    assert not kept


@pytest.fixture
def shared(tmp_path: Path) -> Registry:
    return registry(f"sqlite:///{tmp_path / 'registry.db'}", patience=0.1)


def test_a_node_takes_its_numbers_along_to_a_registry(shared: Registry) -> None:
    kept = Kept()
    first = take(NodePreferenceNumbers(kept, kept.keep, None), "true")
    shared.open()
    node = NodePreferenceNumbers(kept, kept.keep, shared)
    assert take(node, "true") == first
    assert not kept
    assert shared.preference_numbers.all()["user:mary"].number == first
    shared.close()


def test_while_the_registry_is_away_the_node_keeps_them(shared: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    shared.open()
    kept = Kept()
    node = NodePreferenceNumbers(kept, kept.keep, shared)
    first = take(node, "true")

    def away(*args: object, **fields: object) -> None:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(shared.preference_numbers, "take_up", away)
        second = take(node, "false")
        assert second > first
        assert list(kept) == ["user:mary"]
    assert take(node, "false") == second
    assert not kept
    assert shared.preference_numbers.all()["user:mary"].number == second
    shared.close()


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x84\x02\x60\x40\x00"])
def test_a_record_that_cannot_be_read_is_damage(data: bytes) -> None:
    with pytest.raises(StoreError, match="user:mary"):
        NodePreferenceNumbers({"user:mary": data}, Kept().keep, None)
