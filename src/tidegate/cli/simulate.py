"""`tidegate simulate`: a scenario on the model of a configuration, and on the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidegate.cli import terminal

if TYPE_CHECKING:
    from rich.table import Table

    from tidegate.simulate import Expectation, Outcome, Run
    from tidegate.simulate.engine import EngineRun
    from tidegate.simulate.trace import Row

_SHOWN: Final = 20
"""Outcomes in a table; --json tells all of them."""


def simulate(
    file: Annotated[Path, typer.Argument(help="Configuration file.", show_default=False)],
    scenario: Annotated[
        Path, typer.Argument(help="Scenario: who does what, and what is expected.", show_default=False)
    ],
    every: Annotated[bool, typer.Option("--all", help="Explore every outcome instead of one run.")] = False,
    walks: Annotated[
        int | None, typer.Option("--walks", help="Take so many runs at random instead of one.", min=1, metavar="N")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="For --walks: other numbers, other runs.")] = 0,
    engine: Annotated[
        bool, typer.Option("--engine", help="Play it on the engine, too, and compare what clients got.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Run a scenario on the model of a configuration, and show every step.

    Nothing is started. One run: everything arrives before the next client acts.

    Exit code 0, or 1 if an expectation is not met or the engine does what the model does not allow.

    [dim]tidegate simulate tidegate.yaml scenario.yaml --all --engine[/dim]
    """
    from tidegate.config import load
    from tidegate.simulate import read_scenario
    from tidegate.simulate.engine import EngineRun

    if every and walks is not None:
        terminal.usage("--all explores everything, and --walks some of it; leave one of them out")
    if seed and walks is None:
        terminal.usage("--seed has no effect without --walks; leave it out")
    engine_run = EngineRun.of(load(file), read_scenario(scenario))
    found = _found(engine_run, every=every, walks=walks, seed=seed)
    played = _played(engine_run) if engine else None
    missed = [*_missed(found.outcomes, engine_run), *(_missed([played.outcome], engine_run) if played else ())]
    if json:
        terminal.print_json(_document(engine_run, found, played, missed))
    else:
        _report(engine_run, found, played, missed)
    if missed or (played is not None and not played.allowed):
        raise typer.Exit(terminal.NO)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What was found on the model."""

    run: Run
    """The one to show: the first that does not do what is expected, if one does not."""
    outcomes: list[Outcome]
    """Each once, in a fixed order."""
    how: str
    """How they were found."""
    complete: bool
    """Whether there are no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    """What clients got from the engine."""

    outcome: Outcome
    allowed: bool


def _found(engine_run: EngineRun, *, every: bool, walks: int | None, seed: int) -> _Found:
    from random import Random

    from tidegate.simulate import chosen_run, find_run, outcomes, sequential_run

    schema, rounds = engine_run.schema, engine_run.scenario.rounds
    if walks is not None:
        random = Random(seed)  # noqa: S311  nothing depends on its being hard to guess
        runs = [chosen_run(schema, rounds, random.randrange) for _ in range(walks)]
        shown = next((run for run in runs if any(_missed([run.outcome], engine_run))), runs[0])
        several = _ordered({run.outcome for run in runs})
        return _Found(run=shown, outcomes=several, how=f"{_count(walks, 'run')} at random", complete=False)
    run = sequential_run(schema, rounds)
    if not every:
        return _Found(run=run, outcomes=[run.outcome], how="one run", complete=False)
    several = _ordered(outcomes(schema, rounds))
    bad = next((each for each in several if any(_missed([each], engine_run))), None)
    other = None if bad is None else find_run(schema, rounds, bad)
    return _Found(run=other or run, outcomes=several, how="all runs", complete=True)


