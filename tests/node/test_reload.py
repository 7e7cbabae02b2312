"""The file is read again: by SIGHUP, by the control socket, by itself. All of it takes effect, or none."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import threading
from pathlib import Path

import pytest

from harness import Client
from processes import Process, Served, from_file, on_uvloop, process, until
from tidegate import wire
from tidegate.authentication.passwords import hash_password
from tidegate.cli import certificates
from tidegate.config import ConfigErrors, Source, read_source
from tidegate.errors import ConfigError, TidegateError
from tidegate.net.control_socket import ask
from tidegate.wire import Reason

BASE = """
version: 1
node: {name: test, data: data}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true}
MORE_LISTENERS
directory:
  users:
USERS
POLICIES
sys: {interval: 0s}
"""


def text(users: dict[str, str] | None = None, *, listeners: str = "", policies: str = "policies: open") -> str:
    entries = {"keeper": "plain:kept"} | (users or {})
    written = "\n".join(f'    {name}: {{password: "{password}"}}' for name, password in entries.items())
    return BASE.replace("MORE_LISTENERS", listeners).replace("USERS", written).replace("POLICIES", policies)


async def login(node: Served, user: str, password: bytes, expect: int = 0, **fields: object) -> Client:
    return await node.connect(
        fields.pop("name", f"client of {user}"), username=user, password=password, expect=expect, **fields
    )


# -- users -------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_new_user_can_log_in(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        await login(node, "mary", b"lamb", expect=Reason.BAD_USER_NAME_OR_PASSWORD)
        keeper = await login(node, "keeper", b"kept")
        anonymous = await node.connect("anonymous")
        assert (await node.reload(text({"mary": hash_password(b"lamb")})))["reloaded"]
        await (await login(node, "mary", b"lamb")).silent()
        await keeper.silent()
        await anonymous.silent()


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
@on_uvloop
async def test_removed_user_is_disconnected(tmp_path: Path, version: int) -> None:
    async with from_file(tmp_path, text({"mary": "plain:lamb"})) as node:
        mary = await login(node, "mary", b"lamb", version=version)
        keeper = await login(node, "keeper", b"kept")
        await node.reload(text())
        if version == wire.V5:
            assert (await mary.expect(wire.Disconnect)).reason == Reason.NOT_AUTHORIZED
        assert await mary.closed() == b""
        await keeper.silent()
        await login(node, "mary", b"lamb", expect=Reason.BAD_USER_NAME_OR_PASSWORD)


@on_uvloop
async def test_changed_password_disconnects(tmp_path: Path) -> None:
    async with from_file(tmp_path, text({"mary": hash_password(b"lamb")})) as node:
        mary = await login(node, "mary", b"lamb")
        await node.reload()  # the same file: nothing happens
        await mary.silent()
        await node.reload(text({"mary": hash_password(b"sheep")}))
        assert (await mary.expect(wire.Disconnect)).reason == Reason.NOT_AUTHORIZED
        assert await mary.closed() == b""
        await login(node, "mary", b"lamb", expect=Reason.BAD_USER_NAME_OR_PASSWORD)  # nor is it remembered
        await login(node, "mary", b"sheep")


@on_uvloop
async def test_will_of_a_removed_user_is_dropped(tmp_path: Path) -> None:
    """semantics.md, Time: a revoked subject's will is dropped."""
    async with from_file(tmp_path, text({"mary": "plain:lamb", "bob": "plain:tin"})) as node:
        watcher = await node.connect("watcher")
        await watcher.subscribe("will/#", qos=1)
        delayed = wire.Will(
            topic="will/bob", payload=b"gone", qos=1, retain=False, properties=wire.Properties(will_delay_interval=1)
        )
        await login(node, "mary", b"lamb", will=wire.Will(topic="will/mary", payload=b"gone", qos=1, retain=False))
        bob = await login(node, "bob", b"tin", will=delayed, properties=wire.Properties(session_expiry_interval=600))
        bob.abort()
        await until(lambda: node.node.scopes["main"].connected == 2)
        await node.reload(text())
        await until(lambda: node.node.scopes["main"].connected == 1)
        await asyncio.sleep(1.2)  # longer than the delay of the second
        await watcher.silent()


