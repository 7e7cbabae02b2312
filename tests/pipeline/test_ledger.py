"""What the ledger remembers of batches, also when they are made again."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from pipeline.lake.rows import JOURNAL, OTHER
from tidegate.errors import PipelineError
from tidegate.pipeline.ledger import Batch, Ledger, name_of


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db", JOURNAL)


def begin(ledger: Ledger, start: int, stop: int, rules: str = "a") -> Batch:
    return ledger.begin({0: start}, {0: stop}, rules=rules, messages=stop - start)


def finish(ledger: Ledger, batch: Batch) -> None:
    ledger.done(batch, records=batch.messages, quarantined=0, published=0, denied=0)


def test_names_sort_as_the_work_was_done() -> None:
    names = [name_of(JOURNAL, {0: start}) for start in (0, 9, 10, 2**60)]
    assert names == sorted(names)


def test_progress_is_what_is_done(ledger: Ledger, tmp_path: Path) -> None:
    batch = begin(ledger, 0, 10)
    assert ledger.progress == {}
    finish(ledger, batch)
    assert ledger.progress == {0: 10}
    ledger.close()
    assert Ledger(tmp_path / "ledger.db", JOURNAL).progress == {0: 10}


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


@pytest.mark.parametrize("version", [1, 2])
def test_a_ledger_of_an_older_version_is_taken_over(tmp_path: Path, version: int) -> None:
    """What it says is said of the journal that is here: there was no other."""
    with contextlib.closing(Ledger(tmp_path / "ledger.db", JOURNAL)) as ledger:
        finish(ledger, begin(ledger, 0, 10, rules="before"))
        ledger.sent(begin(ledger, 10, 20, rules="before"), (0, 14, 1), passed=3, denied={})
    with sqlite3.connect(tmp_path / "ledger.db") as old:
        for table, column in (("batches", "name"), ("published", "batch")):
            old.execute(f"update {table} set {column} = substr({column}, ?)", (len(JOURNAL) + 2,))
        old.execute("drop table progress")
        old.execute("create table progress (shard integer primary key, next integer not null) strict")
        old.execute("insert into progress values (0, 10)")
        if version == 1:
            old.execute("alter table published drop column passed")
            old.execute("alter table published drop column denied")
        old.execute(f"pragma user_version = {version}")
    old.close()
    with contextlib.closing(Ledger(tmp_path / "ledger.db", JOURNAL)) as ledger:
        assert ledger.progress == {0: 10}
        again = begin(ledger, 10, 20, rules="now")
        assert (again.rules, again.published, again.passed) == ("before", (0, 14, 1), 3 if version == 2 else 0)
        finish(ledger, again)
    with contextlib.closing(Ledger(tmp_path / "ledger.db", JOURNAL)) as ledger:  # and it is of this version now
        assert ledger.progress == {0: 20}


def test_what_was_done_to_another_journal_is_not_done_to_this_one(ledger: Ledger, tmp_path: Path) -> None:
    first = begin(ledger, 0, 10)
    ledger.sent(first, (0, 4, 1), passed=3, denied={})
    finish(ledger, begin(ledger, 10, 20))
    ledger.close()
    with contextlib.closing(Ledger(tmp_path / "ledger.db", OTHER)) as other:
        assert other.progress == {}
        batch = begin(other, 0, 10, rules="b")
        assert (batch.again, batch.published, batch.rules) == (False, None, "b")
        finish(other, batch)
        assert other.progress == {0: 10}
    with contextlib.closing(Ledger(tmp_path / "ledger.db", JOURNAL)) as back:
        assert back.progress == {0: 20}


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
        Ledger(tmp_path / "other.db", JOURNAL)
    (tmp_path / "broken.db").write_bytes(b"nonsense" * 100)
    with pytest.raises(PipelineError, match="Remedy"):
        Ledger(tmp_path / "broken.db", JOURNAL)
