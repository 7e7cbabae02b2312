"""`tidegate preference`: what owners of data say about who receives it.

With the token of a user it is about that user's own preferences, and ids of new ones are made up by the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import documents, written
from tidegate.cli.administration.asking import Api
from tidegate.cli.administration.documents import Body, Kind
from tidegate.cli.administration.options import DryRun, Json, Why, asks, group
from tidegate.cli.administration.policy import File, Id, Topic


def _columns(value: Mapping[str, Any]) -> Mapping[str, object]:
    told = {name: value.get(name) for name in ("user", "topic", "to", "when")}
    return {**told, "keep": value.get("keep", "all")}


PREFERENCES = Kind(where="/preferences", own="/me/preferences", one="preference", many="preferences", columns=_columns)

app = group("Administer preferences of data owners, or your own.")

Known = Annotated[str | None, typer.Argument(help="Its id.", show_default=False, autocompletion=PREFERENCES.complete)]
User = Annotated[str | None, typer.Option("--user", help="Whose. Default: your own.", metavar="NAME")]
To = Annotated[str | None, typer.Option("--to", help="A scope, or *: about forwarding there.", metavar="SCOPE")]
When = Annotated[
    str | None,
    typer.Option("--when", help="Who may receive it: a condition (CEL). Default: everybody.", metavar="CONDITION"),
]
Keep = Annotated[
    list[str] | None,
    typer.Option("--keep", help="What they see: all, or a JSON pointer. Repeatable.", metavar="POINTER"),
]


@app.command("list")
@asks
def list_command(api: Api, user: User = None, json: Json = False) -> None:
    """List preferences; with the token of a user, only that user's.

    [dim]tidegate preference list --user mary[/dim]
    """
    found = api.pages(PREFERENCES.place(api))
    mine = found if user is None else (each for each in found if each["value"].get("user") == user)
    documents.show_all(mine, PREFERENCES, json=json)


@app.command()
@asks
def add(
    api: Api,
    id: Id = None,
    user: User = None,
    topic: Topic = None,
    to: To = None,
    when: When = None,
    keep: Keep = None,
    file: File = None,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Add a preference, or those of a file one after the other. An id that is not said is made up.

    [dim]tidegate preference add --topic 'mary/#' --when 's.role == "coach"' --keep /pulse[/dim]
    """
    if file is not None:
        _alone((id, user, topic, to, when, keep))
        entries = written.entries(file, "preferences")
    else:
        if not topic:
            terminal.usage("say --topic, or --file")
        if user is None and api.me.get("role") != "user":
            terminal.usage("say whose it is with --user")
        entries = [_edited({} if id is None else {"id": id}, user, topic, to, when, keep)]
    documents.make(api, PREFERENCES, entries, dry_run=dry_run, why=why, json=json)


@app.command("set")
@asks
def set_command(
    api: Api,
    id: Known = None,
    user: User = None,
    topic: Topic = None,
    to: To = None,
    when: When = None,
    keep: Keep = None,
    file: File = None,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change a preference: what is not said stays. With a file, its entries replace those that are there.

    [dim]tidegate preference set p1 --keep all[/dim]
    """
    if file is not None:
        _alone((id, user, topic, to, when, keep))
        entries = written.entries(file, "preferences")
        documents.replace(api, PREFERENCES, entries, dry_run=dry_run, why=why, json=json)
        return
    if id is None:
        terminal.usage("say which with ID, or --file")

    def edit(body: Body) -> None:
        _edited(body, user, topic, to, when, keep)

    documents.change(api, PREFERENCES, id, edit, dry_run=dry_run, why=why, json=json)


def _alone(said: tuple[object, ...]) -> None:
    if any(each is not None for each in said):
        terminal.usage("--file says everything: leave ID and the other options out")


def _edited(
    body: Body,
    user: str | None,
    topic: str | None,
    to: str | None,
    when: str | None,
    keep: list[str] | None,
) -> Body:
    for name, given in (("user", user), ("topic", topic), ("to", to), ("when", when)):
        written.put(body, name, given)
    if keep:
        body["keep"] = "all" if keep == ["all"] else [each for each in keep if each]
    return body


documents.add_alike(app, PREFERENCES, command="preference")
