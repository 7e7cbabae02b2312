"""`tidegate flow`: who can reach whom, by which route; what the assertions say; and pictures of all that.

A table has a row for each two entities, or bundles of clients that are alike. Where that were too many rows it has one
for each scope instead, and says how to ask for more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, assert_never

import typer
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.options import File
from tidegate.cli.tables import aligned

if TYPE_CHECKING:
    from tidegate.config import Config
    from tidegate.flow.assertions import Assertion, Violation
    from tidegate.flow.bundles import ThinnedGraph
    from tidegate.flow.graph import ConnectionGraph
    from tidegate.flow.network import Network
    from tidegate.flow.reach import Reach

_ROWS: Final = 500
"""More are nothing to read."""
_DOCUMENT: Final = 100_000
_SCOPE_TITLES: Final = ("scope", "clients at it", "reaches scopes", "clients", "reached by scopes", "clients")
_NAMED: Final = 8
"""Scopes in a line."""


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


def flow(
    file: File,
    source: Annotated[
        str | None, typer.Option("--from", help="Only what flows from this client or scope.", metavar="NAME")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", help="Only what flows to this client or scope.", metavar="NAME")
    ] = None,
    paths: Annotated[
        bool, typer.Option("--paths", help="Follow paths through clients too: a client can pass on what it reads.")
    ] = False,
    nodes: Annotated[
        list[Path] | None,
        typer.Option(
            "--node",
            help="The file of another node that is linked with this one. May be repeated.",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Use the clients connected to the running node, not those in the file, and what neighbours tell.",
        ),
    ] = False,
    socket: Annotated[
        Path | None,
        typer.Option(
            "--socket", help="With --live: control socket of the node. Default: as configured.", show_default=False
        ),
    ] = None,
) -> None:
    """Show who can reach whom, by which route, and whether `flows` holds.

    Exit code 0, or 1 if something flows that is forbidden, or cannot flow that is required.

    [dim]tidegate flow tidegate.yaml --from client:MD --to scope:internet --paths[/dim]
    """
    from tidegate.flow.assertions import violations
    from tidegate.flow.network import Member, Network, add_told
    from tidegate.flow.presence import Presence
    from tidegate.net.control_socket import follow
    from tidegate.policy.known_nodes import NodeState

    if socket is not None and not live:
        terminal.usage("--socket has no effect without --live; leave it out")
    configs = [_config(each) for each in (file, *(nodes or ()))]
    config = configs[0]
    presences = [each.built.presences for each in configs]
    if live:
        pieces = follow(socket or config.control_socket, "flow")
        presences[0] = tuple([Presence(**presence) for piece in pieces for presence in piece])
    rules = [each.built.rules for each in configs]
    members = [
        Member(name=each.node.name, space=rule.space, brokering=rule.brokering, presences=there)
        for each, rule, there in zip(configs, rules, presences, strict=True)
    ]
    network = Network(members)
    graph = network.graph()
    if live and not nodes:
        for told in follow(socket or config.control_socket, "flow_nodes"):
            states = {node: NodeState.decode(bytes.fromhex(data)) for node, data in told["states"].items()}
            add_told(graph, rules[0].space, told["own"], states)
    selection = _Selection(graph=graph, source=_entity(graph, source), target=_entity(graph, target), paths=paths)
    asserted = [
        each for member, one in zip(members, configs, strict=True) for each in network.asserted(member, one.built.flows)
    ]
    # with --live, a client that is not connected has not failed to be reached
    broken = {each.assertion: each for each in violations(asserted, graph) if not (live and each.absent)}
    match form:
        case Format.TABLE:
            _print_tables(network.title, selection, asserted, broken)
        case Format.JSON:
            terminal.print_json(_document(selection, asserted, broken))
        case Format.MERMAID | Format.DOT | Format.SVG:
            sys.stdout.write(_drawn(form, network, selection))
            for violation in broken.values():  # a picture does not show it
                terminal.error(str(violation))
        case _:
            assert_never(form)
    if broken:
        raise typer.Exit(terminal.NO)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """Which flows are shown: from `source`, to `target`, by routes or by paths."""

    graph: ConnectionGraph
    source: str | None
    target: str | None
    paths: bool

    @property
    def everything(self) -> bool:
        return self.source is None and self.target is None

    @property
    def by(self) -> str:
        return "path" if self.paths else "route"


def _config(file: Path) -> Config:
    """Flows that do not hold are no reason not to show them, and certificates are not needed."""
    from tidegate.config import ConfigErrors, load, parse

    try:
        return load(file)
    except ConfigErrors:
        with suppress(OSError, UnicodeDecodeError):
            return parse(file.read_text(encoding="utf-8-sig"), file)
        raise


def _entity(graph: ConnectionGraph, written: str | None) -> str | None:
    """The name of an entity in the graph; `written` may leave out its kind. Ends the command if there is none."""
    from tidegate.config.problems import suggestion
    from tidegate.flow.graph import KINDS

    if written is None or written in graph:
        return written
    names = [kind + written for kind in KINDS if kind + written in graph]
    if len(names) > 1:
        terminal.usage(f"`{written}` may be {' or '.join(names)}; write it so")
    if not names:
        bare = {name.partition(":")[2]: name for name in graph.entities}
        meant = suggestion(written, graph.entities) or bare.get(suggestion(written, bare), "")
        remedy = f"did you mean {meant}?" if meant else "`tidegate flow` without --from and --to shows all"
        terminal.usage(f"there is no `{written}` here; {remedy}")
    return names[0]


# -- tables --------------------------------------------------------------------------------------------------------


def _print_tables(
    title: str, selection: _Selection, asserted: Iterable[Assertion], broken: Mapping[Assertion, Violation]
) -> None:
    from tidegate.flow.groups import groups

    out, graph = terminal.out(), selection.graph
    kinds = ((graph.scopes, "scope"), (graph.devices, "client"), (graph.links, "link"))
    counts = ", ".join(terminal.counted(len(entities), kind) for entities, kind in kinds)
    out.print(f"{title}: {counts}; by {selection.by}s", markup=False)
    out.print()
    _print_flows(selection)
    if assertions := list(asserted):
        out.print("[bold]flows[/bold]")
        for assertion in assertions:
            out.print(_asserted(assertion, broken.get(assertion), graph))
        out.print()
    if selection.everything and len(graph.scopes) > 1:
        out.print("[bold]groups of scopes that trust each other[/bold]")
        for group in groups(graph):
            more = f" and {len(group) - _NAMED:,} more" if len(group) > _NAMED else ""
            out.print(f"  {', '.join(group[:_NAMED])}{more}", markup=False)


def _print_flows(selection: _Selection) -> None:
    from tidegate.flow.bundles import ThinnedGraph
    from tidegate.flow.drawing.graph import flows, rows
    from tidegate.flow.reach import Reach

    thin = ThinnedGraph(
        selection.graph, apart=[name for name in (selection.source, selection.target) if name is not None]
    )
    if selection.everything:
        reach = Reach(thin.graph, paths=selection.paths)
        if reach.entity_pairs > _ROWS:
            _print_lines(_SCOPE_TITLES, _by_scope(thin, reach), right=True)
            terminal.note(
                f"There are too many flows for a table ({reach.entity_pairs:,} rows): narrow them with --from or --to."
            )
            return
    flow_rows = list(rows(flows(thin.graph, source=selection.source, target=selection.target, paths=selection.paths)))
    if flow_rows:
        named = ((thin.bundle_label(start), thin.bundle_label(end), way) for start, end, way in flow_rows)
        _print_lines(("from", "to", "by"), _grouped(named, apart=selection.target is None))
    elif not selection.everything:
        terminal.note(f"Nothing flows from {selection.source or 'anybody'} to {selection.target or 'anybody'}.")


def _grouped(rows: Iterable[tuple[str, str, str]], *, apart: bool) -> list[tuple[str, ...]]:
    """Where flows come from is said once; a line is free between groups, if they are `apart`."""
    lines: list[tuple[str, ...]] = []
    before = ""
    for source, target, way in rows:
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
    rows = [[Text(terminal.harmless(cell, lines=False)) for cell in line] for line in lines]
    for line in aligned(titles, rows, right=titles[1:] if right else ()):
        terminal.out().print(line)
    terminal.out().print()


def _sizes(thin: ThinnedGraph, names: Iterable[str]) -> tuple[int, int]:
    """How many scopes there are among names, and how many clients."""
    from tidegate.flow.graph import is_scope

    listed = list(names)
    clients = [thin.size(name) for name in listed if not is_scope(name)]
    return len(listed) - len(clients), sum(clients)


def _asserted(assertion: Assertion, broken: Violation | None, graph: ConnectionGraph) -> Text:
    from tidegate.flow.assertions import Expect
    from tidegate.flow.route import shortest

    if broken is not None:
        return Text.assemble(("  ✗ ", "red"), terminal.harmless(str(broken)))
    by = "path" if assertion.paths else "route"
    absent = assertion.absent(graph)
    why = f": {' and '.join(f'`{name}`' for name in absent)} not there" if absent else ""
    mark = ("  ✓ ", "green")
    if assertion.expect is Expect.FORBID:
        text = f"is forbidden, and there is no {by}{why}"
    elif absent:
        mark, text = ("  - ", "dim"), f"is required, and cannot be seen{why}"
    else:
        route = shortest(graph, assertion.source, assertion.target, paths=assertion.paths)
        text = f"is required, and there is the {by} {route}"
    return Text.assemble(mark, terminal.harmless(f"`{assertion}` {text}"))


# -- for programs --------------------------------------------------------------------------------------------------


def _document(
    selection: _Selection, asserted: Iterable[Assertion], broken: Mapping[Assertion, Violation]
) -> dict[str, object]:
    from tidegate.flow.drawing.graph import document, flows
    from tidegate.flow.reach import Reach
    from tidegate.node.flow_commands import assertion_document

    if selection.everything:
        count = Reach(selection.graph, paths=selection.paths).entity_pairs
        if count > _DOCUMENT:
            terminal.usage(f"there are {count:,} flows, too many for one document; narrow them with --from or --to")
    selected = flows(selection.graph, source=selection.source, target=selection.target, paths=selection.paths)
    return {
        **document(selection.graph, selected, paths=selection.paths),
        "assertions": [assertion_document(each, broken.get(each), each.absent(selection.graph)) for each in asserted],
    }


def _drawn(form: Format, network: Network, selection: _Selection) -> str:
    """The graph; only what one reaches, or what reaches one; or with the route between two."""
    from tidegate.flow.drawing.graph import dot, mermaid, svg
    from tidegate.flow.drawing.selection import selection as selected

    source, target = selection.source, selection.target
    graph, route = selected(selection.graph, source, target, paths=selection.paths)
    if source is not None and target is not None and route is None:
        terminal.note(f"Nothing flows from {source} to {target}.")
    draw = {Format.MERMAID: mermaid, Format.DOT: dot, Format.SVG: svg}[form]
    return draw(network.legend, graph, network.parents, route)
