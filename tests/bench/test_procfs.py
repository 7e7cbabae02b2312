"""What is read from /proc, about real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from bench.harness import procfs

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True)\\nwhile True: pass"], stdout=sys.stdout)
input()
child.kill()
child.wait()
"""


def test_a_child_counts_as_part_of_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        members = procfs.family(parent.pid)
        assert members[0] == parent.pid
        assert len(members) == 2
        before, deadline = procfs.cpu_seconds(parent.pid), time.monotonic() + 30
        while procfs.cpu_seconds(parent.pid) < before + 0.05:  # the parent itself only waits
            assert time.monotonic() < deadline
        assert procfs.resident_bytes(parent.pid) > 2_000_000
        parent.communicate("\n")
    with pytest.raises(FileNotFoundError):
        procfs.cpu_seconds(parent.pid)


def test_own_time_is_about_what_the_clock_says() -> None:
    before, ticks = time.process_time(), procfs.cpu_seconds(os.getpid())
    while time.process_time() < before + 0.2:
        pass
    assert procfs.cpu_seconds(os.getpid()) - ticks == pytest.approx(0.2, abs=0.05)


def test_the_machine_works_at_least_as_much_as_we_do() -> None:
    busy, steal = procfs.machine_seconds()
    before = time.process_time()
    while time.process_time() < before + 0.1:
        pass
    later, _ = procfs.machine_seconds()
    assert later - busy >= 0.08
    assert steal >= 0
