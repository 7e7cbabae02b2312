"""`tidegate bench`: the measurements. Only signatures here; what measures is imported when it is asked for."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from bench.harness.report import Report
    from bench.harness.rounds import Plan
    from bench.harness.work import Work

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Measure this machine's Tidegate against its peers.")
RESULTS = Path("bench/results")
ENOUGH_ROUNDS = 5
NO_PLOT = "No plot: matplotlib is not installed (pip install 'tidegate\\[bench]')."
BRIEF_SECONDS = 0.6
WIDE = 150  # columns of the table where no terminal says how many there are
BEGINNING = "Only this work, or those that begin so; can be repeated."


class Protocol(Enum):
    """MQTT versions, as people write them."""

    V311 = "3.1.1"
    V5 = "5.0"


class PeerName(Enum):
    """Servers that can stand on either side."""

    MOSQUITTO = "mosquitto"
    TIDEGATE = "tidegate"
    RELAY = "relay"


def _named(help: str) -> typer.models.OptionInfo:
    """The option that chooses works."""
    option: typer.models.OptionInfo = typer.Option("--work", "-w", metavar="NAME", help=help)
    return option


Names = list[str] | None
Listing = Annotated[bool, typer.Option("--list", help="List the works and their goals.")]
Rounds = Annotated[int, typer.Option(help="Rounds per work; the median counts.", min=1)]
EveryRound = Annotated[int, typer.Option(help="Rounds of everything; the median counts.", min=1)]
Duration = Annotated[float, typer.Option(help="Seconds measured per round.", min=0.2)]
Quick = Annotated[bool, typer.Option("--quick", help="One short round, to see that it works.")]
Brief = Annotated[
    bool, typer.Option("--brief", help="About four minutes: short rounds of what decides, under a name of its own.")
]
Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where results go.")]
Json = Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")]
Check = Annotated[bool, typer.Option("--check", help="Exit with 1 if a goal is missed.")]


@app.callback()
def bench() -> None:
    """Measure this machine's Tidegate against its peers."""
    from tidegate.audit.logs import configure_logs

    configure_logs("auto", "info")  # results go to standard output, and nothing else


@app.command()
def broker(
    work: Annotated[Names, _named("Only this work; can be repeated.")] = None,
    show: Listing = False,
    rounds: Rounds = ENOUGH_ROUNDS,
    duration: Duration = 3.0,
    quick: Quick = False,
    brief: Brief = False,
    protocol: Annotated[Protocol, typer.Option(help="MQTT version that the load speaks.")] = Protocol.V311,
    reference: Annotated[PeerName, typer.Option(help="What is compared with.")] = PeerName.MOSQUITTO,
    subject: Annotated[PeerName, typer.Option(help="What is measured.")] = PeerName.TIDEGATE,
    out: Out = RESULTS,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Profile the subject during this work instead of comparing."),
    ] = None,
    json_output: Json = False,
    check: Check = False,
) -> None:
    """Broker: throughput, CPU per message, latency and memory, in turn with Mosquitto.

    Needs two cores and Debian's mosquitto. Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench broker --work qos0-100 --quick[/dim]
    """
    from bench.broker import report
    from bench.broker.works import BRIEF, chosen
    from bench.harness.servers import Peer

    duration = min(duration, BRIEF_SECONDS) if brief else duration
    with _failing():
        works = chosen([profile] if profile else work or (BRIEF if brief else []))
        if show:
            lines = [(one.name, one.window, one.title, str(one.goal or "-")) for one in works]
            return _list(("name", "window", "work", "goal"), lines)
        plan = dataclasses.replace(
            _plan(rounds, duration, quick=quick),
            reference=Peer(reference.value),
            subject=Peer(subject.value),
            version=5 if protocol is Protocol.V5 else 4,
        )
        if profile:
            return _profile(works, plan, out)
        with _progress(len(works) * plan.rounds * 2) as before:
            found = report.measure(works, plan, before)
    # only a whole run may replace the results that are kept; anything less gets a name of its own
    parts = [text.replace("/", "-") for text in work or []] + ["brief"] * brief
    if (plan.reference, plan.subject) != (Peer.MOSQUITTO, Peer.TIDEGATE):
        parts += [plan.reference.value, plan.subject.value]
    if plan.version == 5:
        parts.append("mqtt5")
    stem = _stem("broker", parts, quick=plan.rounds < ENOUGH_ROUNDS)
    return _publish(report.report(found), out, stem, json_output=json_output, check=check)


