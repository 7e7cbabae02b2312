"""The shards of one journal stream as Spark wants them: offsets, and the rows between two of them.

Offsets are `{"0": n}`: for each shard the offset of the row that comes next. Only rows that are on the disk count, so
an offset that Spark has written into a checkpoint never comes to mean another row. An offset that Spark keeps also has
the id of the journal, `{"journal": "3f…", "0": n}` (`QueryOffset`), because offsets begin at 0 in every journal. One
without an id, of a version of Tidegate that wrote none, counts as one of the journal that is there.

Nothing is passed over in silence. A range that has lost rows, because retention has deleted them or because they are
damaged, is an error unless the reader has said that it does not mind; then it is a warning. A journal that has another
id, or that ends before the offset at which a query goes on, is another journal, and always an error.

Nothing here imports Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import structlog

from tidegate.errors import PipelineError
from tidegate.store.journal import Reader, Selection, known_journal, stream_named

JOURNAL: Final = "journal"  # the key of the journal's id in a `QueryOffset`; the other keys are shards

Offsets: TypeAlias = dict[str, int]
QueryOffset: TypeAlias = dict[str, int | str]
"""Offsets and the id of their journal, as Spark keeps them in a checkpoint."""

SMALL: Final = 16_384  # rows; less is not worth a task of its own
LARGE: Final = 65_536  # rows; more is a task that takes long to repeat
TASKS: Final = 8  # for what is between the two: enough for a few cores, with some left over when they are not equal

_ANOTHER: Final = (
    "it is not the journal that was read before. Remedy: put that one back, or delete the checkpoint of the query and "
    "begin with the oldest row"
)

log = structlog.get_logger("tidegate.pipeline")


class Range(NamedTuple):
    """Rows of one shard: from `start` to before `stop`."""

    shard: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """One stream of the journal in the data folder `path`."""

    path: Path
    stream: str
    strict: bool = True  # lost rows are an error

    def check(self) -> None:
        if not (self.path / "journal").is_dir():
            raise PipelineError(
                f"there is no journal in {self.path}; give the data folder of a node (`node.data` in its configuration)"
            )

    def journal(self) -> str | None:
        """The id of the journal; None if no node has opened it since journals have one."""
        return known_journal(self.path)

    def own(self, offset: Mapping[str, int | str], journal: str | None) -> Offsets:
        """What an offset of a query says of each shard. PipelineError if it is not one of `journal`."""
        if offset.get(JOURNAL, journal) != journal:
            there = "a journal without an id" if journal is None else f"the journal {journal}"
            raise PipelineError(
                f"{self.path / 'journal'} is {there}, and this query goes on in the journal {offset[JOURNAL]}: "
                f"{_ANOTHER}"
            )
        return {shard: int(number) for shard, number in offset.items() if shard != JOURNAL}

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Of each shard the oldest offset there is, and the one after the newest."""
        folder = self.path / "journal" / self.stream
        names = (each.name for each in folder.iterdir()) if folder.is_dir() else ()
        return {name: self._reader(int(name)).bounds() for name in sorted(names) if name.isdecimal()}

    def oldest(self) -> Offsets:
        return {shard: first for shard, (first, _) in self.bounds().items()}

    def newest(self) -> Offsets:
        return {shard: following for shard, (_, following) in self.bounds().items()}

    def latest(self, start: Mapping[str, int], *, rows: int | None, target: Mapping[str, int] | None = None) -> Offsets:
        """How far a batch from `start` goes: at most so many rows, and no further than `target`."""
        bounds = self.bounds()
        self._same_journal(start, bounds)
        begin = {shard: start.get(shard, first) for shard, (first, _) in bounds.items()}
        ends = {shard: following for shard, (_, following) in bounds.items()}
        if target is not None:
            ends = {shard: min(end, target.get(shard, begin[shard])) for shard, end in ends.items()}
        waiting = {shard: max(0, end - begin[shard]) for shard, end in ends.items()}
        taken = waiting if rows is None else shared_out(waiting, rows)
        # A shard that came later and has nothing yet is left out: its oldest offset is not known to stay.
        return dict(start) | {shard: begin[shard] + count for shard, count in taken.items() if count or shard in start}

    def ranges(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[Range]:
        bounds = self.bounds()
        self._same_journal(end, bounds)
        ranges = []
        for shard, stop in sorted(end.items()):
            oldest = min(bounds[shard][0], stop) if shard in bounds else 0
            begin = start.get(shard, oldest)
            if oldest > begin:
                self.lost(Range(int(shard), begin, stop), oldest - begin)
                begin = oldest
            ranges.extend(pieces(Range(int(shard), begin, stop)))
        return ranges

    def read(self, wanted: Range, select: Selection | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, a few megabytes at a time."""
        with self._reader(wanted.shard, wanted, select) as reader:
            while batches := reader.poll():
                yield together(batches)
            missing = reader.missed + max(0, wanted.stop - reader.next)
        if missing:
            self.lost(wanted, min(missing, wanted.stop - wanted.start))

    def rows(self, wanted: Iterable[Range]) -> Iterator[pa.RecordBatch]:
        for each in wanted:
            yield from self.read(each)

    def lost(self, wanted: Range, rows: int) -> None:
        """PipelineError, or a warning for whoever does not mind."""
        where = f"{self.path / 'journal' / self.stream / str(wanted.shard)}"
        if self.strict:
            raise PipelineError(
                f"{where}: {rows} of the rows from offset {wanted.start} to before {wanted.stop} are gone: retention "
                "has deleted them, or the disk has damaged them. Remedy: go on without them with the option "
                "failOnDataLoss=false; so that retention waits next time, give the reader a `name`"
            )
        log.warning("rows of the journal are gone", folder=where, start=wanted.start, stop=wanted.stop, rows=rows)

    def _same_journal(self, offsets: Mapping[str, int], bounds: Mapping[str, tuple[int, int]]) -> None:
        for shard, offset in offsets.items():
            following = bounds[shard][1] if shard in bounds else 0
            if following < offset:
                raise PipelineError(
                    f"{self.path / 'journal' / self.stream / shard} ends at offset {following}, and this query goes on "
                    f"at {offset}: {_ANOTHER}"
                )

    def _reader(self, shard: int, wanted: Range | None = None, select: Selection | None = None) -> Reader:
        start, stop = (None, None) if wanted is None else (wanted.start, wanted.stop)
        stream = stream_named(self.stream)
        return Reader(self.path, stream, shard, start=start, stop=stop, select=select, settled=True)


def pieces(whole: Range) -> list[Range]:
    rows = whole.stop - whole.start
    if rows <= 0:
        return []
    count = max(1, min(TASKS, rows // SMALL), -(-rows // LARGE))
    cuts = [whole.start + rows * number // count for number in range(count + 1)]
    return [Range(whole.shard, start, stop) for start, stop in pairwise(cuts)]


def shared_out(waiting: Mapping[str, int], rows: int) -> dict[str, int]:
    """At most so many in all: who has less than an equal share leaves the rest of it to the others."""
    taken: dict[str, int] = {}
    for number, (shard, count) in enumerate(sorted(waiting.items(), key=lambda item: item[1])):
        taken[shard] = min(count, -(-rows // (len(waiting) - number)))
        rows -= taken[shard]
    return taken


def together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of many: each that goes to Spark costs some time of its own, and a group commit may be one row."""
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def span(checkpoint: Path, number: int) -> tuple[Offsets, Offsets]:
    """The offsets before a batch (nothing before the first) and after it. PipelineError if Spark says it otherwise.

    Spark writes the end of a batch into `offsets/NUMBER` of the checkpoint before it begins: a version, a line about
    the query, and a line for each source. Looking there saves a job that would read the batch only to find its first
    and last row.
    """
    return ({} if number == 0 else _end(checkpoint, number - 1)), _end(checkpoint, number)


def signed(offsets: Offsets, journal: str | None) -> QueryOffset:
    """The offsets with the id of their journal, if it has one."""
    return {**offsets} if journal is None else {JOURNAL: journal, **offsets}


def _end(checkpoint: Path, number: int) -> Offsets:
    path = checkpoint / "offsets" / str(number)
    try:
        version, _, offsets = path.read_text().splitlines()
        parsed = json.loads(offsets)
        if version != "v1" or not isinstance(parsed, dict):
            raise ValueError(f"{version}, {offsets}")
        return {str(shard): int(offset) for shard, offset in parsed.items() if shard != JOURNAL}
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"{path} does not tell where the batch ends ({error}). Remedy: delete {checkpoint}; what is done is in the "
            "ledger, and not done again"
        ) from error
