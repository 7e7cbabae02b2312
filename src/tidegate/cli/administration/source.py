"""`tidegate source`: where data comes from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import documents, shown
from tidegate.cli.administration.asking import Api, path
from tidegate.cli.administration.documents import Kind
from tidegate.cli.administration.options import DryRun, Json, Why, asks, group


def _columns(value: Mapping[str, Any]) -> Mapping[str, object]:
    return {name: value.get(name) for name in ("type", "mode", "scheme")}


SOURCES = Kind(where="/sources", one="source", many="sources", columns=_columns)

app = group("Register, list and remove sources of data.")


class Scheme(StrEnum):
    """How a source encrypts what it sends."""

    AES_256_GCM = "AES-256-GCM"


@app.command("list")
@asks
def list_command(api: Api, json: Json = False) -> None:
    """List sources.

    [dim]tidegate source list[/dim]
    """
    documents.show_all(api.pages(SOURCES.where), SOURCES, json=json)


@app.command()
@asks
def register(
    api: Api,
    id: Annotated[str, typer.Argument(help="Its NodeId.", show_default=False)],
    type: Annotated[str, typer.Option("--type", help="Its NodeType, such as weather-station.", metavar="TYPE")],
    mode: Annotated[
        str, typer.Option("--mode", help="Its CommunicationMode: discrete or streaming.", metavar="MODE")
    ] = "discrete",
    scheme: Annotated[
        Scheme | None, typer.Option("--scheme", help="It encrypts what it sends: a key is made, too.")
    ] = None,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Register a source, or renew its credentials. They are shown this once.

    [dim]tidegate source register station-1 --type weather-station --scheme AES-256-GCM[/dim]
    """
    body = {"NodeId": id, "NodeType": type, "CommunicationMode": mode}
    if scheme is not None:
        body["EncryptionScheme"] = scheme.value
    done = api.ask("POST", "/registration", query={"dry_run": dry_run, "why": why}, body=body).value
    if json or dry_run:
        documents.tell([done], "source", "registered", dry_run=dry_run, json=json)
        return
    shown.done(f"source {id} registered")
    told = {name: value for name, value in done.items() if value is not None and name not in ("expires", "trouble")}
    shown.details(told | ({"token expires": shown.when(done["expires"])} if done.get("expires") else {}))
    terminal.note("This is shown only once: keep it.")
    if done.get("trouble"):
        shown.warning(str(done["trouble"]))


@app.command()
@asks
def remove(
    api: Api,
    id: Annotated[str, typer.Argument(help="Its NodeId.", show_default=False, autocompletion=SOURCES.complete)],
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove a source: its credentials count no more.

    [dim]tidegate source remove station-1[/dim]
    """
    done = api.ask("DELETE", path(SOURCES.where, id), query={"dry_run": dry_run, "why": why}).value
    documents.tell([{**done, "version": None}], "source", "removed", dry_run=dry_run, json=json)
