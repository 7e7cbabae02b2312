"""The registry in a file: a full or read-only disk is said and survived, and `kill -9` loses nothing answered."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from admin.registries import FILE, OPEN, SQLITE
from processes import STARTING, File, Process, missing
from store.registry.places import SqlitePlace
from tidegate.errors import Problem, TidegateError
from tidegate.net.control_socket import ask

KILLS = 6  # the long version: 40
TEXT = FILE.replace("NAME", "a").replace("STORE", SQLITE) + "log: {format: json}\n"


class Kept:
    """A node with its registry in its data folder, asked over its control socket."""

    def __init__(self, folder: Path) -> None:
        self.process = Process(File(folder, TEXT))
        self.control = self.process.control

    def ask(self, command: str, **arguments: Any) -> Any:
        return ask(self.control, command, timeout=30.0, **arguments)

    def put(self, id: str, **more: Any) -> int:
        change = {"kind": "policy", "id": id, "body": {**OPEN, **more}}
        return int(self.ask("admin_apply", changes=[change], by="test")["sequence"])

    def policies(self) -> dict[str, int]:
        found = self.ask("admin_list", kind="policy")["documents"]
        return {each["id"]: each["version"] for each in found if each["source"] == "api"}


@contextlib.contextmanager
def kept(folder: Path) -> Iterator[Kept]:
    node = Kept(folder)
    try:
        node.process.wait_until_it_accepts()
        yield node
    finally:
        node.process.kill()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder whose `data` is a small disk of its own."""
    if os.geteuid() != 0 or not _mount(tmp_path / "data"):
        missing("a small disk can only be had by root")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", tmp_path / "data"], check=True)


def _mount(folder: Path) -> bool:
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tidegate-test", folder], capture_output=True
    )
    return made.returncode == 0


def refused(do: Callable[[], object]) -> Problem:
    with pytest.raises(Problem) as caught:
        do()
    assert caught.value.problem == "unavailable", caught.value
    return caught.value


FULL = (
    "the store cannot write; durable publishes are refused",
    "the journal cannot be written; rows wait",
)
"""What others say of a full disk who happen to have something to write."""


def test_a_full_disk(disk: Path) -> None:
    """Nothing is half done, the rules in force stay, and when there is room again it goes on."""
    with kept(disk) as node:
        node.put("p1")
        rules = node.ask("status")["rules"]
        filler = disk / "data" / "filler"
        _fill(filler)
        large = f"'{'x' * 12_000}' != ''"
        for _ in range(3):
            problem = refused(lambda: node.put("p2", when=large))
            assert "Nothing was changed. Remedy: free some space on that disk" in str(problem)
        status = node.ask("status")
        assert (status["rules"], status["registry"]["in_force"]) == (rules, True)
        assert node.policies().keys() == {"p1"}
        filler.unlink()
        node.put("p2", when=large)
        assert node.process.stop() == 0
        node.process.check(*FULL)
    with kept(disk) as node:
        assert node.policies().keys() == {"p1", "p2"}


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as filler:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(size))


def test_a_read_only_disk(disk: Path) -> None:
    """A node that could not keep what it is told does not start."""
    with kept(disk) as node:
        node.put("p1")
        assert node.process.stop() == 0
    subprocess.run(["mount", "-o", "remount,ro", disk / "data"], check=True)
    node = Kept(disk)
    try:
        assert node.process.popen.wait(STARTING) == 1
        [said] = node.process.events("cannot start")
        assert "admin.db cannot be opened: Read-only file system. Remedy: let the user" in said["reason"]
    finally:
        node.process.kill()
    subprocess.run(["mount", "-o", "remount,rw", disk / "data"], check=True)
    with kept(disk) as node:
        assert node.policies().keys() == {"p1"}


class Writer(threading.Thread):
    """Makes policies until the node is gone; `answered` has the version of each, `asked` may have one more."""

    def __init__(self, node: Kept, name: str) -> None:
        super().__init__()
        self.node = node
        self.prefix = name
        self.asked: list[str] = []
        self.answered: dict[str, int] = {}
        self.begun = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(TidegateError, OSError):
            while True:
                id = f"{self.prefix}-{len(self.asked)}"
                self.asked.append(id)
                self.answered[id] = self.node.put(id, topic=f"t/{id}")
                self.begun.set()


def _killed(folder: Path, kills: int, seed: int) -> None:
    chance = Random(seed)
    wanted: dict[str, int] = {}
    most: set[str] = set()
    for turn in range(kills):
        with kept(folder) as node:
            found = node.policies()
            assert wanted.items() <= found.items(), "something that was answered is not there"
            assert found.keys() <= wanted.keys() | most, "something is there that nobody asked for"
            assert node.ask("status")["registry"]["in_force"]
            wanted = found
            writers = [Writer(node, f"{name}{turn}") for name in "xy"]
            for each in writers:
                each.start()
            for each in writers:
                assert each.begun.wait(STARTING)
            threading.Event().wait(chance.uniform(0, 0.15))  # any moment is as good as any other
            node.process.kill()
            for each in writers:
                each.join()
                wanted |= each.answered
                most = most | set(each.asked)
    database = folder / "data" / "admin.db"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    place = SqlitePlace(folder)
    place.path = database
    place.check()
    with kept(folder) as node:
        found = node.policies()
        assert wanted.items() <= found.items()
        assert len(wanted) > kills
        print(f"\n{len(wanted)} changes answered, {len(found) - len(wanted)} more made, {kills} kills")
        assert len(set(found.values())) == len(found)
        for id in found:
            assert len(node.ask("admin_history", kind="policy", id=id)["entries"]) == 1
        assert node.process.stop() == 0


def test_killed_in_the_middle_of_changes(tmp_path: Path) -> None:
    _killed(tmp_path, KILLS, seed=7)


@pytest.mark.soak
def test_killed_again_and_again(tmp_path: Path) -> None:
    _killed(tmp_path, 40, seed=8)
