"""The report of `bench scopes`: tables for the terminal, and markdown, CSV and machine as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from bench import figures
from bench.figures import Spread
from bench.job import PAYLOAD, Job
from bench.report import BUSY, QUIET, held_back, markdown_table, numbers, ratio_text, write_csv
from bench.scopes import offer, saturated
from bench.scopes.chain import CONFIGURATIONS, TOPICS, counted
from bench.scopes.contest import GOAL, Compared, cost
from bench.scopes.load import Task
from bench.scopes.rates import TOLERANCE, Cell
from bench.scopes.works import Findings, missed

Line = dict[str, object]
Part = tuple[str, Sequence[str], list[tuple[str, ...]]]
"""A title, columns and lines."""
DIFFERENCES = (
    "All scopes are in one process on one core, where the seed had a broker and a machine for each; ORI there is "
    "Mosquitto with bridges.",
    f"{Task().publishers} publishers share the rate, where the seed had one publisher for each message a second.",
    "A round lasts less than a second, where the seed's lasted ten minutes; all are repeated, and the median counts.",
    f"A node that is {offer.BEHIND} messages or deliveries behind is sent no more until it has caught up.",
)


def header(found: Findings) -> list[str]:
    plan = found.plan
    return [
        f"{PAYLOAD}-byte payloads, MQTT 3.1.1, {Task().publishers} publishers at the first scope and {TOPICS} "
        f"subscribers at the last, {plan.rounds} round(s) of {plan.duration:g} s, node on one core, load on another.",
        "CMT is rate * Z^scopes; Z is 1, for HSUP 0.5 and for MULTI 2. A rate is optimal when what arrives is CMT, "
        f"give or take {TOLERANCE:.0%}.",
    ]


# -- tables ----------------------------------------------------------------------------------------------------------


def parts(found: Findings) -> Iterator[Part]:
    """All tables, in order."""
    if found.rates.cells:
        yield _best(found)
        for scopes in found.rates.lengths:
            yield _by_rate(found, scopes, "what arrives, k messages/s (of CMT where that is more)", _arrived)
        for scopes in found.rates.lengths:
            yield _by_rate(found, scopes, "CPU of the node per published message, µs", _costly)
        if lines := list(_short(found)):
            columns = ("chain", "rate", "arrived", "CMT", "node busy", "generator busy", "neighbours", "held back by")
            yield "Where less arrived than was calculated", columns, lines
    for title, compared in (
        ("Five scopes beside one, without sockets: CPU per message", found.indoors),
        ("Five scopes beside one, saturated over sockets: CPU per message", found.saturated.compared()),
    ):
        if compared:
            columns = ("what", "compared", "QoS", "one, µs", "five, µs", "ratio", "goal", "reached")
            yield title, columns, [_line(one) for one in compared]
    if found.saturated.outcomes:
        columns = ("chain", "QoS", "messages/s", "node busy", "generator busy", "neighbours", "held back by", "lost")
        yield "Saturated: how many, and who was busy", columns, list(_busy(found))


def _thousand(rate: float) -> str:
    return f"{rate / 1e3:.1f}".removesuffix(".0")


def _best(found: Findings) -> Part:
    rates = found.rates
    lines = []
    for one in CONFIGURATIONS:
        cells = [one.name]
        for scopes in rates.lengths:
            best, seed = rates.best(one, scopes), one.best.get(scopes)
            cells += ["failed" if best is None else _highest(best), "not told" if seed is None else _highest(seed)]
        lines.append(tuple(cells))
    columns = ["configuration"]
    for scopes in rates.lengths:
        columns += [f"{counted(scopes)}", "seed"]
    return "The highest rate that is optimal, k messages/s", columns, lines


def _highest(rate: int) -> str:
    return _thousand(rate) if rate else "none"


def _by_rate(found: Findings, scopes: int, what: str, show: Callable[[Cell], str]) -> Part:
    rates = sorted({one.rate for one in found.rates.cells})
    lines = [
        (one.name, *(show(cell) for cell in sorted(found.rates.of(one, scopes), key=lambda cell: cell.rate)))
        for one in CONFIGURATIONS
    ]
    return f"{counted(scopes)}: {what}", ("configuration", *(f"{_thousand(rate)} k/s" for rate in rates)), lines


def _arrived(cell: Cell) -> str:
    arrived = cell.arrived
    if arrived is None:
        return "failed"
    return _thousand(arrived.median) if cell.optimal else f"{_thousand(arrived.median)} of {_thousand(cell.calculated)}"


def _costly(cell: Cell) -> str:
    return f"{cell.cost.median:.1f}" if cell.cost else "-"


def _short(found: Findings) -> Iterator[tuple[str, ...]]:
    for cell in found.rates.cells:
        arrived, side = cell.arrived, cell.side
        if arrived is not None and not cell.optimal:
            yield (
                cell.chain.name,
                _thousand(cell.rate),
                _thousand(arrived.median),
                _thousand(cell.calculated),
                _share(side.busy),
                _share(side.load_busy),
                f"{side.foreign.median:.2f}" if side.foreign else "-",
                cell.held_back,
            )


def _share(spread: Spread | None) -> str:
    return f"{spread.median:.0%}" if spread else "-"


def _line(one: Compared) -> tuple[str, ...]:
    contest = one.contest
    return (
        contest.name,
        contest.title,
        str(one.qos),
        ratio_text(cost(one.one)),
        ratio_text(cost(one.several)),
        ratio_text(one.ratio),
        f"≤ {contest.goal:g}" if contest.goal else "-",
        one.reached or "-",
    )


def _busy(found: Findings) -> Iterator[tuple[str, ...]]:
    for (chain, qos), outcomes in found.saturated.outcomes.items():
        side = figures.side(outcomes)
        yield (
            f"{chain.name}, {chain.monitors} monitors" if chain.extra else chain.name,
            str(qos),
            f"{_thousand(side.rate.median)} k" if side.rate else "failed",
            _share(side.busy),
            _share(side.load_busy),
            f"{side.foreign.median:.2f}" if side.foreign else "-",
            held_back(Job(window=saturated.WINDOW), side),
            str(side.lost),
        )


def tables(found: Findings) -> Iterator[Table]:
    """For the terminal."""
    for title, columns, lines in parts(found):
        made = Table(*columns, title=title, title_justify="left", box=box.SIMPLE)
        for line in lines:
            made.add_row(*line)
        yield made


# -- words -----------------------------------------------------------------------------------------------------------


def verdict(found: Findings) -> list[str]:
    """Whether the goals are reached, and what limits the figures."""
    words = []
    if cells := found.rates.cells:
        expected = [one for one in cells if one.expected]
        short = missed(cells)
        words.append(
            f"Optimal: {len(expected) - len(short)} of {len(expected)} points that have to be (all but MULTI with five "
            "scopes)."
        )
        busiest = max(cells, key=lambda one: one.side.load_busy.median if one.side.load_busy else 0.0)
        words.append(
            f"The generator was busy for at most {_share(busiest.side.load_busy)} of its time "
            f"({busiest.chain.name}, {_thousand(busiest.rate)} k/s)."
        )
        if any(one.held_back == "generator" for one in cells):
            words.append("**Where the table says so the generator was the limit**, and the node can do more.")
    for name, compared in (("without sockets", found.indoors), ("over sockets", found.saturated.compared())):
        if judged := [one for one in compared if one.contest.goal]:
            reached = sum(one.reached == "yes" for one in judged)
            words.append(
                f"Five scopes cost at most {GOAL} times what one costs, {name}: {reached} of {len(judged)} comparisons."
            )
    if found.disturbance > QUIET:
        words.append(
            f"**The machine was not quiet**: neighbours used up to {found.disturbance:.2f} cores. What arrives says "
            "little then; CPU per message says more."
        )
    return words


def markdown(found: Findings) -> str:
    out = ["# Scopes: a chain of them in one node", "", *header(found), "", *(f"- {one}" for one in verdict(found)), ""]
    out += ["## What the configurations are", ""]
    out += markdown_table(
        ("name", "Z", "what it is"), [(one.name, f"{one.factor:g}", one.title) for one in CONFIGURATIONS]
    )
    out += [
        "",
        "A monitor stands where events enter a scope: from the clients into the first, over the link from the one "
        "before into every other.",
        "",
    ]
    for title, columns, lines in parts(found):
        out += [f"## {title}", "", *markdown_table(columns, lines), ""]
    out += [
        f"Held back by: the node or the generator, if it was busy for {BUSY:.0%} of the time or more; neighbours, if "
        "other processes used the cores.",
        "",
        "## What is different from the seed's experiment",
        "",
        *(f"- {one}" for one in DIFFERENCES),
        "",
    ]
    if found.failures:
        out += ["## What failed", "", *(f"- {words}" for words in found.failures), ""]
    out += ["## Machine", "", "```json", json.dumps(found.machine, indent=2), "```", ""]
    return "\n".join(out)


# -- files -----------------------------------------------------------------------------------------------------------


def summary(found: Findings) -> dict[str, list[Line]]:
    """Every figure: of the rates, and of the comparisons."""
    return {"rates": list(map(_point, found.rates.cells)), "costs": list(_costs(found))}


def _point(cell: Cell) -> Line:
    side, arrived = cell.side, cell.arrived
    line: Line = {
        "configuration": cell.configuration.name,
        "scopes": cell.chain.scopes,
        "rate": cell.rate,
        "calculated": cell.calculated,
    }
    line |= _spread("arrived", arrived, 1)
    line |= {"optimal": cell.optimal, "expected": cell.expected}
    line |= _spread("micros", cell.cost, 3)
    for name, value in (("node_busy", side.busy), ("generator_busy", side.load_busy), ("neighbours", side.foreign)):
        line[name] = None if value is None else round(value.median, 3)
    return line | {
        "held_back": cell.held_back,
        "lost": side.lost,
        "seed_best": cell.configuration.best.get(cell.chain.scopes),
    }


def _spread(name: str, value: Spread | None, digits: int) -> Line:
    return {
        f"{name}_{place}" if place != "median" else name: None
        if value is None
        else round(getattr(value, place), digits)
        for place in ("median", "low", "high")
    }


def _costs(found: Findings) -> Iterator[Line]:
    for where, compared in (("indoors", found.indoors), ("sockets", found.saturated.compared())):
        for one in compared:
            line: Line = {"where": where, "name": one.contest.name, "qos": one.qos}
            line |= _spread("one_micros", cost(one.one), 3) | _spread("five_micros", cost(one.several), 3)
            line |= _spread("ratio", one.ratio, 3)
            yield line | {"goal": one.contest.goal, "reached": one.reached}


def _rounds(found: Findings) -> Iterator[Line]:
    for cell in found.rates.cells:
        for number, outcome in enumerate(cell.outcomes, 1):
            if outcome is not None:
                yield {"chain": cell.chain.name, "rate": cell.rate, "qos": 0, "round": number, **numbers(outcome)}
    for (chain, qos), outcomes in found.saturated.outcomes.items():
        name = f"{chain.name}, {chain.monitors} monitors"
        for number, outcome in enumerate(outcomes, 1):
            if outcome is not None:
                yield {"chain": name, "rate": "", "qos": qos, "round": number, **numbers(outcome)}


def write(found: Findings, folder: Path, stem: str) -> list[Path]:
    """Writes all but the pictures; tables without lines are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{stem}.md", folder / f"{stem}-machine.json"]
    written[0].write_text(markdown(found))
    written[1].write_text(json.dumps(found.machine, indent=2) + "\n")
    figures_found = summary(found)
    for name, lines in (
        ("", figures_found["rates"]),
        ("-costs", figures_found["costs"]),
        ("-rounds", list(_rounds(found))),
    ):
        if lines:
            written.append(folder / f"{stem}{name}.csv")
            write_csv(written[-1], lines)
    return written
