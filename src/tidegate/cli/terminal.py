"""What commands say and how they end: results on standard output, everything else on standard error.

Exit codes: 0 done, 1 said no, 2 wrong usage. Text that came from a peer is shown with its control characters
written out, because a terminal obeys them.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

NO: Final = 1
USAGE: Final = 2

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@cache
def out() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


@cache
def err() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def harmless(text: str, *, lines: bool = True) -> str:
    """The text with the characters that a terminal would obey written as escapes; without `lines` new lines, too."""
    if not lines:
        text = text.replace("\n", "\\n").replace("\t", "\\t")
    return _CONTROL.sub(lambda character: f"\\x{ord(character[0]):02x}", text)


def counted(number: int, what: str) -> str:
    """`1 run`, `2,000 runs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def command_group(help: str) -> typer.Typer:
    return typer.Typer(
        help=help,
        no_args_is_help=True,
        rich_markup_mode="rich",
        add_completion=False,
        pretty_exceptions_enable=False,  # they print local variables, and some of those are passwords
    )


def error(text: str) -> None:
    from rich.text import Text

    err().print(Text.assemble(("error: ", "bold red"), harmless(text)))


def warning(text: str, place: str = "") -> None:
    """One line on standard error about what was done, but not all of it, or about a place in a file."""
    from rich.text import Text

    err().print(Text.assemble(place, ("warning: ", "yellow"), harmless(text)))


def note(text: str) -> None:
    """One line on standard error that a script may ignore."""
    from rich.text import Text

    err().print(Text(harmless(text), style="dim"))


def fail(text: str) -> NoReturn:
    error(text)
    raise typer.Exit(NO)


def usage(text: str) -> NoReturn:
    error(text)
    note("Try the command with --help.")
    raise typer.Exit(USAGE)


def done(text: str, answer: object = None, *, json: bool = False) -> None:
    """Says that it is done; as JSON, what the answer was."""
    from rich.text import Text

    if json:
        print_json(answer)
    else:
        out().print(Text.assemble(("✓ ", "green"), harmless(text)))


def wrote(files: Mapping[str, tuple[Path, str]], *, json: bool) -> None:
    """Says which files were written: their names in JSON, each with its path and what it is."""
    from rich.text import Text

    if json:
        print_json({name: str(path) for name, (path, _) in files.items()})
        return
    for path, what in files.values():
        out().print(Text.assemble(("✓ ", "bold green"), str(path), (f"  {what}", "dim")))


@contextmanager
def progress(what: str, *, after: float = 0.0) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, if that is a terminal and the work takes longer than `after` seconds."""
    from rich.progress import Progress

    begun = time.monotonic()
    with Progress(console=err(), transient=True, disable=not err().is_terminal) as bar:
        task = bar.add_task(what, total=None, visible=not after)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=time.monotonic() - begun >= after)

        yield update


def print_json(value: object) -> None:
    """One line of JSON on standard output, at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()
