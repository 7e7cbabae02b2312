"""The lake: Parquet by table, day and batch, that a job fills and others read, put in order and erase from.

`Lake` is what the job writes with; `read` gives a frame of a table. `compact`, `erase`, `expire`, `summarise` and
`trends` may be called while a job runs. How files change places without a crash losing or doubling a row stands in
`swap`.
"""

from __future__ import annotations

from tidegate.pipeline.lake.erase import Erased, erase
from tidegate.pipeline.lake.maintenance import Compacted, Expired, compact, expire
from tidegate.pipeline.lake.quality import Computed, Faults, Trend, faults, plot, summarise, trends
from tidegate.pipeline.lake.tables import TABLES, Place, read
from tidegate.pipeline.lake.write import Counts, Lake, remaining

__all__ = [
    "TABLES",
    "Compacted",
    "Computed",
    "Counts",
    "Erased",
    "Expired",
    "Faults",
    "Lake",
    "Place",
    "Trend",
    "compact",
    "erase",
    "expire",
    "faults",
    "plot",
    "read",
    "remaining",
    "summarise",
    "trends",
]
