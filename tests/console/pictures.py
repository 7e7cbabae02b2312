"""Takes the pictures of the console that the docs show: `PYTHONPATH=tests python tests/console/pictures.py`."""

from __future__ import annotations

import json
import random
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from console.conftest import FILE, PASSWORD, Device, Gym, looking
from processes import process
from tidegate.authentication.passwords import hash_password

FOLDER = Path(__file__).parents[2] / "docs/console"
SECONDS = 90  # of traffic
STOP = "  - {id: heart, user: mary, topic: gym/+/heartbeats, when: \"has(s.user) && s.user == 'alice'\"}\n"
WHY = "as=user:bob/client:bob-phone&action=read&topic=gym/strap-3/heartbeats&from=user:mary/client:strap-3"


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
            ("mary", "/ui/my-data", "my-data", 390, 1150),
        ):
            with looking(gym, browser, user, viewport={"width": width, "height": height}) as window:
                window.go(path)
                window.page.screenshot(path=FOLDER / f"{name}.png")
        browser.close()
        for each in (bike, visitor):
            each.end()
        gym.end()


if __name__ == "__main__":
    main()
