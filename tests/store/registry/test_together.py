"""Several nodes at once: nobody's change is lost, and what is told is told in order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from store.registry.places import NOW, Place, at_once, bodies, made, make, put
from tidegate.store.registry import Applied, Conflict, Registry, registry, schema

EACH = 25


def counting(node: Registry, times: int = EACH) -> Callable[[], int]:
    """Adds one to the same number, `times` times; how often somebody else was faster."""

    def count() -> int:
        conflicts = 0
        for _ in range(times):
            while True:
                (document,) = node.load().documents
                answer = make(node, put("a", "n", {"n": document.body["n"] + 1}, document.sequence))
                if isinstance(answer, Applied):
                    break
                assert isinstance(answer, Conflict)
                conflicts += 1
        return conflicts

    return count


def test_no_update_is_lost(place: Place) -> None:
    nodes = [place.registry(wait=30.0, patience=30.0) for _ in range(3)]
    made(nodes[0], put("a", "n", {"n": 0}))
    results = at_once(*map(counting, nodes))
    assert all(isinstance(each, int) for each in results), results
    assert bodies(nodes[0]) == {("a", "n"): {"n": 3 * EACH}}
    assert nodes[0].load().sequence == 1 + 3 * EACH
    place.check()


def test_one_registry_serves_several_threads(place: Place) -> None:
    node = place.registry(patience=30.0)
    made(node, put("a", "n", {"n": 0}))
    results = at_once(*[counting(node) for _ in range(3)])
    assert all(isinstance(each, int) for each in results), results
    assert bodies(node) == {("a", "n"): {"n": 3 * EACH}}


def test_who_follows_the_changes_misses_none(place: Place) -> None:
    """Numbers become visible in their order: what `since` has told is complete."""
    writers = [place.registry(wait=30.0, patience=30.0) for _ in range(2)]
    reader = place.registry()
    done = threading.Event()
    told: list[tuple[int, str]] = []

    def follow() -> None:
        sequence = 0
        for last in itertools.chain(iter(done.is_set, True), [True]):
            entries = reader.since(sequence)
            assert entries is not None
            told.extend((entry.sequence, entry.id) for entry in entries)
            sequence = entries[-1].sequence if entries else sequence
            if last:
                return

    def writing(number: int) -> Callable[[], None]:
        def write() -> None:
            for n in range(EACH):
                made(writers[number], put("a", f"{number}-{n}", {}), put("b", f"{number}-{n}", {}))

        return write

    follower = threading.Thread(target=follow)
    follower.start()
    results = at_once(writing(0), writing(1))
    done.set()
    follower.join()
    assert results == [None, None]
    assert [sequence for sequence, _ in told] == sorted([*range(1, 2 * EACH + 1)] * 2)
    assert len(reader.load().documents) == 4 * EACH


def test_a_snapshot_is_of_one_moment(place: Place) -> None:
    writer, reader = place.registry(), place.registry()
    version = made(writer, put("a", "x", {"n": 0}), put("a", "y", {"n": 0}))
    stop = threading.Event()
    seen: list[tuple[int, int, int]] = []

    def watch() -> None:
        while not stop.is_set():
            found = reader.load()
            x, y = found.documents
            seen.append((found.sequence, x.body["n"], y.body["n"]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    for n in range(1, 40):
        version = made(writer, put("a", "x", {"n": n}, version), put("a", "y", {"n": n}, version))
    stop.set()
    watcher.join()
    assert seen
    assert all(sequence - 1 == x == y for sequence, x, y in seen)


def test_nodes_that_start_at_once(place: Place) -> None:
    for _ in range(3):
        here = place.empty()
        nodes = [registry(here.url) for _ in range(5)]
        try:
            assert at_once(*(node.open for node in nodes)) == [None] * 5
            assert here.sql("SELECT version FROM tidegate_schema") == [(schema.VERSION,)]
            for number, node in enumerate(nodes):
                assert isinstance(make(node, put("a", str(number), {}), at=NOW), Applied)
        finally:
            for node in nodes:
                node.close()
            here.close()
