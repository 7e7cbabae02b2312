"""Writes docs/reference/cli.md from the commands themselves: `python tests/docs/cli_reference.py --update`.

It reads the same signatures that `--help` is made from, and not the help that is printed: that depends on the
width of the terminal and on the version of the library that draws it.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Union, get_args, get_origin

import typer
from bench.cli import app as bench
from typer.models import ArgumentInfo, OptionInfo

from tidegate.cli.commands import COMMANDS, load_command

PAGE: Final = Path(__file__).parents[2] / "docs/reference/cli.md"
HEAD: Final = """\
# Command line

This page is made from the commands by `python tests/docs/cli_reference.py --update`; `tidegate COMMAND --help` says
the same.

Exit codes: 0 done, 1 the answer is no (a refusal, a broken file, no node), 2 wrong usage. Results go to standard
output, everything else to standard error. `--json` writes what a script would want.
"""

Command = tuple[str, Callable[..., Any]]


def commands() -> Iterator[Command]:
    """Every command with its full name, in the order of `tidegate --help`."""
    for name, (panel, _) in COMMANDS.items():
        if panel is None:  # not for people
            continue
        command = bench if name == "bench" else load_command(name)  # bench hands its arguments on
        if isinstance(command, typer.Typer):
            yield from _below(name, command)
        else:
            yield name, command


def _below(name: str, group: typer.Typer) -> Iterator[Command]:
    for one in group.registered_commands:
        assert one.callback is not None
        yield f"{name} {one.name or one.callback.__name__}", one.callback


def page() -> str:
    found = list(commands())
    lines = [HEAD, "| command | does |", "|---|---|"]
    for name, command in found:
        summary = inspect.getdoc(command) or ""
        anchor = f"tidegate-{name.replace(' ', '-')}"
        lines.append(f"| [`tidegate {name}`](#{anchor}) | {summary.splitlines()[0]} |")
    for name, command in found:
        lines += ["", f"## tidegate {name}", "", _about(command), "", *_table(command)]
    return "\n".join(lines) + "\n"


def _about(command: Callable[..., Any]) -> str:
    """The description; examples stand in it as `[dim]…[/dim]`."""
    text = inspect.getdoc(command) or ""
    return re.sub(r"\[dim\](.*?)\[/dim\]", r"Example: `\1`", text)


def _table(command: Callable[..., Any]) -> Iterator[str]:
    yield "| option | value | default | meaning |"
    yield "|---|---|---|---|"
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind, *rest = get_args(parameter.annotation)
        assert get_origin(parameter.annotation) is Annotated
        info = next(one for one in rest if isinstance(one, OptionInfo | ArgumentInfo))
        cells = (_names(parameter, info), _value(kind, info), _default(parameter), _meaning(info))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _names(parameter: inspect.Parameter, info: OptionInfo | ArgumentInfo) -> str:
    if isinstance(info, ArgumentInfo):
        return parameter.name.upper()
    names = list(info.param_decls or ())
    if isinstance(info.default, str):  # inside Annotated the first name stands where a default would
        names.insert(0, info.default)
    names = names or [f"--{parameter.name.replace('_', '-')}"]
    return ", ".join(f"`{name}`" for name in names)


def _value(kind: Any, info: OptionInfo | ArgumentInfo) -> str:
    choices = [one for one in get_args(kind) if one is not types.NoneType]
    if get_origin(kind) in (Union, types.UnionType) and len(choices) == 1:
        kind = choices[0]
    if kind is bool:
        return ""
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    if info.metavar:
        return info.metavar
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{one.value}`" for one in kind)
    word = {str: "text", int: "number", float: "number", Path: "path", typer.FileText: "path"}[kind]
    if info.min is not None and info.max is not None:
        return f"{word}, {info.min:g} to {info.max}"
    return word if info.min is None else f"{word}, at least {info.min:g}"


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is inspect.Parameter.empty:
        return "**required**"
    if value is None or value is False or value == "":
        return ""
    if value is True:
        return "yes"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _meaning(info: OptionInfo | ArgumentInfo) -> str:
    text = info.help or ""
    return f"{text} Variable: `{info.envvar}`." if info.envvar else text


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
