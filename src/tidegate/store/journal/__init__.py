"""The Arrow journal: what happened, for people (`audit`), for replays (`traffic`) and for Spark (`ingest`).

`rows` says what is written down, `schema` how Arrow sees it, `frame` turns rows into bytes that can be checked,
`index` finds them, `together` keeps rows from being separated, `segment` is the file they are in, `repair` makes good
what a crash has left, `writer` is the thread that writes, `retention` says what goes, `readers` for whom it stays,
`reader` is what others see, `selection` what they want of it; `identity` tells one journal from another.
A segment is read by any Arrow tool:

    pyarrow.ipc.open_stream("…/journal/audit/0/00000000000000000000.arrow").read_all()
"""

from __future__ import annotations

from tidegate.store.journal.identity import journal_id, known_journal
from tidegate.store.journal.reader import Reader
from tidegate.store.journal.retention import Retention
from tidegate.store.journal.rows import (
    AUDIT,
    INGEST,
    STREAMS,
    TRAFFIC,
    Happening,
    Kind,
    Stream,
    audit_row,
    ingest_row,
    traffic_row,
)
from tidegate.store.journal.schema import schema, stream_named
from tidegate.store.journal.selection import Selection
from tidegate.store.journal.together import Together
from tidegate.store.journal.writer import Writer

__all__ = [
    "AUDIT",
    "INGEST",
    "STREAMS",
    "TRAFFIC",
    "Happening",
    "Kind",
    "Reader",
    "Retention",
    "Selection",
    "Stream",
    "Together",
    "Writer",
    "audit_row",
    "ingest_row",
    "journal_id",
    "known_journal",
    "schema",
    "stream_named",
    "traffic_row",
]
