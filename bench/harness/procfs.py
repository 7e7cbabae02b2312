"""What Linux tells about a process and its children: CPU time and resident memory.

`/proc/PID/stat` counts all threads of a process, at the resolution of the clock tick (10 ms as a rule),
so a measurement should last a second or more. Will not guess: a process that is gone raises.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def _stat(pid: int) -> list[str]:
    # The second field is the command in parentheses and may itself hold spaces and parentheses.
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(_stat(int(entry))[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended between listing and reading
    found = [pid]
    for one in found:
        found.extend(child for child, parent in parents.items() if parent == one)
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, its threads and its living descendants."""
    ticks = 0
    for member in family(pid):
        fields = _stat(member)
        ticks += int(fields[11]) + int(fields[12])
    return ticks * TICK


def resident_bytes(pid: int) -> int:
    """Resident memory of the process and its descendants."""
    return sum(int(_stat(member)[21]) for member in family(pid)) * PAGE


def machine_seconds() -> tuple[float, float]:
    """CPU time that the whole machine has spent working so far, and what the hypervisor took away (steal)."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in first.split()[1:9])
    return (user + nice + system + irq + softirq) * TICK, steal * TICK


def family_seconds(pid: int) -> float:
    """As `cpu_seconds`, but exact, so that half a second is enough; threads that have ended are not in it."""
    if not Path("/proc/self/schedstat").exists():
        return cpu_seconds(pid)
    return sum(map(own_cpu_seconds, family(pid)))


def own_cpu_seconds(pid: int) -> float:
    """Of all threads that a process has, not of its children, in nanoseconds as the scheduler counts them.

    The clock tick is too coarse for twenty packets a second. Needs a kernel that keeps `schedstat`.
    """
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            if not Path(f"/proc/{pid}/schedstat").exists():
                raise
            continue  # a thread that ended between listing and reading
    return total / 1e9


def fresh_processes() -> ProcessPoolExecutor:
    """One process for each task: memory that one has used is not another's."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1)
