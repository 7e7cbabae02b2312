"""How `tidegate passwd` asks for a password and writes the entry for it."""

from __future__ import annotations

import json
import re
import sys

import typer


def read(*, from_stdin: bool) -> bytes:
    """The password: asked for twice without showing it, or the first line of standard input."""
    if from_stdin:
        return sys.stdin.buffer.readline().rstrip(b"\r\n")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt="Again", err=True)).encode()


def entry(user: str | None, hashed: str) -> str:
    """The line to paste: a whole entry where the user is known, only the hash otherwise."""
    if user is None:
        return hashed
    # JSON text is YAML text, so a name that means something else in YAML is quoted as JSON.
    name = user if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", user) else json.dumps(user, ensure_ascii=False)
    return f'{name}: {{password: "{hashed}"}}'
