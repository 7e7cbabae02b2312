"""The report of `bench scopes`: what arrives at each rate, what five scopes cost beside one, and who was busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bench.harness import figures
from bench.harness.report import (
    BUSY,
    Line,
    Report,
    Table,
    held_back,
    markdown_table,
    not_quiet,
    numbers,
    places,
    share,
    show,
)
from bench.load.generator import PATIENT_BEHIND
from bench.load.job import PAYLOAD, Job, Outcome
from bench.scopes import saturated
from bench.scopes.chain import CONFIGURATIONS, PUBLISHERS, TOPICS, Chain, Configuration, counted
from bench.scopes.contest import GOAL, Compared, cost
from bench.scopes.plot import pictures
from bench.scopes.rates import TOLERANCE, Cell
from bench.scopes.works import Findings, missed

CLOSING = (
    f"Held back by: the node or the generator, if it was busy for {BUSY:.0%} of the time or more; neighbours, if other "
    "processes used the cores.",
    "",
    "## What is different from the seed's experiment",
    "",
    "- All scopes are in one process on one core, where the seed had a broker and a machine for each; ORI there is "
    "Mosquitto with bridges.",
    f"- {PUBLISHERS} publishers share the rate, where the seed had one publisher for each message a second.",
    "- A round lasts less than a second, where the seed's lasted ten minutes; all are repeated, and the median counts.",
    f"- A node that is {PATIENT_BEHIND} messages or deliveries behind is sent no more until it has caught up.",
)


def report(found: Findings) -> Report:
    plan = found.plan
    files = {"": list(map(_point, found.rates.cells)), "-costs": list(_costs(found)), "-rounds": list(_rounds(found))}
    configurations = [(one.name, f"{one.factor:g}", one.title) for one in CONFIGURATIONS]
    return Report(
        title="Scopes: a chain of them in one node",
        machine=found.machine,
        header=[
            f"{PAYLOAD}-byte payloads, MQTT 3.1.1, {PUBLISHERS} publishers at the first scope and {TOPICS} subscribers "
            f"at the last, {plan.rounds} round(s) of {plan.duration:g} s, node on one core, load on another.",
            "CMT is rate * Z^scopes; Z is 1, for HSUP 0.5 and for MULTI 2. A rate is optimal when what arrives is CMT, "
            f"give or take {TOLERANCE:.0%}. A monitor stands where events enter a scope: from the clients into the "
            "first, over the link from the one before into every other.",
        ],
        notes=verdict(found),
        tables=list(tables(found)),
        closing=["## Configurations", "", *markdown_table(("name", "Z", "what it is"), configurations), "", *CLOSING],
        files=files,
        summary={"rates": files[""], "costs": files["-costs"]},
        pictures=list(pictures(found)),
        failures=found.failures,
        missed=found.missed,
    )


# -- tables ----------------------------------------------------------------------------------------------------------


def tables(found: Findings) -> Iterator[Table]:
    """All of them, in order."""
    if found.rates.cells:
        yield _best(found)
        for scopes in found.rates.lengths:
            yield _by_rate(found, scopes, "what arrives, k messages/s (of CMT where that is more)", _arrived)
        for scopes in found.rates.lengths:
            yield _by_rate(found, scopes, "CPU of the node per published message, µs", _costly)
        yield Table(
            title="Where less arrived than was calculated",
            columns=("chain", "rate", "arrived", "CMT", "node busy", "generator busy", "neighbours", "held back by"),
            lines=list(_short(found)),
        )
    for title, compared in (
        ("Five scopes beside one, without sockets: CPU per message", found.indoors),
        ("Five scopes beside one, saturated over sockets: CPU per message", found.saturated.compared()),
    ):
        columns = ("what", "compared", "QoS", "one, µs", "five, µs", "ratio", "goal", "reached")
        yield Table(title=title, columns=columns, lines=[_line(one) for one in compared])
    yield Table(
        title="Saturated: how many, and who was busy",
        columns=(
            "chain",
            "QoS",
            "messages/s",
            "node busy",
            "generator busy",
            "generator",
            "neighbours",
            "held back by",
            "lost",
        ),
        lines=list(_busy(found)),
    )


def _thousand(rate: float) -> str:
    return f"{rate / 1e3:.1f}".removesuffix(".0")


def _best(found: Findings) -> Table:
    rates = found.rates

    def cells(one: Configuration) -> Iterator[str]:
        for scopes in rates.lengths:
            best, seed = rates.best(one, scopes), one.best.get(scopes)
            yield "failed" if best is None else _highest(best)
            yield "not told" if seed is None else _highest(seed)

    return Table(
        title="The highest rate that is optimal, k messages/s",
        columns=["configuration", *(name for scopes in rates.lengths for name in (counted(scopes), "seed"))],
        lines=[(one.name, *cells(one)) for one in CONFIGURATIONS],
    )


def _highest(rate: int) -> str:
    return _thousand(rate) if rate else "none"


def _by_rate(found: Findings, scopes: int, what: str, text: Callable[[Cell], str]) -> Table:
    rates = sorted({one.rate for one in found.rates.cells})
    return Table(
        title=f"{counted(scopes)}: {what}",
        columns=("configuration", *(f"{_thousand(rate)} k/s" for rate in rates)),
        lines=[
            (one.name, *(text(cell) for cell in sorted(found.rates.of(one, scopes), key=lambda cell: cell.rate)))
            for one in CONFIGURATIONS
        ],
    )


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
                *map(_thousand, (cell.rate, arrived.median, cell.calculated)),
                share(side.busy),
                share(side.load_busy),
                f"{side.foreign.median:.2f}" if side.foreign else "-",
                cell.held_back,
            )


def _line(one: Compared) -> tuple[str, ...]:
    goal = f"≤ {one.contest.goal:g}" if one.contest.goal else "-"
    costs = (show(cost(one.one)), show(cost(one.several)), show(one.ratio))
    return (one.contest.name, one.contest.title, str(one.qos), *costs, goal, one.reached or "-")


def _busy(found: Findings) -> Iterator[tuple[str, ...]]:
    for (chain, qos), outcomes in found.saturated.outcomes.items():
        side = figures.side(outcomes)
        yield (
            _named(chain) if chain.extra else chain.name,
            str(qos),
            f"{_thousand(side.rate.median)} k" if side.rate else "failed",
            share(side.busy),
            share(side.load_busy),
            side.generator,
            f"{side.foreign.median:.2f}" if side.foreign else "-",
            held_back(Job(window=saturated.WINDOW), side),
            str(side.lost),
        )


def _named(chain: Chain) -> str:
    return f"{chain.name}, {chain.monitors} monitors"


def verdict(found: Findings) -> list[str]:
    """Whether the goals are reached, and what limits the figures."""
    words = []
    if cells := found.rates.cells:
        expected = [one for one in cells if one.expected]
        busiest = max(cells, key=lambda one: one.side.load_busy.median if one.side.load_busy else 0.0)
        words = [
            f"Optimal: {len(expected) - len(missed(cells))} of {len(expected)} points that have to be (all but MULTI "
            "with five scopes).",
            f"The generator was busy for at most {share(busiest.side.load_busy)} of its time "
            f"({busiest.chain.name}, {_thousand(busiest.rate)} k/s).",
        ]
        if any(one.held_back == "generator" for one in cells):
            words.append("**Where the table says so the generator was the limit**, and the node can do more.")
    for name, compared in (("without sockets", found.indoors), ("over sockets", found.saturated.compared())):
        if judged := [one for one in compared if one.contest.goal]:
            reached = sum(one.reached == "yes" for one in judged)
            words.append(
                f"Five scopes cost at most {GOAL} times what one costs, {name}: {reached} of {len(judged)} comparisons."
            )
    return words + not_quiet(found.disturbance, "What arrives says little then; CPU per message says more.")


# -- files -----------------------------------------------------------------------------------------------------------


def _point(cell: Cell) -> Line:
    side = cell.side
    line: Line = {
        "configuration": cell.configuration.name,
        "scopes": cell.chain.scopes,
        "rate": cell.rate,
        "calculated": cell.calculated,
    }
    line |= _spread("arrived", cell.arrived, 1)
    line |= {"optimal": cell.optimal, "expected": cell.expected}
    line |= _spread("micros", cell.cost, 3)
    for name, value in (("node_busy", side.busy), ("generator_busy", side.load_busy), ("neighbours", side.foreign)):
        line[name] = places(value, 3)["median"]
    return line | {
        "held_back": cell.held_back,
        "lost": side.lost,
        "seed_best": cell.configuration.best.get(cell.chain.scopes),
    }


def _spread(name: str, value: figures.Spread | None, digits: int) -> Line:
    return {f"{name}_{place}".removesuffix("_median"): one for place, one in places(value, digits).items()}


def _costs(found: Findings) -> Iterator[Line]:
    for where, compared in (("indoors", found.indoors), ("sockets", found.saturated.compared())):
        for one in compared:
            line: Line = {"where": where, "name": one.contest.name, "qos": one.qos}
            line |= _spread("one_micros", cost(one.one), 3) | _spread("five_micros", cost(one.several), 3)
            line |= _spread("ratio", one.ratio, 3)
            yield line | {"goal": one.contest.goal, "reached": one.reached}


def _rounds(found: Findings) -> Iterator[Line]:
    series: list[tuple[str, object, int, Sequence[Outcome | None]]] = [
        (cell.chain.name, cell.rate, 0, cell.outcomes) for cell in found.rates.cells
    ]
    series += [(_named(chain), "", qos, outcomes) for (chain, qos), outcomes in found.saturated.outcomes.items()]
    for name, rate, qos, outcomes in series:
        for number, outcome in enumerate(outcomes, 1):
            if outcome is not None:
                yield {"chain": name, "rate": rate, "qos": qos, "round": number, **numbers(outcome)}
