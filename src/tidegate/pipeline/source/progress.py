"""Where a batch of a stream begins and ends, by the checkpoint of its query.

Spark writes the end of a batch into `offsets/NUMBER` of the checkpoint before it begins: a version, a line about the
query, and a line for each source. Looking there saves a job that would read the batch only to find its first and last
row.
"""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.errors import PipelineError
from tidegate.pipeline.source.shards import Offsets


def span(checkpoint: Path, number: int) -> tuple[Offsets, Offsets]:
    """The offsets before a batch (nothing before the first) and after it. PipelineError if Spark says it otherwise."""
    return ({} if number == 0 else _end(checkpoint, number - 1)), _end(checkpoint, number)


def _end(checkpoint: Path, number: int) -> Offsets:
    path = checkpoint / "offsets" / str(number)
    try:
        version, _, offsets = path.read_text().splitlines()
        parsed = json.loads(offsets)
        if version != "v1" or not isinstance(parsed, dict):
            raise ValueError(f"{version}, {offsets}")
        return {str(shard): int(offset) for shard, offset in parsed.items()}
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"{path} does not tell where the batch ends ({error}). Remedy: delete {checkpoint}; what is done is in the "
            "ledger, and not done again"
        ) from error
