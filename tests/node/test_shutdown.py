"""The end of a node and what it leaves behind; starting twice; what it says about itself."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import stat
from pathlib import Path

import pytest

from harness import PATIENCE, Client, live
from processes import STOPPING, Process, from_file, on_uvloop, process, until
from tidegate import wire
from tidegate.errors import StoreError, TidegateError
from tidegate.net.control_socket import ask
from tidegate.wire import Reason

NODE = """
version: 1
node: {name: test, data: data}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true}
  - {url: "ws://127.0.0.1:WS_PORT/mqtt", anonymous: true}
policies: open
sys: {interval: 100ms}
"""
KEEP = wire.Properties(session_expiry_interval=600)


async def connect(running: Process, name: str, version: int = wire.V5, **fields: object) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.ports["PORT"])
    client = Client(reader, writer)
    client.version = version
    fields.setdefault("clean_start", True)
    await client.send(wire.Connect(version=version, client_id=name, keep_alive=0, **fields))
    client.connack = await client.expect(wire.Connack)
    assert client.connack.reason == 0
    return client


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_it_cleanly(tmp_path: Path, number: int) -> None:
    with process(tmp_path, NODE) as running:
        control = running.control
        assert stat.S_ISSOCK(control.stat().st_mode)
        new, old = await connect(running, "new"), await connect(running, "old", wire.V311)
        silent = await asyncio.open_connection("127.0.0.1", running.ports["PORT"])  # has not even said CONNECT
        away = await connect(running, "away", properties=KEEP)
        await away.subscribe("t", qos=2)
        await away.disconnect()
        for one in range(50):
            await new.publish("t", b"%d" % one, qos=one % 2 + 1)
        await new.publish("kept", b"retained", qos=1, retain=True)
        # the last one is acknowledged or not, but never acknowledged and lost
        await new.send(wire.Publish(topic="t", payload=b"50", qos=1, packet_id=60000))
        running.signal(number)
        last = await new.receive()
        acknowledged = isinstance(last, wire.Puback)
        if acknowledged:
            last = await new.receive()
        assert isinstance(last, wire.Disconnect)
        assert last.reason == Reason.SERVER_SHUTTING_DOWN
        assert await new.closed() == b""
        assert await old.closed() == b""  # 3.1.1 has no word for it
        assert await silent[0].read() == b""
        assert running.popen.wait(STOPPING) == 0
        assert not control.exists()
        for writer in (new.writer, old.writer, away.writer, silent[1]):
            writer.close()
    assert running.lines()[-1]["event"] == "stopped"

    with process(tmp_path, NODE) as running:
        one_by_one = wire.Properties(session_expiry_interval=600, receive_maximum=1)
        back = await connect(running, "away", clean_start=False, properties=one_by_one)
        assert back.connack.session_present
        got = [await back.message() for _ in range(50 + acknowledged)]
        for qos in (1, 2):  # [MQTT-4.6.0-6] in order for the same topic and QoS
            in_order = [int(message.payload) for message in got if message.qos == qos]
            assert in_order == [one for one in range(50 + acknowledged) if one % 2 + 1 == qos]
        late = await connect(running, "late")
        await late.subscribe("kept", qos=1)
        message = await late.message()
        assert (message.topic, message.payload, message.retain) == ("kept", b"retained", True)
        for client in (back, late):
            client.writer.close()


def test_store_is_whole_after_the_end(tmp_path: Path) -> None:
    with process(tmp_path, NODE):
        pass
    database = tmp_path / "data" / "tidegate.db"
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert (
        not database.with_name("tidegate.db-wal").exists() or not database.with_name("tidegate.db-wal").stat().st_size
    )


@on_uvloop
async def test_client_that_does_not_read_does_not_keep_it_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.node.node.DRAIN", 0.2)
    async with from_file(tmp_path, NODE) as node:
        slow = await node.connect("slow")
        await slow.subscribe("t")
        slow.writer.transport.pause_reading()
        pub = await node.connect("pub")
        for _ in range(200):
            await pub.publish("t", bytes(50_000))
        await pub.silent()
        async with asyncio.timeout(PATIENCE):
            await node.node.close()
        assert (await pub.expect(wire.Disconnect)).reason == Reason.SERVER_SHUTTING_DOWN


def test_stop_over_the_control_socket(tmp_path: Path) -> None:
    with process(tmp_path, NODE) as running:
        control = running.control
        assert running.ask("stop") == {"stopping": True}
        assert running.popen.wait(STOPPING) == 0
        assert not control.exists()
        with pytest.raises(TidegateError, match="is the node running"):
            ask(control, "status")


@on_uvloop
async def test_wills_at_the_end(tmp_path: Path) -> None:
    """MQTT 5, 3.1.2.5: the Server may wait with wills until it is restarted; a persistent session's is not lost."""
    keep = {"properties": KEEP, "clean_start": False}
    async with from_file(tmp_path, NODE) as node:
        watcher = await node.connect("watcher", **keep)
        await watcher.subscribe("will/#", qos=1)
        await node.connect("dying", will=wire.Will(topic="will/kept", payload=b"gone", qos=1, retain=False), **keep)
    async with from_file(tmp_path, NODE) as node:
        watcher = await node.connect("watcher", **keep)
        assert watcher.connack.session_present
        message = await watcher.message()
        assert (message.topic, message.payload) == ("will/kept", b"gone")


