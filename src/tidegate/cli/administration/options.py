"""Options that the commands of administration share, how a function that calls the API becomes a command, and the
completion of ids.

A shell waits for a completion, and what it writes would be mixed into what somebody is typing: it is quick and silent,
or it is nothing.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Annotated, Any, Final

import typer

from tidegate.cli.administration.http_client import ApiClient, Endpoint
from tidegate.cli.options import with_options
from tidegate.errors import TidegateError

QUICK: Final = 1.0  # seconds for a completion
MOST: Final = 1000

DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show which decisions would differ.")]
Preview = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would happen.")]
"""For changes that affect no decision."""
Why = Annotated[str, typer.Option("--why", help="The reason, for the history and the audit.", metavar="TEXT")]
Complete = Callable[[typer.Context, str], list[str]]


def parameter(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def with_api(run: Callable[..., None], own: Sequence[Parameter] | None = None) -> Callable[..., None]:
    """A command with options for the connection. `run` gets the client and its own parameters (see `with_options`)."""

    @functools.wraps(run)
    def connected(endpoint: Endpoint, **given: Any) -> None:
        with ApiClient(endpoint) as api:
            run(api, **given)

    return with_options(connected, Endpoint, own)


def ids(where: str, *, paged: bool = True, own: str | None = None) -> Complete:
    """Ids of what is listed at a path; `own` is the path for users, who may not see those of others."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        given = {name: ctx.params[name] for name in Endpoint.__slots__ if ctx.params.get(name) is not None}
        with (
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(TidegateError, typer.Exit, KeyError, TypeError),
            ApiClient(Endpoint(**given), patience=QUICK) as api,
        ):
            path = own if own is not None and api.me["role"] == "user" else where
            found = api.get(path, limit=MOST if paged else None)["items"]
            return [str(each["id"]) for each in found if str(each["id"]).startswith(incomplete)]
        return []

    return complete
