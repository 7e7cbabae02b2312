"""The steps of a message stand in `scope/path.py`: nothing else seals, writes to the journal, or runs a monitor."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tidegate

SOURCE = Path(tidegate.__file__).parent
PATH = "scope/path.py"
EGRESS = "scope/egress.py"  # the way out
SHADOW = "scope/shadow.py"  # where nothing comes of it

STEPS = {
    # step 4: `Protector.protect`; `rename` seals again what a monitor has renamed on its way out
    ("protector", "protect"): {PATH},
    ("protector", "rename"): {"scope/monitors.py"},
    # step 5: `Journal.write`
    ("journal", "write"): {PATH},
    # steps 2 and 11: the monitors of clients' links, of links between scopes, and their timers
    ("monitoring", "enter"): {PATH},
    ("monitoring", "leave"): {EGRESS, SHADOW},
    ("monitoring", "export"): {PATH},
    ("monitoring", "arrive"): {PATH},
    ("monitoring", "overhear"): {EGRESS},
    ("monitoring", "tick"): {PATH, SHADOW},
    # the machine itself
    ("monitor", "step"): {"scope/monitors.py"},
}
ELSEWHERE = {"simulate", "monitor", "store", "cli"}
"""Rooms that run machines without a node (the model, `monitor try`), or that are the journal."""


def callers(owner: str, method: str) -> set[str]:
    """The files in which `….owner.method(…)` or `owner.method(…)` is called."""
    files = set()
    for file in SOURCE.rglob("*.py"):
        name = file.relative_to(SOURCE).as_posix()
        if name.partition("/")[0] in ELSEWHERE:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            value = node.func.value
            whose = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
            if node.func.attr == method and whose.lstrip("_") == owner:
                files.add(name)
    return files


@pytest.mark.parametrize(("owner", "method"), STEPS)
def test_each_step_is_called_from_one_place(owner: str, method: str) -> None:
    assert callers(owner, method) == STEPS[owner, method]


def test_a_session_sequences_no_steps() -> None:
    """It asks the path, which has one method for each way a message comes in."""
    asked = {
        node.attr
        for file in (SOURCE / "session").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "path"
    }
    assert asked == {"publish", "accept", "release", "deliver_released", "asked"}
