"""The `tidegate` command: puts its sub-commands together.

Exit codes: 0 done, 1 said no, 2 wrong usage. Only typer and the commands' signatures are imported here;
`--help` must not wait for anything else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tidegate
from tidegate.cli import capability, cert, importing, monitor, node_commands, pipeline, terminal
from tidegate.cli.administration import application, document_groups, key, source, token, user
from tidegate.cli.audit import audit
from tidegate.cli.explain import explain
from tidegate.cli.flow import flow
from tidegate.cli.http import api
from tidegate.cli.ktm import ktm
from tidegate.cli.pub import pub
from tidegate.cli.replay import replay
from tidegate.cli.simulate import simulate
from tidegate.cli.sub import sub
from tidegate.errors import ConfigError, TidegateError

if TYPE_CHECKING:
    from tidegate.config import Config

_RUN = "Run a node"
_USE = "Use a broker"
_ADMINISTER = "Administer a node over HTTP"
_MAKE = "Prepare"

app = typer.Typer(
    name="tidegate",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # they print local variables, and some of those are passwords
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"tidegate {tidegate.__version__}\n")
        raise typer.Exit


@app.callback()
def tidegate_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """An MQTT broker in which a message passes only if everybody who has a say agrees."""


def run(
    config: Annotated[Path | None, typer.Option("-c", "--config", help="Configuration file.", metavar="FILE")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", help="Port of an ephemeral node. Default: 1883.", min=1, max=65535),
    ] = None,
) -> None:
    """Run a node until it is stopped.

    Without a file it is an ephemeral one: on this machine only, open to everybody, forgotten when it ends.

    [dim]tidegate run -c tidegate.yaml[/dim]
    """
    import gc

    gc.disable()  # what is imported and built stays; the node enables it when it is ready
    from tidegate.audit import logs  # noqa: F401  first: it keeps structlog from importing rich
    from tidegate.config import Config, load

    if config is not None and port is not None:
        terminal.usage("--port is for an ephemeral node; the file says where others listen")
    if config is None:
        loaded = Config.ephemeral(port or 1883)
        if sys.stderr.isatty():  # in a log file the node's own lines say the same
            _ephemeral_notice(loaded)
    else:
        loaded = load(config)
    from tidegate import node

    raise typer.Exit(node.run(loaded, config))


def check(
    file: Annotated[Path, typer.Argument(help="Configuration file.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    show_automata: Annotated[
        bool, typer.Option("--show-automata", help="Draw the monitors instead of the summary.")
    ] = False,
    form: Annotated[
        monitor.Format | None, typer.Option("--format", help="How they are drawn. Default: mermaid.")
    ] = None,
    drawn: Annotated[
        str | None, typer.Option("--monitor", help="Draw only this one. Default: all.", metavar="ID")
    ] = None,
) -> None:
    """Validate a configuration, and run its `tests`.

    Exit code 0 and a summary, or 1 and one line `file:line: what is wrong; how to mend it` per problem.

    [dim]tidegate check tidegate.yaml[/dim]
    """
    from tidegate.audit.journals import journal_warning
    from tidegate.cli.summary import facts, table
    from tidegate.config import ConfigErrors, load
    from tidegate.errors import ConfigError
    from tidegate.explain.file_tests import run_tests
    from tidegate.node import verify

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
        monitor.draw(config, form or monitor.Format.MERMAID, drawn)
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


def passwd(
    user: Annotated[str | None, typer.Argument(help="User name, to print the whole entry.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the password from standard input.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Hash a password (argon2id) for `directory.users`.

    [dim]tidegate passwd mary[/dim]
    """
    from tidegate.cli.passwords import entry, read

    password = read(from_stdin=stdin)
    if not password:
        terminal.fail("the password is empty")
    from tidegate.authentication.passwords import hash_password

    hashed = hash_password(password)
    if json:
        terminal.print_json({"user": user, "password": hashed})
    else:
        sys.stdout.write(entry(user, hashed) + "\n")
        if sys.stdout.isatty():
            terminal.note("Paste it below `directory.users` in the configuration.")


def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="Write the reference page instead.")] = False,
) -> None:
    """Write the JSON schema of the configuration, for editors.

    [dim]tidegate schema > tidegate.schema.json[/dim]
    """
    import json

    from tidegate import config

    text = config.markdown() if markdown else json.dumps(config.schema(), indent=2, ensure_ascii=False) + "\n"
    sys.stdout.write(text)


def bench(context: typer.Context) -> None:
    """Measure: throughput, latency and memory against other brokers."""
    tree = Path(__file__).parents[3]
    if not (tree / "bench" / "cli.py").is_file():
        terminal.fail("the measurements are not part of the package; run them from a clone of the project: make bench")
    sys.path.insert(0, str(tree))
    try:
        from bench.cli import app as measurements
    except ModuleNotFoundError as missing:
        terminal.fail(f"{missing.name} is not installed; install the extra: pip install 'tidegate[bench]'")
    measurements(args=context.args, prog_name="tidegate bench")


def _ephemeral_notice(config: Config) -> None:
    from rich.panel import Panel

    terminal.err().print(
        Panel(
            f"[bold]{config.listeners[0].url}[/bold] lets everybody on this machine publish and subscribe to "
            "everything,\nand nothing survives when it stops. For more than a try: "
            "[cyan]tidegate run -c tidegate.yaml[/cyan]",
            title="ephemeral node, policy open",
            border_style="yellow",
            expand=False,
        )
    )


def _show_warnings(warnings: list[tuple[int, str]], file: Path) -> None:
    from rich.text import Text

    for line, text in warnings:
        place = f"{file}:{line}: " if line else f"{file}: "
        terminal.err().print(Text.assemble(place, ("warning: ", "yellow"), terminal.harmless(text)))


_command: Callable[..., None]
for _command in (
    run,
    check,
    explain,
    flow,
    simulate,
    replay,
    node_commands.status,
    node_commands.reload,
    node_commands.stop,
    audit,
    ktm,
):
    app.command(rich_help_panel=_RUN)(_command)
for _command in (pub, sub):
    app.command(rich_help_panel=_USE)(_command)
app.command(
    rich_help_panel=_USE,
    add_help_option=False,  # the measurements have their own
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(bench)
for _command in (passwd, schema):
    app.command(rich_help_panel=_MAKE)(_command)
app.command(hidden=True)(api)
app.add_typer(monitor.app, name="monitor", rich_help_panel=_RUN)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel=_RUN)
for _name, _group in (
    ("user", user.app),
    ("client", document_groups.client),
    ("policy", document_groups.policy),
    ("preference", document_groups.preference),
    ("key", key.app),
    ("token", token.app),
    ("application", application.app),
    ("source", source.app),
):
    app.add_typer(_group, name=_name, rich_help_panel=_ADMINISTER)
app.add_typer(cert.app, name="cert", rich_help_panel=_MAKE)
app.add_typer(capability.app, name="capability", rich_help_panel=_MAKE)
app.add_typer(importing.app, name="import", rich_help_panel=_MAKE)


def main() -> None:
    """The entry point: no exception that is meant for people ends as a traceback."""
    try:
        app(prog_name="tidegate")
    except ConfigError as wrong:
        for line in str(wrong).splitlines():  # `file:line: …`, as editors and scripts know it
            terminal.err().print(terminal.harmless(line), markup=False)
        sys.exit(terminal.NO)
    except TidegateError as wrong:
        terminal.error(str(wrong))
        sys.exit(terminal.NO)
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`). Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(terminal.NO)
    except KeyboardInterrupt:
        sys.exit(terminal.NO)
