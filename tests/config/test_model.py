"""What a good configuration says, what it says without saying, and what it warns about."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from config.samples import FULL, HASH
from tidegate.config import ClientCert, Config, Durability, Listener, Policies, load, parse
from tidegate.config.address import Scheme
from tidegate.config.limits import QueueFull
from tidegate.config.listeners import TlsVersion
from tidegate.config.model import DeniedPublish, LogFormat, Reload


def test_everything_said() -> None:
    config = parse(FULL, "/etc/tidegate/f.yaml")
    assert (config.node.name, config.node.domain, config.node.timezone) == ("mygym", "mygymbrand", "Europe/Rome")
    assert config.node.data == Path("/etc/tidegate/var/mygym")
    plain, tls, ws = config.listeners
    assert (plain.anonymous, plain.max_connections, plain.connect_rate) == (True, 10000, 50)
    assert tls.url.scheme is Scheme.MQTTS
    assert tls.url.tls
    assert (tls.cert, tls.key) == (Path("/etc/tidegate/gym.pem"), Path("/etc/gym.key"))
    assert (tls.client_cert, tls.tls_min) == (ClientCert.OPTIONAL, TlsVersion.V13)
    assert (tls.publish_rate, tls.burst, tls.max_packet, tls.connect_timeout) == (2.5, 40, 65536, 0.5)
    assert (ws.url.websocket, ws.url.path, ws.scope) == (True, "/mqtt", "gym")
    assert ws.origins == ("https://example.org",)
    mary = config.directory.users["mary"]
    assert (mary.password, mary.roles, mary.groups) == (HASH, ("frequenter",), ("g",))
    assert mary.attributes == {"enrolled": ["ts1"], "shift": "08:00-14:00"}
    assert config.directory.clients["treadmill-1"].user == "mary"
    assert (config.policies, config.durability, config.reload) == (Policies.OPEN, Durability.ASYNC, Reload.WATCH)
    assert (config.limits.max_keep_alive, config.limits.session_expiry) == (300, None)
    assert config.limits.queue.bytes == 1 << 20
    assert config.limits.queue.full is QueueFull.DROP_OLDEST
    assert config.limits.retain is False
    assert config.denied_publish_311 is DeniedPublish.DISCONNECT
    assert config.explain
    assert config.authentication.methods == {"X": "mygym.auth:Method"}
    assert config.authentication.cache == 0
    assert config.sys.interval == 0
    assert config.log.format is LogFormat.JSON


def test_nothing_said() -> None:
    config = parse("version: 1\nnode: {name: n}\nlisteners: [{url: 'mqtt://127.0.0.1'}]\n", "f.yaml")
    assert (config.node.domain, config.node.data, config.node.timezone) == ("n", None, "UTC")
    assert list(config.scopes) == ["main"]
    [listener] = config.listeners
    assert (listener.scope, listener.anonymous, listener.client_cert) == ("main", False, ClientCert.NONE)
    assert (listener.max_connections, listener.connect_rate, listener.connect_timeout) == (100_000, None, 10)
    assert (listener.handshakes, listener.address_handshakes) == (1000, 200)
    assert (listener.max_packet, listener.publish_rate, listener.origins) == (1 << 20, None, None)
    assert config.policies is None
    assert (config.durability, config.reload, config.explain) == (Durability.SYNC, Reload.SIGNAL, False)
    limits = config.limits
    assert (limits.max_keep_alive, limits.session_expiry, limits.inflight) == (None, 30 * 86400, 1000)
    assert (limits.receive_maximum, limits.topic_aliases, limits.retained) == (1000, 64, 1_000_000)
    assert (limits.subscriptions, limits.max_qos, limits.retain) == (10_000, 2, True)
    assert (limits.wildcard_subscriptions, limits.shared_subscriptions) == (True, True)
    assert (limits.queue.messages, limits.queue.bytes, limits.queue.full) == (10_000, 16 << 20, "drop-newest")
    assert (config.authentication.workers, config.authentication.attempts) == (2, 60)
    assert (config.sys.interval, config.log.level, config.log.format) == (10, "info", "auto")
    assert not config.directory.users


def test_values_from_the_environment_are_read_like_others() -> None:
    text = "version: 1\nnode: {name: '${NAME}'}\nexplain: ${YES}\nlimits: {inflight: '${N}', session_expiry: '${T}'}\n"
    text += 'listeners: [{url: "mqtt://127.0.0.1:${PORT}"}]\n'
    config = parse(text, "f", variables={"NAME": "n7", "YES": "true", "N": "12", "T": "1h", "PORT": "1999"})
    assert (config.node.name, config.explain, config.limits.inflight) == ("n7", True, 12)
    assert (config.limits.session_expiry, config.listeners[0].url.port) == (3600, 1999)


def test_a_burst_is_a_second_unless_said() -> None:
    url = Config.ephemeral().listeners[0].url
    assert Listener(url=url, publish_rate=2.5).burst == 3
    assert Listener(url=url, publish_rate=0.1).burst == 1
    assert Listener(url=url, publish_rate=10, publish_burst=2).burst == 2


def test_it_is_frozen() -> None:
    config = Config.ephemeral()
    with pytest.raises(ValidationError, match="frozen"):
        config.explain = True  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        config.limits.inflight = 5  # type: ignore[misc]


def test_made_in_python_it_is_checked_too() -> None:
    ephemeral = Config.ephemeral()
    with pytest.raises(ValidationError, match="names the unknown scope `x`"):
        Config(version=1, node=ephemeral.node, listeners=(Listener(url=ephemeral.listeners[0].url, scope="x"),))


class TestEphemeral:
    def test_it_is_open_on_loopback_and_volatile(self) -> None:
        config = Config.ephemeral(port=1999)
        [listener] = config.listeners
        assert str(listener.url) == "mqtt://127.0.0.1:1999"
        assert (listener.anonymous, listener.scope) == (True, "main")
        assert config.policies is Policies.OPEN
        assert config.node.data is None
        assert config.warnings() == []

    def test_its_control_socket_is_private_to_the_user(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
        assert Config.ephemeral(1999).control_socket.parent.parent == Path("/run/user/7")
        assert Config.ephemeral(1999).control_socket.name == "ephemeral-1999.sock"
        assert Config.ephemeral(1999).control_socket != Config.ephemeral(1998).control_socket

    def test_with_data_the_control_socket_is_there(self) -> None:
        assert parse(FULL, "/x/f.yaml").control_socket == Path("/x/var/mygym/control.sock")


@pytest.mark.parametrize(
    ("more", "line", "said"),
    [
        ("", 0, ""),
        ("directory: {users: {joe: {password: 'plain:x'}}}\n", 5, "`directory.users.joe.password` is written in plain"),
        ("directory:\n  users:\n    joe: {}\n", 7, "`directory.users.joe` has no password, and no listener asks"),
        ("durability: sync\n", 5, "`durability` has no effect on what survives"),
        ("limits: {queue: {bytes: 1KiB}}\n", 3, "`listeners[0].max_packet` is larger than"),
    ],
)
def test_warnings(more: str, line: int, said: str) -> None:
    listener = "{url: 'mqtt://127.0.0.1', anonymous: true}"
    config = parse(f"version: 1\nnode: {{name: n}}\nlisteners: [{listener}]\npolicies: open\n{more}", "f")
    warnings = config.warnings()
    if not said:
        assert warnings == []
    else:
        [(at, text)] = warnings
        assert at == line
        assert text.startswith(said)


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        ("{url: 'mqtt://0.0.0.0', anonymous: true}", "lets everybody on the network in"),
        ("{url: 'mqtt://127.0.0.1'}", "lets nobody in: there are no users"),
    ],
)
def test_warnings_about_listeners(listener: str, said: str) -> None:
    config = parse(f"version: 1\nnode: {{name: n}}\npolicies: open\nlisteners:\n  - {listener}\n", "f")
    [(line, text)] = config.warnings()
    assert line == 5
    assert f"`listeners[0]` {said}" in text


def test_default_deny_and_unencrypted_passwords_are_warned_about() -> None:
    text = "version: 1\nnode: {name: n}\nlisteners: [{url: 'mqtt://0.0.0.0'}]\n"
    text += f"directory: {{users: {{m: {{password: '{HASH}'}}}}}}\n"
    said = [warning for _, warning in parse(text, "f").warnings()]
    assert any("`policies` is missing: the default is to deny, so nothing will pass" in each for each in said)
    assert any("carries passwords unencrypted over the network; use mqtts://" in each for each in said)
    assert len(said) == 2


def test_the_quick_start_is_fine_and_warns_of_nothing() -> None:
    config = load(Path(__file__).parents[2] / "examples/quickstart/tidegate.yaml")
    assert config.warnings() == []
    assert [str(each.url) for each in config.listeners] == ["mqtt://127.0.0.1:1883", "ws://127.0.0.1:8083/mqtt"]
    assert set(config.directory.users) == {"mary", "alice", "grace"}
    assert isinstance(config.policies, tuple)
    ids = [each.id for each in config.policies]
    assert ids == ["devices", "coaches", "visitors", "playground", "pipeline", "scored"]
