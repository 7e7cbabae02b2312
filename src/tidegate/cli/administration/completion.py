"""Completion of ids, asked of the node that the command would speak to.

A shell waits for this, and what it writes would be mixed into what somebody is typing: it is quick and silent, or it is
nothing.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any, Final

import typer

from tidegate.cli.administration.http_client import ApiClient, Endpoint
from tidegate.errors import TidegateError

QUICK: Final = 1.0  # seconds
MOST: Final = 1000
_NAMES: Final = ("url", "token", "token_file", "ca", "cert", "cert_key")

Complete = Callable[[typer.Context, str], list[str]]


def ids(where: str, *, key: str = "id", paged: bool = True, own: str | None = None) -> Complete:
    """Ids of what is listed at a path; `own` is the path for users, who may not see those of others."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        with (
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(TidegateError, typer.Exit, KeyError, TypeError),
            ApiClient(_endpoint(ctx.params), patience=QUICK) as api,
        ):
            path = own if own is not None and api.me["role"] == "user" else where
            found = api.get(path, limit=MOST if paged else None).value["items"]
            return [str(each[key]) for each in found if str(each[key]).startswith(incomplete)]
        return []

    return complete


def _endpoint(given: dict[str, Any]) -> Endpoint:
    return Endpoint(**{name: given[name] for name in _NAMES if given.get(name) is not None})
