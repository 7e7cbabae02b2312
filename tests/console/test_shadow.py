"""*Shadow*: what would be denied, on a page; and `tidegate shadow report` beside it, from the node and the journal."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from console.conftest import FILE, HOSTILE, PASSWORD, Gym, looking
from processes import TIDEGATE, process
from tidegate.authentication.passwords import hash_password


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gym]:
    folder = tmp_path_factory.mktemp("watched")
    with process(folder, f"{FILE}enforce: false\n".replace("HASH", hash_password(PASSWORD.encode()))) as node:
        made = Gym(node)
        try:
            made.strap.publish("gym/elsewhere/power", "1")
            made.coaches["bob"].wait_for("1")
            yield made
        finally:
            made.end()


def tidegate(*arguments: str) -> str:
    return subprocess.run([TIDEGATE, *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_page_shows_what_would_be_denied(watched: Gym, browser: Browser) -> None:
    with looking(watched, browser, "olga", viewport={"width": 1200, "height": 760}) as window:
        page = window.page
        page.get_by_role("link", name="Denials").click()
        page.get_by_role("link", name="Shadow").click()
        assert "SHADOW MODE" in page.locator("main").inner_text()
        assert "gym/elsewhere/power" in page.locator("table").inner_text()
        assert HOSTILE in page.locator("table").inner_text()
        if folder := os.environ.get("PICTURES"):
            page.screenshot(path=f"{folder}/shadow.png")
        page.get_by_label("add up by").select_option("rule")
        page.get_by_role("button", name="Show").click()
        assert "anybody" in page.locator("table").inner_text()
        assert page.evaluate("window.hit") is None


def test_the_report_says_the_same(watched: Gym) -> None:
    file = str(watched.node.file.path)
    lines = [json.loads(line) for line in tidegate("shadow", "report", "-c", file, "--json").splitlines()]
    found = {(line["rule"], line["client"], line["action"]): line for line in lines}
    elsewhere = found["default", "strap-3", "write"]
    assert (elsewhere["count"], elsewhere["topics"]) == (1, ["gym/elsewhere/power"])
    assert elsewhere["first"] <= elsewhere["last"]
    shown = tidegate("shadow", "report", "-c", file)
    assert "gym/elsewhere/power" in shown
    assert "strap-3" in shown
    of_clients = [
        json.loads(line) for line in tidegate("shadow", "report", "-c", file, "--by", "client", "--json").splitlines()
    ]
    assert {line["rule"] for line in of_clients} == {""}
    assert sum(line["count"] for line in of_clients) == sum(line["count"] for line in lines)
    status = json.loads(tidegate("status", "-c", file, "--json"))
    assert "everything passes" in status["not_enforced"]["SHADOW MODE"]
    journal = tidegate("shadow", "report", "--journal", str(watched.node.file.folder / "data"), "--json")
    assert journal.splitlines()