def test_second_start_is_refused_clearly(tmp_path: Path) -> None:
    with process(tmp_path, NODE) as running:
        second = Process(running.file)
        assert second.popen.wait(15) == 1
        second.kill()
        (said,) = second.events("cannot start")
        assert f"is in use by process {running.pid}" in said["reason"]
        assert "Remedy: stop it" in said["reason"]
        second.check("cannot start")
        assert running.control.exists()
        assert running.ask("status")["pid"] == running.pid  # and the first one is none the worse


@on_uvloop
async def test_second_node_without_data_on_the_same_port_is_refused_clearly(tmp_path: Path) -> None:
    text = NODE.replace(", data: data", "")
    async with from_file(tmp_path, text) as first:
        with pytest.raises(TidegateError, match=r"another node runs here|cannot listen"):
            async with from_file(tmp_path, text.replace("WS_PORT", "OTHER_PORT").replace(":PORT", f":{first.port}")):
                pass
        await (await first.connect("c")).silent()


@on_uvloop
async def test_data_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for data in ("file", "file/data"):
        with pytest.raises(StoreError, match=r"file.*[Rr]emedy"):
            async with from_file(tmp_path, NODE.replace("data: data", f"data: {data}")):
                pass


# -- what it says about itself -----------------------------------------------------------------------------------


@on_uvloop
async def test_statistics(tmp_path: Path) -> None:
    async with from_file(tmp_path, NODE) as node:
        client = await node.connect("c")
        await client.subscribe("$SYS/#")
        seen: dict[str, bytes] = {}
        retained = set()

        async def read() -> None:
            while True:
                message = await client.message()
                seen[message.topic] = message.payload
                if message.retain:
                    retained.add(message.topic)

        reading = asyncio.create_task(read())
        expected = {
            "version",
            "uptime",
            "clients/connected",
            "clients/total",
            "publish/messages/received",
            "publish/messages/dropped",
            "messages/sent",
            "bytes/received",
            "subscriptions/count",
            "retained messages/count",
        }
        await until(lambda: {f"$SYS/broker/{name}" for name in expected} <= seen.keys())
        assert retained
        assert seen["$SYS/broker/version"].startswith(b"tidegate ")
        await node.connect("d")
        await until(lambda: seen["$SYS/broker/clients/connected"] == b"2")
        reading.cancel()


@on_uvloop
async def test_clients_cannot_publish_statistics() -> None:
    async with live() as node:
        sub = await node.connect("sub")
        await sub.subscribe("$SYS/#", "#", qos=1)
        pub, old = await node.connect("pub"), await node.connect("old", version=wire.V311)
        for topic in ("$SYS/broker/uptime", "$SYS", "$SYS/mine"):
            for retain in (False, True):
                await pub.publish(topic, b"forged", retain=retain)
                answer = await pub.publish(topic, b"forged", qos=1, retain=retain)
                assert isinstance(answer, wire.Puback)
                assert answer.reason == Reason.NOT_AUTHORIZED
                await pub.send(wire.Publish(topic=topic, payload=b"forged", qos=2, packet_id=999, retain=retain))
                assert (await pub.expect(wire.Pubrec)).reason == Reason.NOT_AUTHORIZED
                for qos in (0, 1, 2):
                    await old.publish(topic, b"forged", qos=qos, retain=retain)
        await sub.silent()
        assert node.node.scopes["main"].retained.get("$SYS/broker/uptime") is None
        will = wire.Will(topic="$SYS/mine", payload=b"forged", qos=0, retain=False)
        await node.connect("dying", will=will, expect=Reason.NOT_AUTHORIZED)


def test_status(tmp_path: Path) -> None:
    with process(tmp_path, NODE) as running:
        assert running.control == tmp_path / "data" / "control.sock"
        assert stat.S_IMODE(running.control.stat().st_mode) == 0o600
        status = running.ask("status")
        assert (status["node"], status["pid"], status["bugs"], status["refusing"]) == ("test", running.pid, 0, False)
        assert [one["port"] for one in status["listeners"]] == [running.ports["PORT"], running.ports["WS_PORT"]]
        assert status["numbers"]["clients/connected"] == 0
        with pytest.raises(TidegateError, match="no command 'fly'"):
            running.ask("fly")


async def test_status_counts(tmp_path: Path) -> None:
    with process(tmp_path, NODE.replace("100ms", "0s")) as running:
        client = await connect(running, "c")
        await client.subscribe("t", qos=1)
        for _ in range(10):
            await client.publish("t", b"x")
            await client.message()
        numbers = running.ask("status")["numbers"]
        assert numbers["clients/connected"] == 1
        assert numbers["publish/messages/received"] == 10
        assert numbers["subscriptions/count"] == 1
        assert running.ask("status")["listeners"][0]["connections"] == 1
        # published and gone in one go: counted all the same
        brief = await connect(running, "brief")
        packets = (wire.Publish(topic="t", payload=b"x"), wire.Disconnect())
        await brief.raw(b"".join(wire.encode(packet, wire.V5) for packet in packets))
        assert await brief.closed() == b""
        await client.message()
        assert running.ask("status")["numbers"]["publish/messages/received"] == 11
        for one in (client, brief):
            one.writer.close()
