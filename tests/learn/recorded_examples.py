"""The traffic of the examples, as their nodes recorded it; kept beside this file, so that no node has to play them.

PYTHONPATH=tests:src python tests/learn/recorded_examples.py NAME …     plays these examples and records them anew
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from docs.pages import ROOT
from tidegate.store.journal import TRAFFIC, Reader, Writer
from tidegate.store.journal.rows import Row

TRAFFIC_FOLDER = Path(__file__).with_name("traffic")
EXAMPLES = ROOT / "examples"
NAMES = (
    "aups",
    "bogus-subscriber",
    "cardiologists",
    "classroom",
    "doorlock",
    "flood",
    "mygym",
    "patient",
    "smart-home",
    "thermostat",
)
_BYTES = ("payload", "context")


def rows(name: str) -> list[Row]:
    """The rows of an example, as its node wrote them."""
    found: list[Row] = []
    for line in gzip.decompress((TRAFFIC_FOLDER / f"{name}.jsonl.gz").read_bytes()).decode().splitlines():
        entry = json.loads(line)
        for column in _BYTES:
            if entry[column] is not None:
                entry[column] = base64.b64decode(entry[column])
        if entry["properties"] is not None:
            entry["properties"] = [tuple(pair) for pair in entry["properties"]]
        found.append(tuple(entry[column] for column in TRAFFIC.columns))
    return found


def write(data: Path, found: list[Row]) -> None:
    """A journal of these rows."""
    writer = Writer(data, TRAFFIC, call=lambda function: function(), sync=False)
    writer.open()
    writer.start()
    for row in found:
        assert writer.append(row)
    writer.close()


# -- recorded anew -----------------------------------------------------------------------------------------------------


def record(name: str) -> int:
    from examples.test_played import copied
    from processes import run_group

    with tempfile.TemporaryDirectory() as place:
        desk = copied(name, Path(place))
        try:
            config = desk.folder / "examples" / name / "tidegate.yaml"
            config.write_text(recording(config.read_text()))
            done = run_group([sys.executable, str(config.with_name("run.py"))], env=desk.environment)
            assert done.returncode == 0, done.stdout + done.stderr
        finally:
            desk.abandon()
        entries: list[dict[str, Any]] = []
        for folder in sorted(config.parent.rglob("traffic")):
            with Reader(folder.parent.parent, TRAFFIC) as reader:
                entries += [_plain(row) for row in reader.rows()]
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (TRAFFIC_FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    return len(entries)


def recording(text: str) -> str:
    """A configuration that records its traffic."""
    if not re.search(r"^node: \{.*\bdata:", text, re.MULTILINE):
        text = re.sub(r"^node: \{ ?", "node: { data: var/data, ", text, flags=re.MULTILINE)
    text, _, tests = text.partition("\ntests:")
    more = "\nrecord: traffic\ntraffic: {payloads: true}\n"
    return f"{text}{more}\ntests:{tests}" if tests else text + more


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for column in TRAFFIC.columns:
        value = row[column]
        if column == TRAFFIC.time:
            value = value.timestamp()
        elif column in _BYTES and value is not None:
            value = base64.b64encode(value).decode()
        elif column == "properties" and value is not None:
            value = [(pair["name"], pair["value"]) for pair in value]
        entry[column] = value
    return entry


if __name__ == "__main__":
    for each in sys.argv[1:] or NAMES:
        print(each, record(each))
