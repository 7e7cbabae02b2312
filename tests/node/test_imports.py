"""What a plain broker imports, and what it does without the packages of the extra `journal`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import free_port
from processes import from_file, on_uvloop
from tidegate.admin import ingest
from tidegate.audit import journals
from tidegate.config import load
from tidegate.errors import ConfigError, Problem
from tidegate.node.verification import verify

COSTLY = (
    "aiomqtt",
    "argon2",
    "cryptography",
    "fastapi",
    "httpx",
    "joserfc",
    "numpy",
    "paho",
    "pandas",
    "prometheus_client",
    "psycopg",
    "pyarrow",
    "pyspark",
    "rich",
    "starlette",
    "uvicorn",
    "watchfiles",
    "wsproto",
)
RUN = """
import sys
for name in sys.argv.pop().split(","):
    sys.modules[name] = None  # not installed
from tidegate.cli.app import main
try:
    main()
finally:
    print("modules", *{name.partition(".")[0] for name, module in sys.modules.items() if module is not None})
"""
PLAIN = """\
version: 1
node: {name: plain, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
policies: open
"""


def _run(*arguments: str, without: str = "none", cwd: Path) -> tuple[set[str], str]:
    """A node until it is ready: the packages that it has imported, and its log."""
    command = [sys.executable, "-c", RUN, "run", *arguments, without]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        log = ""
        for line in process.stderr:
            log += line
            if '"ready"' in line:
                break
        os.kill(process.pid, signal.SIGTERM)
        log += process.stderr.read()
        found = process.stdout.read().split()
    assert process.returncode == 0, log
    assert found[:1] == ["modules"]
    return set(found[1:]), log


def test_a_plain_node_imports_nothing_that_costs(tmp_path: Path) -> None:
    modules, _ = _run("--port", str(free_port()), cwd=tmp_path)
    assert "tidegate" in modules
    assert modules.isdisjoint(COSTLY)


def test_without_pyarrow_the_audit_is_logged(tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text(PLAIN.replace("PORT", str(free_port())))
    modules, log = _run("-c", "tidegate.yaml", without="pyarrow", cwd=tmp_path)
    assert modules.isdisjoint(COSTLY)
    events = [json.loads(line) for line in log.splitlines()]
    assert [each["action"] for each in events if each["event"] == "audit"] == ["start"]
    assert any("pip install 'tidegate[journal]'" in each["event"] for each in events)


def test_check_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text(PLAIN.replace("PORT", "1883"))
    command = [sys.executable, "-c", RUN, "check", "--json", "tidegate.yaml", "pyarrow"]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    (warning,) = json.loads(answer.stdout.partition("\nmodules")[0])["warnings"]
    assert warning["line"] == 2
    assert "pip install 'tidegate[journal]'" in warning["text"]


@pytest.mark.parametrize(("more", "name"), [("pipeline: {}", "pipeline"), ("record: traffic", "record: traffic")])
def test_what_needs_a_journal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, name: str) -> None:
    (tmp_path / "tidegate.yaml").write_text(f"{PLAIN.replace('PORT', '1883')}{more}\n")
    config = load(tmp_path / "tidegate.yaml")
    verify(config)
    monkeypatch.setattr(journals, "installed", lambda: False)
    with pytest.raises(ConfigError, match=rf"`{name}` needs a journal.*pip install 'tidegate\[journal\]'"):
        verify(config)


@on_uvloop
async def test_data_is_refused_without_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (journals, ingest):
        monkeypatch.setattr(module, "installed", lambda: False)
    async with from_file(tmp_path, f"{PLAIN}http: {{url: 'http://127.0.0.1:0'}}\n") as node:
        with pytest.raises(Problem, match=r"pip install 'tidegate\[journal\]'"):
            node.node.ingest._ready()
        with pytest.raises(ConfigError, match="record: traffic"):
            await node.reload(f"{PLAIN}http: {{url: 'http://127.0.0.1:0'}}\nrecord: traffic\n")


def test_a_websocket_listener_imports_its_protocol_before_the_first_connection(tmp_path: Path) -> None:
    """The event loop would stand still for as long as the import takes."""
    (tmp_path / "tidegate.yaml").write_text(
        PLAIN.replace("mqtt://127.0.0.1:PORT", f"ws://127.0.0.1:{free_port()}/mqtt")
    )
    modules, _ = _run("-c", "tidegate.yaml", cwd=tmp_path)
    assert "wsproto" in modules
