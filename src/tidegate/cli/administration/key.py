"""`tidegate key`: topic keys of a running node, and key pairs and master keys, which are made here.

A private key is written to a file that only its owner can read, and is in nothing that is printed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import output
from tidegate.cli.administration.http_client import ApiClient, path
from tidegate.cli.administration.kinds import USERS
from tidegate.cli.administration.options import Preview, Why, ids, with_api
from tidegate.cli.options import Json
from tidegate.errors import TidegateError

app = terminal.command_group("Make key pairs and master keys; list, rotate and revoke topic keys.")

Id = Annotated[str, typer.Argument(help="Id of a topic key.", show_default=False, autocompletion=ids("/keys"))]


@app.command("list")
@with_api
def list_command(api: ApiClient, json: Json = False) -> None:
    """List topic keys, without their secrets.

    [dim]tidegate key list[/dim]
    """
    output.listing(list(api.pages("/keys")), _columns, none="There are no topic keys.", json=json)


def _columns(key: dict[str, Any]) -> dict[str, object]:
    return {
        **{name: key.get(name) for name in ("id", "filter", "owner", "topic")},
        "made": output.moment(key["made"]),
        "seals": f"for {output.left(key['valid_until'])}" if key.get("seals") else "no more",
        "readable": f"for {output.left(key['readable_until'])}",
        "used": key.get("used"),
    }


@app.command()
@with_api
def rotate(
    api: ApiClient,
    filter: Annotated[
        str | None, typer.Option("--filter", help="Only those of this entry of `keys.protect`.", metavar="FILTER")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", help="Only those this user could read.", metavar="NAME", autocompletion=USERS.complete),
    ] = None,
    why: Why = "",
    dry_run: Preview = False,
    json: Json = False,
) -> None:
    """Seal with other keys from the next message on: all, or some.

    [dim]tidegate key rotate --user mary[/dim]
    """
    if filter and user:
        terminal.usage("say --filter or --user, or neither for all")
    body = {name: value for name, value in (("filter", filter), ("user", user)) if value}
    done = api.change("POST", "/keys/rotate", dry_run=dry_run, why=why, body=body)
    count = done["groups"]
    groups = f"{count} group{'' if count == 1 else 's'} of topics"
    would = f"{groups} would be sealed with another key, and nothing was changed"
    terminal.done(would if dry_run else f"{groups} will be sealed with another key", done, json=json)


@app.command()
@with_api
def revoke(api: ApiClient, id: Id, why: Why = "", dry_run: Preview = False, json: Json = False) -> None:
    """Revoke a topic key: nobody is given it any more, and its group gets another one.

    Who has it already can still read what was sealed with it.

    [dim]tidegate key revoke 4f1c09d2 --why "a device was stolen"[/dim]
    """
    done = api.change("DELETE", path("/keys", id), dry_run=dry_run, why=why)
    topic = (done.get("key") or {}).get("topic")
    would = f"key {id}{f' of {topic}' if topic else ''} would be revoked, and nothing was changed"
    terminal.done(would if dry_run else f"key {done['revoked']} revoked", done, json=json)


@app.command("get")
@with_api
def get_command(
    api: ApiClient,
    id: Id,
    private: Annotated[
        Path, typer.Option("--private", help="Your private key, as `pair` writes it.", exists=True, dir_okay=False)
    ],
    user: Annotated[
        str | None, typer.Option("--user", help="Whose it is. Default: whose token it is.", metavar="NAME")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show the secret, too.")] = False,
    json: Json = False,
) -> None:
    """Ask for a topic key as a reader does, and show for how long it is valid. Needs the token of a user.

    [dim]tidegate key get 4f1c09d2 --private mary.key[/dim]
    """
    import secrets
    from json import dumps

    from tidegate.errors import KeysError
    from tidegate.keys import PrivateKey, read_key

    try:
        holder = PrivateKey.parse(private.read_text(encoding="ascii"))
    except OSError as broken:
        raise TidegateError(f"cannot read {private}: {broken.strerror}") from None
    except (KeysError, UnicodeDecodeError) as wrong:
        why = wrong if isinstance(wrong, KeysError) else "it is no text"
        raise TidegateError(f"{private} cannot be used: {why}") from None
    reader = user or api.me.get("user")
    if not reader:
        raise TidegateError(
            "this token is for no user, and readers are users: have one made with `tidegate token make`"
        )
    mark = secrets.token_urlsafe(24)
    answer = api.get(path("/keys", id), request=mark)
    topic_key = read_key(dumps(answer).encode(), holder, reader=f"user:{reader}", request=mark)
    about = {"id": topic_key.id, "reader": f"user:{reader}"}
    secret = {"secret": topic_key.secret.hex()} if show else {}
    if json:
        terminal.print_json({**about, "seconds": topic_key.seconds, **secret})
        return
    output.details({**about, "valid for": output.span(topic_key.seconds)})
    output.secrets(secret)


@app.command()
def pair(
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="ML-KEM-768 with X25519, against quantum computers to come.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", help="File for the private key.", metavar="FILE", dir_okay=False)
    ] = Path("reader.key"),
    json: Json = False,
) -> None:
    """Make a key pair for a reader: the private key goes to a file, the public one to standard output.

    [dim]tidegate key pair --out mary.key > mary.pub[/dim]
    """
    from tidegate.keys import Kem, PrivateKey

    private = PrivateKey.generate(os.urandom, Kem.HYBRID if hybrid else Kem.X25519)
    try:
        with os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(private.text() + "\n")
    except FileExistsError:
        raise TidegateError(f"{out} is there already: choose another file with --out") from None
    except OSError as broken:
        raise TidegateError(f"cannot write {out}: {broken.strerror}") from None
    if json:
        terminal.print_json({"private": str(out), "public": str(private.public)})
        return
    typer.echo(str(private.public))
    terminal.note(f"The private key is in {out}, readable by you only. Register the public one: tidegate user key.")


@app.command()
def master(json: Json = False) -> None:
    """Make a master key, under which a node stores its secrets: it is written to standard output.

    [dim]umask 077; tidegate key master > master.key[/dim]
    """
    from tidegate.keys import new_master

    key = new_master(os.urandom)
    if json:
        terminal.print_json({"master": key})
    else:
        typer.echo(key)
