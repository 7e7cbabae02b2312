"""`tidegate simulate`: a scenario on the model of a configuration, and on the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.options import File, Json
from tidegate.cli.tables import rows_table

if TYPE_CHECKING:
    from tidegate.simulate.engine import EngineRun
    from tidegate.simulate.run import Outcome, Run
    from tidegate.simulate.scenario import Expectation
    from tidegate.simulate.trace import Row

_SHOWN: Final = 20
"""Outcomes in a table; --json tells all of them."""
_STEP: Final = {
    "time": "time",
    "rule": "rule",
    "link": "link",
    "events": "events",
    "monitors": "state",
    "then": "then",
    "tasks": "next",
    "heard": "heard",
}
"""The names of a step in JSON, and what the trace calls them."""


def simulate(
    file: File,
    scenario: Annotated[
        Path, typer.Argument(help="Scenario: who does what, and what is expected.", show_default=False)
    ],
    every: Annotated[bool, typer.Option("--all", help="Explore every outcome instead of one run.")] = False,
    walks: Annotated[
        int | None, typer.Option("--walks", help="Take this many random runs instead of one.", min=1, metavar="N")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random runs of --walks.")] = 0,
    engine: Annotated[
        bool, typer.Option("--engine", help="Also run it on the engine, and compare what clients received.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a scenario on the model of a configuration, and show every step.

    Nothing is started. One run: everything arrives before the next client acts.

    Exit code 0, or 1 if an expectation is not met or the engine does what the model does not allow.

    [dim]tidegate simulate tidegate.yaml scenario.yaml --all --engine[/dim]
    """
    from tidegate.config import load
    from tidegate.simulate.engine import EngineRun
    from tidegate.simulate.scenario import read_scenario

    if every and walks is not None:
        terminal.usage("--all explores everything, and --walks some of it; leave one of them out")
    if seed and walks is None:
        terminal.usage("--seed has no effect without --walks; leave it out")
    engine_run = EngineRun.of(load(file), read_scenario(scenario))
    model = _on_model(engine_run, every=every, walks=walks, seed=seed)
    outcome = engine_run.run() if engine else None  # what clients got from the engine
    allowed = outcome is None or _allowed(engine_run, outcome)
    missed = [*_missed(model.outcomes, engine_run), *(() if outcome is None else _missed([outcome], engine_run))]
    if json:
        document = _document(engine_run, model, missed, ok=not missed and allowed)
        if outcome is not None:
            document["engine"] = {"allowed": allowed, "outcome": _outcome(outcome)}
        terminal.print_json(document)
    else:
        _report(engine_run, model, missed)
        if outcome is not None:
            _report_engine(engine_run, outcome, allowed=allowed)
    if missed or not allowed:
        raise typer.Exit(terminal.NO)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelResult:
    run: Run
    """The one to show: the first that does not do what is expected, if one does not."""
    outcomes: list[Outcome]
    """Each once, in a fixed order."""
    how: str
    """How they were model."""
    complete: bool
    """Whether there are no others."""


def _on_model(engine_run: EngineRun, *, every: bool, walks: int | None, seed: int) -> _ModelResult:
    from random import Random

    from tidegate.simulate.explore import chosen_run, find_run, outcomes, sequential_run

    schema, rounds = engine_run.schema, engine_run.scenario.rounds
    if walks is not None:
        random = Random(seed)  # noqa: S311  nothing depends on its being hard to guess
        runs = [chosen_run(schema, rounds, random.randrange) for _ in range(walks)]
        shown = next((run for run in runs if any(_missed([run.outcome], engine_run))), runs[0])
        several = sorted({run.outcome for run in runs}, key=str)
        return _ModelResult(
            run=shown, outcomes=several, how=f"{terminal.counted(walks, 'run')} at random", complete=False
        )
    run = sequential_run(schema, rounds)
    if not every:
        return _ModelResult(run=run, outcomes=[run.outcome], how="one run", complete=False)
    several = sorted(outcomes(schema, rounds), key=str)
    bad = next((each for each in several if any(_missed([each], engine_run))), None)
    other = None if bad is None else find_run(schema, rounds, bad)
    return _ModelResult(run=other or run, outcomes=several, how="all runs", complete=True)


