"""Options that the commands of administration share, and how a function that calls the API becomes a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from tidegate.cli.administration.http_client import URL, ApiClient, Endpoint

P = ParamSpec("P")

_PANEL: Final = "Connection"

Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show which decisions would differ.")]
Preview = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would happen.")]
"""For changes that affect no decision."""
Why = Annotated[str, typer.Option("--why", help="The reason, for the history and the audit.", metavar="TEXT")]


def _connection(
    url: Annotated[
        str,
        typer.Option(
            "--url", help="The HTTP address of the node.", envvar="TIDEGATE_URL", metavar="URL", rich_help_panel=_PANEL
        ),
    ] = URL,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            help="Your token. Others on this machine can see a command line: prefer the variable.",
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
    """Never called. Every command has these parameters besides its own."""


_CONNECTION: Final = tuple(inspect.signature(_connection, eval_str=True).parameters.values())


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """A parameter of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def command(run: Callable[..., None], own: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """A command with these parameters and those of the connection. `run` gets the client and its own parameters."""

    def connected(**given: Any) -> None:
        endpoint = Endpoint(**{each.name: given.pop(each.name) for each in _CONNECTION})
        with ApiClient(endpoint) as api:
            run(api, **given)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *_CONNECTION)]
    connected.__name__, connected.__doc__, connected.__module__ = run.__name__, run.__doc__, run.__module__
    connected.__annotations__ = {each.name: each.annotation for each in parameters}
    connected.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    return connected


def with_api(run: Callable[Concatenate[ApiClient, P], None]) -> Callable[..., None]:
    """The same for a function whose signature has the parameters."""
    _, *own = inspect.signature(run, eval_str=True).parameters.values()
    return command(run, own)


def group(help: str) -> typer.Typer:
    """A group of commands about one kind."""
    return typer.Typer(
        help=help,
        no_args_is_help=True,
        rich_markup_mode="rich",
        add_completion=False,  # that of the whole command is enough
        pretty_exceptions_enable=False,
    )
