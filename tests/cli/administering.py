"""Runs commands of administration in this process, against a node that runs as a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from processes import Process, process
from tidegate.cli import terminal
from tidegate.cli.app import main
from tidegate.net.control_socket import ask

CONFIGURATION = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
http: {url: "http://127.0.0.1:HTTP_PORT", rate: 1000, address_rate: 1000}
log: {format: json}
record: decisions
directory: {users: {mary: {password: "plain:secret", roles: [coach]}}}
policies: [{id: p1, subject: "user:mary", topic: "a/#", action: [read, write]}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert (self.code, self.err) == (0, ""), self
        return json.loads(self.out)


def tidegate(*arguments: object, stdin: str = "", **variables: str) -> Ran:
    """`tidegate …`, to its end."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    written = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    out, err, code = io.StringIO(), io.StringIO(), None
    terminal.out.cache_clear()  # they remember how wide the terminal is
    terminal.err.cache_clear()
    with (
        mock.patch.dict(os.environ, {**clean, "COLUMNS": "250", "NO_COLOR": "1", **variables}, clear=True),
        mock.patch.object(sys, "argv", ["tidegate", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", written),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int | None)
    return Ran(code=code or 0, out=out.getvalue(), err=err.getvalue())


class Administered:
    """A node, and somebody who administers it."""

    def __init__(self, node: Process) -> None:
        self.node = node
        self.url = f"http://127.0.0.1:{node.ports['HTTP_PORT']}"
        self.token = node.admin_token()

    def __call__(self, *arguments: object, stdin: str = "", token: str | None = None, **variables: str) -> Ran:
        known = {"TIDEGATE_URL": self.url, "TIDEGATE_TOKEN": token or self.token, **variables}
        return tidegate(*arguments, stdin=stdin, **known)

    def done(self, *arguments: object, stdin: str = "", token: str | None = None) -> str:
        """What a command writes that must not fail."""
        ran = self(*arguments, stdin=stdin, token=token)
        assert ran.code == 0, ran
        return ran.out

    def said(self, *arguments: object, stdin: str = "", token: str | None = None) -> Any:
        """The same with `--json`."""
        return self(*arguments, "--json", stdin=stdin, token=token).json

    def refused(self, *arguments: object, stdin: str = "", token: str | None = None) -> str:
        """The one line that a command says no with."""
        ran = self(*arguments, stdin=stdin, token=token)
        assert (ran.code, ran.out) == (1, ""), ran
        assert ran.err.count("\n") == 1, ran.err
        assert ran.err.startswith("error: ")
        return ran.err.removeprefix("error: ").rstrip("\n")

    def rules(self) -> Any:
        """All that is stored and in force."""
        state = ask(self.node.control, "status")
        return state["rules"], state["registry"]["sequence"]


@contextlib.contextmanager
def administered(folder: Path, text: str = CONFIGURATION) -> Iterator[Administered]:
    with process(folder, text) as node:
        one = Administered(node)
        one.done("token", "list")  # waits until the process that speaks HTTP has started
        yield one
