"""What is kept of somebody in journals and in the lake: a process of its own reads it or erases it, one at a time."""

from __future__ import annotations

import asyncio
import os
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
            process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                preexec_fn=_behind,
            )
            try:
                async with asyncio.timeout(patience):
                    answer, _ = await process.communicate(orjson.dumps(job, default=str))
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        try:
            found: dict[str, Any] = orjson.loads(answer)
        except orjson.JSONDecodeError:
            raise StoreError(f"the process for kept data ended with {process.returncode}; its log says why") from None
        if "error" in found:
            raise StoreError(found["error"])
        return found


def _behind() -> None:
    os.nice(15)
