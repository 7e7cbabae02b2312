"""The Arrow schema of each stream, and batches of an older version made to look like the current one.

Columns are plain, not dictionary-encoded: a dictionary costs a message of its own in every batch, and most batches are
small; large ones are compressed instead, which makes them smaller than dictionaries would. It also keeps a batch to
exactly one IPC message that needs nothing but the schema to be read.

pyarrow is installed with the extra `journal`. It takes 0.1 s and 40 MB to import, so nothing here imports it before a
journal is first used (`arrow`).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import StoreError
from tidegate.store.journal.rows import STREAMS, Stream

if TYPE_CHECKING:
    import pyarrow as pa

VERSION: Final = 1
REMEDY: Final = "pip install 'tidegate[journal]'"
_NEVER_NULL: Final = ("shard", "offset", "at", "received_at")


@cache
def installed() -> bool:
    return find_spec("pyarrow") is not None


def arrow() -> Any:
    """The module `pyarrow`; StoreError with the remedy if it is not installed."""
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise StoreError(f"journals need pyarrow, which is not installed. Remedy: {REMEDY}") from None
    return pyarrow


@cache
def schema(stream: Stream) -> pa.Schema:
    """shard, offset, and the columns of its rows."""
    pa = arrow()

    text, instant = pa.string(), pa.timestamp("us", tz="UTC")
    pair = pa.struct([pa.field("name", text, nullable=False), pa.field("value", text, nullable=False)])
    others = {
        "shard": pa.int32(),
        "offset": pa.int64(),
        "at": instant,
        "received_at": instant,
        "count": pa.int64(),
        "payload": pa.binary(),
        "context": pa.binary(),
        "qos": pa.int8(),  # signed: Spark knows no unsigned integers
        "options": pa.int16(),
        "retain": pa.bool_(),
        "registered": pa.bool_(),
        "properties": pa.list_(pair),
    }
    names = ("shard", "offset", *stream.columns)
    fields = [pa.field(name, others.get(name, text), nullable=name not in _NEVER_NULL) for name in names]
    return pa.schema(fields, metadata={"tidegate": str(VERSION), "stream": stream.name})


def read_schema(header: bytes, stream: Stream) -> pa.Schema | None:
    """The schema in a segment's header, None if it is none. StoreError if it is not for us to read."""
    pa = arrow()

    try:
        layout = pa.ipc.read_schema(pa.py_buffer(header))
        version = int(layout.metadata[b"tidegate"])
        name = layout.metadata[b"stream"].decode()
    except (pa.ArrowException, OSError, TypeError, KeyError, ValueError):
        return None
    if name != stream.name:
        raise StoreError(f"it holds the stream {name!r}, not {stream.name!r}. Remedy: put it back where it was")
    if version not in (VERSION, VERSION - 1):
        raise StoreError(f"it has version {version} of the format. Remedy: use the Tidegate that wrote it")
    return layout


def conform(batch: pa.RecordBatch, stream: Stream) -> pa.RecordBatch:
    """The batch with the current columns: what it lacks is null, what is no longer there is left out."""
    pa = arrow()

    current = schema(stream)
    if batch.schema.equals(current, check_metadata=False):
        return batch
    columns = [
        batch.column(field.name).cast(field.type)
        if batch.schema.get_field_index(field.name) >= 0
        else pa.nulls(batch.num_rows, field.type)
        for field in current
    ]
    return pa.RecordBatch.from_arrays(columns, schema=current)


def stream_named(name: str) -> Stream:
    """The stream of that name; StoreError lists those that exist."""
    if name not in STREAMS:
        raise StoreError(f"there is no stream {name!r}. Remedy: one of {', '.join(STREAMS)}")
    return STREAMS[name]
