"""The weather station is that of AUPS, section 5, and nothing of it is in clear where it should not be.

That its README can be followed, and that it notices wrong rules, is tested in `test_played`.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from docs.pages import ROOT
from harness import free_port
from processes import run_group
from tidegate.config import load
from tidegate.pipeline.columns import DIMENSIONS
from tidegate.pipeline.rules import parse

STATION = ROOT / "examples" / "weather-station"


def copied(folder: Path) -> Path:
    """The example in a folder of its own, on other ports."""
    ports = {port: str(free_port()) for port in ("1883", "8080")}
    shutil.copytree(STATION, folder / "weather-station", ignore=shutil.ignore_patterns("var"))
    shutil.copy(STATION.parent / "playing.py", folder)
    for file in (folder / "weather-station").iterdir():
        text = file.read_text()
        for port, other in ports.items():
            text = re.sub(rf"\b{port}\b", other, text)
        file.write_text(text)
    return folder / "weather-station"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Once, fast: where, and what it printed."""
    place = copied(tmp_path_factory.mktemp("examples"))
    command = [sys.executable, str(place / "run.py"), "--rate", "20", "--seconds", "0.6"]
    done = run_group(command)
    assert done.returncode == 0, done.stdout + done.stderr
    return place, done.stdout


def test_the_rate_can_be_chosen(played: tuple[Path, str]) -> None:
    _, printed = played
    assert "20 packets a second\n  sent: 12\n  read by ada, of those that she may read: 4 of 4\n" in printed
    assert "10 packets a second" not in printed


def test_nothing_is_stored_in_clear(played: tuple[Path, str]) -> None:
    """Also not what sources post: the security page says so."""
    place, _ = played
    kept = {file: file.read_bytes() for file in (place / "var/data").rglob("*") if file.is_file()}
    assert not [file for file, content in kept.items() if b"unit" in content]
    assert any(b"campodenno/sensor5/air" in content and b"keyId" in content for content in kept.values())


def test_secrets_are_for_their_owner_only(played: tuple[Path, str]) -> None:
    place, _ = played
    secrets = [*(place / "var").glob("*.key"), *(place / "var").glob("*.password"), place / "var/admin.token"]
    assert len(secrets) == 5
    assert all(file.stat().st_mode & 0o077 == 0 for file in secrets)
    log = (place / "var/tidegate.log").read_text()
    assert not any(file.read_text().strip() in log for file in secrets if file.name != "admin.token")


def test_it_is_the_station_of_the_seed() -> None:
    config = load(STATION / "tidegate.yaml")
    assert config.keys.protect == ("campodenno/#", "scored/#")
    assert config.keys.rotate == 300  # "the key expiration timeout was set to 5 min"
    run = script()
    assert len(run["KINDS"]) == 6
    assert {kind for kind, _ in run["KINDS"].values()} == {"temperature", "humidity", "wind", "energy", "air"}
    assert run["TEMPERATURE"] == "campodenno/sensor1/temperature"
    assert run["HUMIDITY"] == "campodenno/sensor2/humidity"


def test_the_pipeline_looks_at_every_sensor_and_dimension() -> None:
    rules = parse((STATION / "rules.yaml").read_text(), "rules.yaml")
    assert {source.becomes or source.id for source in rules.sources} == {kind for kind, _ in script()["KINDS"].values()}
    assert {score.dimension for score in rules.scores} == set(DIMENSIONS)


def script() -> dict[str, Any]:
    """The names in run.py, without playing it."""
    before, writes = list(sys.path), sys.dont_write_bytecode
    known = set(sys.modules)
    try:
        found = importlib.util.spec_from_file_location("weather_station", STATION / "run.py")
        assert found is not None
        assert found.loader is not None
        module: ModuleType = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return vars(module)
    finally:
        sys.path[:], sys.dont_write_bytecode = before, writes
        for name in {"playing", "scoring", "station"} - known:
            sys.modules.pop(name, None)
