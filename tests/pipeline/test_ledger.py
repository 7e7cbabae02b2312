"""What the ledger remembers of batches, also when they are made again."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tidegate.errors import PipelineError
from tidegate.pipeline.ledger import Batch, Ledger, name_of


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


def begin(ledger: Ledger, start: int, stop: int, rules: str = "a") -> Batch:
    return ledger.begin({0: start}, {0: stop}, rules=rules, messages=stop - start)


def finish(ledger: Ledger, batch: Batch) -> None:
    ledger.done(batch, records=batch.messages, quarantined=0, published=0, denied=0)


def test_names_sort_as_the_work_was_done() -> None:
    names = [name_of({0: start}) for start in (0, 9, 10, 2**60)]
    assert names == sorted(names)


def test_progress_is_what_is_done(ledger: Ledger, tmp_path: Path) -> None:
    batch = begin(ledger, 0, 10)
    assert ledger.progress == {}
    finish(ledger, batch)
    assert ledger.progress == {0: 10}
    ledger.close()
    assert Ledger(tmp_path / "ledger.db").progress == {0: 10}


def test_a_batch_that_is_made_again_keeps_its_rules_keys_and_place(ledger: Ledger) -> None:
    first = begin(ledger, 0, 10, rules="a")
    ledger.keyed(first, ["k2", "k1", "k1"])
    ledger.sent(first, (0, 4, 1), passed=3, denied={"p1": 2})
    second = begin(ledger, 0, 20, rules="b")
    assert (second.rules, second.keys, second.again, second.published) == ("a", ("k1", "k2"), True, (0, 4, 1))
    assert (second.passed, second.denied, second.stop) == (3, {"p1": 2}, {0: 20})
    renewed = ledger.renewed(second)
    assert (renewed.keys, renewed.published, renewed.passed) == ((), (0, 4, 1), 3)
    finish(ledger, second)
    assert ledger.progress == {0: 20}
    third = begin(ledger, 20, 30, rules="b")
    assert (third.rules, third.again, third.published, third.passed) == ("b", False, None, 0)


def test_a_ledger_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").close()
    with sqlite3.connect(tmp_path / "ledger.db") as old:
        old.execute("drop table published")
        old.execute(
            "create table published (batch text primary key, shard integer not null, offset integer not null, "
            "part integer not null) strict"
        )
        old.execute("pragma user_version = 1")
    old.close()
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as ledger:
        ledger.sent(begin(ledger, 0, 10), (0, 4, 1), passed=3, denied={})
        assert begin(ledger, 0, 10).passed == 3
    Ledger(tmp_path / "ledger.db").close()  # and it is of this version now


def test_totals_count_what_is_done(ledger: Ledger) -> None:
    for start in (0, 10):
        batch = begin(ledger, start, start + 10)
        ledger.done(batch, records=9, quarantined=1, published=5, denied=2)
    begin(ledger, 20, 30)
    assert ledger.totals == {
        "messages": 20,
        "records": 18,
        "quarantined": 2,
        "published": 10,
        "denied": 4,
        "batches": 2,
    }


def test_rules_are_kept_by_version(ledger: Ledger) -> None:
    assert ledger.last_rules() is None
    ledger.keep_rules("a", "text a")
    ledger.keep_rules("b", "text b")
    assert (ledger.rules("a"), ledger.last_rules(), ledger.rules("c")) == ("text a", ("b", "text b"), None)
    ledger.keep_rules("a", "text a")
    assert ledger.last_rules() == ("a", "text a")


def test_what_a_lost_ledger_had_done_is_not_overruled(ledger: Ledger) -> None:
    ledger.adopt({0: 50})
    ledger.adopt({0: 10, 1: 5})
    assert ledger.progress == {0: 50, 1: 5}


def test_another_file_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table x (y)")
    other.close()
    with pytest.raises(PipelineError, match="move it away"):
        Ledger(tmp_path / "other.db")
    (tmp_path / "broken.db").write_bytes(b"nonsense" * 100)
    with pytest.raises(PipelineError, match="Remedy"):
        Ledger(tmp_path / "broken.db")