@app.command()
def gate(
    work: Annotated[Names, _named(BEGINNING)] = None,
    show: Listing = False,
    rounds: Rounds = ENOUGH_ROUNDS,
    duration: Duration = 3.0,
    quick: Quick = False,
    brief: Brief = False,
    everything: Annotated[
        bool, typer.Option("--everything", help="Only the works with everything switched on, against Mosquitto.")
    ] = False,
    out: Out = RESULTS,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Profile the node during this work instead of comparing."),
    ] = None,
    json_output: Json = False,
    check: Check = False,
) -> None:
    """Gate: what policies, preferences, levels, views, monitors and proofs cost, and a change of policy under load.

    Needs two cores and Debian's mosquitto. Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench gate --work steps --quick[/dim]
    """
    from bench.gate import report, works

    with _failing():
        if show:
            lines = [(name, title, goal or "-") for name, (title, goal) in works.titles().items()]
            return _list(("name", "work", "goal"), lines)
        plan = _plan(rounds, min(duration, BRIEF_SECONDS) if brief else duration, quick=quick)
        if profile:
            contest, one = works.contender(profile)
            plan = dataclasses.replace(plan, version=contest.version)
            return _profile([contest.work(one)], plan, out, "gate-")
        wanted = [*(work or []), *(["everything"] if everything else [])]
        chosen = works.chosen(wanted or (works.BRIEF if brief else []))
        with _progress(works.count(chosen, plan)) as before:
            found = works.measure(chosen, plan, quick=quick, before=before)
    stem = _stem("gate", [*wanted, *["brief"] * brief], quick=plan.rounds < ENOUGH_ROUNDS)
    return _publish(report.report(found), out, stem, json_output=json_output, check=check)


@app.command()
def flow(
    rounds: Annotated[int, typer.Option(help="Graphs of each shape and size; the median counts.", min=1)] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A few small graphs, to see that it works.")] = False,
    out: Out = RESULTS,
    json_output: Json = False,
    check: Check = False,
) -> None:
    """Flow: how long it takes to find what reaches what, in graphs of up to 20,000 links.

    Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench flow --quick[/dim]
    """
    from bench.flow import graphs, report
    from bench.harness.machine import describe

    sizes, rounds = (graphs.SIZES[:4], 1) if quick else (graphs.SIZES, rounds)
    machine = describe()
    with _progress(len(graphs.Shape) * len(sizes) * rounds) as before:
        found = graphs.measure(sizes, rounds, before)
    stem = _stem("flow", quick=rounds < graphs.ROUNDS)
    _publish(report.report(found, machine, stem), out, stem, json_output=json_output, check=check)


@app.command()
def live(
    rounds: Rounds = 7,
    duration: Duration = 5.0,
    rate: Annotated[int, typer.Option(help="Messages a second.", min=100)] = 20_000,
    consoles: Annotated[
        bool, typer.Option("--consoles", help="Ten consoles in browsers instead of ten callers that list.")
    ] = False,
    quick: Quick = False,
    out: Out = RESULTS,
    json_output: Json = False,
    check: Check = False,
) -> None:
    """Live: how long messages take while ten callers list all clients, or ten consoles are open.

    Needs two cores. Results (markdown, CSV, machine) go to bench/results/.

    [dim]tidegate bench live --quick[/dim]
    """
    from bench.harness.machine import describe
    from bench.live import listing, report

    with _failing():
        plan = dataclasses.replace(_plan(rounds, duration, quick=quick), warmup=listing.WARMUP)
        machine = describe()
        with _progress(2 * plan.rounds) as before:
            visitors = listing.Visitors.CONSOLES if consoles else listing.Visitors.CALLERS
            found = listing.measure(plan, before, rate, visitors)
    stem = _stem("live", ["consoles"] * consoles, quick=plan.rounds < ENOUGH_ROUNDS)
    _publish(report.report(found, machine), out, stem, json_output=json_output, check=check)


