"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Started in the background, a shell makes us ignore SIGINT, and the programs that tests interrupt with us."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
