"""`tidegate sub`: shows the messages of one or more filters, for people or for scripts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, assert_never

import typer

from tidegate.cli import terminal
from tidegate.cli.connection_options import (
    ConnectionOptions,
    Json,
    Qos,
    Require,
    UserProperties,
    with_connection_options,
)

if TYPE_CHECKING:
    from paho.mqtt.properties import Properties
    from paho.mqtt.subscribeoptions import SubscribeOptions

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
    json: Json = False,
    count: Annotated[int | None, typer.Option("-C", "--count", help="End after this many messages.", min=1)] = None,
    wait: Annotated[
        float | None,
        typer.Option("-W", "--timeout", help="End after this many seconds.", metavar="SECONDS", min=0.0),
    ] = None,
    no_local: Annotated[
        bool, typer.Option("--no-local", help="Not what this client published itself (MQTT 5).")
    ] = False,
    no_retained: Annotated[bool, typer.Option("--no-retained", help="Not what was retained before (MQTT 5).")] = False,
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
        bool, typer.Option("--encrypt", help="Open what is sealed, as --private-key does by itself; needs that.")
    ] = False,
) -> None:
    """Subscribe and show messages as they arrive.

    Ends with Ctrl-C, after --count messages or after --timeout seconds.

    With --private-key messages of protected topics are opened. What cannot be opened is shown as it came, with why.

    Exit code 1: the broker refused, or fewer than --count messages came in time.

    [dim]tidegate sub -v -t 'gym/+/speed' -t status[/dim]
    """
    from tidegate import topics
    from tidegate.cli.connection import run
    from tidegate.cli.properties import subscribe_options, subscribe_properties

    for each in filters:
        if not topics.valid_filter(each):
            terminal.usage(f"`{each}` is not a filter: + and # stand alone between slashes, # at the end")
    if encrypt and connection_options.private_key is None:
        terminal.usage("--encrypt needs --private-key: keys are given to whom it belongs")
    about = subscribe_properties(connection_options, user=properties, require=require, where=where)
    wanted = subscribe_options(
        connection_options,
        qos=qos,
        no_local=no_local,
        no_retained=no_retained,
        retain_as_published=retain_as_published,
    )
    style = _Style.JSON if json else _Style.VERBOSE if verbose else _Style.PAYLOAD
    shown = _Shown(style=style, opening=connection_options.private_key is not None)
    run(
        _receive(connection_options, filters, wanted, about, shown, count, wait, verbose=verbose),
        interrupt_is_fine=True,
    )
    if count is not None and shown.count < count and wait is not None:
        terminal.fail(f"only {shown.count} of {count} messages came within {wait:g} s")


class _Style(Enum):
    PAYLOAD = "payload"
    VERBOSE = "verbose"
    JSON = "json"


@dataclass(slots=True)
class _Shown:
    """Writes messages and counts them."""

    style: _Style
    opening: bool
    """Whether sealed messages are to be opened; otherwise they are bytes as any others."""
    count: int = 0

    def show(self, message: Message) -> None:
        about: dict[str, str] = {}
        if self.opening and message.sealed_by is not None:
            about["key"] = message.sealed_by
        if self.opening and message.error is not None:
            about["not_opened"] = str(message.error)
            if isinstance(rule := getattr(message.error, "rule", None), str):
                about["rule"] = rule
        match self.style:
            case _Style.JSON:
                _json(message, about)
            case _Style.VERBOSE:
                _verbose(message, about)
            case _Style.PAYLOAD:
                _payload(message.payload)
                if "not_opened" in about:
                    terminal.error(f"{message.topic}: not opened: {about['not_opened']}")
            case _:
                assert_never(self.style)
        self.count += 1


def _payload(payload: bytes) -> None:
    """The very bytes, so that they can be piped; a terminal gets no control characters from strangers."""
    if sys.stdout.isatty():
        payload = terminal.harmless(payload.decode(errors="replace")).encode()
    sys.stdout.buffer.write(payload + b"\n")
    sys.stdout.buffer.flush()


def _verbose(message: Message, about: dict[str, str]) -> None:
    from rich.text import Text

    from tidegate.cli.properties import plain

    flags = f"QoS {message.qos}" + (", retained" if message.retain else "")
    for name, value in plain(message.properties).items():
        if name == "user":
            scored = message.scores is not None
            flags += "".join(f", {key}={word}" for key, word in value if not (scored and key == "scores"))
            if message.scores:
                flags += f", scores {' '.join(_score(*each) for each in message.scores.items())}"
        else:
            flags += f", {name.replace('_', ' ')} {value}"
    if "key" in about:
        flags += f", key {about['key']}"
    if "not_opened" in about:
        flags += f", not opened: {about['not_opened']}"
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


def _json(message: Message, about: dict[str, str]) -> None:
    from tidegate.cli.properties import plain, text_or_base64

    terminal.print_json(
        {
            "topic": message.topic,
            "payload": text_or_base64(message.payload),
            "qos": message.qos,
            "retain": message.retain,
            "properties": plain(message.properties),
            **about,
        }
    )


async def _receive(
    connection_options: ConnectionOptions,
    filters: list[str],
    wanted: SubscribeOptions,
    properties: Properties | None,
    shown: _Shown,
    count: int | None,
    wait: float | None,
    *,
    verbose: bool,
) -> None:
    import asyncio

    from tidegate.cli.connection import connect

    async with connect(connection_options) as connection:
        try:
            async with asyncio.timeout(wait):
                held = await connection.subscribe(*filters, options=wanted, properties=properties)
                if verbose:
                    terminal.note(f"subscribed to {', '.join(filters)}")
                if held:
                    terminal.note(f"held until somebody allows it: {', '.join(held)}")
                async for message in connection.messages:
                    shown.show(message)
                    if shown.count == count:
                        break
        except TimeoutError:
            return  # --timeout is one of the ways this is meant to end; the caller compares the count
