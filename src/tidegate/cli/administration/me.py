"""`tidegate me`: what somebody can ask about their own data, and stop, with a token of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import output
from tidegate.cli.administration.documents import report
from tidegate.cli.administration.http_client import ApiClient
from tidegate.cli.administration.options import Preview, Why, with_api
from tidegate.cli.options import Json

app = terminal.command_group("Your own data: who can read it, who has, and stopping somebody.")
Limit = Annotated[int, typer.Option("--limit", help="At most so many.", min=1, max=1000)]


@app.command()
@with_api
def readers(
    api: ApiClient,
    topic: Annotated[str, typer.Argument(help="A topic that you publish to.", metavar="TOPIC")],
    client: Annotated[
        str | None, typer.Option("--client", help="As published by this client of yours.", metavar="CLIENT")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="As published by this device or source of yours.", metavar="NAME")
    ] = None,
    json: Json = False,
) -> None:
    """Show who can read a topic of yours: yes, no, or if a condition is true that is not known yet.

    [dim]tidegate me readers gym/mary/ride[/dim]
    """

    def columns(row: Mapping[str, Any]) -> Mapping[str, object]:
        names = [*(row["users"] or ()), *(f"client:{each}" for each in row["clients"] or ())]
        roles = [f"{role} ({count})" for role, count in row["roles"].items()]
        names += ["whoever has no name"] * row["anonymous"]
        names, roles = [*names, *row["others"]], [*roles, *row["others"]]
        return {
            "can read": row["can"],
            "who": names if row["users"] is not None else roles,
            "count": row["count"],
            "if": row["when"],
            "sees": row["parts"] or ("all" if row["can"] != "no" else None),
            "rules": row["rules"],
        }

    found = api.get("/me/readers", topic=topic, client=client, device=device)
    output.listing(found["readers"], columns, none="Nobody is in the directory.", json=json, whole=("can read",))


@app.command()
@with_api
def deliveries(
    api: ApiClient,
    topic: Annotated[str | None, typer.Option("--topic", help="A topic filter.", metavar="FILTER")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Default: a day ago.", metavar="TIME")] = None,
    single: Annotated[bool, typer.Option("--single", help="Each as it was written down, instead of sums.")] = False,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """Show who has received what of yours: counts by reader and topic, the newest first.

    [dim]tidegate me deliveries --topic "gym/mary/#"[/dim]
    """

    def columns(row: Mapping[str, Any]) -> Mapping[str, object]:
        return {
            "user": row["user"] or ", ".join(row.get("roles") or ()),
            "client": row["client"],
            "topic": row["topic"],
            "count": row["count"],
            "first": output.moment(row["first"]),
            "last": output.moment(row["last"]),
        }

    found = api.get("/me/deliveries", topic=topic, since=since, single="true" if single else None, limit=limit)
    output.listing(found["items"], columns, none="Nothing was delivered, or nothing written down.", json=json, whole=())
    if not found["recorded"] and not json:
        terminal.note("The node does not write deliveries down: `record` is `off` in its file.")
    if not found["complete"] and not json:
        terminal.note("There is more: ask for a shorter time with --since.")


@app.command()
@with_api
def history(api: ApiClient, limit: Limit = 100, json: Json = False) -> None:
    """Show what your preferences were: each change, the newest first.

    [dim]tidegate me history[/dim]
    """

    def columns(row: Mapping[str, Any]) -> Mapping[str, object]:
        body = row["body"]
        value = "deleted" if body is None else {name: body[name] for name in body if name not in ("user", "owner")}
        return {"at": output.moment(row["at"]), "id": row["id"], "value": value, "by": row["by"], "why": row["why"]}

    output.listing(api.get("/me/history", limit=limit)["items"], columns, none="You have changed nothing.", json=json)


@app.command()
@with_api
def notices(api: ApiClient, limit: Limit = 100, json: Json = False) -> None:
    """Show when somebody new could read what is yours, what changed, and by whom.

    [dim]tidegate me notices[/dim]
    """

    def columns(row: Mapping[str, Any]) -> Mapping[str, object]:
        changes = [" ".join(filter(None, (each["kind"], each["name"], each["how"]))) for each in row["changes"]]
        return {
            "at": output.moment(row["at"]),
            "who can read now": [f"{each['filter']}: {_new_readers(each)}" for each in row["topics"]],
            "changed": changes,
            "by": row["by"],
        }

    found = api.get("/me/notices", limit=limit)
    output.listing(found["items"], columns, none="Nobody new could read what is yours.", json=json)


def _new_readers(topic: Mapping[str, Any]) -> str:
    if topic["roles"] is not None:
        return ", ".join(f"{role} ({count})" for role, count in topic["roles"].items()) or str(topic["count"])
    named = [
        "whoever has no name" if each["anonymous"] else each["user"] or each["other"] or f"client:{each['client']}"
        for each in topic["readers"]
    ]
    more = topic["count"] - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


@app.command()
@with_api
def export(api: ApiClient) -> None:
    """Write everything that the node has of you, as JSON.

    [dim]tidegate me export > mine.json[/dim]
    """
    terminal.print_json(api.get("/me/export"))


@app.command()
@with_api
def erase(
    api: ApiClient,
    password_file: Annotated[
        typer.FileText | None,
        typer.Option("--password-file", help="A file with your password; `-`: standard input.", metavar="FILE"),
    ] = None,
    why: Why = "",
    json: Json = False,
) -> None:
    """Have everything erased that is yours: retained and queued messages, journals and the lake.

    It asks for your password. Where an administrator has to grant it, it is a request: see `tidegate me erasures`.

    [dim]tidegate me erase[/dim]
    """
    if password_file is None:
        password = typer.prompt("Your password", hide_input=True, err=True)
    else:
        password = password_file.read().rstrip("\n")
    done, _ = api.request("POST", "/me/erase", body={"password": password, "why": why})
    if json:
        terminal.print_json(done)
        return
    waits = "an administrator has to grant it" if done["state"] == "asked" else "it is being erased"
    terminal.note(f"{done['id']}: {waits}; see `tidegate me erasures`")


@app.command()
@with_api
def erasures(api: ApiClient, limit: Limit = 100, json: Json = False) -> None:
    """Show what you have asked to be erased, and the receipts.

    [dim]tidegate me erasures[/dim]
    """
    show_erasures(api.get("/me/erase", limit=limit), json=json)


def show_erasures(found: Mapping[str, Any], *, json: bool) -> None:
    def columns(row: Mapping[str, Any]) -> Mapping[str, object]:
        return {
            "id": row["id"],
            "user": row["user"],
            "asked": output.moment(row["asked_at"]),
            "state": row["state"],
            "by": row["by"],
            "erased": [f"{place} {count}" for place, count in row["erased"].items()],
            "why": row["trouble"] or row["why"],
        }

    output.listing(
        found["items"], columns, none="Nobody has asked for anything to be erased.", json=json, whole=("id",)
    )


@app.command()
@with_api
def stop(
    api: ApiClient,
    user: Annotated[str, typer.Argument(help="Who shall not read it any more.", metavar="USER")],
    topic: Annotated[str, typer.Option("--topic", help="Which topics: a filter.", metavar="FILTER")] = "#",
    valid: Annotated[
        str | None, typer.Option("--for", help="How long: 8h, 30d. Default: until you change it.", metavar="TIME")
    ] = None,
    why: Why = "",
    dry_run: Preview = False,
    json: Json = False,
) -> None:
    """Stop one reader, from the next message on: a preference that denies. `tidegate preference remove` takes it back.

    [dim]tidegate me stop bob --for 8h[/dim]
    """
    body: dict[str, Any] = {"topic": topic, "effect": "deny", "when": f"s.user == {_text(user)}"}
    if valid is not None:
        body["expires"] = (datetime.now(UTC) + timedelta(seconds=_seconds(valid))).isoformat(timespec="seconds")
    done = api.change("POST", "/me/preferences", dry_run=dry_run, why=why, body=body)
    report([done], "preference", f"made: {user} does not read {topic} of yours", dry_run=dry_run, json=json)


def _text(value: str) -> str:
    """A text as a condition writes it."""
    return json.dumps(value, ensure_ascii=False)


def _seconds(text: str) -> float:
    from pydantic_core import PydanticCustomError

    from tidegate.config.units import duration

    try:
        return float(duration(text))
    except PydanticCustomError as wrong:
        terminal.usage(f"--for {wrong.message()}")
