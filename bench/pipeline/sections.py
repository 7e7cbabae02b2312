"""What a part of `bench pipeline` found, as plain data: words, tables, figures and what is drawn.

It is kept as JSON beside the report, so that parts can be measured one at a time: the report is made of the last
measurement of each.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness.figures import Spread
from bench.harness.report import Table, places

Goal = tuple[str, str, str, str]
"""What, the goal, what was found, and whether that is enough."""
Figure = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part that was measured."""

    name: str
    words: str
    """What was measured, and what counted."""
    goals: Sequence[Goal] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """What is drawn."""
    foreign: float = 0.0
    """Cores that neighbours used."""
    failures: Sequence[str] = ()
    machine: Mapping[str, object] = field(default_factory=dict)

    @property
    def missed(self) -> list[str]:
        return [what for what, _, _, reached in self.goals if reached != "yes"]


def figure(what: str, name: str, value: Spread | float, digits: int = 4) -> Figure:
    """A line of the CSV."""
    return {"what": what, "figure": name, **places(value, digits)}


def kept(file: Path) -> dict[str, Section]:
    """Parts that were measured before, by name."""
    if not file.exists():
        return {}
    return {name: _section(found) for name, found in json.loads(file.read_text()).items()}


def keep(file: Path, sections: Mapping[str, Section]) -> None:
    found = {name: dataclasses.asdict(section) for name, section in sections.items()}
    file.write_text(json.dumps(found, indent=1) + "\n")


def _section(found: dict[str, Any]) -> Section:
    tables = [Table(**table) for table in found.pop("tables")]
    goals = [(what, goal, value, enough) for what, goal, value, enough in found.pop("goals")]
    return Section(**found, tables=tables, goals=goals)
