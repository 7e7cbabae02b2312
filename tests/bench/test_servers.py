"""Starting and stopping, above all when that goes wrong."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from bench.harness import servers
from bench.harness.servers import BenchError, Peer, Setting, free_port, pinned, running

from tidegate.config import load
from tidegate.net.control_socket import ask

CORE = min(os.sched_getaffinity(0))


def test_ports_are_below_the_ephemeral_range() -> None:
    assert all(1024 < free_port() < 32768 for _ in range(20))


def test_pinning_is_inherited_and_undone() -> None:
    before = os.sched_getaffinity(0)
    with running(Peer.RELAY, Setting(), core=CORE) as server:
        assert os.sched_getaffinity(server.process.pid) == {CORE}
        assert os.sched_getaffinity(0) == before
    assert server.process.poll() is not None
    with pytest.raises(RuntimeError), pinned(CORE):
        raise RuntimeError
    assert os.sched_getaffinity(0) == before


def test_a_server_that_dies_at_once_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "print('no such option'); raise SystemExit(7)"]
    monkeypatch.setattr(servers, "_command", lambda *_: command)
    with (
        pytest.raises(BenchError, match=r"relay ended with code 7, saying:\s+no such option"),
        running(Peer.RELAY, Setting(), core=CORE),
    ):
        pass


def test_a_server_that_never_listens_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_command", lambda *_: ["sleep", "60"])
    monkeypatch.setattr(servers, "START_TIMEOUT", 0.1)
    with (
        pytest.raises(BenchError, match="does not listen"),
        running(Peer.RELAY, Setting(), core=CORE),
    ):
        pass


def test_a_server_that_is_killed_says_so() -> None:
    with running(Peer.RELAY, Setting(), core=CORE) as server:
        assert server.obituary() is None
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(10)
        assert (server.obituary() or "").startswith("relay was killed by SIGKILL")


@pytest.mark.parametrize("durable", [False, True])
def test_tidegate_accepts_its_configuration(tmp_path: Path, durable: bool) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_text(servers.tidegate_configuration(Setting(durable=durable), 21883))
    config = load(file)
    assert (config.node.data is not None) is durable
    assert config.limits.inflight == 65535


def test_rules_take_the_place_of_open_policies(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.yaml"
    rules = 'directory: {users: {p: {password: "plain:p"}}}\npolicies: []'
    file.write_text(servers.tidegate_configuration(Setting(rules=rules), 21883))
    config = load(file)
    assert config.policies == ()
    assert not config.listeners[0].anonymous


def test_a_second_listener_with_tls(tmp_path: Path) -> None:
    folder = servers.certificates(tmp_path / "certificates")
    setting = Setting(certificates=folder)
    file = tmp_path / "tidegate.yaml"
    file.write_text(servers.tidegate_configuration(setting, 21883, 28883))
    plain, secure = load(file).listeners
    assert (plain.url.tls, secure.url.tls, secure.url.port) == (False, True, 28883)
    assert secure.anonymous
    lines = servers.mosquitto_configuration(setting, 21883, tmp_path, 28883).splitlines()
    assert lines[-3:] == ["listener 28883 127.0.0.1", f"certfile {folder}/server.pem", f"keyfile {folder}/server.key"]
    with pytest.raises(BenchError, match="no certificate to measure with"):
        servers.certificates(folder)  # nothing is overwritten


@pytest.mark.parametrize("durable", [False, True])
def test_the_control_socket_is_where_it_is_said_to_be(durable: bool) -> None:
    with running(Peer.TIDEGATE, Setting(durable=durable), core=CORE) as server:
        assert ask(server.control, "status")["pid"] == server.process.pid
        assert server.configuration.is_file()


def test_mosquitto_is_as_debian_ships_it_but_drops_nothing(tmp_path: Path) -> None:
    plain = servers.mosquitto_configuration(Setting(), 21883, tmp_path).splitlines()
    assert {"persistence false", "max_queued_messages 0", "set_tcp_nodelay false"} <= set(plain)
    other = servers.mosquitto_configuration(Setting(durable=True, nodelay=True), 21883, tmp_path).splitlines()
    assert {"persistence true", f"persistence_location {tmp_path}/", "set_tcp_nodelay true"} <= set(other)
