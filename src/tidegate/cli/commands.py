"""The sub-commands of `tidegate`, put together.

A command is imported when it is named: a node does not carry the others,
and `--help` imports only typer and the signatures of the commands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

import tidegate
from tidegate.cli import terminal

_RUN: Final = "Run a node"
_USE: Final = "Use a broker"
_MAKE: Final = "Prepare"
_ADMINISTER: Final = "Administer a node over HTTP"

COMMANDS: Final = {
    "run": (_RUN, "run:run"),
    "check": (_RUN, "check:check"),
    "explain": (_RUN, "explain:explain"),
    "flow": (_RUN, "flow:flow"),
    "simulate": (_RUN, "simulate:simulate"),
    "replay": (_RUN, "replay:replay"),
    "learn": (_RUN, "learn:learn"),
    "status": (_RUN, "node_commands:status"),
    "reload": (_RUN, "node_commands:reload"),
    "stop": (_RUN, "node_commands:stop"),
    "audit": (_RUN, "audit:audit"),
    "backup": (_RUN, "backup:backup"),
    "restore": (_RUN, "backup:restore"),
    "shadow": (_RUN, "shadow:app"),
    "ktm": (_RUN, "run:ktm"),
    "pub": (_USE, "pub:pub"),
    "sub": (_USE, "sub:sub"),
    "bench": (_USE, "commands:bench"),
    "init": (_MAKE, "init:init"),
    "demo": (_MAKE, "demo:demo"),
    "passwd": (_MAKE, "passwd:passwd"),
    "schema": (_MAKE, "commands:schema"),
    "api": (None, "run:api"),
    "kept": (None, "kept_data:kept"),
    "monitor": (_RUN, "monitor:app"),
    "link": (_RUN, "link:app"),
    "clients": (_RUN, "live:clients"),
    "sessions": (_RUN, "live:sessions"),
    "topics": (_RUN, "live:topics"),
    "subscriptions": (_RUN, "live:subscriptions"),
    "pipeline": (_RUN, "pipeline:app"),
    "apply": (_ADMINISTER, "administration.apply:apply"),
    "user": (_ADMINISTER, "administration.accounts:user"),
    "client": (_ADMINISTER, "administration.documents:client"),
    "policy": (_ADMINISTER, "administration.documents:policy"),
    "preference": (_ADMINISTER, "administration.documents:preference"),
    "me": (_ADMINISTER, "administration.me:app"),
    "erasure": (_ADMINISTER, "administration.erasure:app"),
    "key": (_ADMINISTER, "administration.key:app"),
    "token": (_ADMINISTER, "administration.token:app"),
    "application": (_ADMINISTER, "administration.accounts:application"),
    "source": (_ADMINISTER, "administration.accounts:source"),
    "cert": (_MAKE, "cert:app"),
    "capability": (_MAKE, "capability:app"),
    "import": (_MAKE, "importing:app"),
}
"""Each command with its panel in `--help` (None: hidden), and the module and name of its function or group."""


def load_command(name: str) -> Callable[..., None] | typer.Typer:
    module, _, attribute = COMMANDS[name][1].partition(":")
    command: Callable[..., None] | typer.Typer = getattr(import_module(f"tidegate.cli.{module}"), attribute)
    return command


class _LazyCommands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # an unknown name: typer suggests from those that are loaded
        for name in (cmd_name,) if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.commands[name] = _built(name)
        return self.commands.get(cmd_name)


def _built(name: str) -> Any:
    panel, _ = COMMANDS[name]
    command = load_command(name)
    if not isinstance(command, typer.Typer):
        settings: dict[str, Any] = {}
        if name == "bench":  # the measurements read their arguments themselves, --help among them
            settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        function, command = command, terminal.command_group("")
        command.command(name, hidden=panel is None, context_settings=settings)(function)
    built: Any = get_command(command)
    built.name, built.rich_help_panel = name, panel
    return built


app = typer.Typer(
    name="tidegate",
    cls=_LazyCommands,
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