@app.command()
def scopes(
    work: Annotated[Names, _named("Only rates, saturated or indoors; can be repeated.")] = None,
    rounds: EveryRound = 3,
    duration: Annotated[float, typer.Option(help="Seconds measured at each rate.", min=0.2)] = 0.5,
    quick: Annotated[bool, typer.Option("--quick", help="One short round of a part, to see that it works.")] = False,
    brief: Brief = False,
    out: Out = RESULTS,
    json_output: Json = False,
    check: Check = False,
) -> None:
    """Scopes: chains of one, three and five in one node, with and without monitors, at 5,000 to 30,000 messages/s.

    Needs two cores. Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench scopes --quick[/dim]
    """
    from bench.harness.work import chosen
    from bench.scopes import report, works

    with _failing():
        parts = chosen(work or [], list(works.PARTS))
        plan = _plan(rounds, min(duration, 0.2) if quick or brief else duration, quick=quick)
        extent = works.QUICK if quick else works.BRIEF if brief else works.WHOLE
        with _progress(works.count(parts, plan, extent)) as before:
            found = works.measure(parts, plan, extent, before)
    stem = _stem("scopes", [*(work or ()), *["brief"] * brief], quick=plan.rounds < works.ENOUGH_ROUNDS)
    _publish(report.report(found), out, stem, json_output=json_output, check=check)


@app.command()
def links(
    work: Annotated[
        Names, _named("Only batched, singly, latency, gathered, durable, chain or indoors; can be repeated.")
    ] = None,
    rounds: EveryRound = ENOUGH_ROUNDS,
    duration: Annotated[
        float, typer.Option(help="Seconds of each measurement; a chain takes 15 times as long at each rate.", min=0.2)
    ] = 2.0,
    quick: Annotated[bool, typer.Option("--quick", help="One short round of a part, to see that it works.")] = False,
    brief: Annotated[
        bool, typer.Option("--brief", help="About four minutes, or two and a half with `--work chain`: short rounds.")
    ] = False,
    out: Out = RESULTS,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Profile both nodes during this load instead of comparing."),
    ] = None,
    json_output: Json = False,
    check: Check = False,
) -> None:
    """Links: two nodes beside one, with all, half or a tenth of the messages crossing, and chains beside Mosquitto's.

    Needs two cores, and Debian's mosquitto for `durable` and `chain`, which takes most of the time. Results (markdown,
    CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench links --quick[/dim]
    """
    from bench.harness.work import chosen
    from bench.links import report, works

    with _failing():
        parts = chosen(work or (works.BRIEF_PARTS if brief else []), list(works.PARTS))
        seconds = 0.3 if quick else BRIEF_SECONDS if brief else duration
        plan = _plan(rounds, min(duration, seconds), quick=quick)
        if profile:
            file = out / f"links-profile-{profile}.txt"
            text = works.profile(profile, plan)
            out.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            return _console().print(f"Written: {file}", highlight=False, soft_wrap=True)
        extent = works.QUICK if quick else works.BRIEF if brief else works.WHOLE
        with _progress(works.count(parts, plan, extent)) as before:
            found = works.measure(parts, plan, extent, before)
    stem = _stem("links", [*(work or ()), *["brief"] * brief], quick=plan.rounds < works.ENOUGH_ROUNDS)
    _publish(report.report(found), out, stem, json_output=json_output, check=check)


