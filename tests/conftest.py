"""What holds for all tests."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

import forkserver
from tidegate import compiled
from tidegate.cli import terminal


def pytest_configure() -> None:
    """Started in the background, a shell makes us ignore SIGINT, and the programs that tests interrupt with us."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile("tests", deadline=None)  # how fast a machine is, is not what tests are about
    settings.load_profile("tests")
    forkserver.install()
    _java()
    if (wanted := os.environ.get("ROOMS")) and wanted != compiled.running():
        raise pytest.UsageError(f"the rooms are {compiled.running()}, and not {wanted}")


def _java() -> None:
    """Tests run Spark for seconds: classes come from the archive that `make` has written, and compiling stays cheap."""
    options = ["-XX:TieredStopAtLevel=1"]
    archive = Path(sys.prefix, "spark.jsa")
    if archive.exists() and archive.stat().st_size:
        options += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(options))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


LONGEST = ("docs/test_examples", "pipeline/crash", "bench/test_pipeline", "examples/", "pipeline/", "bench/", "api/")
"""Files that take longest, which are begun first: with the last one alone the other processes would wait for it."""


def pytest_report_header() -> str:
    return f"rooms: {compiled.running()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if compiled.running() == "compiled":
        pure = [item for item in items if item.get_closest_marker("pure")]
        config.hook.pytest_deselected(items=pure)
        items[:] = [item for item in items if not item.get_closest_marker("pure")]

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((at for at, start in enumerate(LONGEST) if name.startswith(start)), len(LONGEST))

    items.sort(key=place)


@pytest.fixture(autouse=True)
def consoles() -> None:
    """The consoles of commands remember how wide the terminal was when they were made, maybe by the test before."""
    terminal.out.cache_clear()
    terminal.err.cache_clear()


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """A command writes its log to the standard error of then, which is closed when its test is over."""
    yield
    structlog.reset_defaults()