def _allowed(engine_run: EngineRun, outcome: Outcome) -> bool:
    """Whether the model allows it."""
    from tidegate.simulate.explore import find_run

    return find_run(engine_run.schema, engine_run.scenario.rounds, outcome) is not None


def _missed(outcomes: Sequence[Outcome], engine_run: EngineRun) -> Iterator[Expectation]:
    """The expectations that some outcome does not meet."""
    for each in engine_run.scenario.expects:
        if not all(each.met(outcome[each.client]) for outcome in outcomes):
            yield each


# -- for people --------------------------------------------------------------------------------------------------------


def _report(engine_run: EngineRun, model: _ModelResult, missed: list[Expectation]) -> None:
    from tidegate.simulate.trace import rows

    out = terminal.out()
    if engine_run.left_out:
        terminal.note(f"{', '.join(engine_run.left_out)}: left out, the model knows nothing of them")
    if any(_missed([model.run.outcome], engine_run)):
        out.print("A run in which an expectation is not met:")
    out.print(_steps(rows(model.run.trace)))
    number = len(model.outcomes)
    out.print(f"{model.how}: {terminal.counted(number, 'outcome')}")
    out.print(_heard(engine_run, model.outcomes[:_SHOWN]))
    if number > _SHOWN:
        out.print(f"and {number - _SHOWN} more; --json tells all of them")
    unmet = set(missed)
    for each in engine_run.scenario.expects:
        verdict = ("not met", "red") if each in unmet else ("met", "green")
        out.print(Text.assemble("expected: ", terminal.harmless(str(each)), ": ", verdict))


def _report_engine(engine_run: EngineRun, outcome: Outcome, *, allowed: bool) -> None:
    if allowed:
        terminal.out().print("the engine does what the model allows")
    else:
        terminal.out().print(Text("the engine does what the model does not allow:", style="red"))
        terminal.out().print(_heard(engine_run, [outcome]))


def _steps(rows: list[Row]) -> Table:
    cells = [
        (
            str(row.time),
            *(Text(terminal.harmless(text, lines=False)) for text in (row.rule, row.link, row.events)),
            Text(terminal.harmless(row.then, lines=False), style="yellow" if row.ends else ""),
            Text(terminal.harmless(row.state, lines=False), style="cyan"),
        )
        for row in rows
    ]
    return rows_table(("t", "rule", "link", "event", "then", "monitors"), cells, numbers=(0,))


def _heard(engine_run: EngineRun, outcomes: list[Outcome]) -> Table:
    from tidegate.simulate.trace import written

    clients = sorted(engine_run.schema.cg.devices)
    rows = [(client, *(", ".join(map(written, each[client])) or "-" for each in outcomes)) for client in clients]
    cells = [[Text(terminal.harmless(text, lines=False)) for text in row] for row in rows]
    titles = ["client", *map(str, range(1, len(outcomes) + 1))]
    return rows_table(titles, cells, show_header=len(outcomes) > 1)


# -- for programs ------------------------------------------------------------------------------------------------------


def _document(engine_run: EngineRun, model: _ModelResult, missed: list[Expectation], *, ok: bool) -> dict[str, Any]:
    from tidegate.simulate.trace import rows

    return {
        "ok": ok,
        "left_out": list(engine_run.left_out),
        "steps": [{name: getattr(row, member) for name, member in _STEP.items()} for row in rows(model.run.trace)],
        "complete": model.complete,
        "outcomes": [_outcome(each) for each in model.outcomes],
        "expected": [{"text": str(each), "met": each not in missed} for each in engine_run.scenario.expects],
    }


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
