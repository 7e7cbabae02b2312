"""The journals of a node: opened and closed off the loop, with what the configuration says of keeping them.

Without `node.data`, and without the extra `journal`, there are none. A configuration that needs one is refused then;
the audit is kept in memory, and written to the log if only the extra is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from tidegate.config import Config, Durability, Record
from tidegate.errors import ConfigError, StoreError
from tidegate.store.journal import AUDIT, INGEST, TRAFFIC, Retention, Stream, Writer, readers
from tidegate.store.journal.schema import REMEDY, installed

SEGMENTS = 16  # of so many parts one goes at once when a journal is full, or too old
LARGEST = 64 << 20  # bytes of a segment
LONGEST = 86400.0  # seconds that a segment takes
STATED = 3600.0  # the same where each begins with the state, so that a replay need not read far
WITHIN = 1.0  # seconds until rows are written: nobody waits for them
READER = "pipeline"  # its name among the readers of a journal

log = structlog.get_logger("tidegate.node")


class Journals:
    """By stream. `call` runs a function on the loop, from any thread."""

    def __init__(self, call: Callable[[Callable[[], None]], object]) -> None:
        self._call = call
        self._open: dict[str, tuple[Writer, Retention]] = {}

    def __getitem__(self, stream: Stream) -> Writer:
        return self._open[stream.name][0]

    async def open(self, config: Config, stream: Stream, rolled: Callable[[int], None] | None = None) -> Writer | None:
        """The journal, opened unless it is; None if there can be none. StoreError if it cannot be opened."""
        if stream.name in self._open:
            return self[stream]
        check_installed(config)
        if config.node.data is None or not installed():
            if stream is TRAFFIC:
                raise ConfigError("`record: traffic` needs a folder to write to: set `node.data`")
            return None
        retention = _retention(config, stream)
        journal = Writer(
            config.node.data,
            stream,
            call=self._call,
            sync=config.durability is Durability.SYNC,
            interval=WITHIN,
            segment_size=min(LARGEST, (retention.size or LARGEST) // SEGMENTS),
            segment_age=min(STATED if rolled else LONGEST, (retention.age or LONGEST) / SEGMENTS),
            retention=retention,
            rolled=rolled,
        )
        await asyncio.get_running_loop().run_in_executor(None, journal.open)
        self._open[stream.name] = (journal, retention)
        journal.start()
        return journal

    async def prepare(self, config: Config) -> Writer | None:
        """The journal that the pipeline reads, of which nothing goes before that; None without a pipeline.

        StoreError if it cannot be opened.
        """
        if config.pipeline is None or config.node.data is None:
            return None
        enrol = partial(readers.enrol, readers.readers_of(config.node.data, INGEST), READER)
        await asyncio.get_running_loop().run_in_executor(None, enrol)
        return await self.open(config, INGEST)

    def check(self, config: Config) -> None:
        """ConfigError if an open journal would have to be kept differently, or if a journal cannot be written."""
        check_installed(config)
        for stream, name in ((AUDIT, "audit"), (TRAFFIC, "traffic"), (INGEST, "sources.ingest")):
            if stream.name in self._open and self._open[stream.name][1] != _retention(config, stream):
                text = f"`{name}.keep` and `{name}.size` cannot change while the node runs; restart it"
                raise ConfigError(text)

    async def roll(self, stream: Stream) -> bool:
        """What is in the journal is in complete segments, if it is open; whether that is done."""
        if stream.name not in self._open:
            return True
        return await asyncio.get_running_loop().run_in_executor(None, self[stream].roll)

    async def close(self, stream: Stream) -> None:
        if stream.name in self._open:
            journal, _ = self._open.pop(stream.name)
            await asyncio.get_running_loop().run_in_executor(None, partial(_close, journal))

    def close_all(self) -> None:
        """Writes everything; blocks."""
        while self._open:
            _close(self._open.popitem()[1][0])

    def state(self) -> dict[str, Any]:
        journals = [journal for journal, _ in self._open.values()]
        return {
            "dropped": sum(journal.dropped + journal.spoilt for journal in journals),
            "waiting": sum(journal.backlog for journal in journals),
            "bytes": sum(journal.size for journal in journals),
            "trouble": "; ".join(journal.trouble for journal in journals if journal.trouble) or None,
        }


def check_installed(config: Config) -> None:
    """ConfigError with the remedy if the configuration needs a journal and the extra `journal` is not installed."""
    needs = {"`pipeline`": config.pipeline is not None, "`record: traffic`": config.record is Record.TRAFFIC}
    for name, needed in needs.items():
        if needed and not installed():
            raise ConfigError(f"{name} needs a journal, and pyarrow is not installed; run {REMEDY}")


def journal_warning(config: Config) -> str | None:
    """What is not written down because the extra `journal` is not installed."""
    if installed() or config.node.data is None:
        return None
    text = f"the audit is kept in memory and written to the log: pyarrow is not installed; run {REMEDY} for a journal"
    return text if config.http is None else f"{text} and for `POST /data`"


def _retention(config: Config, stream: Stream) -> Retention:
    said = config.sources.ingest if stream is INGEST else config.audit if stream is AUDIT else config.traffic
    return Retention(age=said.keep, size=said.size)


def _close(journal: Writer) -> None:
    try:
        journal.close()
    except StoreError as error:
        log.error("the end of a journal was not written", reason=str(error))