@app.command()
def guard(
    work: Annotated[Names, _named("Only scenarios, saturated or idle; can be repeated.")] = None,
    rounds: EveryRound = 3,
    duration: Annotated[float, typer.Option(help="Seconds of each measurement.", min=0.2)] = 5.0,
    quick: Annotated[bool, typer.Option("--quick", help="One short round of a part, to see that it works.")] = False,
    out: Out = RESULTS,
    json_output: Json = False,
    check: Check = False,
) -> None:
    """Guard: what it adds in front of Mosquitto, in two environments with a bridge, saturated, and in memory.

    Needs two cores and Debian's mosquitto. Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench guard --quick[/dim]
    """
    from bench.guard import report, works
    from bench.harness.work import chosen

    with _failing():
        parts = chosen(work or [], list(works.PARTS))
        plan = _plan(rounds, duration, quick=quick)
        with _progress(works.count(parts, plan, quick=quick)) as before:
            found = works.measure(parts, plan, quick=quick, before=before)
    stem = _stem("guard", work, quick=plan.rounds < works.ENOUGH_ROUNDS)
    _publish(report.report(found), out, stem, json_output=json_output, check=check)


@app.command()
def keys(
    work: Annotated[Names, _named("Only requests, direct, beside or indoors; can be repeated.")] = None,
    rounds: EveryRound = ENOUGH_ROUNDS,
    duration: Annotated[float, typer.Option(help="Seconds of each measurement.", min=0.2)] = 1.5,
    quick: Quick = False,
    out: Out = RESULTS,
    json_output: Json = False,
    check: Check = False,
) -> None:
    """Keys: key requests over MQTT and HTTP, what protection adds to a message, and the broker beside a busy API.

    Needs two cores. Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench keys --quick[/dim]
    """
    from bench.harness.work import chosen
    from bench.keys import report, works

    with _failing():
        parts = chosen(work or [], list(works.PARTS))
        plan = _plan(rounds, min(duration, 0.3) if quick else duration, quick=quick)
        with _progress(works.count(parts, plan), aloud=True) as before:
            found = works.measure(parts, plan, quick=quick, before=before)
    stem = _stem("keys", work, quick=plan.rounds < works.ENOUGH_ROUNDS)
    _publish(report.report(found), out, stem, json_output=json_output, check=check)


@app.command()
def pipeline(
    work: Annotated[Names, _named("Only journal, latency, throughput or growth; can be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few messages, to see that it works.")] = False,
    out: Out = RESULTS,
    json_output: Json = False,
    check: Check = False,
) -> None:
    """Pipeline: records a second on two cores, time until a record arrives, the journal, and growth to 10 million.

    Needs two cores, Java, and some gigabytes for temporary files. Results (markdown, CSV, JSON, PNG) go to
    bench/results/; of what is not measured now, the last results stay in them.

    [dim]tidegate bench pipeline --work journal --quick[/dim]
    """
    from bench.harness.rounds import raise_file_limit, two_cores
    from bench.harness.work import chosen
    from bench.pipeline import report, works

    stem = _stem("pipeline", quick=quick)
    measured = []
    with _failing(), _progress(0, aloud=True) as before:
        parts = chosen(work or [], list(works.PARTS))
        raise_file_limit()
        for section in works.measure(parts, works.QUICK if quick else works.Extent(), two_cores(), before):
            measured.append(section)
            kept = report.merged(measured, out, stem)
    _publish(report.report(measured, kept), out, stem, json_output=json_output, check=check)


