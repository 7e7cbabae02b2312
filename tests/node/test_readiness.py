"""`/health/ready` and the log agree; a node that is told to stop while it starts ends cleanly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from harness import PATIENCE, free_port
from processes import STARTING, File, Process, process
from tidegate.config import load
from tidegate.node.node import Node

HTTP = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
http: {url: "http://127.0.0.1:HTTP_PORT", address_rate: 10000}
log: {format: json}
policies: open
"""


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + STARTING
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def asked(node: Process, patience: float = PATIENCE) -> int:
    """The status that `/health/ready` answers; 0: none within that time."""
    try:
        return httpx.get(f"http://127.0.0.1:{node.ports['HTTP_PORT']}/health/ready", timeout=patience).status_code
    except httpx.HTTPError:
        return 0


def answers(node: Process) -> bool:
    """Whether it answers 200 within a moment."""
    return asked(node, 0.05) == httpx.codes.OK


def children(node: Process) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_log_says_ready_when_and_only_when_health_ready_answers(tmp_path: Path) -> None:
    node = Process(File(tmp_path, HTTP))
    try:
        while not answers(node):  # the node has bound the address long before its HTTP process answers
            assert not node.events("ready") or asked(node) == httpx.codes.OK, "the log said so, and it is not"
        assert len(node.events("ready")) == 1, "200 was answered, and the log did not say so"

        os.kill(node.ask("status")["http"]["pid"], signal.SIGKILL)
        [line] = [node.wait_for("not ready")]
        assert line["reasons"] == ["the HTTP process does not answer"]
        assert not answers(node) or len(node.events("ready")) == 2
        node.wait_for("ready", 2, seconds=STARTING)
        eventually(lambda: answers(node))
        assert node.stop() == 0
    finally:
        node.kill()
    assert [line["event"] for line in node.lines() if "ready" in line["event"]] == ["ready", "not ready", "ready"]


def test_a_node_without_http_is_ready_at_once(tmp_path: Path) -> None:
    text = "".join(line for line in HTTP.splitlines(keepends=True) if not line.startswith("http:"))
    with process(tmp_path, text) as node:
        assert len(node.events("ready")) == 1


# -- SIGTERM during the start ------------------------------------------------------------------------------------------


def ended_cleanly(node: Process) -> None:
    try:
        assert node.popen.wait(STARTING) == 0, node.stderr.read_text()
        node.check()
        assert not node.events("ready")
        assert not node.control.exists()
        for port in node.ports.values():
            with socket.socket() as again:
                again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                again.bind(("127.0.0.1", port))
    finally:
        node.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_file_is_read(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_functions.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.chdir(tmp_path)
    node = Process(File(tmp_path, HTTP + "functions: [slow_functions:none]\n"))
    try:
        eventually((tmp_path / "begun").exists)
        node.signal(number)
        assert node.popen.wait(PATIENCE) == 0, node.stderr.read_text()
        assert node.stderr.read_text() == ""
        assert not (tmp_path / "data").exists()
    finally:
        node.kill()


def test_a_signal_while_the_node_waits_for_others(tmp_path: Path) -> None:
    """For the keys of an issuer: the start has begun, and nothing listens yet."""
    with socket.create_server(("127.0.0.1", free_port())) as issuer:
        issuer.settimeout(STARTING)
        keys = f"http://127.0.0.1:{issuer.getsockname()[1]}/jwks.json"
        node = Process(File(tmp_path, HTTP + f"capabilities: {{issuers: [{{name: org, jwks: '{keys}'}}]}}\n"))
        try:
            asked, _ = issuer.accept()
        except BaseException:
            node.kill()
            raise
        with asked:
            node.signal(signal.SIGTERM)
            key = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}  # of RFC 8037
            body = json.dumps({"keys": [key]})
            asked.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    ended_cleanly(node)


def test_a_signal_while_the_http_process_starts(tmp_path: Path) -> None:
    node = Process(File(tmp_path, HTTP))
    try:
        node.wait_for("listening", seconds=STARTING)
        eventually(lambda: children(node))
        started = children(node)
        node.signal(signal.SIGTERM)
    except BaseException:
        node.kill()
        raise
    ended_cleanly(node)
    assert all(gone(pid) for pid in started)


async def test_a_stop_over_the_control_socket_is_one_too(tmp_path: Path) -> None:
    """The commands are there before the listeners."""
    file = File(tmp_path, HTTP)
    node = Node(load(file.path), file.path, asyncio.get_running_loop())
    node.stop()
    await node.start()
    assert node.http is None
    await node.close()
