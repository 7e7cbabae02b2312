"""`tidegate sub`: shows the messages of one or more filters, for people or for scripts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.connection_options import ConnectionOptions, with_connection_options
from tidegate.cli.options import JsonLines, Qos, Require, UserProperties

if TYPE_CHECKING:
    from tidegate.client import Message


@with_connection_options
def sub(
    connection_options: ConnectionOptions,
    filters: Annotated[
        list[str], typer.Option("-t", "--topic", help="Filter to subscribe to. Repeatable.", metavar="FILTER")
    ],
    qos: Qos = 0,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show topic, QoS, flags and properties too.")
    ] = False,
    json: JsonLines = False,
    count: Annotated[int | None, typer.Option("-C", "--count", help="End after this many messages.", min=1)] = None,
    wait: Annotated[
        float | None,
        typer.Option("-W", "--timeout", help="End after this many seconds.", metavar="SECONDS", min=0.0),
    ] = None,
    no_local: Annotated[
        bool, typer.Option("--no-local", help="Leave out messages that this client published (MQTT 5).")
    ] = False,
    no_retained: Annotated[bool, typer.Option("--no-retained", help="Leave out retained messages (MQTT 5).")] = False,
    retain_as_published: Annotated[
        bool, typer.Option("--retain-as-published", help="Keep the retain flag as it was set (MQTT 5).")
    ] = False,
    properties: UserProperties = None,
    require: Require = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", help="Only messages that meet this condition: 'o.payload.level > 3' (MQTT 5).", metavar="CEL"
        ),
    ] = None,
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Decrypt messages. Needs --private-key, which implies it.")
    ] = False,
) -> None:
    """Subscribe and show messages as they arrive.

    Ends with Ctrl-C, after --count messages or after --timeout seconds.

    With --private-key messages of protected topics are opened. What cannot be opened is shown as it came, with why.

    Exit code 1: the broker refused, or fewer than --count messages came in time.

    [dim]tidegate sub -v -t 'gym/+/speed' -t status[/dim]
    """
    import asyncio

    from paho.mqtt.packettypes import PacketTypes

    from tidegate import topics
    from tidegate.cli.broker_connection import connect, message_properties, run, subscribe_options

    for each in filters:
        if not topics.valid_filter(each):
            terminal.usage(f"`{each}` is not a filter: + and # stand alone between slashes, # at the end")
    if encrypt and connection_options.private_key is None:
        terminal.usage("--encrypt needs --private-key: keys are given to whom it belongs")
    about = message_properties(
        connection_options, PacketTypes.SUBSCRIBE, properties, instructions={"require": require, "where": where}
    )
    wanted = subscribe_options(
        connection_options,
        qos=qos,
        no_local=no_local,
        no_retained=no_retained,
        retain_as_published=retain_as_published,
    )
    show = _json if json else _verbose if verbose else _payload
    opens = connection_options.private_key is not None  # otherwise sealed messages are bytes as any others
    shown = 0

    async def receive() -> None:
        nonlocal shown
        async with connect(connection_options) as connection:
            try:
                async with asyncio.timeout(wait):
                    held = await connection.subscribe(*filters, options=wanted, properties=about)
                    if verbose:
                        terminal.note(f"subscribed to {', '.join(filters)}")
                    if held:
                        terminal.note(f"held until somebody allows it: {', '.join(held)}")
                    async for message in connection.messages:
                        show(message, _sealing(message) if opens else {})
                        shown += 1
                        if shown == count:
                            break
            except TimeoutError:
                return  # --timeout is one of the ways this is meant to end; the count is compared below

    run(receive(), interrupt_is_fine=True)
    if count is not None and shown < count and wait is not None:
        terminal.fail(f"only {shown} of {count} messages came within {wait:g} s")


def _sealing(message: Message) -> dict[str, str]:
    """Which key a message was sealed with, and why it was not opened."""
    sealing: dict[str, str] = {}
    if message.sealed_by is not None:
        sealing["key"] = message.sealed_by
    if message.error is not None:
        sealing["not_opened"] = str(message.error)
        if isinstance(rule := getattr(message.error, "rule", None), str):
            sealing["rule"] = rule
    return sealing


def _payload(message: Message, sealing: dict[str, str]) -> None:
    """The very bytes, so that they can be piped; a terminal gets no control characters from strangers."""
    payload = message.payload
    if sys.stdout.isatty():
        payload = terminal.harmless(payload.decode(errors="replace")).encode()
    sys.stdout.buffer.write(payload + b"\n")
    sys.stdout.buffer.flush()
    if "not_opened" in sealing:
        terminal.error(f"{message.topic}: not opened: {sealing['not_opened']}")


def _verbose(message: Message, sealing: dict[str, str]) -> None:
    from rich.text import Text

    from tidegate.cli.broker_connection import plain

    flags = f"QoS {message.qos}" + (", retained" if message.retain else "")
    for name, value in plain(message.properties).items():
        if name == "user":
            scored = message.scores is not None
            flags += "".join(f", {key}={word}" for key, word in value if not (scored and key == "scores"))
            if message.scores:
                flags += f", scores {' '.join(_score(*each) for each in message.scores.items())}"
        else:
            flags += f", {name.replace('_', ' ')} {value}"
    if "key" in sealing:
        flags += f", key {sealing['key']}"
    if "not_opened" in sealing:
        flags += f", not opened: {sealing['not_opened']}"
    line = Text.assemble(
        (terminal.harmless(message.topic, lines=False), "bold cyan"),
        " ",
        terminal.harmless(message.payload.decode(errors="replace")),
        "  ",
        (f"({terminal.harmless(flags, lines=False)})", "dim"),
    )
    terminal.out().print(line)


def _score(dimension: str, score: object) -> str:
    """Short: `timeliness 0.83`."""
    return f"{dimension} {score:.2g}" if isinstance(score, int | float) else f"{dimension} {score}"


def _json(message: Message, sealing: dict[str, str]) -> None:
    from tidegate.cli.broker_connection import plain
    from tidegate.explain.as_json import text_or_base64

    terminal.print_json(
        {
            "topic": message.topic,
            "payload": text_or_base64(message.payload),
            "qos": message.qos,
            "retain": message.retain,
            "properties": plain(message.properties),
            **sealing,
        }
    )
