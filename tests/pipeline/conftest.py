"""One Spark for all tests of a process: it takes seconds to start."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import forkserver
from tidegate.errors import PipelineError
from tidegate.pipeline.spark import java, session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        java()
    except PipelineError as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
    forkserver.started({})  # for Spark's Python
    folder: Path = tmp_path_factory.mktemp("spark")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Spark's own modules
        made = session(
            "tests",
            master="local[2]",
            conf={
                "spark.local.dir": str(folder),
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.sql.maxPlanStringLength": "100000000",  # tests look into them
            },
        )
        yield made
        made.stop()
