"""`tidegate source`: the sources that send data."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tidegate.cli.administration import accounts, documents, output
from tidegate.cli.administration.http_client import ApiClient, path
from tidegate.cli.administration.kinds import SOURCES
from tidegate.cli.administration.options import DryRun, Json, Why, group, with_api

app = group("Register, list and remove sources of data.")


class Scheme(StrEnum):
    """How a source encrypts what it sends."""

    AES_256_GCM = "AES-256-GCM"


documents.add_commands(app, SOURCES, "list")


@app.command()
@with_api
def register(
    api: ApiClient,
    id: Annotated[str, typer.Argument(help="Its NodeId.", show_default=False)],
    type: Annotated[str, typer.Option("--type", help="Its NodeType, such as weather-station.", metavar="TYPE")],
    mode: Annotated[
        str, typer.Option("--mode", help="Its CommunicationMode: discrete or streaming.", metavar="MODE")
    ] = "discrete",
    scheme: Annotated[
        Scheme | None, typer.Option("--scheme", help="How it encrypts what it sends. The node makes a key for it.")
    ] = None,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Register a source, or renew its credentials. They are shown once.

    [dim]tidegate source register station-1 --type weather-station --scheme AES-256-GCM[/dim]
    """
    body = {"NodeId": id, "NodeType": type, "CommunicationMode": mode}
    if scheme is not None:
        body["EncryptionScheme"] = scheme.value
    done = api.change("POST", "/registration", dry_run=dry_run, why=why, body=body)
    if json or dry_run:
        documents.report([done], "source", "registered", dry_run=dry_run, json=json)
        return
    output.done(f"source {id} registered")
    hidden = ("expires", "trouble")
    accounts.show_once({name: value for name, value in done.items() if value is not None and name not in hidden}, done)


@app.command()
@with_api
def remove(
    api: ApiClient,
    id: Annotated[str, typer.Argument(help="Its NodeId.", show_default=False, autocompletion=SOURCES.complete)],
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove a source. Its credentials are not valid any more.

    [dim]tidegate source remove station-1[/dim]
    """
    done = api.change("DELETE", path(SOURCES.path, id), dry_run=dry_run, why=why)
    documents.report([{**done, "version": None}], "source", "removed", dry_run=dry_run, json=json)
