"""What is published of a batch that is made again, and how it is counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.frames import records
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.publish import publish
from tidegate.pipeline.station import Outgoing, Published, Station


class Node:
    """Takes records two at a time, denies the first of them, and is gone after some."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.took: list[int] = []

    def publish(self, given: Iterable[Outgoing]) -> Iterator[tuple[Sequence[Outgoing], Published]]:
        waiting = list(given)
        for start in range(0, len(waiting), 2):
            if not self.pieces:
                raise ConnectionError("gone")
            self.pieces -= 1
            piece = waiting[start : start + 2]
            self.took += [one.place[1] for one in piece]
            yield piece, Published(passed=len(piece) - 1, denied={"p1": 1})


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    made = records(spark, [{"target": "weather/t1"} for _ in range(6)], scored=True)
    return made.withColumn("message", F.lit(b"1"))


def test_what_an_earlier_attempt_published_counts_once(frame: DataFrame, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    node = Node(pieces=2)
    batch = ledger.begin({0: 0}, {0: 6}, rules="a", messages=6)
    with pytest.raises(ConnectionError):
        publish(frame, cast("Station", node), ledger, batch)
    node.pieces = 9
    batch = ledger.begin({0: 0}, {0: 6}, rules="a", messages=6)
    outcome = publish(frame, cast("Station", node), ledger, batch)
    assert node.took == [0, 1, 2, 3, 4, 5]
    assert (outcome.published, outcome.denied) == (3, {"p1": 3})
    ledger.done(batch, records=6, quarantined=0, published=outcome.published, denied=sum(outcome.denied.values()))
    assert (ledger.totals["published"], ledger.totals["denied"]) == (3, 3)
    ledger.close()
