"""`tidegate check`: validates a configuration, runs its tests, and draws its monitors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.monitor import Format, draw
from tidegate.cli.options import File, Json
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidegate.config import Config, Listener


def check(
    file: File,
    over: Annotated[
        Path | None,
        typer.Option(
            "-c",
            "--config",
            help="Configuration whose keys FILE replaces: FILE then needs nothing but those, as `tidegate learn` "
            "writes it.",
            metavar="BASE",
            show_default=False,
        ),
    ] = None,
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
    from tidegate.config import ConfigErrors, load
    from tidegate.config.document import read_source
    from tidegate.config.load import exposed_files
    from tidegate.explain.file_tests import run_tests
    from tidegate.node.verification import verify
    from tidegate.pipeline.replay.candidate import overlay

    if json and show_automata:
        terminal.usage("--show-automata draws, and --json writes no pictures; leave one of them out")
    if not show_automata and (form is not None or drawn is not None):
        terminal.usage("--format and --monitor say how --show-automata draws; add that, or leave them out")
    try:
        config = load(file) if over is None else overlay(read_source(over), read_source(file))
        verify(config)
        _check_rules(config)
        tested = run_tests(config, file=str(file))
        missing = journal_warning(config)
        extras = [] if missing is None else [(config.location("node", "data").line, missing)]
        extras += exposed_files(config)
        warnings = sorted([*config.warnings(), *tested.warnings, *extras], key=lambda warning: warning[0])
        if not json:
            for line, text in warnings:
                terminal.warning(text, f"{file}:{line}: " if line else f"{file}: ")
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
        terminal.print_json({"ok": True, "file": str(file), "warnings": listed, **_facts(config), "tests": passed})
        return
    if show_automata:
        draw(config, form or Format.MERMAID, drawn)
        return
    terminal.out().print(_summary(config, file))
    if tested.passed:
        terminal.out().print(f"tests: {tested.passed} passed")


def _check_rules(config: Config) -> None:
    from tidegate.config import ConfigErrors
    from tidegate.pipeline.rules import WrongRules, parse

    if config.pipeline is not None and config.pipeline.rules is not None:
        try:
            parse(config.pipeline.rules.read_text(encoding="utf-8"), str(config.pipeline.rules))
        except WrongRules as wrong:
            raise ConfigErrors(wrong.problems) from None
        except UnicodeDecodeError:
            raise ConfigError("it is not UTF-8; save it as that", file=str(config.pipeline.rules)) from None


# -- what is told about a configuration that is fine: never a password or a key ----------------------------------------


def _facts(config: Config) -> dict[str, Any]:
    return {
        "node": config.node.name,
        "domain": config.node.domain,
        "data": None if config.node.data is None else str(config.node.data),
        "policies": _policies(config),
        "policy_version": config.built.policy_version,
        "preferences": len(config.preferences),
        "views": len(config.views),
        "monitors": len(config.monitors),
        "durability": str(config.durability),
        "scopes": list(config.scopes),
        "listeners": [
            {"url": str(each.url), "scope": each.scope, "admits": _admits(each)} for each in config.listeners
        ],
        "users": len(config.directory.users),
        "clients": len(config.directory.clients),
        "limits": config.limits.model_dump(mode="json"),
    }


def _admits(listener: Listener) -> list[str]:
    from tidegate.config import ClientCert

    match listener.client_cert:
        case ClientCert.REQUIRED:
            return ["certificate"]
        case ClientCert.OPTIONAL:
            ways = ["certificate", "password"]
        case _:
            ways = ["password"]
    return [*ways, "anonymous"] if listener.anonymous else ways


def _policies(config: Config) -> str | int:
    """How many there are; `open` if everything passes, `deny` if there is none."""
    from tidegate.config import Policies

    if config.policies is Policies.OPEN:
        return "open"
    return len(config.policies) if config.policies else "deny"


def _said(config: Config) -> str:
    match _policies(config):
        case "open":
            return "open: everything passes"
        case "deny":
            return "none: nothing passes"
        case number:
            more = {"preferences": len(config.preferences), "views": len(config.views)}
            told = "".join(f", {count:,} {name}" for name, count in more.items() if count)
            return f"{number:,}{told}; {config.combining.value}"


def _summary(config: Config, file: Path) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table

    listeners = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in ("listener", "scope", "admits", "connections", "max packet"):
        listeners.add_column(title, no_wrap=title == "listener")
    limits = config.limits.model_dump(mode="json")
    sizes = [each.model_dump(mode="json")["max_packet"] for each in config.listeners]
    for each, largest in zip(config.listeners, sizes, strict=True):
        listeners.add_row(
            Text(str(each.url), style="cyan"),
            each.scope,
            " or ".join(_admits(each)),
            f"{each.max_connections:,}",
            largest,
        )
    rest = Table.grid(padding=(0, 2))
    rest.add_column(style="bold")
    rest.add_column()
    rest.add_row("policies", Text(_said(config)))
    if config.monitors:
        rest.add_row("monitors", f"{len(config.monitors):,}")
    rest.add_row("directory", f"{len(config.directory.users):,} users, {len(config.directory.clients):,} clients")
    rest.add_row(
        "data", Text("none: nothing survives a restart" if config.node.data is None else str(config.node.data))
    )
    rest.add_row("durability", str(config.durability))
    queue = limits["queue"]
    rest.add_row("queues", f"{queue['messages']:,} messages or {queue['bytes']} per session, then {queue['full']}")
    rest.add_row(
        "sessions", f"kept {limits['session_expiry'] or 'as long as the client asks'} after the client disconnects"
    )
    heading = Text.assemble(("✓ ", "bold green"), (str(file), "bold"), f" is fine: node {config.node.name}")
    return Group(heading, listeners, rest)
