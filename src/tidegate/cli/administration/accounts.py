"""Registration of users and applications: the options of a new account, and the credentials that are shown once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.cli import terminal
from tidegate.cli.administration import output
from tidegate.cli.administration.http_client import ApiClient
from tidegate.cli.administration.kinds import ACCOUNT, Body


def register(
    api: ApiClient,
    target: str,
    body: Body,
    values: Mapping[str, Any],
    *,
    who: str,
    what: str = "added",
    why: str,
    dry_run: bool,
    json: bool,
) -> None:
    """Registers an account with the options `ACCOUNT`, and shows its credentials."""
    for field in ACCOUNT:
        field.put(body, values[field.parameter])
    done = api.change("POST", target, dry_run=dry_run, why=why, body=body)
    show_credentials(done, who, what, dry_run=dry_run, json=json)


def show_credentials(done: Mapping[str, Any], who: str, what: str, *, dry_run: bool, json: bool) -> None:
    """The credentials that somebody was given. They cannot be shown again."""
    if json:
        terminal.print_json(done)
    elif dry_run:
        output.effect(done.get("effect"), f"{who} would be {what}")
    else:
        output.done(f"{who} {what}")
        show_once({name: done[name] for name in ("name", "password", "token") if done.get(name) is not None}, done)


def show_once(credentials: Mapping[str, object], done: Mapping[str, Any]) -> None:
    """Credentials, when their token expires, and what could not be done."""
    expires = {"token expires": output.when(done["expires"])} if done.get("expires") else {}
    output.details({**credentials, **expires})
    terminal.note("This is shown only once: keep it.")
    if done.get("trouble"):
        output.warning(str(done["trouble"]))
