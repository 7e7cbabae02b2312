"""Whatever a crash leaves: opening and reading never fail, and no whole batch is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from store.journal.trial import NOON, Trial, audit, audits, details, one_line, segments
from tidegate.errors import StoreError
from tidegate.store.journal import AUDIT, TRAFFIC, Reader, audit_row, traffic_row
from tidegate.store.journal.frame import END, header
from tidegate.store.journal.index import Index
from tidegate.store.journal.repair import open_shard
from tidegate.store.journal.segment import folder_of, index_of


class Shard:
    """A journal of three batches (rows 0-1, 2-3, 4-5) that tests spoil and open again."""

    def __init__(self, data: Path) -> None:
        self.data = data
        trial = Trial(data)
        for n in (0, 2, 4):
            trial.write(audit(n), audit(n + 1))
        trial.close()
        self.folder = trial.folder
        (self.path,) = segments(data)
        self.content = self.path.read_bytes()
        self.index = index_of(self.path).read_bytes()
        known = Index(index_of(self.path))
        self.places = list(known.from_position(0))
        known.close()
        assert self.places[-1].end == len(self.content)

    def put(self, content: bytes, index: bytes | None) -> None:
        for path in self.folder.iterdir():
            path.unlink()
        self.path.write_bytes(content)
        if index is not None:
            index_of(self.path).write_bytes(index)

    def check(self, expected: int) -> None:
        """So many rows can be read; then the shard is opened and goes on from there."""
        assert details(self.data) == list(range(expected))
        segment, closed = open_shard(self.folder, AUDIT, sync=False)
        assert closed == []
        assert segment.next == expected
        segment.close()
        assert details(self.data, settled=True) == list(range(expected))
        assert one_line(self.path).num_rows == expected

    def go_on(self, number: int) -> None:
        trial = Trial(self.data)
        trial.write(audit(number))
        trial.close()


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard(tmp_path)


def test_cut_at_every_byte_of_the_last_batch(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # two thousand of them take their time
    last = shard.places[-1]
    for end in range(last.position, last.end):
        # The index knows two batches, or three if it reached the disk before them.
        shard.put(shard.content[:end], shard.index if end % 2 else shard.index[:-64])
        shard.check(4)
    shard.put(shard.content, shard.index[:-64])
    shard.check(6)


def test_cut_and_filled_with_zeros(shard: Shard) -> None:
    """The length reached the disk, the content did not."""
    last = shard.places[-1]
    for end in range(last.position, last.end, 7):
        content = shard.content[:end] + bytes(last.end - end)
        shard.put(content, shard.index)
        shard.check(6 if content == shard.content else 4)


def test_garbage_at_the_end(shard: Shard) -> None:
    chance = Random(5)
    tails = [b"\0", b"\0" * 5000, b"\xff" * 3, b"\xff" * 4, b"\xff" * 100, b"\xff\xff\xff\xff\x10\0\0\0", END + b"x"]
    tails += [shard.content[:100], shard.content, b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(64)]
    tails += [chance.randbytes(chance.randrange(1, 2000)) for _ in range(100)]
    for tail in tails:
        for index in (shard.index, shard.index + tail[:100], None):
            shard.put(shard.content + tail, index)
            shard.check(6)


def test_what_is_written_after_a_repair_is_whole(shard: Shard) -> None:
    for end in range(shard.places[1].position, len(shard.content), 97):
        whole = 2 if end < shard.places[1].end else 4
        shard.put(shard.content[:end], shard.index)
        shard.go_on(whole)
        assert details(shard.data) == list(range(whole + 1))
        assert one_line(shard.path).column("offset").to_pylist() == list(range(whole + 1))


@pytest.mark.parametrize("index", [None, b"", b"garbage" * 100, b"\0" * 500])
def test_the_index_is_made_again(shard: Shard, index: bytes | None) -> None:
    shard.put(shard.content, index)
    shard.check(6)
    assert index_of(shard.path).read_bytes() == shard.index


def test_a_segment_that_has_ended_is_followed_by_another(shard: Shard) -> None:
    """Killed between the end mark and the next segment."""
    shard.put(shard.content + END, shard.index)
    assert details(shard.data) == list(range(6))
    shard.go_on(6)
    assert [path.stem for path in segments(shard.data)] == [f"{0:020d}", f"{6:020d}"]
    assert details(shard.data) == list(range(7))


def test_half_made_files_are_swept_away(shard: Shard) -> None:
    for name in ("00000000000000000006.arrow.new", "00000000000000000000.index.new", "00000000000000000003.index"):
        (shard.folder / name).write_bytes(b"half")
    shard.check(6)
    assert sorted(path.name for path in shard.folder.iterdir() if path.suffix in (".new", ".index")) == [
        "00000000000000000000.index"
    ]


def damaged_at(shard: Shard, batch: int) -> Iterator[bytes]:
    """Each of them has one byte changed within this batch."""
    place = shard.places[batch]
    for position in range(place.position, place.end, 131):
        content = bytearray(shard.content)
        content[position] ^= 0x55
        yield bytes(content)


@pytest.mark.parametrize("batch", [0, 1])
def test_damage_in_the_middle_costs_only_the_damaged_batch(shard: Shard, batch: int) -> None:
    kept = [n for n in range(6) if n // 2 != batch]
    for content in damaged_at(shard, batch):
        shard.put(content, shard.index)
        for _ in range(2):  # before and after it was opened
            with Reader(shard.data, AUDIT, start=0) as reader:
                assert [int(row["detail"]) for row in reader.rows()] == kept
                assert reader.missed == 2
            with Reader(shard.data, AUDIT) as reader:
                tail = [int(row["detail"]) for batch in reader.tail(10) for row in batch.to_pylist()]
                assert tail == kept
            segment, closed = open_shard(shard.folder, AUDIT, sync=False)
            assert segment.next == 6, "the good ones after it keep their offsets"
            assert [(old.first, old.next) for old in closed] == [(0, 6)]
            segment.close()
        assert shard.path.read_bytes() == content, "left as it was found"


def test_a_header_that_is_gone(shard: Shard) -> None:
    """What the index still finds keeps its offsets; the file is put aside for somebody who can mend it."""
    shard.put(b"\0" * 100 + shard.content[100:], shard.index)
    assert details(shard.data) == []
    shard.go_on(6)
    assert [path.stem for path in segments(shard.data)] == [f"{6:020d}"]
    assert details(shard.data) == [6]
    assert (shard.folder / (shard.path.name + ".damaged")).stat().st_size == len(shard.content)


@pytest.mark.parametrize("size", [0, 1, 8, 100])
def test_a_file_with_nothing_in_it_yet(shard: Shard, size: int) -> None:
    shard.put(shard.content[:size], None)
    assert details(shard.data) == []
    shard.go_on(0)
    assert details(shard.data) == [0]


def test_an_empty_segment(shard: Shard) -> None:
    shard.put(header(AUDIT), None)
    shard.check(0)
    shard.go_on(0)
    assert details(shard.data) == [0]


def older(shard: Shard) -> bytes:
    """The same rows in a segment of the version before, as far as its header is concerned."""
    layout = pa.ipc.read_schema(pa.py_buffer(header(AUDIT)))
    changed: bytes = layout.with_metadata({"tidegate": "0", "stream": "audit"}).serialize().to_pybytes()
    return changed + shard.content[len(header(AUDIT)) :]


def test_a_segment_of_the_version_before_is_read_and_followed_by_a_new_one(shard: Shard) -> None:
    shard.put(older(shard), None)
    assert details(shard.data) == list(range(6))
    shard.go_on(6)
    assert [path.stem for path in segments(shard.data)] == [f"{0:020d}", f"{6:020d}"]
    assert details(shard.data) == list(range(7))


def test_a_segment_without_the_newest_column_is_read_and_followed_by_a_new_one(tmp_path: Path) -> None:
    """A column is added at the end, where readers of before do not look for it; the version stays."""
    before = replace(AUDIT, columns=AUDIT.columns[:-1], row=lambda *row: row, weigh=lambda row: 1, lost=None)
    trial = Trial(tmp_path, before)
    trial.write(audit_row(NOON, detail="old")[:-1])
    trial.close()
    trial = Trial(tmp_path)
    trial.write(audit_row(NOON, detail="new", publisher="client:c"))
    trial.close()
    assert len(segments(trial.data)) == 2
    told = [(row["detail"], row["publisher"]) for row in Reader(trial.data, AUDIT).rows()]
    assert told == [("old", None), ("new", "client:c")]
    known = [row["detail"] for row in Reader(trial.data, before).rows()]
    assert known == ["old", "new"]


def test_a_newer_version_is_left_alone(shard: Shard) -> None:
    content = pa.schema([("x", pa.int8())], metadata={"tidegate": "2", "stream": "audit"}).serialize().to_pybytes()
    shard.put(content, None)
    with pytest.raises(StoreError, match="version 2"):
        Trial(shard.data)
    with pytest.raises(StoreError, match=r"arrow cannot be read: .*version 2"):
        details(shard.data)
    assert shard.path.read_bytes() == content


def test_a_segment_of_another_stream_is_refused(shard: Shard) -> None:
    folder = folder_of(shard.data, TRAFFIC, 0)
    shutil.copytree(shard.folder, folder)
    with pytest.raises(StoreError, match="holds the stream 'audit', not 'traffic'"):
        Trial(shard.data, TRAFFIC)
    shutil.rmtree(folder)
    trial = Trial(shard.data, TRAFFIC)
    trial.write(traffic_row(1.0, event="connect"))
    trial.close()


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("a file")
    with pytest.raises(StoreError, match="Remedy"):
        Trial(tmp_path)


def test_trouble_while_opening_names_the_remedy(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device", "x.arrow")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"No space left.*Remedy: free some space"):
            Trial(shard.data)
    shard.check(6)


def test_opening_many_segments_reads_only_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(tmp_path, segment_age=0.0)
    for n in range(30):
        trial.write(audit(n))
    trial.close()
    read: list[int] = []
    pread = os.pread

    def counted(file: int, length: int, position: int) -> bytes:
        read.append(length)
        return pread(file, length, position)

    monkeypatch.setattr(os, "pread", counted)
    again = Trial(tmp_path)
    monkeypatch.undo()
    again.close()
    assert len(read) < 31 * 4
    assert details(tmp_path) == list(range(30))


def test_several_batches_in_one_go(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.write(*audits(range(10_000)))
    trial.close()
    (path,) = segments(tmp_path)
    content = path.read_bytes()
    for end in (len(content) - 1, len(content) // 2, 40_000):
        path.write_bytes(content[:end])
        kept = details(tmp_path)
        assert kept == list(range(len(kept)))
        again = Trial(tmp_path)
        assert again.writer.next == len(kept)
        again.close()
        assert details(tmp_path) == kept
