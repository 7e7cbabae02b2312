"""A Spark session: quiet, on loopback, in UTC, with the interpreter that runs this.

Java is looked for before Spark is, so that whoever lacks it is told how to get it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
_MASTER: Final = re.compile(r"local(-cluster)?(\[[^]]+\])?\Z|spark://.+|k8s://.+|yarn\Z")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_PATIENCE: Final = 30.0
_GONE: Final = 0.5  # seconds from the end of its sockets to that of a process
ENDED: Final = "Spark ended; start it again: nothing is lost"
_JAVA: Final = "-XX:-DontCompileHugeMethods"
_COLLECTOR: Final = "-XX:+UseParallelGC -XX:MaxTenuringThreshold=1"
"""Unless somebody has chosen another: two are one too many for Java. What survives once are rows that are kept."""
_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    # What Spark makes of the stages are a few long methods, which Java would interpret for ever.
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.sql.codegen.cache.maxEntries": "2000",  # a batch has more than the 100 that would be kept
    # Plans are long, and nobody looks at them: they are neither checked after each step nor written out.
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "1000",
    # Messages and records go through a stage as one column, which is not to be taken apart before the end.
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.sql.optimizer.expression.nestedPruning.enabled": "false",
    # What a batch holds of each series is summed up in memory; with more than 128 of them Spark would sort all rows.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "20000",
    # Where in Python a column was made is not told with errors; asking takes longer than making it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.redaction.regex": "(?i)secret|password|token|key",
}


def session(
    name: str = "tidegate", *, master: str = "local[*]", memory: str = "1g", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, made unless there is one. PipelineError if Spark or Java is missing."""
    java()
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise PipelineError("Spark is not installed; run `pip install 'tidegate[pipeline]'`") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if not _MASTER.match(master):
        raise PipelineError(f"{master!r} is no master of Spark; write `local[*]` or `spark://HOST:PORT`")
    settings = {**_CONF, "spark.driver.memory": memory}
    if not any("GC" in os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")):
        settings["spark.driver.extraJavaOptions"] += f" {_COLLECTOR}"
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # whatever the other side of a pipe says
        raise PipelineError(f"Spark did not start: {first_line(error)}. Remedy: look at what it printed") from error
    _quieten(spark)
    return spark


def ended(spark: SparkSession, within: float = _GONE) -> bool:
    """Whether the Java is gone that this session was in; for whoever was told that something failed there."""
    process: subprocess.Popen[bytes] | None = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:  # it was started by somebody else
        return False
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextmanager
def working(name: str, *, master: str, memory: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session until the end of the block, for a command.

    Ctrl-C and `kill` while it starts count when it has: interrupted before, its Java would stay behind.
    """
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _SIGNALS}
    try:
        spark = session(name, master=master, memory=memory, conf=conf)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    with stopping(spark):
        for signal_number in came:
            signal.raise_signal(signal_number)
        yield spark


@contextmanager
def stopping(spark: SparkSession) -> Iterator[SparkSession]:
    """Stops the session at the end. PipelineError, and nothing else, if Java ends before that."""
    try:
        yield spark
    except Exception as error:
        if ended(spark):
            raise PipelineError(ENDED) from error
        raise
    finally:
        if not ended(spark, 0.0):
            spark.stop()


def _quieten(spark: SparkSession) -> None:
    """If Java ends, whoever asked it something is told. Where else that was noticed is not printed: by the connection,
    and by a server for counters that nobody here uses."""
    logging.getLogger().addFilter(_not_of_py4j)  # which tells the root of it
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    tell = server.handle_error

    def report(request: object, address: object) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            tell(request, address)

    server.handle_error = report


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def java() -> Path:
    """The Java runtime that Spark will use; PipelineError tells how to get one."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if path is None or not Path(path).exists():
        raise PipelineError(
            f"there is no Java here, and Spark needs Java {OLDEST} or newer; on Debian: "
            "apt-get install openjdk-17-jre-headless"
        )
    done = subprocess.run(  # noqa: S603 - found above
        [path, "-version"], capture_output=True, text=True, check=False, timeout=_PATIENCE
    )
    version = _VERSION.search(done.stderr + done.stdout)
    if version is None or int(version[1]) < OLDEST:
        what = "one that does not tell its version" if version is None else f"Java {version[1]}"
        raise PipelineError(f"{path} is {what}, and Spark needs Java {OLDEST} or newer; set JAVA_HOME to one")
    return Path(path)


def first_line(error: BaseException) -> str:
    """What an error says, without the many lines in which Spark tells where it comes from."""
    return str(error).strip().partition("\n")[0][:500] or type(error).__name__
