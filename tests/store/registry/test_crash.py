"""kill -9 of a process that writes, at any moment: what was acknowledged is there, and nothing is there by halves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from store.registry.places import Place, bodies, made, put
from store.registry.writing import change, state

HERE = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))}
MOST = 40  # statements of one change, or of opening an empty place; more would be surprising


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "store.registry.writing", *arguments]


def killed(url: str, after: float) -> list[str]:
    """What it said before it was killed."""
    lines: list[str] = []
    with subprocess.Popen(command("load", url), stdout=subprocess.PIPE, env=ENVIRONMENT, text=True) as process:
        assert process.stdout is not None
        deadline: float | None = None
        for line in process.stdout:
            lines.append(line.strip())
            deadline = deadline or time.monotonic() + after
            if time.monotonic() > deadline:
                process.kill()
                break
        lines += [line.strip() for line in process.stdout]
    return lines


def test_what_was_acknowledged_is_there(place: Place) -> None:
    chance = Random(7)
    reader = place.registry()
    for _ in range(4):
        lines = killed(place.url, chance.uniform(0.02, 0.3))
        words, numbers = zip(*(line.split() for line in lines), strict=True)
        tried = max(int(number) for word, number in zip(words, numbers, strict=True) if word == "try")
        done = max((int(n) for word, n in zip(words, numbers, strict=True) if word == "done"), default=0)
        there, _ = state(reader)
        assert done <= there <= tried
        assert (reader.outcome(f"change-{tried}") is not None) == (there == tried)
        assert len(reader.history("a", "x")) == min(there, 100)
        place.check()


def test_killed_before_every_statement_of_a_change(place: Place) -> None:
    reader = place.registry(wait=30.0)
    change(reader, 1, None)
    ended = subprocess.run(
        command("points", "change"),
        input="\n".join([place.url] * MOST),
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
        check=True,
    )
    assert 10 < int(ended.stdout) < MOST
    # Only the last one came to its end: COMMIT is the last statement.
    assert state(reader)[0] == 2
    assert len(reader.history("a", "x")) == 2
    place.check()
    made(reader, put("b", "after", {}))


def test_killed_before_every_statement_of_opening(place: Place) -> None:
    places = [place.empty() for _ in range(MOST)]
    ended = subprocess.run(
        command("points", "open"),
        input="\n".join(each.url for each in places),
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
        check=True,
    )
    points = int(ended.stdout)
    assert 10 < points < MOST
    for each in places[: points + 1]:
        one = each.registry()
        assert bodies(one) == {}
        made(one, put("a", "1", {}))
        each.check()
        each.close()