# -- all or nothing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ("policies: opne", "policies: opne"),
        ("policies: open\nlimitz: {}", "limitz"),
        ("policies: open\nlimits: {inflight: none}", "inflight"),
        ("policies: open\n\tlimits: {}", "\tlimits"),
    ],
)
@on_uvloop
async def test_broken_file_is_refused_whole_with_its_line(tmp_path: Path, broken: str, where: str) -> None:
    async with from_file(tmp_path, text({"mary": "plain:lamb"})) as node:
        mary = await login(node, "mary", b"lamb")
        with pytest.raises(ConfigErrors) as refused:
            await node.reload(text({"new": "plain:new"}, policies=broken))
        lines = {problem.line for problem in refused.value.problems}
        assert node.file.line(where) in lines
        assert f"{node.file.path}:" in str(refused.value)
        await mary.silent()  # nothing of it took effect
        await login(node, "new", b"new", expect=Reason.BAD_USER_NAME_OR_PASSWORD)
        await mary.subscribe("t")
        await mary.publish("t", b"still open")
        assert (await mary.message()).payload == b"still open"


@on_uvloop
async def test_listener_that_cannot_be_bound_refuses_the_whole_change(tmp_path: Path) -> None:
    listeners = '  - {url: "mqtt://127.0.0.1:SECOND_PORT", anonymous: true}\n'
    async with from_file(tmp_path, text({"mary": "plain:lamb"}, listeners=listeners)) as node:
        mary = await login(node, "mary", b"lamb")
        # the first is changed, the second goes, and the third cannot be had
        changed = text().replace("anonymous: true}", "anonymous: true, max_connections: 7}")
        changed = changed.replace("directory:", '  - {url: "mqtt://192.0.2.1:THIRD_PORT", anonymous: true}\ndirectory:')
        with pytest.raises(ConfigError, match=r"cannot listen on mqtt://192\.0\.2\.1"):
            await node.reload(changed)
        await mary.silent()
        await login(node, "mary", b"lamb", name="another")
        await (await node.dial(node.ports["SECOND_PORT"])).raw(b"")
        assert len(node.node.status()["listeners"]) == 2


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("node: {name: test,", "node: {name: other,", "node"),
        ("data: data", "data: elsewhere", "node"),
        ("version: 1", "version: 1\ndurability: async", "durability"),
        ("version: 1", "version: 1\nreload: watch", "reload"),
        ("version: 1", "version: 1\nauthentication: {attempts: 3}", "authentication"),
        ("sys: {interval: 0s}", "sys: {interval: 5s}", "sys"),
    ],
)
@on_uvloop
async def test_what_cannot_change_is_said(tmp_path: Path, old: str, new: str, key: str) -> None:
    async with from_file(tmp_path, text()) as node:
        with pytest.raises(ConfigError, match=f"`{key}` cannot change while the node runs"):
            await node.reload(text().replace(old, new))
        await (await node.connect("c")).silent()


