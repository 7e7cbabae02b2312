"""Mosquitto as the broker behind a guard: started on a free loopback port, killed and started again, always ended.

`mosquitto_of(...)` runs one for a block. `guarded(...)` is the section `scopes` of a node that stands in front of it.
"""

from __future__ import annotations

import contextlib
import getpass
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli.driving import mosquitto_program
from harness import PATIENCE, free_port

SECRET = "0123456789abcdef" * 2  # of the guarded scope; only for tests
OPEN_TO_ALL = "allow_anonymous true\n"
UNLIMITED = "max_inflight_messages 0\nmax_queued_messages 0\n"


class Mosquitto:
    """A broker in a folder of its own. With `persistent` it saves what it holds with every change, so that only what
    it has not acknowledged is lost when it is killed."""

    def __init__(self, folder: Path, lines: str = OPEN_TO_ALL, *, persistent: bool = False, port: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = port or free_port()
        self.log = folder / "mosquitto.log"
        self._file = folder / "mosquitto.conf"
        kept = f"persistence true\npersistence_location {folder}/\nautosave_interval 1\nautosave_on_changes true\n"
        self._file.write_text(
            f"user {getpass.getuser()}\n{kept if persistent else 'persistence false' + chr(10)}"
            f"listener {self.port} 127.0.0.1\n{lines}"
        )
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                [mosquitto_program(), "-c", str(self._file)], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE).close()
                return
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def kill(self) -> None:
        """At once, with nothing saved."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            finally:
                self.kill()


@contextlib.contextmanager
def mosquitto_of(folder: Path, lines: str = OPEN_TO_ALL, *, persistent: bool = False) -> Iterator[Mosquitto]:
    """A broker that runs until the end of the block."""
    broker = Mosquitto(folder, lines, persistent=persistent)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def guarded(broker: Mosquitto, scope: str = "main", **options: Any) -> dict[str, Any]:
    """The section `scopes` of a node whose scope is kept in that broker; names and passwords are the node's."""
    return {scope: {"backend": broker.url, "authenticate": "here", **options}}
