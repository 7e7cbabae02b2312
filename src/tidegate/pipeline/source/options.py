"""What people write behind `.option(...)`, read and checked. PipelineError says what an option may be."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC
from typing import Final

from tidegate.config.units import duration, moment
from tidegate.errors import PipelineError
from tidegate.pipeline.source.shards import JOURNAL, QueryOffset

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_WORDS: Final = {"true": True, "false": False}


def known(options: Mapping[str, str], *names: str) -> None:
    """PipelineError for an option that is none: one that is misspelt would be no option."""
    there = {name.lower() for name in names}
    for name in options:
        if name.lower() not in there:
            raise PipelineError(f"there is no option {name!r}; there are {', '.join(names)}")


def needed(options: Mapping[str, str], name: str, example: str) -> str:
    given = options.get(name)
    if not given:
        raise PipelineError(f"the option {name!r} is missing; write for example {example}")
    return given


def switch(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    written = options.get(name)
    if written is None:
        return default
    if written.lower() not in _WORDS:
        raise PipelineError(f"the option {name!r} is {written!r}; write true or false")
    return _WORDS[written.lower()]


def count(options: Mapping[str, str], name: str) -> int | None:
    written = options.get(name)
    if written is None:
        return None
    if not written.isdecimal() or int(written) < 1:
        raise PipelineError(f"the option {name!r} is {written!r}; write a number from 1 on")
    return int(written)


def instant(options: Mapping[str, str], name: str) -> float | None:
    """Seconds since 1970: a time (in UTC, unless it says otherwise), or how long ago."""
    written = options.get(name)
    if written is None:
        return None
    try:
        return time.time() - duration(written)
    except ValueError:
        pass  # not how long ago, so when
    try:
        time_given = moment(written)
    except ValueError:
        raise PipelineError(
            f"the option {name!r} is {written!r}; write a time such as 2026-03-02T09:30:00Z, or how long ago: 1h, 7d"
        ) from None
    return (time_given if time_given.tzinfo is not None else time_given.replace(tzinfo=UTC)).timestamp()


def starting_offsets(options: Mapping[str, str]) -> str | QueryOffset:
    """`EARLIEST`, `LATEST`, or an offset for each shard, with the id of the journal or without."""
    written = options.get("startingOffsets", EARLIEST)
    if written.lower() in (EARLIEST, LATEST):
        return written.lower()
    try:
        offsets = json.loads(written)
    except ValueError:
        offsets = None
    if not isinstance(offsets, dict) or not all(
        type(number) is str if key == JOURNAL else key.isdecimal() and type(number) is int and number >= 0
        for key, number in offsets.items()
    ):
        raise PipelineError(
            f"the option 'startingOffsets' is {written!r}; write earliest, latest, or an offset for each shard, "
            'such as {"0": 1200}'
        )
    return offsets
