"""`tidegate flow`: who can reach whom, by which route; what the assertions say; and pictures of all that.

A table has a row for each two entities, or bundles of clients that are alike. Where that were too many rows it has one
for each scope instead, and says how to ask for more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, assert_never

import typer

from tidegate.cli import terminal

if TYPE_CHECKING:
    from rich.text import Text

    from tidegate.config import Config
    from tidegate.flow import Assertion, ConnectionGraph, Reach, Violation
    from tidegate.flow.bundles import ThinnedGraph
    from tidegate.flow.presence import Presence

_ROWS: Final = 500
"""More are nothing to read."""
_DOCUMENT: Final = 100_000
_SCOPE_TITLES: Final = ("scope", "clients at it", "reaches scopes", "clients", "reached by scopes", "clients")
_NAMED: Final = 8
"""Scopes in a line."""


class Format(StrEnum):
    """How flows are shown."""

    TABLE = "table"
    JSON = "json"
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


def flow(
    file: Annotated[Path, typer.Argument(help="Configuration file.", show_default=False)],
    source: Annotated[
        str | None, typer.Option("--from", help="Only what flows from this client or scope.", metavar="NAME")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", help="Only what flows to this client or scope.", metavar="NAME")
    ] = None,
    paths: Annotated[
        bool, typer.Option("--paths", help="Through clients, too, which may tell what they have read.")
    ] = False,
    form: Annotated[Format, typer.Option("--format", help="How it is shown.")] = Format.TABLE,
    live: Annotated[
        bool, typer.Option("--live", help="With those who are connected to the running node, not those in the file.")
    ] = False,
    socket: Annotated[
        Path | None,
        typer.Option(
            "--socket", help="For --live: its control socket, if not where the file says.", show_default=False
        ),
    ] = None,
) -> None:
    """Show who can reach whom, by which route, and whether `flows` holds.

    Exit code 0, or 1 if something flows that is forbidden, or cannot flow that is required.

    [dim]tidegate flow tidegate.yaml --from client:MD --to scope:internet --paths[/dim]
    """
    from tidegate.flow.watch import connection_graph, violated

    if socket is not None and not live:
        terminal.usage("--socket has no effect without --live; leave it out")
    config = _config(file)
    rules, asserted = config.built.rules, config.built.flows
    presences = _connected(socket or config.control_socket) if live else config.built.presences
    graph = connection_graph(rules.space, rules.brokering, presences)
    wanted = _Wanted(graph, source, target, paths)
    broken = {one.assertion: one for one in violated(rules.space, rules.brokering, presences, asserted)}
    if live:  # who is not there has not failed to be reached
        broken = {each: one for each, one in broken.items() if not one.absent}
    parents = {f"scope:{child}": tuple(f"scope:{one}" for one in some) for child, some in rules.space.parents.items()}
    match form:
        case Format.TABLE:
            _print_tables(config, wanted, asserted, broken)
        case Format.JSON:
            terminal.print_json(_document(wanted, asserted, broken))
        case Format.MERMAID | Format.DOT | Format.SVG:
            sys.stdout.write(_drawn(form, config.node.name, wanted, parents))
            _note_broken(broken.values())
        case _:
            assert_never(form)
    if broken:
        raise typer.Exit(terminal.NO)


class _Wanted:
    """What was asked for."""

    def __init__(self, graph: ConnectionGraph, source: str | None, target: str | None, paths: bool) -> None:
        self.graph = graph
        self.source = None if source is None else _entity(graph, source)
        self.target = None if target is None else _entity(graph, target)
        self.paths = paths

    @property
    def everything(self) -> bool:
        return self.source is None and self.target is None

    @property
    def named(self) -> list[str]:
        return [name for name in (self.source, self.target) if name is not None]

    @property
    def by(self) -> str:
        return "path" if self.paths else "route"


def _config(file: Path) -> Config:
    """Flows that do not hold are no reason not to show them, and certificates are not needed."""
    from tidegate.config import ConfigErrors, load, parse

    try:
        return load(file)
    except ConfigErrors:
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            text = None
        if text is None:
            raise
        return parse(text, file)


def _connected(control: Path) -> list[Presence]:
    from tidegate.flow.presence import Presence
    from tidegate.net.control_socket import follow

    return [Presence(**one) for piece in follow(control, "flow") for one in piece]


def _entity(graph: ConnectionGraph, written: str) -> str:
    """An entity of the graph, by its name with or without its kind; ends the command if there is none."""
    from tidegate.config.problems import suggestion
    from tidegate.flow.graph import KINDS

    if written in graph:
        return written
    found = [kind + written for kind in KINDS if kind + written in graph]
    if len(found) > 1:
        terminal.usage(f"`{written}` may be {' or '.join(found)}; write it so")
    if not found:
        bare = {name.partition(":")[2]: name for name in graph.entities}
        meant = suggestion(written, graph.entities) or bare.get(suggestion(written, bare), "")
        remedy = f"did you mean {meant}?" if meant else "`tidegate flow` without --from and --to shows all"
        terminal.usage(f"there is no `{written}` here; {remedy}")
    return found[0]


# -- tables --------------------------------------------------------------------------------------------------------


def _print_tables(
    config: Config, wanted: _Wanted, asserted: Iterable[Assertion], broken: Mapping[Assertion, Violation]
) -> None:
    from tidegate.flow import groups

    out, graph = terminal.out(), wanted.graph
    out.print(
        f"{config.node.name}: {_counted(len(graph.scopes), 'scope')}, {_counted(len(graph.devices), 'client')}, "
        f"{_counted(len(graph.links), 'link')}; by {wanted.by}s",
        markup=False,
    )
    out.print()
    _print_flows(wanted)
    said = [_asserted(one, broken.get(one), graph) for one in asserted]
    if said:
        out.print("[bold]flows[/bold]")
        for line in said:
            out.print(line)
        out.print()
    if wanted.everything and len(graph.scopes) > 1:
        out.print("[bold]groups of scopes that trust each other[/bold]")
        for group in groups(graph):
            more = f" and {len(group) - _NAMED:,} more" if len(group) > _NAMED else ""
            out.print(f"  {', '.join(group[:_NAMED])}{more}", markup=False)


def _print_flows(wanted: _Wanted) -> None:
    from tidegate.flow import Reach
    from tidegate.flow.bundles import ThinnedGraph
    from tidegate.flow.drawing.graph_formats import flows, rows

    thin = ThinnedGraph(wanted.graph, apart=wanted.named)
    if wanted.everything:
        reach = Reach(thin.graph, paths=wanted.paths)
        if reach.entity_pairs > _ROWS:
            _print_lines(_SCOPE_TITLES, _by_scope(thin, reach), right=True)
            terminal.note(
                f"There are too many flows for a table ({reach.entity_pairs:,} rows): narrow them with --from or --to."
            )
            return
    found = list(rows(flows(thin.graph, source=wanted.source, target=wanted.target, paths=wanted.paths)))
    if found:
        named = ((thin.bundle_label(one), thin.bundle_label(other), way) for one, other, way in found)
        _print_lines(("from", "to", "by"), _grouped(named, apart=wanted.target is None))
    elif not wanted.everything:
        terminal.note(f"Nothing flows from {wanted.source or 'anybody'} to {wanted.target or 'anybody'}.")


def _grouped(found: Iterable[tuple[str, str, str]], *, apart: bool) -> list[tuple[str, ...]]:
    """Where flows come from is said once; a line is free between groups, if they are `apart`."""
    lines: list[tuple[str, ...]] = []
    before = ""
    for source, target, way in found:
        if apart and before and source != before:
            lines.append(())
        lines.append((source if source != before else "", target, way))
        before = source
    return lines


def _by_scope(thin: ThinnedGraph, reach: Reach) -> list[tuple[str, ...]]:
    """For each scope, who is at it, how many it reaches, and how many reach it."""
    from tidegate.flow.graph import is_scope

    lines: list[tuple[str, ...]] = []
    for scope in thin.graph.scopes:
        heard = {link.source for link in thin.graph.entering(scope) if not is_scope(link.source)}
        at = heard.union(link.target for link in thin.graph.notices(scope))
        there = _sizes(thin, (name for name in reach.reached(scope) if name != scope))
        here = _sizes(thin, (name for name in thin.graph.entities if name != scope and reach.reaches(name, scope)))
        lines.append((scope, *(f"{number:,}" for number in (_sizes(thin, at)[1], *there, *here))))
    return lines


def _print_lines(titles: Sequence[str], lines: Sequence[Sequence[str]], *, right: bool = False) -> None:
    """In columns. What is too long for a terminal goes on in its next line: routes are not cut."""
    from rich.cells import cell_len
    from rich.text import Text

    shown = [[terminal.harmless(cell, lines=False) for cell in line] for line in lines]
    widths = [max(cell_len(title), *(cell_len(line[at]) for line in shown if line)) for at, title in enumerate(titles)]
    rule = ["─" * width for width in widths]
    for number, line in enumerate([list(titles), rule, *shown]):
        cells = []
        for at, cell in enumerate(line):
            room = " " * (widths[at] - cell_len(cell))
            cells.append(room + cell if right and at else cell + room)
        style = "bold" if number == 0 else "dim" if number == 1 else ""
        terminal.out().print(Text("  ".join(cells).rstrip(), style=style))
    terminal.out().print()


def _sizes(thin: ThinnedGraph, names: Iterable[str]) -> tuple[int, int]:
    """How many scopes there are among names, and how many clients."""
    from tidegate.flow.graph import is_scope

    scopes = clients = 0
    for name in names:
        if is_scope(name):
            scopes += 1
        else:
            clients += thin.size(name)
    return scopes, clients


def _asserted(assertion: Assertion, broken: Violation | None, graph: ConnectionGraph) -> Text:
    from rich.text import Text

    from tidegate.flow import Expect, shortest

    if broken is not None:
        return Text.assemble(("  ✗ ", "red"), terminal.harmless(str(broken)))
    by = "path" if assertion.paths else "route"
    absent = assertion.absent(graph)
    why = f": {' and '.join(f'`{name}`' for name in absent)} not there" if absent else ""
    if assertion.expect is Expect.FORBID:
        return Text.assemble(
            ("  ✓ ", "green"), terminal.harmless(f"`{assertion}` is forbidden, and there is no {by}{why}")
        )
    if absent:
        return Text.assemble(("  - ", "dim"), terminal.harmless(f"`{assertion}` is required, and cannot be seen{why}"))
    route = shortest(graph, assertion.source, assertion.target, paths=assertion.paths)
    return Text.assemble(
        ("  ✓ ", "green"), terminal.harmless(f"`{assertion}` is required, and there is the {by} {route}")
    )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


# -- for programs --------------------------------------------------------------------------------------------------


def _document(
    wanted: _Wanted, asserted: Iterable[Assertion], broken: Mapping[Assertion, Violation]
) -> dict[str, object]:
    from tidegate.flow import Reach
    from tidegate.flow.drawing.graph_formats import document, flows

    if wanted.everything:
        count = Reach(wanted.graph, paths=wanted.paths).entity_pairs
        if count > _DOCUMENT:
            terminal.usage(f"there are {count:,} flows, too many for one document; narrow them with --from or --to")
    found = flows(wanted.graph, source=wanted.source, target=wanted.target, paths=wanted.paths)
    return {
        **document(wanted.graph, found, paths=wanted.paths),
        "assertions": [_said(one, broken.get(one), one.absent(wanted.graph)) for one in asserted],
    }


def _said(assertion: Assertion, broken: Violation | None, absent: Sequence[str]) -> dict[str, object]:
    said: dict[str, object] = {"from": assertion.source, "to": assertion.target, "expect": assertion.expect.value}
    said |= {"by": "paths" if assertion.paths else "routes", "holds": broken is None, "absent": list(absent)}
    return said if broken is None or broken.route is None else said | {"route": list(broken.route.entities)}


def _drawn(form: Format, title: str, wanted: _Wanted, parents: Mapping[str, tuple[str, ...]]) -> str:
    """The graph; only what one reaches, or what reaches one; or with the route between two."""
    from tidegate.flow import Reach, shortest
    from tidegate.flow.bundles import within
    from tidegate.flow.drawing.graph_formats import dot, mermaid
    from tidegate.flow.drawing.graph_svg import svg

    graph, route, source, target = wanted.graph, None, wanted.source, wanted.target
    if source is not None and target is not None:
        route = shortest(graph, source, target, paths=wanted.paths)
        if route is None:
            terminal.note(f"Nothing flows from {source} to {target}.")
    elif not wanted.everything:
        reach = Reach(graph, paths=wanted.paths)
        if source is not None:
            graph = within(graph, (source, *reach.reached(source)))
        elif target is not None:
            graph = within(graph, (target, *(name for name in graph.entities if reach.reaches(name, target))))
    draw = {Format.MERMAID: mermaid, Format.DOT: dot, Format.SVG: svg}[form]
    return draw(title, graph, parents, route)


def _note_broken(broken: Iterable[Violation]) -> None:
    """A picture does not say it."""
    for one in broken:
        terminal.error(str(one))
