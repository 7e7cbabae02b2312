"""Replays that somebody asks the node for: taken by the pipeline's process, beside its batches, one at a time.

Spark does the work under a tag of its own, so that it can be cancelled without touching the batches. While the node
cannot be reached nothing is taken; a replay that cannot tell it any more goes on, and is told when it is over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidegate.config import Config, build_config, read_source
from tidegate.config.overlay import OverlayDocument, with_documents
from tidegate.errors import TidegateError
from tidegate.net.control_socket import ask
from tidegate.pipeline.replay.job import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAUSE: Final = 2.0
"""Seconds between two questions whether there is something to do."""
TOLD: Final = 200
"""Groups of changes that the node is told, the largest first."""
TAG: Final = "tidegate-asked-replay"

log = structlog.get_logger("tidegate.pipeline")


@contextmanager
def answering(spark: SparkSession, file: Path, control: Path) -> Iterator[None]:
    """Takes replays from the node for as long as the block lasts."""
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(spark, file, control, over), name="tidegate-replays", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        with suppress(Py4JError, PySparkException, OSError):  # Spark may have ended, which is told elsewhere
            spark.sparkContext.cancelJobsWithTag(TAG)
        thread.join(PAUSE)


def _follow(spark: SparkSession, file: Path, control: Path, over: threading.Event) -> None:
    while not over.wait(PAUSE):
        try:
            take(spark, file, control, over)
        except TidegateError:
            continue  # the node is away, or is an older one: it is asked again


def take(spark: SparkSession, file: Path, control: Path, stopping: threading.Event | None = None) -> bool:
    """Does what the node asks for; whether there was anything. `stopping`: the pipeline ends."""
    wanted = ask(control, "replay_take")["replay"]
    if wanted is None:
        return False
    id = wanted["id"]
    cancelled = threading.Event()

    def progress(done: int, parts: int) -> None:
        try:
            answer = ask(control, "replay_tell", id=id, done=done, all=parts)
        except TidegateError:
            return
        if not answer["wanted"] and not cancelled.is_set():
            cancelled.set()
            with suppress(Py4JError, PySparkException, OSError):
                spark.sparkContext.cancelJobsWithTag(TAG)

    spark.sparkContext.addJobTag(TAG)
    try:
        before, after = (_config(file, wanted[name]) for name in ("before", "after"))
        report = run(spark, before, after, since=wanted["since"], until=wanted["until"], progress=progress).plain()
        told: dict[str, Any] = {"report": {**report, "changes": report["changes"][:TOLD]}}
    except (TidegateError, PySparkException, Py4JError, OSError) as error:  # the pipeline itself goes on
        reason = str(error).partition("\n")[0] or type(error).__name__
        if stopping is not None and stopping.is_set():
            reason = "the pipeline was stopped"
        elif not cancelled.is_set():
            log.warning("a replay failed", reason=reason)
        told = {"trouble": reason}
    finally:
        spark.sparkContext.removeJobTag(TAG)
    ask(control, "replay_tell", id=id, **told)
    return True


def _config(file: Path, documents: Sequence[Mapping[str, Any]]) -> Config:
    pieces = [OverlayDocument(kind=each["kind"], id=each["id"], body=each["body"]) for each in documents]
    source = read_source(file)
    return build_config(with_documents(source, pieces) if pieces else source)
