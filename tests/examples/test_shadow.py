"""Examples in shadow mode: the traffic of each, played three times over real sockets.

Open (no rules at all), in shadow mode, and enforced. What every client receives is the same in the first two, and what
is audited as `shadow` in the second is what is denied in the third.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.pages import ROOT
from docs.terminals import Desk
from processes import run_group
from tidegate.store.journal import AUDIT, Reader

EXAMPLES = ROOT / "examples"
PLAYED = ("cardiologists", "classroom", "flood", "mygym", "smart-home", "thermostat")
ASKING = {"cardiologists", "classroom"}
"""Where publishers ask for views, which an open node obeys, and a broker does not know."""
RULES = ("preferences", "views", "monitors", "levels", "brokering", "keys", "rules", "flows")
AUDITED = ("kind", "link", "user", "client", "action", "topic", "stage", "rule", "publisher")

Denials = Counter[tuple[str, ...]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PLAYED)
def test_shadow_denies_what_enforcement_denies(name: str, tmp_path: Path) -> None:
    shown, shadow = played(name, tmp_path / "shadow", enforce=False)
    _, enforced = played(name, tmp_path / "enforced")
    if name not in ASKING:
        opened, _ = played(name, tmp_path / "open", policies="open", without=RULES)
        assert shown == opened
    assert counted(shadow, "shadow") == counted(enforced, "deny")
    assert counted(enforced, "deny")
    assert not counted(shadow, "deny")


def played(name: str, place: Path, without: tuple[str, ...] = (), **sections: Any) -> tuple[str, list[dict[str, Any]]]:
    """What `run.py` says of who has received what, and the audit."""
    place.mkdir()
    (place / "desk").mkdir()
    desk = Desk(place / "desk", place / "tools")
    for file in (EXAMPLES / "playing.py", *(EXAMPLES / name).glob("*.*")):
        copy = desk.folder / file.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(desk.translated(file.read_text()))
    config = desk.folder / "examples" / name / "tidegate.yaml"
    written = yaml.safe_load(config.read_text()) | sections
    for section in ("tests", *without):
        written.pop(section, None)
    data = place / "data"
    written["node"] |= {"data": str(data)}
    config.write_text(yaml.safe_dump(written, sort_keys=False))
    done = run_group([sys.executable, str(config.with_name("run.py"))], env=desk.environment)
    assert "Traceback" not in done.stderr, done.stderr
    with Reader(data, AUDIT) as reader:
        rows = [row for batch in reader.batches() for row in batch.to_pylist()]
    return desk.as_written(done.stdout), rows


def counted(rows: list[dict[str, Any]], kind: str) -> Denials:
    counts: Denials = Counter()
    for row in rows:
        if row["kind"] == kind:
            counts[tuple(str(row[name] or "") for name in AUDITED[1:])] += row["count"]
    return counts
