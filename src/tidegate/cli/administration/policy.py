"""`tidegate policy`: access policies of a running node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import documents, written
from tidegate.cli.administration.asking import Api
from tidegate.cli.administration.documents import Body, Kind
from tidegate.cli.administration.options import DryRun, Json, Why, asks, group


def _columns(value: Mapping[str, Any]) -> Mapping[str, object]:
    told = {name: value.get(name) for name in ("subject", "topic", "action")}
    return {**told, "effect": value.get("effect", "allow"), "when": value.get("when")}


POLICIES = Kind(where="/policies", one="policy", many="policies", columns=_columns)

app = group("Administer access policies of a running node.")

Id = Annotated[str | None, typer.Argument(help="Its id.", show_default=False)]
Known = Annotated[str | None, typer.Argument(help="Its id.", show_default=False, autocompletion=POLICIES.complete)]
Subjects = Annotated[
    list[str] | None,
    typer.Option("--subject", help="Who: *, user:…, role:…, group:…, client:…. Repeatable.", metavar="SUBJECT"),
]
Topic = Annotated[str | None, typer.Option("--topic", help="A topic filter.", metavar="FILTER")]
Actions = Annotated[list[str] | None, typer.Option("--action", help="read, write, or read,write.", metavar="ACTION")]
Effect = Annotated[str | None, typer.Option("--effect", help="allow or deny. Default: allow.", metavar="EFFECT")]
When = Annotated[str | None, typer.Option("--when", help="A condition (CEL). Default: always.", metavar="CONDITION")]
File = Annotated[
    str | None,
    typer.Option(
        "--file", help="A file with one or many, as in a configuration; - for standard input.", metavar="FILE"
    ),
]


@app.command("list")
@asks
def list_command(api: Api, json: Json = False) -> None:
    """List policies. Those that stand in the file can only be changed there.

    [dim]tidegate policy list[/dim]
    """
    documents.show_all(api.pages(POLICIES.where), POLICIES, json=json)


@app.command()
@asks
def add(
    api: Api,
    id: Id = None,
    subjects: Subjects = None,
    topic: Topic = None,
    actions: Actions = None,
    effect: Effect = None,
    when: When = None,
    file: File = None,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Add a policy, or those of a file one after the other.

    [dim]tidegate policy add gym --subject role:coach --topic 'gym/#' --action read,write --dry-run[/dim]
    """
    said = (id, subjects, topic, actions, effect, when)
    if file is not None:
        _alone(said)
        entries = written.entries(file, "policies")
    else:
        if id is None or not subjects or not topic or not actions:
            terminal.usage("say ID, --subject, --topic and --action, or --file")
        entries = [_edited({"id": id}, subjects, topic, actions, effect, when)]
    documents.make(api, POLICIES, entries, dry_run=dry_run, why=why, json=json)


@app.command("set")
@asks
def set_command(
    api: Api,
    id: Known = None,
    subjects: Subjects = None,
    topic: Topic = None,
    actions: Actions = None,
    effect: Effect = None,
    when: When = None,
    file: File = None,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change a policy: what is not said stays. With a file, its entries replace those that are there.

    [dim]tidegate policy set gym --when 's.shift == "day"' --dry-run[/dim]
    """
    if file is not None:
        _alone((id, subjects, topic, actions, effect, when))
        entries = written.entries(file, "policies")
        documents.replace(api, POLICIES, entries, dry_run=dry_run, why=why, json=json)
        return
    if id is None:
        terminal.usage("say which with ID, or --file")

    def edit(body: Body) -> None:
        _edited(body, subjects, topic, actions, effect, when)

    documents.change(api, POLICIES, id, edit, dry_run=dry_run, why=why, json=json)


def _alone(said: tuple[object, ...]) -> None:
    if any(each is not None for each in said):
        terminal.usage("--file says everything: leave ID and the other options out")


def _edited(
    body: Body,
    subjects: list[str] | None,
    topic: str | None,
    actions: list[str] | None,
    effect: str | None,
    when: str | None,
) -> Body:
    if subjects:
        body["subject"] = written.one_or_many(subjects)
    if actions:
        body["action"] = written.one_or_many(written.texts(actions))
    written.put(body, "topic", topic)
    written.put(body, "effect", effect)
    written.put(body, "when", when)
    return body


documents.add_alike(app, POLICIES, command="policy")
