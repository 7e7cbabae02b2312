"""A batch is one message, comes back as it was, and no change to it goes unnoticed."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.journal.trial import NOON, audit, audits
from tidegate.store.journal import AUDIT, INGEST, audit_row, ingest_row, schema
from tidegate.store.journal.frame import END, Place, decode, encode, header, peek, walk, whole
from tidegate.store.journal.rows import Row


class Bytes:
    """A source that is just bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def at(self, position: int, length: int) -> memoryview:
        return memoryview(self.data)[position : position + length]


texts = st.none() | st.text(st.characters(codec="utf-8"), max_size=20)
rows = st.lists(
    st.builds(
        ingest_row,
        st.floats(0, 4e9),
        id=texts,
        topic=texts,
        payload=st.none() | st.binary(max_size=50),
        qos=st.none() | st.integers(0, 2),
        retain=st.none() | st.booleans(),
        properties=st.none() | st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=3),
        context=st.none() | st.binary(max_size=10),
        user=texts,
    ),
    min_size=1,
    max_size=20,
)


@given(rows, st.integers(0, 2**60), st.booleans())
def test_round_trip(written: list[Row], first: int, compress: bool) -> None:
    message, place = encode(INGEST, 3, first, written, compress=compress)
    source = Bytes(bytes(message))
    assert peek(source, 0) == place
    checked = whole(source, place)
    assert checked is not None
    found = decode(checked, schema(INGEST)).to_pylist()
    assert [row["offset"] for row in found] == list(range(first, first + len(written)))
    for row, original in zip(found, written, strict=True):
        expected = dict(zip(INGEST.columns, original, strict=True)) | {"shard": 3, "offset": row["offset"]}
        expected["received_at"] = row["received_at"]
        if expected["properties"] is not None:
            expected["properties"] = [{"name": n, "value": v} for n, v in expected["properties"]]
        assert row == expected
        assert abs(row["received_at"].timestamp() - original[0]) < 2e-6
    times = [int(row[0] * 1_000_000) for row in written]
    assert place == Place(0, len(message), first, len(written), min(times), max(times))


def test_header_and_messages_are_an_arrow_stream() -> None:
    data = header(AUDIT)
    for first, count in ((0, 1), (1, 3000), (3001, 2)):
        data += encode(AUDIT, 0, first, audits(range(first, first + count)), compress=True)[0]
    for end in (b"", END):
        table = pa.ipc.open_stream(data + end).read_all()
        assert table.column("detail").to_pylist() == [str(n) for n in range(3003)]
        assert table.schema.metadata == {b"tidegate": b"1", b"stream": b"audit"}


def test_large_batches_are_compressed() -> None:
    some = audits(range(2000))
    assert len(encode(AUDIT, 0, 0, some, compress=True)[0]) * 3 < len(encode(AUDIT, 0, 0, some, compress=False)[0])


def test_no_changed_byte_goes_unnoticed() -> None:
    message, _ = encode(AUDIT, 0, 5, audits(range(3)), compress=False)
    for position in range(len(message)):
        changed = bytearray(message)
        changed[position] ^= 0x10
        source = Bytes(bytes(changed))
        found = peek(source, 0)
        assert found is None or whole(source, found) is None, position


def test_no_cut_message_counts() -> None:
    message, _ = encode(AUDIT, 0, 5, audits(range(3)), compress=False)
    for length in range(len(message)):
        for tail in (b"", bytes(len(message) - length)):
            source = Bytes(bytes(message[:length]) + tail)
            if source.data != message:
                assert list(walk(source, 0, 0)) == []


@given(st.binary(max_size=300))
def test_garbage_is_no_message(data: bytes) -> None:
    good, place = encode(AUDIT, 0, 5, audits(range(2)), compress=False)
    assert list(walk(Bytes(data), 0, 0)) == []
    assert list(walk(Bytes(bytes(good) + data), 0, 0)) == [place]


def test_walk_takes_only_rising_offsets() -> None:
    one, first = encode(AUDIT, 0, 5, audits(range(2)), compress=False)
    two, second = encode(AUDIT, 0, 7, audits(range(2)), compress=False)
    second = second._replace(position=len(one))
    assert list(walk(Bytes(bytes(one + two)), 0, 0)) == [first, second]
    assert list(walk(Bytes(bytes(one + two)), 0, 6)) == []
    assert list(walk(Bytes(bytes(two + one)), 0, 0)) == [second._replace(position=0)]


def test_a_stamp_in_the_content_is_content() -> None:
    inner, _ = encode(AUDIT, 0, 99, [audit(1)], compress=False)
    message, place = encode(INGEST, 0, 5, [ingest_row(NOON, payload=bytes(inner), topic=str(inner))], compress=False)
    assert list(walk(Bytes(bytes(message)), 0, 0)) == [place]


@pytest.mark.parametrize(("time", "year"), [(-1e300, 1970), (1e300, 9999), (float("inf"), 9999), (-5.0, 1970)])
def test_a_clock_may_say_anything(time: float, year: int) -> None:
    message, place = encode(AUDIT, 0, 0, [audit(1), audit_row(time)], compress=False)
    found = decode(memoryview(message), schema(AUDIT)).to_pylist()
    assert found[1]["at"].year == year
    assert found[0]["at"] == datetime.fromtimestamp(NOON + 1, UTC)
    assert place.low <= place.high


@pytest.mark.parametrize(
    "row",
    [
        audit_row("now"),  # type: ignore[arg-type]
        audit_row(float("nan")),
        audit_row(NOON, topic="\ud800"),
        audit_row(NOON, topic=b"bytes\xff"),  # type: ignore[arg-type]
        audit_row(NOON, count=2**63),
        audit_row(NOON, count="many"),  # type: ignore[arg-type]
        (NOON, "too", "short"),
    ],
)
def test_what_does_not_fit_raises(row: Row) -> None:
    for written in ([row], [audit(1), row]):
        with pytest.raises(Exception, match=r".+"):
            encode(AUDIT, 0, 0, written, compress=False)
