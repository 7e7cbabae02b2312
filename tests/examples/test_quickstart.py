"""`make run`, on other ports: messages flow, one is denied, and Ctrl-C stops all of it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import free_port

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"


def test_quickstart(tmp_path: Path) -> None:
    ports = {port: str(free_port()) for port in ("1883", "8083", "8080")}
    for name in ("run.py", "tidegate.yaml"):
        text = (QUICKSTART / name).read_text()
        (tmp_path / name).write_text(re.sub(r"\b(1883|8083|8080)\b", lambda found: ports[found[0]], text))
    out = tmp_path / "out"
    with out.open("wb") as stream:
        running = subprocess.Popen([sys.executable, str(tmp_path / "run.py")], stdout=stream, stderr=stream)
        try:
            deadline = time.monotonic() + 60
            wanted = ("gym/treadmill-1/speed", "gym/bike-2/power", "gym/strap-3/heartbeats", "denied: Not authorized")
            wanted += ("visitor got", "denied by default")
            while not all(text in out.read_text() for text in wanted):
                assert running.poll() is None, out.read_text()
                assert time.monotonic() < deadline, out.read_text()
                time.sleep(0.05)
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == 0, out.read_text()
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
    assert '"event": "stopped"' in out.read_text()
    assert "the first token of an administrator" in out.read_text()
    hearts = [line for line in out.read_text().splitlines() if "gym/strap-3/heartbeats" in line]
    assert all("alice got" in line for line in hearts)
    shutil.rmtree(tmp_path / "var")


def test_the_file_is_accepted() -> None:
    tidegate = Path(sys.executable).with_name("tidegate")
    done = subprocess.run([tidegate, "check", QUICKSTART / "tidegate.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
