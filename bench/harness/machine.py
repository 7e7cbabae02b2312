"""What the figures were measured on: enough to judge them, nothing that names the machine or its owner."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import tidegate
from bench.harness.servers import BenchError, mosquitto
from tidegate import compiled


def describe() -> dict[str, object]:
    info = _pairs(Path("/proc/cpuinfo"), ":")
    release = _pairs(Path("/etc/os-release"), "=")
    memory = _pairs(Path("/proc/meminfo"), ":")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": info.get("model name", platform.machine()),
        "cores": os.cpu_count(),
        "virtual": "hypervisor" in info.get("flags", ""),
        "memory_gib": round(int(memory["MemTotal"].split()[0]) / 2**20, 1),
        "system": release.get("PRETTY_NAME", "").strip('"'),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "tidegate": tidegate.__version__,
        "rooms": compiled.running(),
        "uvloop": _version("uvloop"),
        "mosquitto": mosquitto_version(),
        "congestion_control": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "temporary_files_on": filesystem(Path(tempfile.gettempdir())),
        "load_average_at_start": round(os.getloadavg()[0], 2),
    }


def mosquitto_version() -> str | None:
    try:
        binary = mosquitto()
    except BenchError:
        return None
    done = subprocess.run([binary, "-h"], capture_output=True, text=True, check=False)
    return done.stdout.split("\n", 1)[0].removeprefix("mosquitto version ").strip()


def filesystem(folder: Path) -> str:
    """The type of the file system that holds `folder`; durable works depend on it."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    place = folder.resolve()
    holding = [(len(at), kind) for at, kind in mounts if place.is_relative_to(at)]
    return max(holding)[1] if holding else "unknown"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _pairs(file: Path, mark: str) -> dict[str, str]:
    """The first value of every key in a file of `key MARK value` lines."""
    found: dict[str, str] = {}
    for line in file.read_text().splitlines():
        key, _, value = line.partition(mark)
        found.setdefault(key.strip(), value.strip())
    return found
