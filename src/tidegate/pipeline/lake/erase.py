"""The rows of an owner go, from every table, and do not come back.

First whoever knows something of the sources of these rows is told to forget it: later nobody could tell which they
were. Then a tombstone is written, and each file that holds such rows is replaced by one without them; other files
are not touched. What was interrupted is finished by the next `erase` or `compact`. Copies that somebody
else made of the lake are out of reach, and so is the journal, whose segments go by its own retention.

The audit tells what was decided about whom, and keeps it: its rows stay unless that is asked for, and then those in
which the user acts go; a name within a topic or a text of another row is not looked for.

A tombstone says that rows of a user that were received before a time are not in the lake, so that what still lies in
the journal does not come back. It is written before the first row goes, and a batch that was computed without knowing
it is computed again. It holds the user's name, for it has to be compared; nothing else of the user stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tidegate.errors import PipelineError
from tidegate.pipeline.lake.files import Owned, held, legible, replace_files, sources_of
from tidegate.pipeline.lake.swap import MAINTENANCE, Claim, Step, swapping, unwatched
from tidegate.pipeline.lake.tables import AUDIT, TABLES, Part, Place, Table, trouble
from tidegate.pipeline.lake.tables import replace as write

_NAME: Final = "erased.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """Rows of `user` received before `before` are not to be in the lake; of the audit only if `audit`."""

    user: str
    before: datetime
    audit: bool = False
    since: datetime | None = None
    """Not those that were received earlier: they are of somebody who had the name then."""
    finished: bool = field(default=False, compare=False)
    """Whether all rows that were there have been removed."""

    def rows(self, table: Table) -> Owned:
        return Owned(owner=self.user, time=table.time, before=self.before, since=self.since)


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
                since=None if entry.get("since") is None else datetime.fromisoformat(entry["since"]),
            )
            for entry in content["erased"]
        )
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path}, which says who has been erased, is damaged; restore it from a copy") from error


def bury(lake: Place, stone: Tombstone) -> Tombstone:
    """Within `swapping`: add it; what was said of the same user before stays true."""
    known = {(each.user, each.since): each for each in tombstones(lake)}
    before = known.get((stone.user, stone.since))
    if before is not None:
        stone = replace(stone, before=max(stone.before, before.before), audit=stone.audit or before.audit)
    known[stone.user, stone.since] = stone
    _save(lake, tuple(known.values()))
    return stone


def finish(lake: Place, stone: Tombstone) -> None:
    """Within `swapping`: its rows are gone."""
    _save(lake, tuple(replace(each, finished=True) if each == stone else each for each in tombstones(lake)))


def _save(lake: Place, stones: tuple[Tombstone, ...]) -> None:
    content = [
        {
            "user": each.user,
            "before": each.before.isoformat(),
            "audit": each.audit,
            "finished": each.finished,
            **({} if each.since is None else {"since": each.since.isoformat()}),
        }
        for each in sorted(stones, key=lambda each: each.user)
    ]
    write(lake.own / _NAME, json.dumps({"tidegate": 1, "erased": content}, indent=1) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    user: str
    before: datetime
    rows: Mapping[str, int]  # of each table
    files: int  # that held them and were replaced


def erase(
    path: Path,
    user: str,
    *,
    audit: bool = False,
    since: datetime | None = None,
    now: datetime | None = None,
    forget: Callable[[Collection[str]], object] = lambda sources: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    step: Step = unwatched,
) -> Erased:
    """Remove what `user` owns and was received until now; tells `progress` how many of how many files are done.

    `forget` is told the sources of it, before anything goes.
    """
    if not user:
        raise PipelineError("nobody is named; say whose rows are to be erased")
    lake = Place.open(path)
    with Claim(lake, MAINTENANCE) as claim:
        finish_erasures(claim, step=step)
        stone = Tombstone(user=user, before=now or datetime.now(UTC), audit=audit, since=since)
        forget(_sources(lake, stone))
        with swapping(lake):
            stone = bury(lake, stone)
        step("buried")
        return _remove(claim, stone, progress, step)


def finish_erasures(claim: Claim, *, step: Step = unwatched) -> None:
    """Those that a crash has interrupted."""
    for stone in tombstones(claim.lake):
        if not stone.finished:
            _remove(claim, stone, lambda done, total: None, step)


def _sources(lake: Place, stone: Tombstone) -> set[str]:
    """Of the rows that are going to be removed; what cannot be read is told when that is tried."""
    while True:
        sources: set[str] = set()
        try:
            with trouble(lake.path):
                for part in (part for name in TABLES if name != AUDIT.name for part in lake.parts(name)):
                    if (owned := _owned(part, stone)) is not None and legible(part):
                        sources |= sources_of(part.path, owned)
        except FileNotFoundError:
            continue  # the job has replaced it: then by another
        return sources


def _owned(part: Part, stone: Tombstone) -> Owned | None:
    """Which rows of a file go; None: none of it can."""
    table = TABLES[part.table]
    if table.time is None and part.date > stone.before.date():
        return None
    if stone.since is not None and part.date < stone.since.date():
        return None
    return stone.rows(table)


def _remove(claim: Claim, stone: Tombstone, progress: Callable[[int, int], None], step: Step) -> Erased:
    rows = {name: 0 for name, table in TABLES.items() if stone.audit or table is not AUDIT}
    files = 0
    illegible = []
    with trouble(claim.lake.path):
        parts = [part for name in rows for part in claim.lake.parts(name)]
        for done, part in enumerate(parts, 1):
            if legible(part):
                removed = _clean(claim, part, stone, step)
                rows[part.table] += removed
                files += removed > 0
            else:
                illegible.append(str(part.path))
            progress(done, len(parts))
    if illegible:
        raise PipelineError(
            f"the rows of {stone.user} are gone from all files but these, which cannot be read; mend them or move them "
            f"away, and erase again: {', '.join(illegible)}"
        )
    with swapping(claim.lake):
        finish(claim.lake, stone)
    return Erased(user=stone.user, before=stone.before, rows=rows, files=files)


def _clean(claim: Claim, part: Part, stone: Tombstone, step: Step) -> int:
    """The rows that one file has lost; none if the job has replaced it, for it knows the tombstone."""
    if (owned := _owned(part, stone)) is None:
        return 0
    try:
        rows = held(part.path, owned)
    except FileNotFoundError:
        return 0
    if not rows or replace_files(claim, [part.path], part.path.parent, step, but=owned) is None:
        return 0
    return rows
