"""Options and arguments that several commands share, and how their values are read."""

from __future__ import annotations

import functools
import inspect
import json
import time
from collections.abc import Callable, Iterable
from datetime import tzinfo
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli import terminal

File = Annotated[Path, typer.Argument(help="Configuration file.", show_default=False)]
_config = typer.Option("-c", "--config", help="Configuration of the node.", metavar="FILE", show_default=False)
Config = Annotated[Path, _config]
OptionalConfig = Annotated[Path | None, _config]
Socket = Annotated[
    Path | None,
    typer.Option("--socket", help="Control socket of the node. Default: as configured.", show_default=False),
]
Port = Annotated[int, typer.Option("--port", help="Port of an ephemeral node (one without a file).", min=1, max=65535)]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Write JSON, one object per line.")]
Qos = Annotated[int, typer.Option("-q", "--qos", help="Quality of service.", min=0, max=2)]
Retain = Annotated[bool, typer.Option("-r", "--retain", help="The broker keeps the message for later subscribers.")]
UserProperties = Annotated[
    list[str] | None,
    typer.Option("-D", "--property", help="User property (MQTT 5). Repeatable.", metavar="NAME=VALUE"),
]
Require = Annotated[
    str | None,
    typer.Option(
        "--require",
        help="Levels and facts to demand of every connection on the way, with commas between them; `none` relaxes "
        "(user property `require`).",
        metavar="LEVEL",
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", help="From this time on: a time, or how long ago (`1h`, `2d`).", metavar="TIME"),
]
Until = Annotated[
    str | None, typer.Option("--until", help="Before this time: a time, or how long ago.", metavar="TIME")
]


def with_options(
    run: Callable[..., None], shared: type, own: Iterable[inspect.Parameter] | None = None
) -> Callable[..., None]:
    """A command with its own parameters and, after them, an option for each field of the dataclass `shared`.

    `run` gets an instance of `shared` first. Its own parameters are those of its signature, unless they are given.
    """
    fields = inspect.signature(shared, eval_str=True).parameters
    _, *written = inspect.signature(run, eval_str=True).parameters.values()
    every = (*(written if own is None else own), *fields.values())

    @functools.wraps(run)
    def command(**given: Any) -> None:
        run(shared(**{name: given.pop(name) for name in fields}), **given)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in every]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def name_and_value(text: str, what: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE. Ends the command if `text` is not written so."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        terminal.usage(f"`{text}` is not {what}: write NAME=VALUE")
    return name, value


def attribute(text: str) -> tuple[str, Any]:
    """An attribute and its value: JSON if it is valid JSON, else the text itself."""
    name, value = name_and_value(text, "an attribute")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parse_time(written: str, option: str, zone: tzinfo) -> float:
    """Seconds since 1970. `zone` is that of a time without one. Ends the command if the text is not a time."""
    from tidegate.config import units

    try:
        return time.time() - units.duration(written)
    except ValueError:
        pass  # it does not say how long ago, so it says when
    try:
        moment = units.moment(written)
    except ValueError:
        terminal.usage(f"{option} is a time such as 2026-03-02T09:30, or how long ago: 30m, 1h, 2d")
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
