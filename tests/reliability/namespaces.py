"""Two linked nodes, each in a network namespace of its own, with a cable between them that can be pulled.

Pulling it drops packets without a word, so both ends keep connections that are half open, as with a real cable. The
data of each node is on a small disk of its own that can be filled, and its wall clock can jump (libfaketime).

Clients of a node connect inside its namespace: a thread enters it, opens the socket there, and hands it over.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import socket
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import Final

from processes import Process, missing
from reliability.links import GYM, Nodes

WAYS: Final = ("cable out", "flap", "half open", "kill near", "kill far", "full near", "full far", "clock")
FAKETIME: Final = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
CLONE_NEWNET: Final = 0x40000000
NEAR, FAR = "10.119.0.1", "10.119.0.2"  # in the namespaces only
SILENCE: Final = "5s"  # after which the nodes ask whether the other is there
DISK: Final = "64m"
COUNT = iter(range(1000))


def needed() -> None:
    """Skips the test where namespaces or disks cannot be made; in continuous integration they must."""
    if os.geteuid() != 0 or subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode:
        missing("network namespaces need root and iproute2")
    if not any(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")):
        missing("libfaketime is not installed")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Apart(Nodes):
    """The nodes in their namespaces."""

    pace = 0.01
    allowed = ("the store cannot write; durable publishes are refused", "the journal cannot be written; rows wait")

    def __init__(self, folder: Path, near: str = GYM) -> None:
        number = f"{os.getpid() % 100000}x{next(COUNT)}"
        self.spaces = {name: f"tg{number}{name[0]}" for name in ("near", "far")}
        self._veth = {name: f"tg{number}{name[0]}" for name in ("near", "far")}
        super().__init__(
            folder,
            near,
            **{"127.0.0.1:PROXY": f"{FAR}:LINK_PORT", "mqtts://127.0.0.1:LINK_PORT": f"mqtts://{FAR}:LINK_PORT"},
        )
        file = self._files["near"]
        file.write(
            file.path.read_text().replace(str(file.ports["LINK_PORT"]), str(self._files["far"].ports["LINK_PORT"]))
        )
        far = self._files["far"]
        far.write(far.path.read_text().replace("limits: {", f"limits: {{max_keep_alive: {SILENCE}, clock_skew: 2h, "))
        self.folder = folder
        self._clock = {name: folder / name / "clock" for name in self.spaces}
        self.jumps: Counter[str] = Counter()

    async def open(self) -> None:
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        (near, far), (one, other) = self.spaces.values(), self._veth.values()
        for space in (near, far):
            _run("ip", "netns", "add", space)
            _run("ip", "-n", space, "link", "set", "lo", "up")
        _run("ip", "link", "add", one, "netns", near, "type", "veth", "peer", "name", other, "netns", far)
        for space, veth, address in ((near, one, NEAR), (far, other, FAR)):
            _run("ip", "-n", space, "address", "add", f"{address}/24", "dev", veth)
            _run("ip", "-n", space, "link", "set", veth, "up")
        for name, clock in self._clock.items():
            clock.write_text("+0\n")
            data = self.folder / name / "data"
            data.mkdir()
            _run("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(data))

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for name in self.spaces:
            subprocess.run(["umount", "-l", str(self.folder / name / "data")], check=False, capture_output=True)
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)

    def process(self, name: str) -> Process:
        env = {
            "LD_PRELOAD": str(next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock[name]),
            "FAKETIME_CACHE_DURATION": "1",  # second; the file is read at most so often
            "DONT_FAKE_MONOTONIC": "1",
        }
        return Process(self._files[name], within=("ip", "netns", "exec", self.spaces[name]), env=env)

    async def dial(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        opened = await asyncio.to_thread(self._socket, name)
        return await asyncio.open_connection(sock=opened)

    def _socket(self, name: str) -> socket.socket:
        """A connection to a node that was made in its namespace."""
        found: list[socket.socket | OSError] = []

        def enter() -> None:  # a namespace is entered by a thread, which ends then
            try:
                with open(f"/run/netns/{self.spaces[name]}", "rb") as space:
                    if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                    found.append(socket.create_connection(("127.0.0.1", self.ports[name])))
            except OSError as error:
                found.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        (opened,) = found
        if isinstance(opened, OSError):
            raise opened
        opened.setblocking(False)
        return opened

    @property
    def connections(self) -> int:
        return sum(len(path.read_text().split('"link is up"')) - 1 for path in self.folder.glob("near/stderr-*.log"))

    # -- what happens to them ----------------------------------------------------------------------------------

    async def disturb(self, way: str, rng: random.Random) -> None:
        match way:
            case "cable out":  # TCP goes on where it was, or one end has noticed
                await self._cable("down")
                await asyncio.sleep(rng.uniform(0.1, 4.0))
                await self._cable("up")
            case "flap":
                for _ in range(5):
                    await self._cable("down")
                    await asyncio.sleep(rng.uniform(0.0, 0.2))
                    await self._cable("up")
                    await asyncio.sleep(rng.uniform(0.0, 0.3))
            case "half open":  # one end is another process, and the other has not heard of it
                await self._cable("down")
                await self.kill(rng.choice(("near", "far")))
                await self._cable("up")
            case "kill near" | "kill far":
                await self.kill(way.removeprefix("kill "))
            case "full near" | "full far":
                await self._fill(way.removeprefix("full "), rng)
            case "clock":
                for name, clock in self._clock.items():
                    jump = rng.choice(("+3600", "+0", "+1800", "+60"))
                    clock.write_text(f"{jump}\n")
                    self.jumps[f"{name} {jump}"] += 1
            case _:
                raise AssertionError(way)

    async def _cable(self, state: str) -> None:
        await asyncio.to_thread(_run, "ip", "-n", self.spaces["near"], "link", "set", self._veth["near"], state)

    async def _fill(self, name: str, rng: random.Random) -> None:
        """The disk of a node is full for a while."""
        ballast = self.folder / name / "data" / "ballast"

        def fill() -> None:
            with ballast.open("wb", buffering=0) as file:
                size = 2**20
                while size:
                    try:
                        file.write(bytes(size))
                    except OSError:
                        size //= 2

        await asyncio.to_thread(fill)
        await asyncio.sleep(rng.uniform(0.5, 2.0))
        ballast.unlink()
