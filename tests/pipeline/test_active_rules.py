"""Rules change while the pipeline runs; broken ones are refused and the last good ones stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.lake.rows import JOURNAL
from tidegate.errors import PipelineError, TidegateError
from tidegate.pipeline.active_rules import ActiveRules
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.rules import Rules

FIRST = """\
version: 1
sources: [{id: thermo, type: temperature, values: [{name: temperature, at: /t, unit: C}]}]
"""
SECOND = FIRST.replace("/t", "/temperature")
SCORE = {"score": {"dimension": "timeliness", "check": "age_under", "args": {"good": "2s", "bad": "60s"}}}


class Desk:
    """A rulebook with everything that it looks at."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "rules.yaml"
        self.file.write_text(FIRST)
        self.ledger = Ledger(folder / "ledger.db", JOURNAL)
        self.documents: list[tuple[str, Mapping[str, Any]]] | None = []
        self.objection: str | None = None
        self.tried: list[tuple[str, str | None]] = []
        self.book = self.opened()

    def opened(self) -> ActiveRules:
        return ActiveRules(self.ledger, self.file, self._documents, self._try)

    def _documents(self) -> list[tuple[str, Mapping[str, Any]]]:
        if self.documents is None:
            raise TidegateError("nobody listens")
        return self.documents

    def _try(self, rules: Rules, before: Rules | None) -> None:
        self.tried.append((rules.version_text, None if before is None else before.version_text))
        if self.objection:
            raise PipelineError(self.objection)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.ledger.close()


def test_a_changed_file_is_in_force_for_the_next_batch(desk: Desk) -> None:
    first = desk.book.look()
    assert desk.book.look() is first
    desk.file.write_text(SECOND)
    second = desk.book.look()
    assert second.version_text != first.version_text
    assert desk.tried == [(first.version_text, None), (second.version_text, first.version_text)]
    assert desk.book.version(first.version_text) == first


@pytest.mark.parametrize("broken", ["version: 1\nsources: 3\n", "{", SECOND + "scores: [{id: x}]\n", "\0"])
def test_a_broken_file_is_refused_and_the_last_good_one_stays(desk: Desk, broken: str) -> None:
    first = desk.book.look()
    desk.file.write_text(broken)
    assert desk.book.look() is first
    assert desk.book.refused is not None
    desk.file.write_text(SECOND)
    assert desk.book.look().version_text != first.version_text
    assert desk.book.refused is None


def test_rules_that_fail_when_tried_are_refused(desk: Desk) -> None:
    first = desk.book.look()
    desk.file.write_text(SECOND)
    desk.objection = "everything would be in quarantine"
    assert desk.book.look() is first
    assert desk.book.refused is not None
    assert desk.book.refused.why == desk.objection
    tried = len(desk.tried)
    desk.book.look()
    assert len(desk.tried) == tried, "the same content is not tried again"
    assert desk.ledger.last_rules() == (first.version_text, desk.ledger.rules(first.version_text))


def test_a_file_that_is_gone_is_refused(desk: Desk) -> None:
    first = desk.book.look()
    desk.file.unlink()
    assert desk.book.look() is first
    assert desk.book.refused is not None


def test_without_good_rules_there_is_nothing_to_do(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.file.write_text("version: 2\n")
    with pytest.raises(PipelineError, match=r"rules\.yaml:1"):
        desk.book.look()
    desk.ledger.close()


def test_after_a_restart_the_last_good_rules_count_while_the_file_is_broken(desk: Desk) -> None:
    first = desk.book.look()
    desk.file.write_text("{")
    again = desk.opened()
    assert again.look() == first
    assert again.refused is not None


def test_documents_of_the_node_count_and_stay_while_it_is_away(desk: Desk) -> None:
    desk.documents = [("fresh", SCORE)]
    found = desk.book.look()
    assert [score.id for score in found.scores] == ["fresh"]
    desk.documents = None
    assert desk.book.look() is found
    assert desk.opened().look() == found
    desk.documents = []
    assert desk.book.look().scores == ()
