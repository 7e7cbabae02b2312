"""From one version of the tables to the next: once, whole, and only forwards."""

from __future__ import annotations

import pytest

from store.registry.places import Place, at_once, bodies, made, put
from tidegate.errors import StoreError
from tidegate.store.registry import registry, schema

NEXT = {
    1: (
        "CREATE TABLE tidegate_trace (n {integer} NOT NULL, what {text}, much {real}, raw {bytes}) {end}",
        "INSERT INTO tidegate_trace (n, what) VALUES (1, 'migrated')",
        "ALTER TABLE tidegate_entry ADD COLUMN note {text}",
    ),
    2: (),
    3: ("INSERT INTO tidegate_trace (n, what) VALUES (2, 'migrated')",),
}


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "VERSION", 4)
    monkeypatch.setattr(schema, "MIGRATIONS", NEXT)


def old(place: Place) -> None:
    """Tables of version 1 with something in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "VERSION", 1)
        one = place.registry()
        made(one, put("a", "1", {"n": 1}))
        one.close()


@pytest.mark.usefixtures("newer")
def test_an_older_one_is_migrated(place: Place) -> None:
    old(place)
    one = place.registry()
    assert bodies(one) == {("a", "1"): {"n": 1}}
    assert place.sql("SELECT n FROM tidegate_trace ORDER BY n") == [(1,), (2,)]
    assert place.sql("SELECT version FROM tidegate_schema") == [(4,)]
    made(one, put("a", "2", {}))


@pytest.mark.usefixtures("newer")
def test_of_several_nodes_one_migrates(place: Place) -> None:
    old(place)
    nodes = [registry(place.url) for _ in range(4)]
    try:
        assert at_once(*(node.open for node in nodes)) == [None] * 4
    finally:
        for node in nodes:
            node.close()
    assert place.sql("SELECT n FROM tidegate_trace ORDER BY n") == [(1,), (2,)]


def test_one_that_fails_leaves_the_old_tables(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    old(place)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "VERSION", 4)
        patch.setattr(schema, "MIGRATIONS", {**NEXT, 3: ("INSERT INTO tidegate_nowhere VALUES (1)",)})
        with pytest.raises(StoreError, match="tidegate_nowhere"):
            place.registry()
    assert place.sql("SELECT version FROM tidegate_schema") == [(1,)]
    one = place.registry()
    assert bodies(one) == {("a", "1"): {"n": 1}}
    made(one, put("a", "2", {}))


def test_a_newer_one_is_refused(place: Place) -> None:
    old(place)
    place.sql("UPDATE tidegate_schema SET version = 4")
    with pytest.raises(StoreError, match=r"newer Tidegate \(registry version 4, this one reads 3\)\. Remedy: run the"):
        place.registry()
    assert place.sql("SELECT version FROM tidegate_schema") == [(4,)]
