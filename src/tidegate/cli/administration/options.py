"""Options that the commands of administration share, and what makes a function that asks a node a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from tidegate.cli.administration.asking import URL, Api, Where

P = ParamSpec("P")

_PANEL: Final = "Connection"

Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, and show what would be decided differently.")]
Try = Annotated[bool, typer.Option("--dry-run", help="Change nothing, and show what would be.")]
"""For what is no document: nothing is decided differently."""
Why = Annotated[str, typer.Option("--why", help="Why, for the history and the audit.", metavar="TEXT")]


def _connection(
    url: Annotated[
        str,
        typer.Option(
            "--url", help="Where the node speaks HTTP.", envvar="TIDEGATE_URL", metavar="URL", rich_help_panel=_PANEL
        ),
    ] = URL,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            help="Your token. On a command line others on this machine can see it: better set the variable.",
            envvar="TIDEGATE_TOKEN",
            metavar="TOKEN",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="A file that holds the token, instead.", rich_help_panel=_PANEL),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", help="CA of the node's certificate. Default: those of the system.", rich_help_panel=_PANEL
        ),
    ] = None,
    cert: Annotated[
        Path | None, typer.Option("--cert", help="Your certificate, if the node wants one.", rich_help_panel=_PANEL)
    ] = None,
    cert_key: Annotated[
        Path | None, typer.Option("--key", help="Its private key, if in another file.", rich_help_panel=_PANEL)
    ] = None,
) -> None:
    """Never called: its signature is what every command has besides its own."""


_CONNECTION: Final = tuple(inspect.signature(_connection, eval_str=True).parameters.values())


def asks(command: Callable[Concatenate[Api, P], None], **annotated: Any) -> Callable[..., None]:
    """The command of a function whose first argument is the node to ask: with options that say which that is.

    `annotated` are annotations that are made at run time, by the names of parameters.
    """
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    own = [each.replace(annotation=annotated.get(each.name, each.annotation)) for each in own]

    def run(**given: Any) -> None:
        where = Where(**{each.name: given.pop(each.name) for each in _CONNECTION})
        with Api(where) as api:
            command(api, **given)  # type: ignore[call-arg]  # they are what the signature says

    parameters = [*own, *_CONNECTION]
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer and others look at
    return run


def group(help: str) -> typer.Typer:
    """Commands about one kind of thing."""
    return typer.Typer(
        help=help,
        no_args_is_help=True,
        rich_markup_mode="rich",
        add_completion=False,  # that of the whole command is enough
        pretty_exceptions_enable=False,
    )
