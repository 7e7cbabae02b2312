"""A process that writes, says what was acknowledged, and is killed.

`load URL`: changes three documents together, again and again. Each line on stdout is one system call: `try N` before,
`done N` after.

`points WHAT`: does one thing (`open` or `change`) again and again, at one URL from stdin after the other, and is killed
before the first SQL statement of it, before the second, and so on, until it comes to its end; says how often.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from tidegate.store.registry import Applied, Change, Registry, registry
from tidegate.store.registry.postgres import PostgresConnection
from tidegate.store.registry.sqlite import SqliteConnection

NAMES = ("x", "y", "z")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def state(where: Registry) -> tuple[int, int | None]:
    """The number that all documents hold, and their version."""
    documents = where.load().documents
    if not documents:
        return 0, None
    ((number, version),) = {(document.body["n"], document.sequence) for document in documents}
    assert [document.id for document in documents] == list(NAMES)
    return number, version


def change(where: Registry, number: int, version: int | None) -> int:
    changes = [Change(kind="a", id=name, body={"n": number}, expected=version) for name in NAMES]
    answer = where.apply(changes, by="ann", why="", at=float(number), id=f"change-{number}")
    assert isinstance(answer, Applied), answer
    return answer.sequence


def load(url: str) -> None:
    one = registry(url)
    one.open()
    number, version = state(one)
    while True:
        number += 1
        say(f"try {number}")
        version = change(one, number, version)
        say(f"done {number}")


def killed_before(nth: int) -> None:
    seen = 0
    for line in (SqliteConnection, PostgresConnection):
        execute: Any = line.execute

        def counted(self: Any, *args: Any, execute: Any = execute, **options: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return execute(self, *args, **options)

        setattr(line, "execute", counted)  # noqa: B010


def points(urls: list[str], what: str) -> None:
    for nth, url in enumerate(urls, 1):
        child = os.fork()
        if child == 0:
            one = registry(url)
            if what == "open":
                killed_before(nth)
                one.open()
            else:
                one.open()
                number, version = state(one)
                killed_before(nth)
                change(one, number + 1, version)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            say(str(nth - 1))
            return
        assert os.WTERMSIG(status) == signal.SIGKILL, status
    raise SystemExit("it never came to its end")


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(sys.argv[2])
    else:
        points(sys.stdin.read().split(), sys.argv[2])
