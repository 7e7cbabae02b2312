"""`tidegate explain`: why somebody may or may not do something, by a configuration and without a running node."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.config import Config


class Deed(StrEnum):
    """What somebody does with a topic."""

    READ = "read"
    WRITE = "write"
    SUBSCRIBE = "subscribe"


def explain(
    file: Annotated[Path, typer.Argument(help="Configuration file.", show_default=False)],
    subject: Annotated[
        str,
        typer.Option(
            "--as",
            help="Who acts: user:mary, client:tr1, user:mary/client:tr1; link:A->B or scope:A forwards (write) and "
            "imports (read).",
            metavar="SUBJECT",
        ),
    ],
    action: Annotated[Deed, typer.Option("--action", help="What they do.")],
    topic: Annotated[str, typer.Option("-t", "--topic", help="The topic; for subscribe, the filter.")],
    publisher: Annotated[
        str | None,
        typer.Option("--from", help="For read: who published the message.", metavar="SUBJECT"),
    ] = None,
    payload: Annotated[
        str | None, typer.Option("-m", "--payload", help="Content of the message.", metavar="JSON")
    ] = None,
    qos: Annotated[int, typer.Option("-q", "--qos", help="QoS of the message.", min=0, max=2)] = 0,
    retain: Annotated[bool, typer.Option("-r", "--retain", help="The message is retained.")] = False,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "-D",
            "--property",
            help="User property of the message; for subscribe, of the subscription. Repeatable.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    where: Annotated[str | None, typer.Option("--where", help="Condition of the subscription.", metavar="CEL")] = None,
    require: Annotated[
        str | None,
        typer.Option("--require", help="Level that the subscription demands; for write, the message.", metavar="LEVEL"),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", help="When: 2026-03-02T09:30:00, or 09:30 today, in the node's time zone.", metavar="TIME"
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Attribute to assume, such as s.level=tls, p.scope=gym or e.location=rome. Repeatable.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Show the verdict on one message, and every step that led to it.

    Everybody is as if connected to the first listener, from this machine, and a client to the first of its scopes in
    the directory; --set says otherwise.

    Exit code 0: allowed, 1: denied, 2: that cannot be asked.

    [dim]tidegate explain tidegate.yaml --as user:bob --action read --topic tr1/speed --from user:mary[/dim]
    """
    from tidegate.cli.reasons import report
    from tidegate.config import Operation, load
    from tidegate.explain.document import document
    from tidegate.explain.what_if import Question, WhatIf

    _check_options(action, publisher=publisher, payload=payload, qos=qos, retain=retain, where=where)
    pairs = tuple(_pair(each, "a property") for each in properties or ())
    asked = [("where", where), ("require", require)]
    terms = tuple((name, value) for name, value in asked if value is not None)
    if action is Deed.SUBSCRIBE:
        pairs, terms = (), (*pairs, *terms)
    elif action is Deed.WRITE:
        pairs, terms = (*pairs, *terms), ()
    config = load(file)
    question = Question(
        subject=subject,
        action=Operation(action.value),
        topic=topic,
        publisher=publisher,
        payload=b"" if payload is None else os.fsencode(payload),
        qos=qos,
        retain=retain,
        properties=pairs,
        terms=terms,
        at=None if at is None else _moment(at, config),
        overrides=dict(_assumption(each) for each in overrides or ()),
    )
    trial = WhatIf(config)
    try:
        found = trial.explain(question)
    except ConfigError as error:
        terminal.usage(str(error))
    if json:
        terminal.print_json(document(found, question, config))
    else:
        terminal.out().print(report(found, question, config))
    if not found.allowed:
        raise typer.Exit(terminal.NO)


def _check_options(action: Deed, **given: Any) -> None:
    """An option without effect is a mistake: it would look as if it had been considered."""
    useless = {
        Deed.READ: (),
        Deed.WRITE: ("publisher", "where"),
        Deed.SUBSCRIBE: ("publisher", "payload", "qos", "retain"),
    }
    for name in useless[action]:
        if given[name] not in (None, 0, False):
            option = "from" if name == "publisher" else name
            terminal.usage(f"--{option} has no effect on `{action}`; leave it out")


def _pair(text: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        terminal.usage(f"`{text}` is not {what}: write NAME=VALUE")
    return name, value


def _assumption(text: str) -> tuple[str, Any]:
    """An attribute with its value: JSON if it is some, else the text itself."""
    import json

    name, value = _pair(text, "an attribute")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _moment(text: str, config: Config) -> float:
    from datetime import datetime, time

    zone = config.built.rules.environment.zone
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            moment = datetime.combine(datetime.now(zone).date(), time.fromisoformat(text))
        except ValueError:
            terminal.usage(f"`{text}` is not a time: write 2026-03-02T09:30:00, 2026-03-02T09:30:00Z or 09:30")
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
