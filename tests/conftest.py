"""What holds for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import structlog

import forkserver
from tidegate.cli import terminal


def pytest_configure() -> None:
    """Started in the background, a shell makes us ignore SIGINT, and the programs that tests interrupt with us."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    forkserver.install()


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
