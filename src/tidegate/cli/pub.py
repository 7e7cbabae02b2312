"""`tidegate pub`: publishes one message, a file, or each line of standard input."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.connection_options import ConnectionOptions, with_connection_options
from tidegate.cli.options import JsonLines, Qos, Require, Retain, UserProperties


@with_connection_options
def pub(
    connection_options: ConnectionOptions,
    topic: Annotated[str, typer.Option("-t", "--topic", help="Topic to publish to.")],
    message: Annotated[str | None, typer.Option("-m", "--message", help="Payload.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", help="Publish the content of a file.", exists=True, dir_okay=False),
    ] = None,
    lines: Annotated[bool, typer.Option("-l", "--stdin-lines", help="Publish each line of standard input.")] = False,
    null: Annotated[
        bool, typer.Option("-n", "--null", help="Publish an empty payload; with -r, delete the retained message.")
    ] = False,
    qos: Qos = 0,
    retain: Retain = False,
    properties: UserProperties = None,
    expiry: Annotated[
        int | None,
        typer.Option("--expiry", help="Seconds until the message expires (MQTT 5).", min=0, max=0xFFFFFFFF),
    ] = None,
    response_topic: Annotated[
        str | None, typer.Option("--response-topic", help="Topic for responses (MQTT 5).")
    ] = None,
    correlation: Annotated[
        str | None, typer.Option("--correlation", help="Correlation data for responses (MQTT 5).")
    ] = None,
    content_type: Annotated[
        str | None, typer.Option("--content-type", help="Type of the payload, such as text/plain (MQTT 5).")
    ] = None,
    require: Require = None,
    view: Annotated[
        str | None,
        typer.Option(
            "--view",
            help='Who may see what: \'{"group:doctors": ["/illness"], "user:andrew": "all"}\' (MQTT 5).',
            metavar="JSON",
        ),
    ] = None,
    encrypt: Annotated[
        bool,
        typer.Option("--encrypt", help="Encrypt end to end with the key of the topic. Needs --private-key."),
    ] = False,
    json: JsonLines = False,
) -> None:
    """Publish a message.

    With QoS 1 and 2 it waits for the broker's answer. Exit code 1: the broker refused.

    [dim]tidegate pub -t gym/1/speed -m 12.5 -q 1[/dim]
    """
    from paho.mqtt.packettypes import PacketTypes

    from tidegate import topics
    from tidegate.cli.broker_connection import connect, message_properties, run

    if not topics.valid_topic(topic):
        terminal.usage(f"`{topic}` is not a topic: it must not be empty nor contain + or #")
    if sum((message is not None, file is not None, lines, null)) != 1:
        terminal.usage("say what to publish: one of --message, --file, --stdin-lines, --null")
    if encrypt and connection_options.private_key is None:
        terminal.usage("--encrypt needs --private-key: the key to seal with is given to whom it belongs")
    about = message_properties(
        connection_options,
        PacketTypes.PUBLISH,
        properties,
        instructions={"require": require, "view": view},
        MessageExpiryInterval=expiry,
        ResponseTopic=response_topic,
        CorrelationData=None if correlation is None else correlation.encode(),
        ContentType=content_type,
    )
    payloads = _stdin_lines() if lines else _single(b"" if null else _payload(message, file))

    async def publish() -> None:
        async with connect(connection_options) as connection:
            async for payload in payloads:
                reason = await connection.publish(
                    topic, payload, qos=qos, retain=retain, encrypt=encrypt, properties=about
                )
                if json:
                    answer = {"topic": topic, "qos": qos, "retain": retain, "bytes": len(payload)}
                    if reason is not None:
                        answer |= {"code": reason.value, "reason": reason.getName()}
                    terminal.print_json(answer)

    run(publish())


def _payload(message: str | None, file: Path | None) -> bytes:
    if file is None:
        return (message or "").encode(errors="surrogateescape")
    try:
        return file.read_bytes()
    except OSError as broken:
        terminal.fail(f"{file}: {broken.strerror}")


async def _single(payload: bytes) -> AsyncIterator[bytes]:
    yield payload


async def _stdin_lines() -> AsyncIterator[bytes]:
    """Lines without their ends. Read in a thread, because a file as standard input cannot be waited for."""
    import asyncio

    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=16)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        # os.read and not sys.stdin: its lock, held by a daemon thread, would abort the interpreter at exit.
        rest = b""
        while chunk := os.read(descriptor, 65536):
            *complete, rest = (rest + chunk).split(b"\n")
            for line in complete:
                asyncio.run_coroutine_threadsafe(queue.put(line.removesuffix(b"\r")), loop).result()
        if rest:
            asyncio.run_coroutine_threadsafe(queue.put(rest), loop).result()
        asyncio.run_coroutine_threadsafe(queue.put(None), loop).result()

    threading.Thread(target=read, daemon=True, name="stdin").start()
    while (line := await queue.get()) is not None:
        yield line
