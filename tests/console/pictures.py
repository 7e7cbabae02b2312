"""Takes the pictures of the console that the docs show: `PYTHONPATH=tests python tests/console/pictures.py`."""

from __future__ import annotations

import json
import random
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from console.conftest import FILE, PASSWORD, Device, Gym, looking
from processes import process
from tidegate.authentication.passwords import hash_password

FOLDER = Path(__file__).parents[2] / "docs/console"
SECONDS = 60  # of traffic
STOP = "  - {id: heart, user: mary, topic: gym/+/heartbeats, when: \"has(s.user) && s.user == 'alice'\"}\n"
WHY = "as=user:bob/client:bob-phone&action=read&topic=gym/strap-3/heartbeats&from=user:mary/client:strap-3"

DRAFT = "scope: main\ndirection: im_pub\neach: client\nonly: gym/+/start\nafter: [gym/+/ready]\nreset: gym/+/off\nsupp"
TRACE = """{"topic": "gym/bike-2/start"}
{"topic": "gym/bike-2/ready", "at": "+3s"}
{"topic": "gym/bike-2/start", "at": "+1s"}"""


def write(page: Page) -> None:
    """A monitor, with something still to be completed."""
    page.get_by_label("Name").fill("start-when-ready")
    field = page.locator("textarea")
    field.fill(DRAFT[: DRAFT.rindex("\n")])
    field.press("End")
    field.press("Space")
    page.get_by_role("img", name="The automaton").wait_for()
    field.fill(DRAFT)
    field.press("r")
    field.press("Backspace")
    page.get_by_role("option").first.wait_for()


def step(page: Page) -> None:
    page.locator("textarea").fill(TRACE)
    page.get_by_role("button", name="Step through it").click()
    for _ in range(2):
        page.get_by_role("button", name="next").click()
    page.get_by_text("Step 2 of 3").wait_for()


ACTS = {"rule": write, "monitor": step}


def main() -> None:
    text = FILE.replace("HASH", hash_password(PASSWORD.encode())).replace("monitors:", f"preferences:\n{STOP}monitors:")
    with tempfile.TemporaryDirectory() as folder, process(Path(folder), text) as node, sync_playwright() as playwright:
        gym = Gym(node, hostile=False)
        bike = Device(gym.port, "bike-2", "mary")
        visitor = Device(gym.port, "locker-7", None)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for _ in range(random.randrange(1, 6)):
                gym.strap.publish(
                    "gym/strap-3/heartbeats", json.dumps({"value": random.randrange(60, 90)}), retain=True
                )
            bike.publish("gym/bike-2/power", json.dumps({"value": random.randrange(90, 240)}), retain=True)
            visitor.publish("gym/bike-2/power", "9999")
            time.sleep(0.2)
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for user, path, name, width, height in (
            ("grace", "/ui/now", "now", 1200, 1000),
            ("grace", "/ui/denials", "denials", 1200, 560),
            ("grace", f"/ui/denials/why?{WHY}", "why", 1200, 1180),
            ("grace", "/ui/flows?from=client:bike-2&to=scope:remote", "flows", 1200, 740),
            ("grace", "/ui/new/monitor", "rule", 1200, 760),
            ("grace", "/ui/monitors/start", "monitor", 1200, 1060),
            ("mary", "/ui/my-data", "my-data", 390, 1500),
        ):
            with looking(gym, browser, user, viewport={"width": width, "height": height}) as window:
                window.go(path)
                if name in ACTS:
                    ACTS[name](window.page)
                window.page.screenshot(path=FOLDER / f"{name}.png")
        browser.close()
        for each in (bike, visitor):
            each.end()
        gym.end()


if __name__ == "__main__":
    main()
