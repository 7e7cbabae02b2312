"""`tidegate sub` shows what the data pipeline says of its messages."""

from __future__ import annotations

import json
from pathlib import Path

from cli.driving import command
from harness import PATIENCE
from node.piping import piped, record
from processes import on_uvloop, until

SCORES = {"timeliness": 0.83333, "accuracy": 1, "privacy": None}


@on_uvloop
async def test_scores_are_short_for_people_and_whole_for_scripts(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        row = await node.row()
        reading = ("-p", node.port, "-u", "mary", "-P", "mary", "-t", "weather/#", "-C", 1, "-W", 3 * PATIENCE)
        async with (
            command("sub", "-v", *reading) as person,
            command("sub", "--json", *reading, "--where", "o.scores.timeliness > 0.8") as script,
        ):
            await until(lambda: len(node.node.scopes["main"].subscriptions) == 2, 3 * PATIENCE)
            await node.publish(record(row, "weather/1", scores=SCORES), row=row)
            shown, _ = await person.communicate()
            told, _ = await script.communicate()
    line = " ".join(shown.decode().split())
    assert f"id={row['id']}.1, scores timeliness 0.83 accuracy 1)" in line
    pairs = dict(json.loads(told)["properties"]["user"])
    assert pairs == {"id": f"{row['id']}.1", "scores": '{"timeliness":0.83333,"accuracy":1}'}
