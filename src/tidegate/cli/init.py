"""`tidegate init`: a first configuration by five questions, each of which is also an option.

What is written is a whole file with comments, and it is checked before it is there. Without a terminal nothing is
asked: what is not given has its default.
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import terminal
from tidegate.errors import ConfigError


def init(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write; it must not exist.", metavar="FILE")
    ] = (Path("tidegate.yaml")),
    name: Annotated[str | None, typer.Option("--name", help="1. What the node is called.")] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", help="2. Where clients connect: a URL.", metavar="URL")
    ] = None,
    anonymous: Annotated[
        bool | None, typer.Option("--anonymous/--passwords", help="3. Whether clients need no password.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", help="4. The first user, who may do everything; empty: none.", metavar="NAME"),
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", help="5. Where the console is; empty: nowhere.", metavar="URL")
    ] = None,
) -> None:
    """Write a first configuration, by five questions or from options.

    [dim]tidegate init[/dim]
    """
    if output.exists():
        terminal.fail(f"{output} exists; choose another name with --output")
    ask = sys.stdin.isatty()
    name = _answer(name, "What is the node called?", "broker", ask=ask)
    listen = _answer(listen, "Where do clients connect?", "mqtt://127.0.0.1:1883", ask=ask)
    if anonymous is None:
        anonymous = ask and typer.confirm("May clients come without a password?", default=False, err=True)
    user = _answer(user, "Who is the first user?", "admin", ask=ask)
    http = _answer(http, "Where is the console?", "http://127.0.0.1:8080", ask=ask)
    password = secrets.token_urlsafe(12) if user else ""
    text = _text(name, listen, anonymous=anonymous, user=user, password=password, http=http)
    _check(text, output)
    try:
        with output.open("x", encoding="utf-8") as stream:
            output.chmod(0o600)
            stream.write(text)
    except OSError as broken:
        raise ConfigError(f"cannot be written ({broken.strerror}); choose another name", file=str(output)) from None
    terminal.done(f"wrote {output}; start with: tidegate run -c {output}")
    if password:
        terminal.note(f"the password of {user} is {password}; `tidegate passwd {user}` makes another")


def _answer(given: str | None, question: str, default: str, *, ask: bool) -> str:
    if given is not None or not ask:
        return default if given is None else given
    return str(typer.prompt(question, default=default, err=True))


def _text(name: str, listen: str, *, anonymous: bool, user: str, password: str, http: str) -> str:
    from tidegate.authentication.passwords import hash_password
    from tidegate.importing.imported_policies import yaml_text

    lines = [
        "# Every key is described in docs/reference/configuration.md; `tidegate check` says what is wrong with a file.",
        "version: 1",
        f"node: {{name: {yaml_text(name)}, data: {yaml_text(f'var/{name}')}}} # `data` survives a restart",
        "listeners:",
        f"  - {{url: {yaml_text(listen)}, anonymous: {'true' if anonymous else 'false'}}}",
    ]
    if http:
        lines.append(
            f"http: {{url: {yaml_text(http)}"
            + (f", roles: {{admin: [{yaml_text(f'user:{user}')}]}}}}" if user else "}")
        )
    if user:
        hashed = hash_password(password.encode())
        lines += ["directory:", "  users:", f'    {yaml_text(user)}: {{password: "{hashed}"}}']
    lines.append("policies: # what none of them allows is denied")
    if user:
        lines.append(f'  - {{id: first, subject: {yaml_text(f"user:{user}")}, topic: "#", action: [read, write]}}')
    if anonymous:
        lines.append('  - {id: playground, subject: "*", topic: "try/#", action: [read, write]} # remove it soon')
    if not user and not anonymous:
        lines[-1] += "\n  []"
    return "\n".join(lines) + "\n"


def _check(text: str, output: Path) -> None:
    from tidegate.config import parse

    parse(text, str(output)).built.rules.prepare()