def _ordered(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return sorted(outcomes, key=str)


def _played(engine_run: EngineRun) -> _Played:
    from tidegate.simulate import find_run

    outcome = engine_run.run()
    allowed = find_run(engine_run.schema, engine_run.scenario.rounds, outcome) is not None
    return _Played(outcome=outcome, allowed=allowed)


def _missed(outcomes: Iterable[Outcome], engine_run: EngineRun) -> Iterator[Expectation]:
    """The expectations that some outcome does not meet."""
    several = list(outcomes)
    for each in engine_run.scenario.expects:
        if not all(each.met(one[each.client]) for one in several):
            yield each


# -- for people --------------------------------------------------------------------------------------------------------


def _report(engine_run: EngineRun, found: _Found, played: _Played | None, missed: list[Expectation]) -> None:
    from rich.text import Text

    from tidegate.simulate import rows

    out = terminal.out()
    if engine_run.left_out:
        terminal.note(f"{', '.join(engine_run.left_out)}: left out, the model knows nothing of them")
    if any(_missed([found.run.outcome], engine_run)):
        out.print("A run in which an expectation is not met:")
    out.print(_steps(rows(found.run.trace)))
    number = len(found.outcomes)
    out.print(f"{found.how}: {_count(number, 'outcome')}")
    clients = sorted(engine_run.schema.cg.devices)
    out.print(_heard(clients, found.outcomes[:_SHOWN]))
    if number > _SHOWN:
        out.print(f"and {number - _SHOWN} more; --json tells all of them")
    unmet = set(missed)
    for each in engine_run.scenario.expects:
        said, style = ("not met", "red") if each in unmet else ("met", "green")
        out.print(Text.assemble("expected: ", terminal.harmless(str(each)), ": ", (said, style)))
    if played is None:
        return
    if played.allowed:
        out.print("the engine does what the model allows")
        return
    out.print(Text("the engine does what the model does not allow:", style="red"))
    out.print(_heard(clients, [played.outcome]))


def _steps(rows: list[Row]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("t", justify="right", no_wrap=True)
    for name in ("rule", "link", "event", "then", "monitors"):
        table.add_column(name, overflow="fold")
    for row in rows:
        then = Text(terminal.harmless(row.then, lines=False), style="yellow" if row.ends else "")
        cells = [Text(terminal.harmless(text, lines=False)) for text in (row.rule, row.link, row.events)]
        table.add_row(str(row.time), *cells, then, Text(terminal.harmless(row.state, lines=False), style="cyan"))
    return table


def _heard(clients: list[str], outcomes: list[Outcome]) -> Table:
    """What each client hears, a column for each outcome."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from tidegate.simulate.trace import written

    table = Table(box=box.SIMPLE, pad_edge=False, show_header=len(outcomes) > 1)
    table.add_column("client", no_wrap=True)
    for number, _ in enumerate(outcomes, 1):
        table.add_column(str(number), overflow="fold")
    for client in clients:
        cells = (", ".join(map(written, each[client])) or "-" for each in outcomes)
        table.add_row(Text(client), *(Text(terminal.harmless(text, lines=False)) for text in cells))
    return table


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


# -- for programs ------------------------------------------------------------------------------------------------------


def _document(
    engine_run: EngineRun, found: _Found, played: _Played | None, missed: list[Expectation]
) -> dict[str, Any]:
    from tidegate.simulate import rows

    made: dict[str, Any] = {
        "ok": not missed and (played is None or played.allowed),
        "left_out": list(engine_run.left_out),
        "steps": [
            {
                "time": row.time,
                "rule": row.rule,
                "link": row.link,
                "events": row.events,
                "monitors": row.state,
                "then": row.then,
                "tasks": list(row.next),
                "heard": list(row.heard),
            }
            for row in rows(found.run.trace)
        ],
        "complete": found.complete,
        "outcomes": [_outcome(each) for each in found.outcomes],
        "expected": [{"text": str(each), "met": each not in missed} for each in engine_run.scenario.expects],
    }
    if played is not None:
        made["engine"] = {"allowed": played.allowed, "outcome": _outcome(played.outcome)}
    return made


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        client: [
            {
                "scope": scope.removeprefix("scope:"),
                "topic": event.topic,
                "payload": event.payload.decode(errors="replace"),
            }
            for scope, event in came
        ]
        for client, came in outcome.heard
    }
