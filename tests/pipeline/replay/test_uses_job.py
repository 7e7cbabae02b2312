"""What is learned does not depend on how it was added up: on Spark, here, or in however many parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from learn.recorded_examples import EXAMPLES, write
from learn.recorded_examples import rows as recorded
from tidegate.config import load
from tidegate.learn.as_yaml import to_yaml
from tidegate.learn.propose import propose
from tidegate.learn.table import PERSON, tabulate
from tidegate.pipeline.replay.uses import TOTAL
from tidegate.pipeline.replay.uses_job import uses_here, uses_on_spark

ALL: dict[str, Any] = {"since": 0.0, "until": 1e11}


@pytest.mark.parametrize("name", ["mygym", "aups"])
def test_on_spark_as_here(name: str, tmp_path: Path, spark: Any) -> None:
    write(tmp_path, recorded(name))
    file = EXAMPLES / name / "tidegate.yaml"
    here = list(uses_here(load(file), tmp_path, **ALL))
    parts: list[int] = []
    spread = list(
        uses_on_spark(spark, load(file), tmp_path, **ALL, least=20, progress=lambda done, of: parts.append(of))
    )
    assert parts[-1] > 1
    uses = [row for row in here if row[2] not in (PERSON, TOTAL)]
    assert uses
    assert said(spread) == said(here)


def said(found: list[Any]) -> str:
    table = tabulate(row for row in found if row[2] != TOTAL)
    return to_yaml(propose(table), [])
