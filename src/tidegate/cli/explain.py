"""`tidegate explain`: why somebody may or may not do something, by a configuration and without a running node.

With `--through` the running node is asked, which asks the node at the other end of a link for its part.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.options import File, Json, attribute, name_and_value
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.config import Config
    from tidegate.explain.question import QuestionThrough


class Deed(StrEnum):
    READ = "read"
    WRITE = "write"
    SUBSCRIBE = "subscribe"


def explain(
    file: File,
    subject: Annotated[
        str,
        typer.Option(
            "--as",
            help="Who acts: user:mary, client:tr1, user:mary/client:tr1; link:A->B or scope:A forwards (write) and "
            "imports (read).",
            metavar="SUBJECT",
        ),
    ],
    action: Annotated[Deed, typer.Option("--action", help="The action.")],
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
        typer.Option("--require", help="What the subscription demands; for write, the message.", metavar="LEVEL"),
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
    through: Annotated[
        str | None,
        typer.Option(
            "--through",
            help="Ask a linked node, too: NODE by its name, domain or scope, or the directed link A->B that the "
            "message crosses. The node of the file has to run.",
            metavar="NODE",
        ),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            "--socket", help="With --through: control socket of the node. Default: as configured.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show the verdict on one message, and every step that led to it.

    Everybody is as if connected to the first listener, from this machine, and a client to the first of its scopes in
    the directory; --set says otherwise.

    Exit code 0: allowed, 1: denied, 2: that cannot be asked.

    [dim]tidegate explain tidegate.yaml --as user:bob --action read --topic tr1/speed --from user:mary[/dim]
    """
    from tidegate.cli.reasons import report
    from tidegate.config import Operation, load
    from tidegate.explain.as_json import document
    from tidegate.explain.question import Question, QuestionThrough
    from tidegate.explain.what_if import WhatIf

    _check_options(action, publisher=publisher, payload=payload, qos=qos, retain=retain, where=where)
    pairs = tuple(name_and_value(each, "a property") for each in properties or ())
    config = load(file)
    if socket is not None and through is None:
        terminal.usage("--socket has no effect without --through; leave it out")
    asked = Question if through is None else QuestionThrough
    question = asked.about(
        Operation(action.value),
        pairs,
        where,
        require,
        subject=subject,
        topic=topic,
        publisher=publisher,
        payload=b"" if payload is None else os.fsencode(payload),
        qos=qos,
        retain=retain,
        at=None if at is None else _moment(at, config),
        overrides=dict(map(attribute, overrides or ())),
        **({} if through is None else {"through": through}),
    )
    if isinstance(question, QuestionThrough):
        _print_through(question, socket or config.control_socket, json=json)
        return
    try:
        explanation = WhatIf(config).explain(question)
    except ConfigError as error:
        terminal.usage(str(error))
    if json:
        terminal.print_json(document(explanation, question, config))
    else:
        terminal.out().print(report(explanation, question, config))
    if not explanation.allowed:
        raise typer.Exit(terminal.NO)


def _print_through(question: QuestionThrough, socket: Path, *, json: bool) -> None:
    """What both ends of a link say. Ends the command with 1 if one of them denies."""
    from tidegate.cli import through
    from tidegate.errors import Problem
    from tidegate.net import control_socket

    try:
        arguments = question.arguments() | {"payload": question.payload.decode()}
        found = control_socket.ask(socket, question.COMMAND, **arguments)
    except UnicodeDecodeError:
        terminal.usage("--payload is no text")
    except Problem as error:
        terminal.usage(str(error))
    if json:
        terminal.print_json(found)
    else:
        terminal.out().print(through.report(found))
    if not found["allowed"]:
        raise typer.Exit(terminal.NO)


def _check_options(action: Deed, **given: Any) -> None:
    """An option without effect is a mistake: it would look as if it had been considered."""
    from tidegate.config.rule_tests import NO_EFFECT

    for option in NO_EFFECT[action.value]:
        if given["publisher" if option == "from" else option] not in (None, 0, False):
            terminal.usage(f"--{option} has no effect on `{action}`; leave it out")


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
