"""`tidegate monitor …`: automata, looked at and tried out; and their pictures for `tidegate check`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.node_commands import NodeOptions, with_node
from tidegate.cli.options import File, Json
from tidegate.cli.tables import rows_table

if TYPE_CHECKING:
    from tidegate.config import Config
    from tidegate.monitor import Attachment, Event
    from tidegate.simulate.monitor_trace import Row

_ROOM: Final = 60

Id = Annotated[str, typer.Argument(help="Id of the monitor.", show_default=False)]

app = terminal.command_group("Monitors: what is expected on links, one event after the other.")


class Format(StrEnum):
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


@app.command("try")
def try_command(
    file: File,
    id: Id,
    trace: Annotated[
        typer.FileText,
        typer.Argument(help="Trace: JSON lines; - is standard input.", show_default=False, encoding="utf-8"),
    ],
    json: Json = False,
) -> None:
    """Feed a trace to a monitor, without a node, and see what comes out.

    Each line of the trace is an object: topic, payload, qos, retain, and at (seconds, or +3s after the line before).
    A line with only `at` lets time go by.

    [dim]tidegate monitor try tidegate.yaml door door.jsonl[/dim]
    """
    import time

    from tidegate.config import load
    from tidegate.simulate.monitor_trace import play, read

    config = load(file)
    attachment = chosen(config, id)
    lines = list(read(trace, config.built.rules, file=trace.name, wall=time.time()))
    rows = play(attachment.monitor, lines)
    if json:
        for row in rows:
            terminal.print_json(_document(row))
    else:
        start = ("", "", _state(attachment.monitor.start()), "")
        cells = [(f"{row.at:g}", _event_text(row.event), _state(row.state), _output(row)) for row in rows]
        terminal.out().print(rows_table(("at", "event", "state", "out"), (start, *cells), numbers=(0,)))


@app.command("list")
@with_node
def list_command(node: NodeOptions) -> None:
    """List the monitors of a running node, and what each has seen since it was started.

    [dim]tidegate monitor list -c tidegate.yaml[/dim]
    """
    monitors = node.ask("monitor_list")["monitors"]
    if node.json:
        terminal.print_json(monitors)
    elif monitors:
        terminal.out().print(_rows([_brief(row) for row in monitors]))
    else:
        terminal.note("There are no monitors.")


@app.command("state")
@with_node
def state_command(
    node: NodeOptions,
    id: Id,
    of: Annotated[
        str | None, typer.Option("--of", help="Whose state, as the list shows it.", show_default=False)
    ] = None,
) -> None:
    """Show the states of a monitor: one for each link, client or scope.

    [dim]tidegate monitor state door -c tidegate.yaml[/dim]
    """
    answer = node.ask("monitor_state", id=id, key=of)
    if node.json:
        terminal.print_json(answer)
    elif answer["states"]:
        terminal.out().print(_rows(answer["states"]))
        if answer["more"]:
            terminal.note("There are more; ask for one with --of.")
    else:
        terminal.note("Nothing has reached it yet.")


@app.command("reset")
@with_node
def reset_command(
    node: NodeOptions,
    id: Id,
    of: Annotated[
        str | None, typer.Option("--of", help="Whose state, as `state` shows it; all without.", show_default=False)
    ] = None,
) -> None:
    """Put a monitor back to its start, for all or for one.

    [dim]tidegate monitor reset door --of "user:mary client:lock->scope:home" -c tidegate.yaml[/dim]
    """
    answer = node.ask("monitor_reset", id=id, key=of)
    terminal.done(f"{terminal.counted(answer['reset'], 'state')} back at the start", answer, json=node.json)


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    """What fits on a line; --json tells all of it."""
    left = {name: value for name, value in row.items() if name not in ("scope", "seconds")}
    return left | ({"seconds": row["seconds"]} if row["seconds"] else {})


def _rows(rows: list[dict[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    numbers = [
        index
        for index, name in enumerate(names)
        if name != "state" and any(isinstance(row.get(name), int | float) for row in rows)
    ]
    cells = [[_state(row[name]) if name == "state" else str(row.get(name, "")) for name in names] for row in rows]
    return rows_table(names, cells, numbers=numbers)


def chosen(config: Config, id: str) -> Attachment:
    """The monitor of that id; ends the command if there is none."""
    from tidegate.config.problems import suggestion

    monitors = config.built.rules.monitors
    found = monitors.by_id.get(id)
    if found is None:
        meant = suggestion(id, monitors.by_id)
        remedy = f"did you mean {meant}?" if meant else f"there are {', '.join(monitors.by_id) or 'none'}"
        terminal.usage(f"there is no monitor {id}; {remedy}")
    return found


def draw(config: Config, form: Format, id: str | None) -> None:
    from tidegate.flow.drawing import automaton

    found = list(config.built.rules.monitors) if id is None else [chosen(config, id)]
    if not found:
        terminal.note("There are no monitors.")
    if form is Format.SVG and len(found) > 1:
        names = ", ".join(each.id for each in found)
        terminal.usage(f"an SVG file holds one picture; choose one with --monitor: {names}")
    formats = {
        Format.MERMAID: automaton.mermaid,
        Format.DOT: automaton.dot,
        Format.SVG: automaton.svg,
    }
    picture = formats[form]
    for index, each in enumerate(found):
        sys.stdout.write(("\n" if index else "") + picture(each.id, each.monitor.graph()))


def _document(row: Row) -> dict[str, Any]:
    made: dict[str, Any] = {"at": row.at, "event": None if row.event.is_tick else _event(row.event)}
    made |= {"state": row.state, "outputs": [_event(each) for each in row.outputs]}
    return made if row.failure is None else made | {"failure": row.failure}


def _event(event: Event) -> dict[str, Any]:
    payload = event.payload.decode(errors="replace")
    return {"topic": event.topic, "payload": payload, "qos": event.qos, "retain": event.retain}


def _output(row: Row) -> Any:
    if row.failure is not None:
        return Text(f"suppressed: {terminal.harmless(row.failure)}", style="red")
    if not row.outputs:
        return Text("-", style="dim") if row.event.is_tick else Text("suppressed", style="yellow")
    return Text("\n").join(Text("same") if each is row.event else _event_text(each) for each in row.outputs)


def _event_text(event: Event) -> Any:
    if event.is_tick:
        return Text("(silence)", style="dim")
    flags = [f"QoS {event.qos}"] if event.qos else []
    flags += ["retained"] if event.retain else []
    payload = terminal.harmless(event.payload.decode(errors="replace"), lines=False)
    parts = (terminal.harmless(event.topic, lines=False), payload, f"({', '.join(flags)})" if flags else "")
    return Text(" ".join(filter(None, parts)))


def _state(state: Any) -> Any:
    import json

    text = state if isinstance(state, str) else json.dumps(state)
    if len(text) > _ROOM:
        text = f"{text[: _ROOM - 1]}…"  # --json tells all of it
    return Text(terminal.harmless(text, lines=False), style="cyan")
