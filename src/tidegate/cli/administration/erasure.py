"""`tidegate erasure`: what people want erased, granted or refused by an administrator."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.administration.http_client import ApiClient, path
from tidegate.cli.administration.me import Limit, show_erasures
from tidegate.cli.administration.options import Preview, Why, with_api
from tidegate.cli.options import Json

app = terminal.command_group("What people want erased of their own data.")
Request = Annotated[str, typer.Argument(help="The id of the request.", metavar="ID")]


@app.command("list")
@with_api
def list_erasures(api: ApiClient, limit: Limit = 100, json: Json = False) -> None:
    """List requests and receipts, the newest first.

    [dim]tidegate erasure list[/dim]
    """
    show_erasures(api.get("/erasures", limit=limit), json=json)


@app.command()
@with_api
def grant(api: ApiClient, id: Request, why: Why = "", dry_run: Preview = False, json: Json = False) -> None:
    """Grant a request: what is theirs is erased at once, and cannot be had back.

    [dim]tidegate erasure grant 1f2e3d4c5b6a7988[/dim]
    """
    _decide(api, id, "grant", why, dry_run, json)


@app.command()
@with_api
def refuse(api: ApiClient, id: Request, why: Why = "", dry_run: Preview = False, json: Json = False) -> None:
    """Refuse a request, and say why.

    [dim]tidegate erasure refuse 1f2e3d4c5b6a7988 --why "kept by law until 2031"[/dim]
    """
    _decide(api, id, "refuse", why, dry_run, json)


def _decide(api: ApiClient, id: str, what: str, why: str, dry_run: bool, json: bool) -> None:
    done = api.change("POST", path("/erasures", id, what), dry_run=dry_run, why=why)
    if json:
        terminal.print_json(done)
    else:
        terminal.note(
            f"{done['id']} of {terminal.harmless(done['user'])}: {'would be decided' if dry_run else done['state']}"
        )
