"""The examples that play a scenario: their README is followed as a reader would, and wrong rules are noticed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from docs.pages import ROOT, Block, blocks
from docs.terminals import Desk
from processes import run_group
from tidegate.config import load

EXAMPLES = ROOT / "examples"
PLAYED = (
    "aups",
    "bogus-subscriber",
    "cardiologists",
    "classroom",
    "components",
    "doorlock",
    "flood",
    "hospital",
    "house-outside",
    "labels",
    "levels",
    "mygym",
    "patient",
    "roles",
    "satellite",
    "smart-home",
    "thermostat",
    "two-gyms",
    "two-gyms-mosquitto",
    "weather-station",
)
TIDEGATE = Path(sys.executable).with_name("tidegate")

# one thing in each that must not be left out, and how it would look without
HOLES = {
    "aups": ("'humidity' in s.reads", "true"),
    "bogus-subscriber": ("proof: per-message", "proof: none"),
    "cardiologists": ("action: read, effect: deny }", "action: read }"),
    "classroom": ('role:student", topic: philosophy', '*", topic: philosophy'),
    "components": ("parents: [B, D]", "parents: [B]"),
    "doorlock": ("link: home->client:lock", "link: client:lock->home"),
    "flood": ("each: client", "each: scope"),
    "hospital": ('id: everybody, subject: "*", topic: "info/#"', 'id: everybody, subject: "*", topic: "#"'),
    "house-outside": ("link: H1->H3", "link: H3->H1"),
    "labels": ('"user:clerk", in: confidential, out: confidential', '"user:clerk", in: secret, out: secret'),
    "levels": ("implied: false", "implied: true"),
    "mygym": ("when: s.role == 'coach' && s.user == 'alice'", "when: s.role == 'coach'"),
    "patient": (
        "accept: [CN=john, CN=andrew, CN=mark, CN=nina]",
        "accept: [CN=john, CN=andrew, CN=mark, CN=nina, CN=eve]",
    ),
    "roles": ('visitor: { sub: ["+/temperature"] }', 'visitor: { sub: ["#"] }'),
    "satellite": ('terrestrial: "', 'terrestrial: "true || '),
    "smart-home": ("link: H1->H3", "link: H3->H1"),
    "thermostat": ("o.payload.celsius <= 25", "o.payload.celsius <= 250"),
    "two-gyms": ('to: remotegym, when: "false"', 'to: remotegym, when: "true"'),
    "two-gyms-mosquitto": ('to: analyzer, when: "false"', 'to: analyzer, when: "true"'),
    "weather-station": ("'temperature' in s.reads", "true"),
}
# which of several files that is in
HOLED = {
    "hospital": "emergency.yaml",
    "house-outside": "house.yaml",
    "satellite": "master.yaml",
    "two-gyms": "mygym.yaml",
    "two-gyms-mosquitto": "bridging.yaml",
}
# files that show what is refused
REFUSED = {"components/acyclic.yaml"}
# rules of a pipeline
RULES = {"weather-station/rules.yaml"}

Outcomes = dict[tuple[str, str], Future[None]]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """Two at a time: most of what they do is waiting for programs to start."""
    acts = {"test_readme": follow_readme, "test_run_notices_wrong_rules": run_with_a_hole}
    with ThreadPoolExecutor(2) as pool:
        made: Outcomes = {}
        for item in request.session.items:
            act, _, name = item.name.rstrip("]").partition("[")
            if act in acts and name in PLAYED:
                made[act, name] = pool.submit(acts[act], name, tmp_path_factory.mktemp(name))
        yield made


@pytest.mark.timeout(1200)  # one of them starts Spark
@pytest.mark.parametrize("name", PLAYED)
def test_readme(name: str, outcomes: Outcomes) -> None:
    """`run.py` ends with 0 and prints the tables of the README; what it says to try works."""
    outcomes["test_readme", name].result()


@pytest.mark.parametrize("name", PLAYED)
def test_run_notices_wrong_rules(name: str, outcomes: Outcomes) -> None:
    outcomes["test_run_notices_wrong_rules", name].result()


def copied(name: str, place: Path) -> Desk:
    """A desk with a copy of one example, on other ports."""
    (place / "desk").mkdir()
    desk = Desk(place / "desk", place / "tools")
    for file in (EXAMPLES / "playing.py", *(EXAMPLES / name).glob("*.*")):
        copy = desk.folder / file.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(desk.translated(file.read_text()))
    return desk


def follow_readme(name: str, place: Path) -> None:
    desk = copied(name, place)
    try:
        for block in blocks(EXAMPLES / name / "README.md"):
            follow(desk, block)
        desk.stop_listener()
        desk.stop_node()
        desk.stop_beside()
    finally:
        desk.abandon()
    left = {file.name for file in (desk.folder / "examples" / name).iterdir()} - {"var"}
    assert left == {file.name for file in (EXAMPLES / name).glob("*.*")}, "files outside of var/"
    assert {file.name for file in desk.folder.iterdir()} == {"examples"}
    assert {file.name for file in (desk.folder / "examples").iterdir()} == {"quickstart", "playing.py", name}


def follow(desk: Desk, block: Block) -> None:
    match block.language, block.marker:
        case "sh", "run":
            desk.run(block)
        case "sh", "fails":
            desk.run(block, code=1)
        case "sh", "node":
            desk.start_node(block)
        case "sh", "beside":
            desk.start_beside(block)
        case "sh", "listen":
            desk.listen(block)
        case "text", "run" | "listen":
            desk.compare(block)
        case (("text" | "yaml"), ""):
            pass  # a picture, or a part of a file
        case _:
            raise AssertionError(f"{block}: nobody tests this")


def run_with_a_hole(name: str, place: Path) -> None:
    desk = copied(name, place)
    config = desk.folder / "examples" / name / HOLED.get(name, "tidegate.yaml")
    right, hole = HOLES[name]
    text = config.read_text()
    assert right in text
    # the file's own tests would notice it as well, and the node would not even start
    config.write_text(text.replace(right, hole).partition("\ntests:")[0])
    command = [sys.executable, str(config.with_name("run.py"))]
    done = run_group(command, env=desk.environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG: expected" in done.stdout, done.stdout + done.stderr
    assert "came out WRONG." in done.stdout


@pytest.mark.parametrize("name", PLAYED)
def test_check_accepts_the_files_and_runs_their_tests(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("var"))
    certs = str(folder / "var/certs")
    texts = "".join(file.read_text() for file in folder.glob("*.yaml"))
    if "var/certs" in texts:
        subprocess.run([TIDEGATE, "cert", "ca", "-f", certs], check=True, capture_output=True)
        for owner in sorted({*re.findall(r"var/certs/([\w-]+)\.pem", texts)} - {"ca"}):
            subprocess.run([TIDEGATE, "cert", "issue", owner, "-f", certs], check=True, capture_output=True)
    if "var/keys" in texts:
        keys = str(folder / "var/keys")
        subprocess.run([TIDEGATE, "capability", "key", "issuer", "-f", keys], check=True, capture_output=True)
    for file in sorted(folder.glob("*.yaml")):
        if f"{name}/{file.name}" in REFUSED | RULES:
            continue
        file.chmod(0o600)  # `check` warns of passwords that everybody can read
        done = subprocess.run([TIDEGATE, "check", file], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning" not in done.stderr, done.stderr
        count = len(load(file).tests)
        assert f"tests: {count} passed" in done.stdout or not count