@app.command()
def compare(
    base: Annotated[
        str,
        typer.Option(
            "--base", metavar="REVISION|FOLDER", help="Git revision, `pure`, or the `src` folder of a checkout."
        ),
    ],
    work: Annotated[Names, _named(BEGINNING)] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every work of broker, gate and scopes.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the works.")] = False,
    pairs: Annotated[int, typer.Option(help="Interleaved pairs per work.", min=2)] = 15,
    duration: Annotated[float, typer.Option(help="Seconds measured on each side of a pair.", min=0.2)] = 0.5,
    quick: Annotated[bool, typer.Option("--quick", help="Two short pairs, to see that it works.")] = False,
    brief: Annotated[
        bool,
        typer.Option("--brief", help="About four minutes: what decides over sockets, or few pairs of what is named."),
    ] = False,
    out: Out = RESULTS,
    json_output: Json = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a work is slower.")] = False,
) -> None:
    """Compare: works of this tree beside another checkout, in interleaved pairs, with 95 % intervals.

    Needs two cores. Results (markdown, CSV) go to bench/results/, and are written after each work.

    [dim]tidegate bench compare --base main~20 --work broker/qos0-100[/dim]
    """
    from bench.compare import cases, checkout, measure, report
    from bench.harness.machine import describe

    with _failing():
        sockets, processes = cases.chosen(work or [], everything=everything)
        if brief:
            pairs, duration = measure.BRIEF_PAIRS if processes and work else pairs, min(duration, 0.3)
            processes = processes if work else []
        if show:
            for name in [*(one.name for one in sockets), *(f"in-process/{one.name}" for one in processes)]:
                typer.echo(name)
            return
        plan = dataclasses.replace(_plan(pairs, duration, quick=quick), rounds=2 if quick else pairs)
        parts = [*(text.replace("/", "-") for text in work or ()), *["all"] * everything, *["brief"] * brief]
        stem = _stem("compare", parts, quick=plan.rounds < measure.ENOUGH_PAIRS and not brief)
        this, machine, comparisons = checkout.this_tree(), describe(), []
        total = plan.rounds * (len(sockets) + len(processes))
        with checkout.opened(base) as other, _progress(total, aloud=True) as before:
            for found in measure.all_of(sockets, processes, other, this, plan, before):
                comparisons += found
                made = report.report(comparisons, other, this, plan, machine)
                made.write(out, stem)
    _publish(made, out, stem, json_output=json_output, check=check)


# -- what the commands share -------------------------------------------------------------------------------------------


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=WIDE)


@contextmanager
def _failing() -> Iterator[None]:
    """A measurement that cannot be made ends the command with the reason."""
    from rich.console import Console

    from bench.harness.servers import BenchError

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C does: unwind, and stop the servers
    try:
        yield
    except BenchError as error:
        Console(stderr=True).print(f"[red]bench:[/] {error}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None


def _plan(rounds: int, duration: float, *, quick: bool) -> Plan:
    from bench.harness.rounds import Plan, raise_file_limit, two_cores

    raise_file_limit()
    server_core, load_core = two_cores()
    return Plan(
        rounds=1 if quick else rounds,
        duration=min(duration, 1.0) if quick else duration,
        warmup=0.3 if quick else 0.7,
        server_core=server_core,
        load_core=load_core,
    )


def _stem(command: str, parts: Iterable[str] | None = (), *, quick: bool) -> str:
    return "-".join([command, *(parts or ()), *(["quick"] if quick else [])])


@contextmanager
def _progress(total: int, *, aloud: bool = False) -> Iterator[Callable[[str], None]]:
    """What to call with what comes next; `aloud`: also where there is no terminal, or nobody knows how much comes."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = _console()
    if aloud and not (console.is_terminal and total):
        yield lambda words: typer.echo(words, err=True)
        return
    # Two redraws a second: the bar shares the load generator's core.
    progress = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        refresh_per_second=2,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task("", total=total, completed=-1)
        yield lambda words: progress.update(task, advance=1, description=words)


def _list(columns: Iterable[str], lines: Iterable[tuple[str, ...]]) -> None:
    from rich.table import Table

    table = Table(*columns)
    for line in lines:
        table.add_row(*line)
    _console().print(table)


def _publish(report: Report, out: Path, stem: str, *, json_output: bool, check: bool) -> None:
    """Writes and draws, prints the tables and notes or all figures as JSON, and names the files that were written."""
    console = _console()
    files = report.write(out, stem)
    try:
        files += report.draw(out, stem)
    except ImportError:
        console.print(NO_PLOT)
    if json_output:
        typer.echo(report.to_json())
    else:
        for table in report.terminal():
            console.print(table)
        for words in report.words():
            console.print(words, highlight=False, markup=False)
        console.print("Written: " + ", ".join(str(file) for file in files), highlight=False, soft_wrap=True)
    if report.failures or (check and report.missed):
        raise typer.Exit(1)


def _profile(works: list[Work], plan: Plan, out: Path, prefix: str = "") -> None:
    from bench.harness.profiling import profile

    out.mkdir(parents=True, exist_ok=True)
    for one in works:
        file = out / f"{prefix}profile-{one.key.replace('/', '-')}.txt"
        file.write_text(profile(one, plan))
        _console().print(f"Written: {file}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    app()
