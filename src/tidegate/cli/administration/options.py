"""Options that the commands of administration share, and how a function that calls the API becomes a command."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Annotated, Any

import typer

from tidegate.cli.administration.http_client import ApiClient, Endpoint
from tidegate.cli.options import with_options

DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show which decisions would differ.")]
Preview = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would happen.")]
"""For changes that affect no decision."""
Why = Annotated[str, typer.Option("--why", help="The reason, for the history and the audit.", metavar="TEXT")]


def parameter(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    """A parameter of a command."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def with_api(run: Callable[..., None], own: Sequence[Parameter] | None = None) -> Callable[..., None]:
    """A command with options for the connection. `run` gets the client and its own parameters (see `with_options`)."""

    @functools.wraps(run)
    def connected(endpoint: Endpoint, **given: Any) -> None:
        with ApiClient(endpoint) as api:
            run(api, **given)

    return with_options(connected, Endpoint, own)
