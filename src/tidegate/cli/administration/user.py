"""`tidegate user`: people in the directory of a running node, their credentials and public keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import documents, shown, written
from tidegate.cli.administration.asking import Api, path
from tidegate.cli.administration.client import Attributes, Groups, PublicKey, Roles
from tidegate.cli.administration.documents import Body, Kind
from tidegate.cli.administration.options import DryRun, Json, Why, asks, group

PLAIN: Final = "plain:"


def _columns(value: Mapping[str, Any]) -> Mapping[str, object]:
    key = str(value.get("public_key") or "").partition(":")[0]
    return {**{name: value.get(name) for name in ("roles", "groups", "attributes")}, "key": key}


USERS = Kind(where="/directory/users", one="user", many="users", columns=_columns)

app = group("Administer users of a running node.")

Name = Annotated[str, typer.Argument(help="User name.", show_default=False)]
Known = Annotated[str, typer.Argument(help="User name.", show_default=False, autocompletion=USERS.complete)]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of standard input.")
]


@app.command("list")
@asks
def list_command(api: Api, json: Json = False) -> None:
    """List users.

    [dim]tidegate user list[/dim]
    """
    documents.show_all(api.pages(USERS.where), USERS, json=json)


@app.command()
@asks
def add(
    api: Api,
    name: Name,
    roles: Roles = None,
    groups: Groups = None,
    attributes: Attributes = None,
    public_key: PublicKey = None,
    password_stdin: PasswordStdin = False,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Add a user. Password, unless you give one, and token are made up and shown this once.

    [dim]tidegate user add mary --role coach --set shift=day --public-key @mary.pub[/dim]
    """
    body: Body = {"name": name}
    _edit(body, roles, groups, attributes, public_key)
    if password_stdin:
        body["password"] = written.password()
    done = api.ask("POST", "/users", query={"dry_run": dry_run, "why": why}, body=body).value
    tell_credentials(done, f"user {name}", "added", dry_run=dry_run, json=json)


@app.command("set")
@asks
def set_command(
    api: Api,
    name: Known,
    roles: Roles = None,
    groups: Groups = None,
    attributes: Attributes = None,
    public_key: PublicKey = None,
    password_stdin: PasswordStdin = False,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change a user. What is not said stays; an empty text takes it away.

    [dim]tidegate user set mary --role coach --role nurse --set shift=[/dim]
    """

    def edit(body: Body) -> None:
        _edit(body, roles, groups, attributes, public_key)
        if password_stdin:
            body["password"] = PLAIN + written.password()  # the interface hashes it, and nothing else is stored

    documents.change(api, USERS, name, edit, dry_run=dry_run, why=why, json=json)


@app.command()
@asks
def credentials(api: Api, name: Known, why: Why = "", dry_run: DryRun = False, json: Json = False) -> None:
    """Make a new password and token for a user, shown this once. Tokens made before are revoked.

    [dim]tidegate user credentials mary --why "lost her phone"[/dim]
    """
    done = api.ask("POST", f"{_place(api, name)}/credentials", query={"dry_run": dry_run, "why": why}).value
    tell_credentials(done, f"user {name}", "given new credentials", dry_run=dry_run, json=json)


@app.command()
@asks
def key(
    api: Api,
    name: Known,
    public: Annotated[str, typer.Argument(help="Public key; or @FILE that holds it.", metavar="KEY")],
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Register the public key for which topic keys are encrypted that a user may have. See `tidegate key pair`.

    [dim]tidegate user key mary @mary.pub[/dim]
    """
    body = {"public_key": written.public_key(public)}
    if not body["public_key"]:
        terminal.usage("say the public key, or @FILE that holds it")
    done = api.ask("PUT", f"{_place(api, name)}/key", query={"dry_run": dry_run, "why": why}, body=body).value
    documents.tell([done], "key of user", "registered", dry_run=dry_run, json=json)


def _place(api: Api, name: str) -> str:
    """Where the credentials and the key of a user are; for the user another place than for others."""
    return "/me" if api.me.get("role") == "user" and api.me.get("user") == name else path("/users", name)


def tell_credentials(done: Mapping[str, Any], who: str, what: str, *, dry_run: bool, json: bool) -> None:
    """What somebody was given, which nobody can tell again."""
    if json:
        terminal.print_json(done)
    elif dry_run:
        shown.effect(done.get("effect"), f"{who} would be {what}")
    else:
        shown.done(f"{who} {what}")
        about = {name: done[name] for name in ("name", "password", "token") if done.get(name) is not None}
        shown.details(about | ({"token expires": shown.when(done["expires"])} if done.get("expires") else {}))
        terminal.note("This is shown only once: keep it.")
        if done.get("trouble"):
            shown.warning(str(done["trouble"]))


def _edit(
    body: Body,
    roles: list[str] | None,
    groups: list[str] | None,
    attributes: list[str] | None,
    public_key: str | None,
) -> None:
    written.put_list(body, "roles", roles)
    written.put_list(body, "groups", groups)
    written.put(body, "public_key", written.public_key(public_key))
    if attributes:
        body["attributes"] = written.attributes(attributes, body.get("attributes"))


documents.add_alike(app, USERS, command="user", name="NAME")
