"""`tidegate pub` and `tidegate sub` against a real Mosquitto and against our own node."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.driving import TIDEGATE, Tidegate, command, mosquitto_program, running, subscriber
from harness import PATIENCE, free_port
from tidegate.cli import certificates


async def published(port: int, *arguments: object, **variables: str) -> tuple[str, str]:
    """`tidegate pub` ran well; its output and errors."""
    async with command("pub", "-p", port, *arguments, **variables) as process:
        out, err = await process.communicate()
        assert process.returncode == 0, err
        return out.decode(), err.decode()


async def messages(process: asyncio.subprocess.Process) -> list[dict[str, Any]]:
    """What a subscriber with --json printed until it ended."""
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("protocol", ["5", "311"])
async def test_what_is_published_is_received(broker: int, protocol: str) -> None:
    async with subscriber(broker, "-t", "basic/+", "-C", 3, "--json", "--protocol", protocol, "-q", 2) as process:
        for qos in (0, 1, 2):
            await published(broker, "-t", f"basic/{qos}", "-m", "grüße", "--protocol", protocol, "-q", qos)
        received = await messages(process)
    assert received == [
        {"topic": f"basic/{qos}", "payload": "grüße", "qos": qos, "retain": False, "properties": {}}
        for qos in (0, 1, 2)
    ]


async def test_properties_travel(broker: int) -> None:
    async with subscriber(broker, "-t", "props", "-C", 1, "--json") as process:
        await published(
            *(broker, "-t", "props", "-m", "x", "-D", "a=1", "--property", "a=2=3"),
            *("--expiry", 60, "--response-topic", "answers", "--correlation", "c7", "--content-type", "text/plain"),
        )
        [message] = await messages(process)
    assert message["properties"] == {
        "content_type": "text/plain",
        "response_topic": "answers",
        "correlation": "c7",
        "expiry": 60,
        "user": [["a", "1"], ["a", "2=3"]],
    }


@pytest.mark.parametrize("broker", ["node"], indirect=True)
async def test_a_demand_a_view_and_a_condition(broker: int) -> None:
    """What Tidegate reads of user properties has options of its own."""
    async with subscriber(broker, "-t", "data", "-C", 2, "--json", "--where", "o.payload.a > 1") as process:
        for payload, options in (
            ('{"a": 5}', ("--require", "tls")),
            ('{"a": 1, "b": 2}', ()),
            ('{"a": 2, "b": 2}', ("--view", '{"*": ["/a"]}', "-D", "hidden=1")),
            ('{"a": 3, "b": 2}', ("--require", "none")),
        ):
            await published(broker, "-t", "data", "-m", payload, "-q", 1, *options)
        found = await messages(process)
    assert [message["payload"] for message in found] == ['{"a":2}', '{"a": 3, "b": 2}']
    assert "user" not in found[0].get("properties", {})


async def test_a_backup_while_the_host_does_not_answer(broker: int) -> None:
    away = ("--backup", f"127.0.0.1:{broker}", "--attempts", 2, "--interval", 0.05)
    async with subscriber(free_port(), "-t", "kept", "-C", 1, "--json", "-q", 1, *away) as process:
        await published(free_port(), "-t", "kept", "-m", "x", "-q", 1, *away)
        assert [each["payload"] for each in await messages(process)] == ["x"]


async def test_lines_of_standard_input(broker: int) -> None:
    async with (
        subscriber(broker, "-t", "lines", "-C", 4, "--json", "-q", 1) as process,
        command("pub", "-p", broker, "-t", "lines", "-l", "-q", 1, "--json") as publisher,
    ):
        out, err = await publisher.communicate(b"one\r\ntwo\n\nlast without end")
        assert publisher.returncode == 0, err
        assert [json.loads(line)["bytes"] for line in out.splitlines()] == [3, 3, 0, 16]
        assert [each["payload"] for each in await messages(process)] == ["one", "two", "", "last without end"]


async def test_a_file_and_bytes_that_are_not_text(broker: int, tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"\x00\xff\r\n\x1b[31m")
    async with subscriber(broker, "-t", "bytes", "-C", 1, "--json") as process:
        await published(broker, "-t", "bytes", "--file", tmp_path / "payload")
        [message] = await messages(process)
    assert message["payload"] == {"base64": "AP8NChtbMzFt"}
    async with command("sub", "-p", broker, "-t", "kept", "-C", 1) as plain:
        await published(broker, "-t", "kept", "--file", tmp_path / "payload", "-r")
        out, _ = await plain.communicate()
    assert out == b"\x00\xff\r\n\x1b[31m\n", "piped, the very bytes"
    async with subscriber(broker, "-t", "kept", "-C", 1) as verbose:
        out, _ = await verbose.communicate()
    assert b"\x1b" not in out
    assert b"kept " in out
    assert b"(QoS 0, retained)" in out
    await published(broker, "-t", "kept", "-n", "-r")


def test_retained_messages_are_kept_and_forgotten(broker: int, tidegate: Tidegate) -> None:
    assert tidegate("pub", "-p", broker, "-t", "ret/1", "-m", "v", "-r", "-q", 1).returncode == 0
    assert tidegate("sub", "-p", broker, "-t", "ret/+", "-C", 1, "-W", 10).stdout == "v\n"
    assert tidegate("sub", "-p", broker, "-t", "ret/+", "--no-retained", "-W", 0.3).stdout == ""
    assert tidegate("pub", "-p", broker, "-t", "ret/1", "-n", "-r", "-q", 1).returncode == 0
    assert tidegate("sub", "-p", broker, "-t", "ret/+", "-W", 0.3).stdout == ""


def test_a_session_is_kept_and_resumed(broker: int, tidegate: Tidegate) -> None:
    session = ("-i", "sleeper", "--no-clean", "--session-expiry", 60, "-q", 1)
    assert tidegate("sub", "-p", broker, "-t", "kept/#", *session, "-W", 0.3).returncode == 0
    assert tidegate("pub", "-p", broker, "-t", "kept/1", "-m", "while away", "-q", 1).returncode == 0
    again = tidegate("sub", "-p", broker, "-t", "kept/#", *session, "-C", 1, "-W", 10)
    assert again.stdout == "while away\n"
    tidegate("sub", "-p", broker, "-t", "x", "-i", "sleeper", "-W", 0.1)


async def test_a_will_is_published_when_the_client_dies(broker: int) -> None:
    will = ("--will-topic", "wills/x", "--will-message", "gone", "--will-qos", 1)
    async with subscriber(broker, "-t", "wills/#", "-C", 1, "--json") as watcher:
        async with subscriber(broker, "-t", "other", *will) as dying:
            dying.kill()
            await dying.wait()
        [message] = await messages(watcher)
    assert message["payload"] == "gone"


async def test_several_filters_and_no_local(broker: int) -> None:
    async with subscriber(broker, "-t", "f/1", "-t", "f/2/#", "-C", 2, "--json") as process:
        for topic in ("f/1", "f/3", "f/2/x"):
            await published(broker, "-t", topic, "-m", topic)
        assert [each["payload"] for each in await messages(process)] == ["f/1", "f/2/x"]


async def test_ctrl_c_ends_a_subscriber_well(mosquitto: int) -> None:
    async with subscriber(mosquitto, "-t", "x") as process:
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert process.returncode == 0
        assert err == b""


async def test_ctrl_c_ends_a_publisher_that_waits_for_input(mosquitto: int) -> None:
    async with (
        subscriber(mosquitto, "-t", "typed", "-C", 1) as process,
        command("pub", "-p", mosquitto, "-t", "typed", "-l") as publisher,
    ):
        assert publisher.stdin is not None
        publisher.stdin.write(b"first\n")
        async with asyncio.timeout(PATIENCE):
            await process.wait()
            publisher.send_signal(signal.SIGINT)
            assert await publisher.wait() == 1
        assert publisher.stderr is not None
        assert await publisher.stderr.read() == b"error: interrupted\n"


async def test_a_reader_that_leaves_is_no_error_to_shout_about(mosquitto: int) -> None:
    async with subscriber(mosquitto, "-t", "pipe/#") as process:
        assert process.stdout is not None
        process.stdout._transport.close()  # type: ignore[attr-defined]
        for _ in range(3):
            await published(mosquitto, "-t", "pipe/x", "-m", "x", "-q", 1)
        async with asyncio.timeout(PATIENCE):
            await process.wait()
        assert process.stderr is not None
        assert b"Traceback" not in await process.stderr.read()


@pytest.mark.parametrize("how", ["mosquitto mqtts", "node mqtts", "node ws", "node wss"])
def test_tls_and_websocket(how: str, tidegate: Tidegate, tmp_path: Path) -> None:
    certificates.make_ca(tmp_path, "test", 1)
    certificates.issue(tmp_path, "broker", ["127.0.0.1"], False, 1)
    port = free_port()
    server, scheme = how.split()
    if server == "mosquitto":
        file = tmp_path / "mosquitto.conf"
        lines = ["user root", f"listener {port} 127.0.0.1", "allow_anonymous true"]
        lines += [f"certfile {tmp_path}/broker.pem", f"keyfile {tmp_path}/broker.key"]
        program = [mosquitto_program(), "-c", str(file)]
    else:
        file = tmp_path / "tidegate.yaml"
        tls = "" if scheme == "ws" else ", cert: broker.pem, key: broker.key"
        lines = ["version: 1", "node: {name: n}", "policies: open", "listeners:"]
        url = f"{scheme}://127.0.0.1:{port}/{'' if scheme == 'mqtts' else 'mqtt'}"
        lines += [f"  - {{url: '{url}', anonymous: true{tls}}}"]
        program = [TIDEGATE, "run", "-c", str(file)]
    file.write_text("\n".join(lines) + "\n")
    path = ("--ws", "/mqtt") if scheme.startswith("ws") else ()
    trust = () if scheme == "ws" else ("--cafile", "ca.pem")
    with running(program, port, tmp_path / "log"):
        sent = tidegate("pub", "-p", port, "-t", "secret", "-m", "x", "-q", 1, "-r", *trust, *path)
        assert (sent.returncode, sent.stderr) == (0, "")
        if trust:
            distrusted = tidegate("pub", "-p", port, "-t", "a", "-m", "x", "--tls", *path)
            assert distrusted.returncode == 1
            assert "certificate verify failed" in distrusted.stderr
        received = tidegate("sub", "-p", port, "-t", "secret", "-C", 1, "-W", 10, *(trust and ("--insecure",)), *path)
        assert (received.stdout, received.stderr) == ("x\n", "")


def test_users_and_denials_of_mosquitto(tidegate: Tidegate, tmp_path: Path) -> None:
    port = free_port()
    subprocess.run(
        ["mosquitto_passwd", "-b", "-c", str(tmp_path / "pw"), "mary", "secret"], check=True, capture_output=True
    )
    (tmp_path / "acl").write_text("user mary\ntopic write w/#\n")
    lines = ["user root", f"listener {port} 127.0.0.1", "allow_anonymous false"]
    lines += [f"password_file {tmp_path}/pw", f"acl_file {tmp_path}/acl"]
    (tmp_path / "mosquitto.conf").write_text("\n".join(lines) + "\n")
    with running([mosquitto_program(), "-c", str(tmp_path / "mosquitto.conf")], port, tmp_path / "log"):
        for protocol in ("5", "311"):
            stranger = tidegate("pub", "-p", port, "-t", "w/1", "-m", "x", "--protocol", protocol)
            assert stranger.returncode == 1
            assert "refused the connection: Not authorized (0x87); check --user and --password" in stranger.stderr
        mary = ("-p", port, "-u", "mary", "-m", "x")
        assert tidegate("pub", *mary, "-P", "secret", "-t", "w/1", "-q", 1).returncode == 0
        assert tidegate("pub", *mary, "-t", "w/1", "-q", 2, TIDEGATE_PASSWORD="secret").returncode == 0
        for qos in (1, 2):
            denied = tidegate("pub", *mary, "-P", "secret", "-t", "other", "-q", qos)
            assert denied.returncode == 1
            assert "the publish to `other` was refused: Not authorized (0x87)" in denied.stderr
