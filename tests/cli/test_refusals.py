"""What a broker says no with is what the user reads. A scripted broker says each no there is."""

from __future__ import annotations

import pytest

from cli.driving import command, scripted

CONNACK = bytes.fromhex("20 03 00 00 00")
REASON = bytes.fromhex("1f 0004 6e6f7065")  # reason string "nope"


async def said(*arguments: object) -> str:
    """The error of a command that must fail with exit code 1."""
    async with command(*arguments) as process:
        out, err = await process.communicate()
    assert process.returncode == 1, (out, err)
    assert out == b""
    [line] = err.decode().splitlines()
    return line


async def test_connack_with_a_reason() -> None:
    async with scripted(bytes.fromhex("20 0a 00 97 07") + REASON) as (port, _):
        line = await said("pub", "-p", port, "-t", "a", "-m", "x")
    assert line == f"error: 127.0.0.1:{port} refused the connection: Quota exceeded (0x97); nope"


async def test_connack_of_mqtt_311() -> None:
    async with scripted(bytes.fromhex("20 02 00 04")) as (port, _):
        line = await said("sub", "-p", port, "-t", "a", "--protocol", 311, "-u", "mary", "-P", "x")
    assert line.startswith(f"error: 127.0.0.1:{port} refused the connection: Bad user name or password (0x86)")


@pytest.mark.parametrize(
    ("qos", "answer"),
    [(1, "40 04 0001 87 00"), (1, "40 03 0001 87"), (2, "50 04 0001 87 00"), (2, "50 03 0001 87")],
)
async def test_a_denied_publish(qos: int, answer: str) -> None:
    async with scripted(CONNACK, bytes.fromhex(answer), b"") as (port, received):
        line = await said("pub", "-p", port, "-t", "a/b", "-m", "x", "-q", qos)
    assert (
        line == "error: the publish to `a/b` was refused: Not authorized (0x87); no rule allows it, or a rule denies it"
    )
    assert received[2][0] == 0xE0, "DISCONNECT, and no PUBREL [MQTT-4.3.3-4]"


async def test_a_denied_publish_with_a_reason_in_words() -> None:
    async with scripted(CONNACK, bytes.fromhex("50 0b 0001 99 07") + REASON, b"") as (port, _):
        line = await said("pub", "-p", port, "-t", "a", "-m", "x", "-q", 2)
    assert line == "error: the publish to `a` was refused: Payload format invalid (0x99); nope"


async def test_a_denied_subscription() -> None:
    async with scripted(CONNACK, bytes.fromhex("90 05 0001 00 00 87"), b"") as (port, _):
        line = await said("sub", "-p", port, "-t", "ok", "-t", "secret/#")
    assert line.startswith("error: the subscription to `secret/#` was refused: Not authorized (0x87)")


async def test_a_denied_subscription_of_mqtt_311() -> None:
    async with scripted(bytes.fromhex("20 02 00 00"), bytes.fromhex("90 03 0001 80"), b"") as (port, _):
        line = await said("sub", "-p", port, "-t", "secret", "--protocol", 311)
    assert line == "error: the subscription to `secret` was refused: Unspecified error (0x80)"


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_disconnect_instead_of_an_answer(qos: int) -> None:
    async with scripted(CONNACK, bytes.fromhex("e0 02 95 00")) as (port, _):
        line = await said("pub", "-p", port, "-t", "a", "-m", "x", "-q", qos)
    assert line == (
        "error: the broker closed the connection: Packet too large (0x95); "
        "the message is larger than the broker accepts"
    )


async def test_a_disconnect_while_messages_are_awaited() -> None:
    suback = bytes.fromhex("90 04 0001 00 00")
    async with scripted(CONNACK, suback + bytes.fromhex("e0 01 8b")) as (port, _):
        line = await said("sub", "-p", port, "-t", "a")
    assert line.startswith("error: the broker closed the connection: Server shutting down (0x8b)")


async def test_a_connection_that_breaks() -> None:
    async with scripted(CONNACK, b"") as (port, _):
        line = await said("pub", "-p", port, "-t", "a", "-m", "x", "-q", 1)
    assert line == "error: the broker closed the connection without a word"


async def test_a_broker_that_does_not_answer() -> None:
    async with scripted(b"", b"") as (port, _):
        line = await said("pub", "-p", port, "-t", "a", "-m", "x", "--answer-timeout", 0.3)
    assert line == f"error: cannot connect to 127.0.0.1:{port}: it does not answer"
    async with scripted(CONNACK, b"", b"", b"") as (port, _):
        line = await said("pub", "-p", port, "-t", "a", "-m", "x", "-q", 1, "--answer-timeout", 0.3)
    assert line == "error: no answer from the broker: Operation timed out"


async def test_what_a_broker_says_cannot_paint_the_terminal() -> None:
    evil = bytes.fromhex("1f 0008 1b5b33316d48690a")
    async with scripted(bytes.fromhex("20 0e 00 97 0b") + evil) as (port, _):
        line = await said("pub", "-p", port, "-t", "a", "-m", "x")
    assert "\x1b" not in line
