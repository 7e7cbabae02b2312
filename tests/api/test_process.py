"""The HTTP process as it really runs: beside a node that runs from a file."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from forkserver import COLD
from harness import PATIENCE, free_port
from processes import STARTING, File, Process, process
from tidegate.api.server import IDLE, NICE
from tidegate.cli import certificates

CONFIGURATION = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
http: {url: "http://127.0.0.1:HTTP_PORT", metrics: "http://127.0.0.1:METRICS_PORT"}
log: {format: json}
directory: {users: {mary: {password: "plain:secret", roles: [coach]}}}
policies: [{id: p1, subject: "user:mary", topic: "a/#", action: [read, write]}]
"""


@pytest.fixture(autouse=True)
def as_started_by_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the node starts is the HTTP process itself, with its own pid, priority and environment."""
    monkeypatch.setenv(COLD, "1")


def asking(node: Process, **options: Any) -> httpx.Client:
    """With the token of an administrator."""
    token = node.admin_token()
    scheme = "https" if "verify" in options else "http"
    return httpx.Client(
        base_url=f"{scheme}://127.0.0.1:{node.ports['HTTP_PORT']}",
        headers={"Authorization": f"Bearer {token}"},
        timeout=STARTING,  # it may wait for the process to start
        **options,
    )


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_beside_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_KEY_OF_TEST", "very secret")
    with process(tmp_path, CONFIGURATION) as node, asking(node) as api:
        ready = api.get("/health/ready")
        assert ready.json() == {
            "ready": True,
            "checks": {"node": True, "rules": True, "store": True, "registry": True, "journals": True, "keys": True},
            "reasons": [],
        }
        pid = node.ask("status")["http"]["pid"]

        # It gives way to the broker, and knows nothing that it does not need.
        own = os.getpriority(os.PRIO_PROCESS, node.pid)
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(own + NICE, 19)
        assert b"very secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert b"tg_" not in Path(f"/proc/{pid}/cmdline").read_bytes()

        # A change is in force when it is answered, and the audit names the token.
        question = {"as": "user:mary", "action": "write", "topic": "b"}
        assert api.post("/explain", json=question).json()["allowed"] is False
        policy = {"subject": "user:mary", "topic": "b", "action": "write"}
        assert api.put("/policies/p2", json=policy, params={"why": "trying"}).status_code == 201
        assert api.post("/explain", json=question).json()["allowed"] is True
        broken = api.put("/policies/p3", json={**policy, "when": "s.role =="})
        assert broken.status_code == 422
        assert broken.json()["errors"][0]["at"] == "policy/p3"
        me = api.get("/me").json()["token"]
        rows = api.get("/audit", params={"kind": "change", "rule": "p2"}).json()["items"]
        assert [(row["user"], row["action"]) for row in rows] == [(f"token:{me}", "change")]
        assert "trying" in rows[0]["detail"]

        assert api.get("/flows").json()["scopes"] == ["scope:main"]
        assert "tidegate_clients_connected 0.0" in api.get("/metrics").text
        assert api.get("/flows", params={"from": "nobody"}).status_code == 404

        # Metrics have a listener of their own that asks for no token, and nothing else is to be had there.
        metrics = f"http://127.0.0.1:{node.ports['METRICS_PORT']}"
        for text in (api.get("/metrics").text, httpx.get(f"{metrics}/metrics").text):
            assert "tidegate_clients_connected 0.0" in text
            assert 'tidegate_limit{limit="sessions"} 200000.0' in text
            assert "tidegate_delivery_seconds_bucket" in text
            assert "tidegate_rules{" not in text
            assert "_port" not in text
        assert httpx.get(f"{metrics}/policies").status_code == 404
        assert httpx.get(f"{metrics}/health/live").status_code == 404
        assert api.get("/metrics", headers={"Authorization": ""}).status_code == 401

        # It is started again, and who asks meanwhile waits.
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: gone(pid))
        assert api.get("/health/live").status_code == 200
        again = node.ask("status")["http"]
        assert again["restarts"] == 1
        assert again["pid"] != pid
        assert node.events("the HTTP process ended and is started again")

        # Other settings: started again, without a word.
        node.file.write(CONFIGURATION.replace('HTTP_PORT"', 'HTTP_PORT", max_body: 2KiB'))
        node.ask("reload")
        eventually(lambda: node.ask("status")["http"]["pid"] not in (None, again["pid"]))
        assert api.put("/policies/p4", content=b"x" * 3000).status_code == 413
        pid = node.ask("status")["http"]["pid"]
    assert gone(pid)


def test_it_does_not_outlive_a_node_that_is_killed(tmp_path: Path) -> None:
    node = Process(File(tmp_path, CONFIGURATION))
    try:
        node.wait_until_it_accepts()
        with asking(node) as api:
            assert api.get("/health/live").status_code == 200
        pid = node.ask("status")["http"]["pid"]
    finally:
        node.kill()
    eventually(lambda: gone(pid))


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        port = free_port()
        other.bind(("127.0.0.1", port))
        other.listen()
        node = Process(File(tmp_path, CONFIGURATION.replace("HTTP_PORT", str(port))))
        try:
            assert node.popen.wait(STARTING) == 1
        finally:
            node.kill()
        assert f"http://127.0.0.1:{port}" in node.events("cannot start")[0]["reason"]


def test_tls_with_certificates_of_clients(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    text = CONFIGURATION.replace(
        'http: {url: "http://127.0.0.1:HTTP_PORT", metrics: "http://127.0.0.1:METRICS_PORT"}',
        'http: {url: "https://127.0.0.1:HTTP_PORT", cert: server.pem, client_ca: ca.pem}',
    )
    with process(tmp_path, text) as node:
        with_certificate = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with_certificate.load_cert_chain(tmp_path / "client.pem")
        with asking(node, verify=with_certificate) as api:
            assert api.get("/me").json()["role"] == "admin"
        without = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with asking(node, verify=without) as api, pytest.raises(httpx.TransportError):
            api.get("/me")
        old = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        old.load_cert_chain(tmp_path / "client.pem")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with asking(node, verify=old) as api, pytest.raises(httpx.TransportError):
            api.get("/me")


def test_a_certificate_of_a_client_that_is_revoked(tmp_path: Path) -> None:
    certificates.make_ca(tmp_path, "CA", days=2)
    certificates.issue(tmp_path, "server", ["127.0.0.1"], client=False, days=2)
    for name in ("bob", "mary", "sally"):
        certificates.issue(tmp_path, name, [], client=True, days=2)
    certificates.revoke(tmp_path, [], days=2)
    text = CONFIGURATION.replace(
        'http: {url: "http://127.0.0.1:HTTP_PORT", metrics: "http://127.0.0.1:METRICS_PORT"}',
        'http: {url: "https://127.0.0.1:HTTP_PORT", cert: server.pem, key: server.key, client_ca: ca.pem, '
        "crl: ca.crl}\ntrust: {revoked: [sally.pem]}",
    )

    def client(name: str) -> httpx.Client:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        context.load_cert_chain(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
        return asking(node, verify=context)

    def refused(api: httpx.Client) -> bool:
        try:
            return api.get("/me").status_code != 200
        except httpx.TransportError:
            return True

    with process(tmp_path, text) as node, client("bob") as bob, client("mary") as mary:
        assert bob.get("/me").json()["role"] == mary.get("/me").json()["role"] == "admin"
        with client("sally") as sally:
            assert refused(sally)  # one by one, as on listeners
        with bob.stream("GET", "/health/live") as answer:
            line = answer.extensions["network_stream"].get_extra_info("socket")
            certificates.revoke(tmp_path, [tmp_path / "bob.pem"], days=2)  # the file is watched
            line.settimeout(IDLE / 2)  # sooner than the connection of anybody who says nothing
            assert ended(line)
        assert refused(bob)
        assert mary.get("/me").status_code == 200


def ended(line: socket.socket) -> bool:
    """Whether the other side closes the connection, whatever it sends before."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while line.recv(4096):
            pass
    return True
