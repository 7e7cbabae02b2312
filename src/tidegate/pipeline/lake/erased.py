"""Who has been erased, and until when: so that what still lies in the journal does not come back.

A tombstone says that rows of a user that were received before a time are not in the lake. It is written before the
first row goes, and a batch that was computed without knowing it is computed again. It holds the user's name, for it has
to be compared; nothing else of the user stays.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tidegate.errors import PipelineError
from tidegate.pipeline.lake.place import Place
from tidegate.pipeline.lake.place import replace as write
from tidegate.pipeline.lake.tables import AUDIT, Table
from tidegate.pipeline.spark_functions import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME: Final = "erased.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """Rows of `user` received before `before` are not to be in the lake; of the audit only if `audit`."""

    user: str
    before: datetime
    audit: bool = False
    finished: bool = field(default=False, compare=False)
    """Whether all rows that were there have been removed."""


def tombstones(lake: Place) -> tuple[Tombstone, ...]:
    """All of them; PipelineError if they cannot be read, for nothing may be written then."""
    path = lake.own / _NAME
    try:
        content = json.loads(path.read_text())
        return tuple(
            Tombstone(
                user=str(entry["user"]),
                before=datetime.fromisoformat(entry["before"]),
                audit=bool(entry["audit"]),
                finished=bool(entry["finished"]),
            )
            for entry in content["erased"]
        )
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path}, which says who has been erased, is damaged; restore it from a copy") from error


def bury(lake: Place, stone: Tombstone) -> Tombstone:
    """Within `swapping`: add it; what was said of the same user before stays true."""
    known = {each.user: each for each in tombstones(lake)}
    before = known.get(stone.user)
    if before is not None:
        stone = replace(stone, before=max(stone.before, before.before), audit=stone.audit or before.audit)
    known[stone.user] = stone
    _save(lake, tuple(known.values()))
    return stone


def finish(lake: Place, stone: Tombstone) -> None:
    """Within `swapping`: its rows are gone."""
    _save(lake, tuple(replace(each, finished=True) if each == stone else each for each in tombstones(lake)))


def concerned(stones: tuple[Tombstone, ...], table: Table) -> tuple[Tombstone, ...]:
    """Those that say something of a table."""
    return tuple(stone for stone in stones if stone.audit or table is not AUDIT)


def without(frame: DataFrame, table: Table, stones: tuple[Tombstone, ...]) -> DataFrame:
    """The frame without rows of those who have been erased."""
    stones = concerned(stones, table)
    if not stones or table.time is None:
        return frame
    graves = frame.sparkSession.createDataFrame(
        [(stone.user, stone.before) for stone in stones], "erased_user string, erased_before timestamp"
    )
    buried = (F.col("owner") == F.col("erased_user")) & (F.col(table.time) < F.col("erased_before"))
    return frame.join(F.broadcast(graves), buried, "left_anti")


def _save(lake: Place, stones: tuple[Tombstone, ...]) -> None:
    content = [
        {"user": each.user, "before": each.before.isoformat(), "audit": each.audit, "finished": each.finished}
        for each in sorted(stones, key=lambda each: each.user)
    ]
    write(lake.own / _NAME, json.dumps({"tidegate": 1, "erased": content}, indent=1) + "\n")