@on_uvloop
async def test_missing_file(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        node.file.path.unlink()
        with pytest.raises(ConfigError, match="No such file"):
            await node.reload()
        await (await node.connect("c")).silent()


# -- listeners ---------------------------------------------------------------------------------------------------


@on_uvloop
async def test_listener_is_added_and_removed(tmp_path: Path) -> None:
    second = '  - {url: "mqtt://127.0.0.1:SECOND_PORT", anonymous: true}\n'
    async with from_file(tmp_path, text()) as node:
        first = await node.connect("first")
        await node.reload(text(listeners=second))
        client = await node.dial(node.ports["SECOND_PORT"])
        await client.send(wire.Connect(version=wire.V5, client_id="second", clean_start=True, keep_alive=0))
        assert (await client.expect(wire.Connack)).reason == 0
        await node.reload(text())
        assert (await client.expect(wire.Disconnect)).reason == Reason.ADMINISTRATIVE_ACTION
        assert await client.closed() == b""
        with pytest.raises(ConnectionRefusedError):
            await node.dial(node.ports["SECOND_PORT"])
        await first.silent()
        await node.reload(text(listeners=second))  # and once more, on the same port
        await (await node.dial(node.ports["SECOND_PORT"])).raw(b"")


@on_uvloop
async def test_changed_listener_keeps_its_clients_and_tells_them_at_the_end(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        old = await node.connect("old")
        await node.reload(text().replace("anonymous: true}", "anonymous: true, max_packet: 1000}"))
        await old.silent()
        new = await node.connect("new")
        assert new.connack.properties.maximum_packet_size == 1000
        assert sum(one["connections"] for one in node.node.status()["listeners"]) == 2
        await node.node.close()
        for client in (old, new):
            assert (await client.expect(wire.Disconnect)).reason == Reason.SERVER_SHUTTING_DOWN


@on_uvloop
async def test_anonymous_clients_go_when_the_listener_does_not_want_them_any_more(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        keeper = await login(node, "keeper", b"kept")
        anonymous = await node.connect("anonymous")
        await node.reload(text().replace("anonymous: true", "anonymous: false"))
        assert (await anonymous.expect(wire.Disconnect)).reason == Reason.NOT_AUTHORIZED
        assert await anonymous.closed() == b""
        await keeper.silent()
        await node.connect("anonymous", expect=Reason.NOT_AUTHORIZED)


@on_uvloop
async def test_later_reload_wins_however_long_the_earlier_one_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with from_file(tmp_path, text()) as node:
        reading, go_on = threading.Event(), threading.Event()

        def slowly(path: Path) -> Source:
            source = read_source(path)
            if not reading.is_set():
                reading.set()
                go_on.wait(1)
            return source

        monkeypatch.setattr("tidegate.node.node.read_source", slowly)
        first = asyncio.create_task(node.reload(text({"early": "plain:e"})))
        await until(reading.is_set)
        second = asyncio.create_task(node.reload(text({"late": "plain:l"})))
        await asyncio.wait((second,), timeout=0.2)
        go_on.set()
        await asyncio.gather(first, second)
        assert set(node.node.config.directory.users) == {"keeper", "late"}
        await login(node, "late", b"l")


# -- policies ----------------------------------------------------------------------------------------------------


@on_uvloop
async def test_policies_take_effect_on_the_next_message(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        sub = await node.connect("sub")
        await sub.subscribe("t", qos=1)
        pub = await node.connect("pub")
        old = await node.connect("old", version=wire.V311)
        for qos in (0, 1):
            await pub.publish("t", b"open", qos=qos)
            assert (await sub.message()).payload == b"open"
        await old.publish("t", b"open")
        assert (await sub.message()).payload == b"open"
        await pub.publish("kept", b"retained while it was open", qos=1, retain=True)
        await node.reload(text(policies=""))
        await pub.publish("t", b"closed")
        await old.publish("t", b"closed")
        answer = await pub.publish("t", b"closed", qos=1)
        assert isinstance(answer, wire.Puback)
        assert answer.reason == Reason.NOT_AUTHORIZED
        assert isinstance(await old.publish("t", b"closed", qos=1), wire.Puback)
        await sub.silent()
        assert (await pub.subscribe("t")).reasons == (Reason.NOT_AUTHORIZED,)
        assert (await old.subscribe("t")).reasons == (0x80,)
        await node.reload(text())
        answer = await pub.publish("t", b"open again", qos=1)
        assert isinstance(answer, wire.Puback)
        assert answer.reason == 0
        assert (await sub.message()).payload == b"open again"
        await sub.subscribe("kept", qos=1)
        assert (await sub.message()).payload == b"retained while it was open"


@on_uvloop
async def test_policies_reach_what_is_queued(tmp_path: Path) -> None:
    keep = wire.Properties(session_expiry_interval=600)
    async with from_file(tmp_path, text()) as node:
        sub = await node.connect("sub", properties=keep)
        await sub.subscribe("t", qos=1)
        await sub.disconnect()
        pub = await node.connect("pub")
        await pub.publish("t", b"queued while it was open", qos=1)
        await node.reload(text(policies=""))
        back = await node.connect("sub", clean_start=False, properties=keep)
        assert back.connack.session_present
        await back.silent()  # decided when it is sent


# -- certificates ------------------------------------------------------------------------------------------------


@on_uvloop
async def test_other_certificate_files(tmp_path: Path) -> None:
    certificates.make_ca(tmp_path, "Test CA", days=2)
    for name in ("one", "two"):
        certificates.issue(tmp_path, name, ["127.0.0.1"], client=False, days=2)
    tls = '  - {url: "mqtts://127.0.0.1:TLS_PORT", anonymous: true, cert: NAME.pem, key: NAME.key}\n'
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")

    async def name(node: Served) -> str:
        client = await node.dial(node.ports["TLS_PORT"], context)
        return str(dict(client.writer.get_extra_info("peercert")["subject"][0])["commonName"])

    async with from_file(tmp_path, text(listeners=tls.replace("NAME", "one"))) as node:
        assert await name(node) == "one"
        await node.reload(text(listeners=tls.replace("NAME", "two")))
        assert await name(node) == "two"
        with pytest.raises(ConfigErrors, match="three"):
            await node.reload(text(listeners=tls.replace("NAME", "three")))
        assert await name(node) == "two"


# -- how it is told ----------------------------------------------------------------------------------------------


@on_uvloop
async def test_control_socket(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        control = node.node.config.control_socket
        node.file.write(text({"mary": "plain:lamb"}))
        assert (await asyncio.to_thread(ask, control, "reload"))["reloaded"]
        await login(node, "mary", b"lamb")
        node.file.write("version: 1\nnode: {nam: test}\n")
        with pytest.raises(TidegateError, match=r"tidegate\.yaml:2: .*did you mean `name`"):
            await asyncio.to_thread(ask, control, "reload")
        await login(node, "mary", b"lamb", name="still")


@on_uvloop
async def test_watched_file(tmp_path: Path) -> None:
    watch = "reload: watch\n"

    async def let_in(node: Served, user: str, password: bytes) -> None:
        await until(lambda: user in node.node.config.directory.users)
        await login(node, user, password)

    async with from_file(tmp_path, text() + watch) as node:
        node.file.write(text({"mary": "plain:lamb"}) + watch)
        await let_in(node, "mary", b"lamb")
        node.file.write("version: 1\nbroken\n")
        await asyncio.sleep(0.1)
        await login(node, "mary", b"lamb", name="still")
        aside = node.file.path.with_suffix(".new")  # as editors do it: written aside and moved into place
        node.file.write(text({"bob": "plain:tin"}) + watch)
        os.replace(node.file.path, aside)
        await asyncio.sleep(0.1)  # for a moment there is no file
        os.replace(aside, node.file.path)
        await let_in(node, "bob", b"tin")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Process:
    with process(
        tmp_path_factory.mktemp("reload"),
        text(),
        allowed=("reload refused, the last good configuration stays",),
    ) as started:
        yield started


def users(running: Process, *names: str) -> None:
    running.file.write(text(dict.fromkeys(names, "plain:secret")))


async def try_login(running: Process, user: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.ports["PORT"])
    client = Client(reader, writer)
    await client.send(
        wire.Connect(version=wire.V5, client_id=user, clean_start=True, keep_alive=0, username=user, password=b"secret")
    )
    reason = (await client.expect(wire.Connack)).reason
    writer.close()
    return reason


async def test_sighup(running: Process) -> None:
    assert await try_login(running, "mary") == Reason.BAD_USER_NAME_OR_PASSWORD
    users(running, "mary")
    running.signal(signal.SIGHUP)
    running.wait_for("reloaded", 1)
    assert await try_login(running, "mary") == 0


async def test_sighup_with_a_broken_file(running: Process) -> None:
    good = running.file.path.read_text()
    running.file.path.write_text(good.replace("policies: open", "policies: opne"))
    running.signal(signal.SIGHUP)
    said = running.wait_for("reload refused, the last good configuration stays")
    assert f"tidegate.yaml:{running.file.line('opne')}: " in said["reason"]
    assert "did you mean `open`" in said["reason"]
    assert await try_login(running, "keeper") == Reason.BAD_USER_NAME_OR_PASSWORD  # its password is another
    running.file.path.write_text(good)
    users(running, "mary", "sue")
    running.signal(signal.SIGHUP)
    running.wait_for("reloaded", 2)
    assert await try_login(running, "sue") == 0
