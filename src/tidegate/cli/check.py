"""`tidegate check`: validates a configuration, runs its tests, and draws its monitors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.monitor import Format, draw
from tidegate.cli.options import File, Json
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.config import Config


def check(
    file: File,
    json: Json = False,
    show_automata: Annotated[
        bool, typer.Option("--show-automata", help="Draw the monitors instead of the summary.")
    ] = False,
    form: Annotated[Format | None, typer.Option("--format", help="Format of the drawings. Default: mermaid.")] = None,
    drawn: Annotated[
        str | None, typer.Option("--monitor", help="Draw only this monitor. Default: all.", metavar="ID")
    ] = None,
) -> None:
    """Validate a configuration, and run its `tests`.

    Exit code 0 and a summary, or 1 and one line `file:line: what is wrong; how to mend it` per problem.

    [dim]tidegate check tidegate.yaml[/dim]
    """
    from tidegate.audit.journals import journal_warning
    from tidegate.cli.summary import facts, table
    from tidegate.config import ConfigErrors, load
    from tidegate.config.load import exposed_files
    from tidegate.explain.file_tests import run_tests
    from tidegate.node.node import verify

    if json and show_automata:
        terminal.usage("--show-automata draws, and --json writes no pictures; leave one of them out")
    if not show_automata and (form is not None or drawn is not None):
        terminal.usage("--format and --monitor say how --show-automata draws; add that, or leave them out")
    try:
        config = load(file)
        verify(config)
        _check_rules(config)
        tested = run_tests(config, file=str(file))
        missing = journal_warning(config)
        extras = [] if missing is None else [(config.location("node", "data").line, missing)]
        extras += exposed_files(config)
        warnings = sorted([*config.warnings(), *tested.warnings, *extras], key=lambda warning: warning[0])
        if not json:
            _show_warnings(warnings, file)
        if tested.problems:
            raise ConfigErrors(tested.problems)
    except ConfigError as wrong:
        if json:
            errors = wrong.problems if isinstance(wrong, ConfigErrors) else [wrong]
            problems = [{"file": each.file, "line": each.line, "text": str(each.args[0])} for each in errors]
            terminal.print_json({"ok": False, "file": str(file), "problems": problems})
            raise typer.Exit(terminal.NO) from None
        raise
    if json:
        listed = [{"line": line, "text": text} for line, text in warnings]
        passed = {"passed": tested.passed}
        terminal.print_json({"ok": True, "file": str(file), "warnings": listed, **facts(config), "tests": passed})
        return
    if show_automata:
        draw(config, form or Format.MERMAID, drawn)
        return
    terminal.out().print(table(config, file))
    if tested.passed:
        terminal.out().print(f"tests: {tested.passed} passed")


def _check_rules(config: Config) -> None:
    """ConfigErrors if the rules of the pipeline are wrong."""
    from tidegate.config import ConfigErrors
    from tidegate.pipeline.rules import WrongRules, parse

    if config.pipeline is not None and config.pipeline.rules is not None:
        try:
            parse(config.pipeline.rules.read_text(encoding="utf-8"), str(config.pipeline.rules))
        except WrongRules as wrong:
            raise ConfigErrors(wrong.problems) from None
        except UnicodeDecodeError:
            raise ConfigError("it is not UTF-8; save it as that", file=str(config.pipeline.rules)) from None


def _show_warnings(warnings: list[tuple[int, str]], file: Path) -> None:
    for line, text in warnings:
        place = f"{file}:{line}: " if line else f"{file}: "
        terminal.err().print(Text.assemble(place, ("warning: ", "yellow"), terminal.harmless(text)))
