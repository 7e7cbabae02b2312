"""Offsets of a journal, and the rows between two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.journals import write
from store.journal.trial import NOON, segments
from tidegate.errors import PipelineError
from tidegate.pipeline.source.shards import LARGE, SMALL, TASKS, Range, Shards, pieces, shared_out, signed, span
from tidegate.store.journal import INGEST, Selection


def shards(path: Path, *, strict: bool = True) -> Shards:
    return Shards(path=path, stream="ingest", strict=strict)


def ids(found: Shards, wanted: Range, select: Selection | None = None) -> list[int]:
    return [int(id) for batch in found.read(wanted, select) for id in batch.column("id").to_pylist()]


def test_rows_between_offsets(tmp_path: Path) -> None:
    write(tmp_path, range(95))
    found = shards(tmp_path)
    assert found.bounds() == {"0": (0, 95)}
    assert ids(found, Range(0, 17, 63)) == list(range(17, 63))
    assert ids(found, Range(0, 20, 20)) == []


def test_every_shard(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    write(tmp_path, range(100, 105), shard=1)
    (tmp_path / "journal/ingest/readers").mkdir()
    found = shards(tmp_path)
    assert found.newest() == {"0": 10, "1": 5}
    assert found.latest({"0": 4}, rows=None) == {"0": 10, "1": 5}
    assert found.ranges({"0": 4}, {"0": 10, "1": 5}) == [Range(0, 4, 10), Range(1, 0, 5)]
    assert ids(found, Range(1, 0, 5)) == list(range(100, 105))


def test_a_limit_is_kept_over_all_shards(tmp_path: Path) -> None:
    write(tmp_path, range(50))
    write(tmp_path, range(4), shard=1)
    found = shards(tmp_path)
    start = found.oldest()
    seen = 0
    while (end := found.latest(start, rows=11)) != start:
        rows = sum(end[shard] - start[shard] for shard in end)
        assert 0 < rows <= 11
        seen += rows
        start = end
    assert seen == 54


def test_no_further_than_the_target(tmp_path: Path) -> None:
    write(tmp_path, range(20))
    target = shards(tmp_path).newest()
    write(tmp_path, range(20, 40))
    write(tmp_path, range(5), shard=1)
    assert shards(tmp_path).latest({"0": 3}, rows=None, target=target) == {"0": 20}
    assert shards(tmp_path).latest({"0": 20}, rows=None, target=target) == {"0": 20}


@pytest.mark.parametrize(
    ("waiting", "rows", "taken"),
    [
        ({"0": 5}, 3, {"0": 3}),
        ({"0": 5, "1": 5}, 100, {"0": 5, "1": 5}),
        ({"0": 100, "1": 2}, 10, {"1": 2, "0": 8}),
        ({"0": 100, "1": 100, "2": 0}, 10, {"2": 0, "0": 5, "1": 5}),
        ({"0": 9, "1": 9}, 1, {"0": 1, "1": 0}),
        ({}, 10, {}),
    ],
)
def test_shares(waiting: dict[str, int], rows: int, taken: dict[str, int]) -> None:
    assert shared_out(waiting, rows) == taken


@pytest.mark.parametrize("rows", [0, 1, SMALL - 1, 2 * SMALL, 3 * SMALL + 7, 100_000, TASKS * LARGE + 1, 1_000_000])
def test_pieces_are_the_whole(rows: int) -> None:
    found = pieces(Range(2, 1000, 1000 + rows))
    assert [number for each in found for number in (each.start, each.stop)][1:-1:2] == [
        each.start for each in found[1:]
    ]
    assert sum(each.stop - each.start for each in found) == rows
    assert all(0 < each.stop - each.start <= max(LARGE, 2 * SMALL) for each in found)
    assert rows < 2 * SMALL or len(found) > 1, "both cores have something to do"


def test_rows_that_retention_has_deleted(tmp_path: Path) -> None:
    write(tmp_path, range(100), segment_size=2000)
    first, *_ = segments(tmp_path, INGEST)
    first.unlink()
    found = shards(tmp_path)
    oldest = found.oldest()["0"]
    assert oldest > 5
    assert found.ranges(found.oldest(), found.newest()) == [Range(0, oldest, 100)]
    with pytest.raises(PipelineError, match=rf"{oldest - 5} of the rows from offset 5 .* failOnDataLoss=false"):
        found.ranges({"0": 5}, {"0": 100})
    lenient = shards(tmp_path, strict=False)
    assert lenient.ranges({"0": 5}, {"0": 100}) == [Range(0, oldest, 100)]
    assert lenient.ranges({"0": 2}, {"0": 4}) == []
    with pytest.raises(PipelineError, match="3 of the rows"):
        ids(found, Range(0, oldest - 3, oldest + 4))  # deleted after it was planned
    assert ids(lenient, Range(0, oldest - 3, oldest + 4)) == list(range(oldest, oldest + 4))


def test_damaged_rows(tmp_path: Path) -> None:
    write(tmp_path, range(30))
    (path,) = segments(tmp_path, INGEST)
    data = bytearray(path.read_bytes())
    data[data.index(b"12131415")] ^= 0xFF  # payloads of the second batch
    path.write_bytes(data)
    with pytest.raises(PipelineError, match="10 of the rows from offset 5 to before 25"):
        ids(shards(tmp_path), Range(0, 5, 25))
    assert ids(shards(tmp_path, strict=False), Range(0, 5, 25)) == [*range(5, 10), *range(20, 25)]
    assert ids(shards(tmp_path), Range(0, 20, 30)) == list(range(20, 30))


def test_another_journal(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    for found in (shards(tmp_path), shards(tmp_path, strict=False)):
        with pytest.raises(PipelineError, match=r"ends at offset 10, .* goes on at 11: .* delete the checkpoint"):
            found.latest({"0": 11}, rows=None)
        with pytest.raises(PipelineError, match=r"ends at offset 0, .* goes on at 3"):
            found.ranges({"0": 0}, {"0": 10, "1": 3})


def test_an_offset_of_another_journal(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    found = shards(tmp_path)
    here, other = found.journal(), "0" * 32
    assert here is not None
    kept = signed(found.newest(), here)
    assert kept == {"journal": here, "0": 10}
    assert found.own(kept, here) == {"0": 10}
    assert found.own({"0": 10}, here) == {"0": 10}, "of a version that wrote no id"
    for strange, journal, said in (
        ({"journal": other, "0": 3}, here, f"is the journal {here}, and this query goes on in the journal {other}"),
        (kept, None, "is a journal without an id, and this query goes on in the journal"),
    ):
        with pytest.raises(PipelineError, match=rf"{said}.*: it is not .* Remedy: .* delete the checkpoint"):
            found.own(strange, journal)


def test_a_checkpoint_tells_where_a_batch_ends(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for number, offset in enumerate(('{"0": 3}', f'{{"journal": "{"0" * 32}", "0": 7, "1": 2}}')):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offset}\n")
    assert span(tmp_path, 0) == ({}, {"0": 3})
    assert span(tmp_path, 1) == ({"0": 3}, {"0": 7, "1": 2})
    with pytest.raises(PipelineError, match="does not tell where the batch ends"):
        span(tmp_path, 2)


def test_no_journal(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"there is no journal in .*node\.data"):
        shards(tmp_path).check()
    (tmp_path / "journal").mkdir()
    shards(tmp_path).check()
    assert shards(tmp_path).bounds() == {}


def test_rows_of_a_time(tmp_path: Path) -> None:
    write(tmp_path, range(50))
    found = shards(tmp_path)
    assert ids(found, Range(0, 0, 50), Selection(since=NOON + 20, until=NOON + 33)) == list(range(20, 33))
