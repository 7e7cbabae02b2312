"""`tidegate passwd`: hashes a password for `directory.users`."""

from __future__ import annotations

import json as json_text
import re
import sys
from typing import Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.options import Json


def passwd(
    user: Annotated[str | None, typer.Argument(help="User name, to print the whole entry.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the password from standard input.")] = False,
    json: Json = False,
) -> None:
    """Hash a password (argon2id) for `directory.users`.

    [dim]tidegate passwd mary[/dim]
    """
    password = read_password(from_stdin=stdin)
    if not password:
        terminal.fail("the password is empty")
    from tidegate.authentication.passwords import hash_password

    hashed = hash_password(password)
    if json:
        terminal.print_json({"user": user, "password": hashed})
        return
    entry = hashed
    if user is not None:
        # JSON text is YAML text, so a name that means something else in YAML is quoted as JSON.
        name = user if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", user) else json_text.dumps(user, ensure_ascii=False)
        entry = f'{name}: {{password: "{hashed}"}}'
    sys.stdout.write(entry + "\n")
    if sys.stdout.isatty():
        terminal.note("Paste it below `directory.users` in the configuration.")


def read_password(*, from_stdin: bool) -> bytes:
    """The password: asked for twice without showing it, or the first line of standard input."""
    if from_stdin:
        return sys.stdin.buffer.readline().rstrip(b"\r\n")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt="Again", err=True)).encode()
