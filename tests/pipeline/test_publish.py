"""What is published of a batch that is made again, and how it is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.frames import NOON, records
from pipeline.lake.rows import JOURNAL
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.node_client import NodeClient, Outcome, Outgoing
from tidegate.pipeline.publish import publish


class Node:
    """Takes records two at a time, denies the first of them, and is gone after some."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.took: list[int] = []
        self.given: list[Outgoing] = []

    def publish(self, given: Iterable[Outgoing]) -> Iterator[tuple[Sequence[Outgoing], Outcome]]:
        self.given = waiting = list(given)
        for start in range(0, len(waiting), 2):
            if not self.pieces:
                raise ConnectionError("gone")
            self.pieces -= 1
            piece = waiting[start : start + 2]
            self.took += [one.place[1] for one in piece]
            yield piece, Outcome(published=len(piece) - 1, denied=Counter({"p1": 1}))


SCORES = (0.5, None, 1.0, None, None, None, 0.25, None)


@pytest.fixture(params=["many", "few"])
def frame(spark: SparkSession, request: pytest.FixtureRequest) -> DataFrame | pa.Table:
    """Those of a large batch are in Spark, those of a small one here; some have no message."""
    rows = [{"target": f"weather/t{number}", "scores": SCORES, "offset": 5 - number} for number in range(6)]
    made = records(spark, [*rows, {"offset": 6}], scored=True)
    frame = made.withColumn("message", F.when(F.col("target").isNotNull(), F.lit(b"1")))
    return frame if request.param == "many" else frame.toArrow()


def test_what_a_record_is_published_with(frame: DataFrame | pa.Table, tmp_path: Path) -> None:
    node, ledger = Node(pieces=9), Ledger(tmp_path / "ledger.db", JOURNAL)
    publish(frame, cast("NodeClient", node), ledger, ledger.begin({0: 0}, {0: 7}, rules="a", messages=7))
    ledger.close()
    assert len(node.given) == 6
    assert node.given[1] == Outgoing(
        place=(0, 1, 0),
        id="node-1-4.1",
        topic="weather/t4",
        payload=b"1",
        context=b"\x01\xa0",
        origin="raw/temperature/t1",
        at=NOON.timestamp(),
        scores={"confidentiality": 0.5, "privacy": 1.0, "timeliness": 0.25},
    )


def test_what_an_earlier_attempt_published_counts_once(frame: DataFrame | pa.Table, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", JOURNAL)
    node = Node(pieces=2)
    batch = ledger.begin({0: 0}, {0: 6}, rules="a", messages=6)
    with pytest.raises(ConnectionError):
        publish(frame, cast("NodeClient", node), ledger, batch)
    node.pieces = 9
    batch = ledger.begin({0: 0}, {0: 6}, rules="a", messages=6)
    outcome = publish(frame, cast("NodeClient", node), ledger, batch)
    assert node.took == [0, 1, 2, 3, 4, 5]
    assert (outcome.published, outcome.denied) == (3, {"p1": 3})
    ledger.done(batch, records=6, quarantined=0, published=outcome.published, denied=sum(outcome.denied.values()))
    assert (ledger.totals["published"], ledger.totals["denied"]) == (3, 3)
    ledger.close()
