"""Foreign clients do the same against bare Mosquitto and through a guard: what works bare, works guarded too.

The scripts are the tests of this folder, and paho-mqtt's own of MQTT 5. What fails anywhere must stand in the table of
docs/reference/guard-clients.md, which this test reads, with where it fails and why. A row that says "through the guard"
alone is what a guard refuses where the broker weakens silently; there is no other way for it to fail what works bare.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from backends import SECRET, mosquitto_of
from docs.pages import ROOT
from processes import missing, process

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "reference" / "guard-clients.md"
PAHO = HERE / ".paho-mqtt" / "paho_mqtt-2.2.0" / "tests"
WAYS = ("bare", "guarded")
SCRIPTS = ("test_paho.py", "test_aiomqtt.py", "test_mqttjs.py", "test_mosquitto.py")
LONGEST = 900.0  # seconds

Outcomes = dict[str, bool]
"""By `module::test[variant]`: whether it passed."""


@dataclass(frozen=True, slots=True)
class Row:
    """Of the table: the tests it is about, and where they fail."""

    pattern: str
    bare: bool
    guarded: bool
    """Whether they pass."""


def rows() -> list[Row]:
    """The table of the page."""
    found = []
    for line in PAGE.read_text().splitlines():
        if match := re.match(r"\| `([^`]+)` \| (passes|fails) \| (passes|fails) \| .+ \|$", line):
            found.append(Row(match[1], match[2] == "passes", match[3] == "passes"))
    return found


def compare(bare: Outcomes, guarded: Outcomes) -> None:
    """All that is not as the table says."""
    assert bare.keys() == guarded.keys()
    table, wrong = rows(), []
    for test in sorted(bare):
        wanted = next((row for row in table if fnmatch.fnmatchcase(test, row.pattern)), Row(test, True, True))
        if (bare[test], guarded[test]) != (wanted.bare, wanted.guarded):
            wrong.append(f"{test}: bare {shown(bare[test])}, guarded {shown(guarded[test])}")
    assert not wrong, "\n".join(wrong)


def shown(passed: bool) -> str:
    return "passes" if passed else "fails"


# -- the tests of this folder ----------------------------------------------------------------------------------------


def both(folder: Path, scripts: tuple[str, ...], expression: str = "") -> tuple[Outcomes, Outcomes]:
    """They run beside each other: most of what they do is waiting."""
    running = {way: _start(way, folder, scripts, expression) for way in WAYS}
    try:
        for one in running.values():
            one.wait(LONGEST)
    finally:
        for one in running.values():
            one.kill()
            one.wait()
    return _read(folder / "bare.xml"), _read(folder / "guarded.xml")


def _start(way: str, folder: Path, scripts: tuple[str, ...], expression: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={folder / way}.xml"]
    words += ["-k", expression] if expression else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    worker = {"bare": "gw6", "guarded": "gw7"}[way]  # ports of their own
    environment |= {"TIDEGATE_FOREIGN": way, "PYTEST_XDIST_WORKER": worker}
    with (folder / f"{way}.log").open("wb") as log:
        return subprocess.Popen(
            [*words, *(str(HERE / script) for script in scripts)], cwd=ROOT, env=environment, stdout=log, stderr=log
        )


def _read(file: Path) -> Outcomes:
    assert file.exists(), file.with_suffix(".log").read_text()
    found = {}
    for case in ElementTree.parse(file).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        if case.find("skipped") is not None:
            missing(f"{name} was skipped")
        found[name] = case.find("failure") is None and case.find("error") is None
    assert found, file.with_suffix(".log").read_text()
    return found


@pytest.mark.timeout(LONGEST)
def test_some_of_each_client(tmp_path: Path) -> None:
    """One transport each, without what waits in vain at bare Mosquitto."""
    expression = "not take_over and not (paho and not tcp) and not (aiomqtt and not tcp) and not (mqttjs and ws)"
    compare(*both(tmp_path, SCRIPTS, expression))


@pytest.mark.soak
def test_everything_of_each_client(tmp_path: Path) -> None:
    """And nothing in the table is there in vain."""
    bare, guarded = both(tmp_path, SCRIPTS)
    compare(bare, guarded)
    ours = [row.pattern for row in rows() if not row.pattern.startswith("paho-mqtt::")]
    assert [pattern for pattern in ours if not fnmatch.filter(bare, pattern)] == []


# -- paho-mqtt's own -------------------------------------------------------------------------------------------------

QUICK = (
    "test_basic",
    "test_zero_length_clientid",
    "test_overlapping_subscriptions",
    "test_unsubscribe",
    "test_user_properties",
    "test_payload_format",
    "test_client_topic_alias",
    "test_maximum_packet_size",
)
BARE = "allow_anonymous true\n"
GUARD = """
version: 1
node: {name: foreign}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
scopes: {main: {backend: "BACKEND", secret: SECRET}}
policies: open
"""


@contextlib.contextmanager
def ports(folder: Path) -> Iterator[dict[str, int]]:
    """A bare broker, and a guard in front of another one."""
    with (
        mosquitto_of(folder / "bare", BARE) as bare,
        mosquitto_of(folder / "backend", BARE) as backend,
        process(folder, GUARD.replace("BACKEND", backend.url).replace("SECRET", SECRET)) as guard,
    ):
        yield {"bare": bare.port, "guarded": guard.ports["PORT"]}


def theirs(folder: Path, *names: str) -> None:
    if not PAHO.is_dir():
        missing("paho-mqtt's tests are not here; `make foreign` gets them")
    with ports(folder) as found:
        running = {
            way: subprocess.Popen(
                [sys.executable, str(HERE / "paho_own.py"), str(port), str(PAHO), *names],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for way, port in found.items()
        }
        said = {}
        try:
            for way, one in running.items():
                out, errors = one.communicate(timeout=LONGEST)
                assert one.returncode == 0, errors
                said[way] = json.loads(out)
        finally:
            for one in running.values():
                one.kill()
                one.communicate()
    print(json.dumps(said["guarded"], indent=1))
    compare(*({f"paho-mqtt::{test}": not why for test, why in said[way].items()} for way in WAYS))


def test_some_of_pahos_own(tmp_path: Path) -> None:
    theirs(tmp_path, *QUICK)


@pytest.mark.soak
def test_all_of_pahos_own(tmp_path: Path) -> None:
    theirs(tmp_path)
