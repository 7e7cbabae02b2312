"""Writes the tables of docs/reference/rules.md and lake.md: `python tests/docs/pipeline_reference.py --update`.

Each table stands between two comments, `<!-- NAME: … -->` and `<!-- end of NAME -->`. What columns mean stands here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from tidegate.pipeline import checks, units
from tidegate.pipeline.checks import Check, Evidence
from tidegate.pipeline.conditions import COLUMNS
from tidegate.pipeline.lake.tables import PLACE, TABLES, Table

FOLDER: Final = Path(__file__).parents[2] / "docs/reference"
RULES: Final = FOLDER / "rules.md"
LAKE: Final = FOLDER / "lake.md"
_MADE: Final = "made by `python tests/docs/pipeline_reference.py --update`"

NEEDS: Final[Mapping[Evidence, str]] = {
    Evidence.HISTORY: "history",
    Evidence.SERIES: "batch",
    Evidence.STEPS: "batch",
    Evidence.GAPS: "batch",
    Evidence.NEIGHBOURS: "neighbours",
}
"""What a check looks at besides the record, as the page explains it."""

MEANINGS: Final[Mapping[str, str]] = {
    "journal": "id of the journal that the row is of; with `shard` and `offset` it names the row of the journal",
    "shard": "with `offset`: the row of the journal",
    "offset": "its number in the journal",
    "part": "which record of the message, from 0",
    "id": "id of the message; of a record: `<message>.<part + 1>`, the same as in the message that is published",
    "source": "who measured it",
    "type": "`as` of the mapping, or the source's type, or the mapping's id",
    "mode": "how a registered source said that it communicates",
    "schema": "`schema` of the mapping",
    "name": "which value",
    "value": "a number; a boolean is 1 or 0",
    "text": "a text; a boolean is `true` or `false`",
    "unit": "of `value`",
    "measured_at": "when it was measured, as the payload says; else `received_at`",
    "received_at": "when the node had it",
    "extra": "what `keep` names, as a JSON object",
    "topic": "that it came under; null if it came over HTTP and was not published",
    "registered": "whether the source is registered",
    "client": "of the connection it came over",
    "owner": "whose data it is: the user of the publisher",
    "category": "by `classify`",
    "level": "of the publisher's connection",
    "floor": "the lowest level on its way",
    "context": "what binds whatever is made of it: preferences, demand, views; opaque",
    "policy_version": "of the node's policies at that time",
    "payload": "as it came; in `quarantine` in the first faulty row of a message only",
    "fault": "why it is here",
    "scores": "one number from 0 to 1 for each dimension, null if nothing assessed it",
    "rules_version": "of the rules that made and scored it",
    "target": "the topic that it is published under; null: it is not",
    "message": '`{"keyId", "data"}` of a protected topic; then `value`, `text` and `extra` are null. Else null',
    "key_id": "of the topic key",
    "denied": "the rule by which it was not published",
    "qos": "that it came with",
    "retain": "whether it was to be retained",
    "content_type": "as its publisher said",
    "properties": "user properties",
    "source_kind": "type of the registered source",
    "user": "of the connection",
    "at": "when",
    "node": "where",
    "kind": "`deny`, `allowed`, `change`, `connect`, `disconnect` or `error`",
    "link": "over which it came, or would have gone",
    "action": "what was wanted",
    "stage": "which step decided",
    "rule": "which rule decided",
    "count": "how many",
    "detail": "more about it; for levels the demand and the floor",
    "publisher": "who published the message, as `user:mary/client:tr1`; several with commas",
    "dimension": "one of the eight",
    "assessed": "how many of them have this score; the figures are of these",
    "mean": "their mean score",
    "min": "the lowest",
    "p05": "a twentieth is not above it",
    "p50": "half is not above it",
    "date": "the day in UTC on which it was received",
    "batch": "which batch wrote it",
}


def rows(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |\n" for cells in (head, *body)]
    return "".join([lines[0], "|" + "---|" * len(head) + "\n", *lines[1:]])


def check_table() -> str:
    """Every check, by the dimension that it judges first."""
    found = []
    for dimension, group in groupby(checks.listed(), key=lambda one: one.dimensions[0]):
        body = [(f"`{one.name}`", _arguments(one), _needs(one), _about(one)) for one in group]
        found.append(f"### {dimension}\n\n" + rows(("check", "arguments", "looks at", "score"), body))
    return "\n".join(found)


def _arguments(one: Check) -> str:
    return "<br>".join(f"`{parameter}`" for parameter in one.parameters) or "none"


def _needs(one: Check) -> str:
    return ", ".join(dict.fromkeys(NEEDS[need] for need in Evidence if need in one.needs)) or "the record"


def _about(one: Check) -> str:
    also = f" Also for {' and '.join(one.dimensions[1:])}." if len(one.dimensions) > 1 else ""
    return one.about.replace("|", "\\|") + also


def column_table() -> str:
    return rows(("column", "kind", "is"), [(f"`{name}`", kind.value, MEANINGS[name]) for name, kind in COLUMNS.items()])


def unit_table() -> str:
    body = [
        (quantity, ", ".join(f"`{unit}`" for unit in group))
        for quantity, group in groupby(units.UNITS, key=lambda unit: units.quantity(unit) or "")
    ]
    return rows(("quantity", "units"), body)


def lake_table(table: Table) -> str:
    body = [(f"`{name}`", _type(type), MEANINGS[name]) for name, type in (*table.columns, *PLACE)]
    return rows(("column", "type", "is"), body)


def _type(written: str) -> str:
    return "struct of eight doubles" if written.startswith("struct<") else written


def pieces(path: Path) -> dict[str, str]:
    """The tables of a page, by name."""
    if path == RULES:
        return {"checks": check_table(), "columns": column_table(), "units": unit_table()}
    return {name: lake_table(table) for name, table in TABLES.items()}


def page(path: Path) -> str:
    """The page as it should be: what people wrote, and the tables."""
    text = path.read_text()
    for name, table in pieces(path).items():
        begin, end = f"<!-- {name}: {_MADE} -->\n", f"<!-- end of {name} -->\n"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        assert found, f"{path}: {begin}"
        assert closed, f"{path}: {end}"
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def untold() -> set[str]:
    """Columns that nobody has said anything about, and sayings about columns that are not there."""
    there = {name for table in TABLES.values() for name, _ in (*table.columns, *PLACE)} | set(COLUMNS)
    return there ^ MEANINGS.keys()


if __name__ == "__main__":
    for each in (RULES, LAKE):
        if sys.argv[1:] == ["--update"]:
            each.write_text(page(each))
        else:
            sys.stdout.write(page(each))
