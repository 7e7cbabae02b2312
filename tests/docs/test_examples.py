"""Every example in README and docs does what the page says. `pages` describes how a fence says what that is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.harness.servers import BenchError, mosquitto

import postgres
from docs.pages import MARKERS, QUOTING, ROOT, SHOWN, Block, blocks, name, pages
from docs.terminals import Desk, first_missing
from processes import missing, needs
from tidegate.config import ConfigErrors, load
from tidegate.explain.file_tests import run_tests
from tidegate.pipeline.rules import WrongRules
from tidegate.pipeline.rules import parse as parse_rules

ALL = {name(page): blocks(page) for page in pages()}
LIVELY = [page for page, found in ALL.items() if any(one.language in ("sh", "yaml", "python", "js") for one in found)]
WORK = "test_examples_work["
DATABASE = "${DATABASE}"  # that of a real PostgreSQL server
MODULES = ROOT / "tests/foreign/node_modules"
NEEDED = {"version:": "version: 1", "node:": "node: {name: example}", "policies:": "policies: open"}
LISTENERS = 'listeners: [{url: "mqtt://127.0.0.1:1883", anonymous: true}]'

Outcomes = dict[str, Future[None]]


@pytest.mark.parametrize("page", ALL)
def test_every_example_says_how_it_is_tested(page: str) -> None:
    for block in ALL[page]:
        known = MARKERS.get(block.language)
        assert known is None or block.marker in known, f"{block}: write one of {sorted(known)} behind the language"
        if (block.language, block.marker) == ("sh", "shown"):
            for line in block.text.splitlines():
                assert line.startswith((*SHOWN, "#")), f"{block}: `{line}` can be run by a test"
    quoted = sum((one.language, one.marker) == ("python", "shown") for one in ALL[page])
    assert quoted == QUOTING.get(page, 0), f"{page}: Python that is only shown"


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """Two pages at a time: most of what they do is waiting for commands to start."""
    wanted = [item.callspec.params["page"] for item in request.session.items if item.name.startswith(WORK)]  # type: ignore[attr-defined]
    with ThreadPoolExecutor(2) as pool:
        yield {page: pool.submit(follow_page, page, tmp_path_factory.mktemp("page")) for page in wanted}


@pytest.mark.timeout(1200)  # some of them start Spark
@pytest.mark.parametrize("page", LIVELY)
def test_examples_work(page: str, outcomes: Outcomes) -> None:
    outcomes[page].result()


def follow_page(page: str, place: Path) -> None:
    folder = place / "desk"
    folder.mkdir()
    desk = Desk(folder, place / "tools")
    if not any(DATABASE in one.text for one in ALL[page]):
        follow_blocks(desk, page)
        return
    with postgres.running() as server, pytest.MonkeyPatch.context() as patch:
        address = desk.environment["DATABASE"] = server.address(schema=server.schema())
        patch.setenv("DATABASE", address)
        follow_blocks(desk, page)


def follow_blocks(desk: Desk, page: str) -> None:
    try:
        for block in ALL[page]:
            follow(desk, block)
        desk.stop_listener()
        desk.stop_node()
        desk.stop_beside()
    finally:
        desk.abandon()


def follow(desk: Desk, block: Block) -> None:
    match block.language, block.marker:
        case "sh", "run":
            if "bench broker --quick" in block.text:
                needs_mosquitto()
            desk.run(block)
        case "sh", "export":
            desk.export(block)
        case "sh", "fails":
            desk.run(block, code=1)
        case "sh", "node":
            desk.start_node(block)
        case "sh", "beside":
            desk.start_beside(block)
        case "sh", "listen":
            desk.listen(block)
        case "yaml", "rules" | "misrule":
            check_rules(desk, block)
        case "yaml", _:
            check(desk, block)
        case "python", "run":
            desk.run_python(block)
        case "python", "module":
            (desk.folder / block.file).write_text(block.text)
        case "js", "run":
            needs("node")
            if not (MODULES / "mqtt").is_dir():
                missing("MQTT.js is not installed; `make foreign` does it")
            desk.run_js(block, MODULES)
        case "text", "run" | "listen" | "node":
            desk.compare(block)


def needs_mosquitto() -> None:
    try:
        mosquitto()
    except BenchError as error:
        missing(str(error))


def check(desk: Desk, block: Block) -> None:
    text = desk.translated(block.text)
    if block.marker == "part":
        text += "".join(f"{line}\n" for key, line in NEEDED.items() if not has(text, key))
        text += "" if has(text, "listeners:") else desk.translated(LISTENERS)
    file = desk.folder / (block.file or "example.yaml")
    file.write_text(text)
    problems = ""
    warnings: list[str] = []
    with importable(desk.folder):
        try:
            config = load(file)
            tested = run_tests(config, file=str(file))
            warnings = [text for _, text in (*config.warnings(), *tested.warnings)]
            if tested.problems:
                raise ConfigErrors(tested.problems)
        except ConfigErrors as wrong:
            problems = desk.printed = str(wrong)
    assert bool(problems) is (block.marker == "refuse"), f"{block}: {problems or 'it is accepted'}"
    if block.marker == "plain":
        warnings = [text for text in warnings if "is written in plain" not in text]
    if block.marker in ("check", "plain", "warned"):
        assert bool(warnings) is (block.marker == "warned"), f"{block}: {warnings}"


def check_rules(desk: Desk, block: Block) -> None:
    name = block.file or "rules.yaml"
    if block.file:
        (desk.folder / name).write_text(block.text)
    problems = ""
    try:
        parse_rules(block.text, name)
    except WrongRules as wrong:
        problems = desk.printed = str(wrong)
    assert bool(problems) is (block.marker == "misrule"), f"{block}: {problems or 'it is accepted'}"


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Functions of the administrator lie beside the configuration, as if PYTHONPATH said so."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def has(text: str, key: str) -> bool:
    return any(line.startswith(key) for line in text.splitlines())


def test_lines_are_compared_in_order() -> None:
    printed = "one\ntwo   and a half\n09:02:15 three\n2026-03-02 09:30:00 four\n"
    assert first_missing("one\ntwo and …\n23:59:59 three\n", printed) is None
    assert first_missing("2025-12-31 23:59:59 four\n", printed) is None
    assert first_missing("2025-12-31 four\n", printed) == "2025-12-31 four"
    assert first_missing("two and a half\none\n", printed) == "one"
    assert first_missing("two\n", printed) == "two"
