"""What is kept of somebody in journals and in the lake: a process of its own reads it or erases it, one at a time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any, Final

import orjson

from tidegate.config import Config
from tidegate.errors import StoreError
from tidegate.store.journal import INGEST, TRAFFIC

_COMMAND: Final = (sys.executable, "-c", "from tidegate.cli.app import main; main()", "kept")
_ENVIRONMENT: Final = ("HOME", "LANG", "PATH", "TMPDIR", "TZ", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")


class KeptData:
    """That of one node."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def anything(config: Config) -> bool:
        """Whether there are journals of messages, or a pipeline."""
        data = config.node.data
        journals = data is not None and any((data / "journal" / each.name).exists() for each in (INGEST, TRAFFIC))
        return journals or config.pipeline is not None

    async def do(self, config: Config, what: str, patience: float | None = None, **more: Any) -> dict[str, Any]:
        """The answer of the process. StoreError if it could not do it."""
        assert config.node.data is not None
        lake = None if config.pipeline is None else config.pipeline.lake or config.node.data / "lake"
        job = {"do": what, "data": config.node.data.absolute(), "lake": lake and lake.absolute(), **more}
        async with self._turn:
            answer, code = await asyncio.to_thread(self._run, orjson.dumps(job, default=str), patience)
        try:
            found: dict[str, Any] = orjson.loads(answer)
        except orjson.JSONDecodeError:
            raise StoreError(f"the process for kept data ended with {code}; its log says why") from None
        if "error" in found:
            raise StoreError(found["error"])
        return found

    def _run(self, job: bytes, patience: float | None) -> tuple[bytes, int]:
        """On a thread: to start a process takes the longer the larger this one is."""
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        process = self._process = subprocess.Popen(  # noqa: S603 - the command is our own
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        with process:
            try:
                answer, _ = process.communicate(job, timeout=patience)
            except subprocess.TimeoutExpired:
                process.kill()
                raise TimeoutError("the process for kept data takes too long") from None
        return answer, process.returncode

    def stop(self) -> None:
        """What is being done is done again at the next start."""
        if self._process is not None:
            self._process.kill()
