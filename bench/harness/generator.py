"""Load generators: processes of their own on their own core, which read lines of JSON and answer with lines of JSON.

One that fails answers `{"error": ...}` and ends.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import Self

from bench.harness.servers import BenchError, Server, pinned
from bench.load.job import Outcome

TIMEOUT = 180.0
END_TIMEOUT = 3.0  # for a server whose connections are closed to end


class Generator:
    """One that loads `server`, until the end of the block."""

    def __init__(self, server: Server, core: int, module: str = "bench.load.generator") -> None:
        self._server = server
        self._buffer = b""
        with pinned(core):
            self.process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; the next line says why

    def close(self) -> None:
        """Nothing more will be told."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None  # communicate() would flush it

    def line(self, timeout: float = TIMEOUT) -> str:
        """The next line that it answers; BenchError says why there is none."""
        assert self.process.stdout is not None
        source, deadline = self.process.stdout.fileno(), time.monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([source], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise BenchError(f"{self._server.peer.value}: the load generator did not finish")
            data = os.read(source, 1 << 16)
            if not data:
                raise self._failure("")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        if line.startswith(b'{"error"'):
            raise self._failure(json.loads(line)["error"])
        return line.decode()

    def measure(self, timeout: float = TIMEOUT, **changes: object) -> Outcome:
        """One measurement with the job that it was told, but for `changes`."""
        self.tell(json.dumps(changes))
        return Outcome.from_json(self.line(timeout))

    def _failure(self, reason: str) -> BenchError:
        """Why it failed, or the server under it."""
        _, errors = self.process.communicate()
        if words := self._server.obituary(wait=END_TIMEOUT):
            return BenchError(words)
        reason = reason or errors.decode().strip() or f"the load generator ended with code {self.process.returncode}"
        return BenchError(f"{self._server.peer.value}: {reason}")
