"""Threads that leave the processor to the loop."""

from __future__ import annotations

import contextlib
import os
import threading


def give_way(nice: int = 15) -> None:
    """A thread that calls this first leaves the processor to the loop, also while that is in the kernel."""
    with contextlib.suppress(OSError, AttributeError):
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread)))
