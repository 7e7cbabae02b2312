"""`tidegate bench`: the measurements. Only signatures here; what measures is imported when it is asked for."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from bench.gate.findings import Findings
    from bench.report import Report
    from bench.rounds import Plan
    from bench.works import Work

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Measure this machine's Tidegate against its peers.")
RESULTS = Path("bench/results")
ENOUGH_ROUNDS = 5
NO_PLOT = "No plot: matplotlib is not installed (pip install 'tidegate\\[bench]')."
WIDE = 150  # columns of the table where no terminal says how many there are


class Protocol(Enum):
    """MQTT versions, as people write them."""

    V311 = "3.1.1"
    V5 = "5.0"


class PeerName(Enum):
    """Servers that can stand on either side."""

    MOSQUITTO = "mosquitto"
    TIDEGATE = "tidegate"
    RELAY = "relay"


@app.callback()
def bench() -> None:
    """Measure this machine's Tidegate against its peers."""


@app.command()
def broker(
    work: Annotated[
        list[str] | None, typer.Option("--work", "-w", metavar="NAME", help="Only this work; can be repeated.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the works and their goals.")] = False,
    rounds: Annotated[int, typer.Option(help="Rounds per work; the median counts.", min=1)] = ENOUGH_ROUNDS,
    duration: Annotated[float, typer.Option(help="Seconds measured per round.", min=0.2)] = 3.0,
    quick: Annotated[bool, typer.Option("--quick", help="One short round, to see that it works.")] = False,
    protocol: Annotated[Protocol, typer.Option(help="MQTT version that the load speaks.")] = Protocol.V311,
    reference: Annotated[PeerName, typer.Option(help="What is compared with.")] = PeerName.MOSQUITTO,
    subject: Annotated[PeerName, typer.Option(help="What is measured.")] = PeerName.TIDEGATE,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where results go.")] = RESULTS,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Profile the subject during this work instead of comparing."),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a goal is missed.")] = False,
) -> None:
    """Broker: throughput, CPU per message, latency and memory, in turn with Mosquitto.

    Needs two cores and Debian's mosquitto. Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench broker --work qos0-100 --quick[/dim]
    """
    from bench.servers import BenchError, Peer
    from bench.works import chosen

    console = _console()
    try:
        works = chosen([profile] if profile else work or [])
        if show:
            _list(works, console)
            return
        plan = dataclasses.replace(
            _plan(rounds, duration, quick=quick),
            reference=Peer(reference.value),
            subject=Peer(subject.value),
            version=5 if protocol is Protocol.V5 else 4,
        )
        if profile:
            _profile(works, plan, out, console)
            return
        report = _measure(works, plan, console)
        stem = _stem(work or [], plan)
        _publish(report, out, stem, console, json_output=json_output)
    except BenchError as error:
        _fail(error)
    if report.failures or (check and report.missed):
        raise typer.Exit(1)


@app.command()
def gate(
    work: Annotated[
        list[str] | None,
        typer.Option("--work", "-w", metavar="NAME", help="Only this work, or those that begin so; can be repeated."),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the works and their goals.")] = False,
    rounds: Annotated[int, typer.Option(help="Rounds per work; the median counts.", min=1)] = ENOUGH_ROUNDS,
    duration: Annotated[float, typer.Option(help="Seconds measured per round.", min=0.2)] = 3.0,
    quick: Annotated[bool, typer.Option("--quick", help="One short round, to see that it works.")] = False,
    everything: Annotated[
        bool, typer.Option("--everything", help="Only the works with everything switched on, against Mosquitto.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where results go.")] = RESULTS,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Profile the node during this work instead of comparing."),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a goal is missed.")] = False,
) -> None:
    """Gate: what policies, preferences, levels, views, monitors and proofs cost, and a change of policy under load.

    Needs two cores and Debian's mosquitto. Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench gate --work steps --quick[/dim]
    """
    from bench.gate import works
    from bench.servers import BenchError

    console = _console()
    try:
        if show:
            _list_gate(works.titles(), console)
            return
        plan = _plan(rounds, duration, quick=quick)
        if profile:
            contest, one = works.contender(profile)
            _profile([contest.work(one)], dataclasses.replace(plan, version=contest.version), out, console, "gate-")
            return
        wanted = [*(work or []), *(["everything"] if everything else [])]
        chosen = works.chosen(wanted)
        with _progress(console, works.count(chosen, plan)) as progress:
            found = works.measure(chosen, plan, quick=quick, before=_told(progress))
        parts = ["gate", *wanted, *(["quick"] if plan.rounds < ENOUGH_ROUNDS else [])]
        _publish_gate(found, out, "-".join(parts), console, json_output=json_output)
    except BenchError as error:
        _fail(error)
    if found.failures or (check and found.missed):
        raise typer.Exit(1)


@app.command()
def flow(
    rounds: Annotated[int, typer.Option(help="Graphs of each shape and size; the median counts.", min=1)] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A few small graphs, to see that it works.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where results go.")] = RESULTS,
    json_output: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a goal is missed.")] = False,
) -> None:
    """Flow: how long it takes to find what reaches what, in graphs of up to 20,000 links.

    Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench flow --quick[/dim]
    """
    import json

    from bench import flow as flows
    from bench import flow_report
    from bench.machine import describe

    console = _console()
    sizes, rounds = (flows.SIZES[:4], 1) if quick else (flows.SIZES, rounds)
    machine = describe()
    with _progress(console, len(flows.Shape) * len(sizes) * rounds) as progress:
        report = flow_report.Report(machine=machine, found=flows.measure(sizes, rounds, _told(progress)))
    stem = "flow" if rounds >= flows.ROUNDS else "flow-quick"
    files = flow_report.write(report, out, stem)
    try:
        files.append(flow_report.draw(report, out / f"{stem}.png"))
    except ImportError:
        console.print(NO_PLOT)
    if json_output:
        typer.echo(json.dumps(flow_report.summary(report), indent=2))
    else:
        for table in flow_report.tables(report):
            console.print(table)
        for words in report.missed:
            console.print(f"Missed: {words}", highlight=False, markup=False)
        console.print("Written: " + ", ".join(str(file) for file in files), highlight=False, soft_wrap=True)
    if check and report.missed:
        raise typer.Exit(1)


@app.command()
def scopes(
    work: Annotated[
        list[str] | None,
        typer.Option("--work", "-w", metavar="NAME", help="Only rates, saturated or indoors; can be repeated."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of everything; the median counts.", min=1)] = 3,
    duration: Annotated[float, typer.Option(help="Seconds measured at each rate.", min=0.2)] = 0.5,
    quick: Annotated[bool, typer.Option("--quick", help="One short round of a part, to see that it works.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where results go.")] = RESULTS,
    json_output: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a goal is missed.")] = False,
) -> None:
    """Scopes: chains of one, three and five in one node, with and without monitors, at 5,000 to 30,000 messages/s.

    Needs two cores. Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench scopes --quick[/dim]
    """
    import json

    from bench.scopes import plot, report, works
    from bench.servers import BenchError

    console = _console()
    try:
        parts = works.chosen(work or [])
        plan = _plan(rounds, min(duration, 0.2) if quick else duration, quick=quick)
        with _progress(console, works.count(parts, plan, quick=quick)) as progress:
            found = works.measure(parts, plan, quick=quick, before=_told(progress))
    except BenchError as error:
        _fail(error)
    stem = "-".join(["scopes", *(work or []), *(["quick"] if plan.rounds < works.ENOUGH_ROUNDS else [])])
    files = report.write(found, out, stem)
    try:
        files += plot.draw(found, out, stem)
    except ImportError:
        console.print(NO_PLOT)
    if json_output:
        typer.echo(json.dumps(report.summary(found), indent=2))
    else:
        for table in report.tables(found):
            console.print(table)
        for note in (*report.header(found), *report.verdict(found), *found.failures):
            console.print(note, highlight=False, markup=False)
        console.print("Written: " + ", ".join(str(file) for file in files), highlight=False, soft_wrap=True)
    if found.failures or (check and found.missed):
        raise typer.Exit(1)


@app.command()
def keys(
    work: Annotated[
        list[str] | None,
        typer.Option("--work", "-w", metavar="NAME", help="Only requests, direct, beside or indoors; can be repeated."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of everything; the median counts.", min=1)] = ENOUGH_ROUNDS,
    duration: Annotated[float, typer.Option(help="Seconds of each measurement.", min=0.2)] = 1.5,
    quick: Annotated[bool, typer.Option("--quick", help="One short round, to see that it works.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where results go.")] = RESULTS,
    json_output: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a goal is missed.")] = False,
) -> None:
    """Keys: key requests over MQTT and HTTP, what protection adds to a message, and the broker beside a busy API.

    Needs two cores. Results (markdown, CSV, PNG, machine) go to bench/results/.

    [dim]tidegate bench keys --quick[/dim]
    """
    import json

    from bench.keys import plot, report, works
    from bench.servers import BenchError

    console = _console()
    try:
        parts = works.chosen(work or [])
        plan = _plan(rounds, min(duration, 0.3) if quick else duration, quick=quick)
        with _progress(console, works.count(parts, plan)) as progress:
            told = _told(progress) if console.is_terminal else partial(typer.echo, err=True)
            found = works.measure(parts, plan, quick=quick, before=told)
    except BenchError as error:
        _fail(error)
    stem = "-".join(["keys", *(work or []), *(["quick"] if plan.rounds < works.ENOUGH_ROUNDS else [])])
    files = report.write(found, out, stem)
    try:
        files += plot.draw(found, out, stem)
    except ImportError:
        console.print(NO_PLOT)
    if json_output:
        typer.echo(json.dumps(report.summary(found), indent=2))
    else:
        for table in report.tables(found):
            console.print(table)
        for note in (*report.header(found), *report.verdict(found), *found.failures):
            console.print(note, highlight=False, markup=False)
        console.print("Written: " + ", ".join(str(file) for file in files), highlight=False, soft_wrap=True)
    if found.failures or (check and found.missed):
        raise typer.Exit(1)


@app.command()
def pipeline(
    work: Annotated[
        list[str] | None,
        typer.Option(
            "--work", "-w", metavar="NAME", help="Only journal, latency, throughput or growth; can be repeated."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few messages, to see that it works.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where results go.")] = RESULTS,
    json_output: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a goal is missed.")] = False,
) -> None:
    """Pipeline: records a second on two cores, time until a record arrives, the journal, and growth to 10 million.

    Needs two cores, Java, and some gigabytes for temporary files. Results (markdown, CSV, JSON, PNG) go to
    bench/results/; of what is not measured now, the last results stay in them.

    [dim]tidegate bench pipeline --work journal --quick[/dim]
    """
    import json

    from bench.pipeline import plot, report, works
    from bench.rounds import raise_file_limit, two_cores
    from bench.servers import BenchError

    console = _console()
    stem = "pipeline-quick" if quick else "pipeline"
    measured = []
    try:
        parts = works.chosen(work or [])
        raise_file_limit()
        extent = works.QUICK if quick else works.Extent()
        told = partial(typer.echo, err=True)
        for section in works.measure(parts, extent, two_cores(), told):
            measured.append(section)
            found = report.merged(measured, out, stem)
    except BenchError as error:
        _fail(error)
    files = report.write(found, out, stem)
    try:
        files += plot.draw(found, out, stem)
    except ImportError:
        console.print(NO_PLOT)
    if json_output:
        typer.echo(json.dumps(report.summary(measured), indent=2))
    else:
        for table in report.tables(measured):
            console.print(table)
        for note in report.notes(measured):
            console.print(note, highlight=False, markup=False)
        console.print("Written: " + ", ".join(str(file) for file in files), highlight=False, soft_wrap=True)
    if any(section.failures or (check and section.missed) for section in measured):
        raise typer.Exit(1)


@app.command()
def compare(
    base: Annotated[
        str,
        typer.Option("--base", metavar="REVISION|FOLDER", help="Git revision, or the `src` folder of a checkout."),
    ],
    work: Annotated[
        list[str] | None,
        typer.Option("--work", "-w", metavar="NAME", help="Only this work, or those that begin so; can be repeated."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every work of broker, gate and scopes.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the works.")] = False,
    pairs: Annotated[int, typer.Option(help="Interleaved pairs per work.", min=2)] = 15,
    duration: Annotated[float, typer.Option(help="Seconds measured on each side of a pair.", min=0.2)] = 2.0,
    quick: Annotated[bool, typer.Option("--quick", help="Two short pairs, to see that it works.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where results go.")] = RESULTS,
    json_output: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a work is slower.")] = False,
) -> None:
    """Compare: works of this tree beside another checkout, in interleaved pairs, with 95 % intervals.

    Needs two cores. Results (markdown, CSV) go to bench/results/, and are written after each work.

    [dim]tidegate bench compare --base main~20 --work broker/qos0-100[/dim]
    """
    import json

    from bench.compare import cases, checkout, measure, report
    from bench.machine import describe
    from bench.servers import BenchError

    console = _console()
    comparisons: list[measure.Comparison] = []
    try:
        sockets, processes = cases.chosen(work or [], everything=everything)
        if show:
            for name in [*(one.name for one in sockets), *(f"in-process/{one.name}" for one in processes)]:
                typer.echo(name)
            return
        plan = dataclasses.replace(_plan(pairs, duration, quick=quick), rounds=2 if quick else pairs)
        this = checkout.this_tree()
        parts = [*(work or ()), *(["all"] if everything else ()), *(["quick"] if plan.rounds < 15 else ())]
        stem = "-".join(["compare", *(text.replace("/", "-") for text in parts)])
        total = plan.rounds * (2 * len(sockets) + len(processes))
        with checkout.opened(base) as other, _progress(console, total) as progress:
            told = _told(progress) if console.is_terminal else partial(typer.echo, err=True)
            found = report.Report(base=other, this=this, plan=plan, machine=describe(), comparisons=comparisons)
            for case in sockets:
                comparisons.append(measure.over_sockets(case, other, this, plan, told))
                files = report.write(found, out, stem)
            if processes:
                comparisons += measure.in_process(processes, other, this, plan, told)
                files = report.write(found, out, stem)
    except BenchError as error:
        _fail(error)
    if json_output:
        typer.echo(json.dumps(report.summary(found), indent=2))
    else:
        for table in report.tables(found):
            console.print(table)
        for note in (*report.notes(found), *found.failures):
            console.print(note, highlight=False, markup=False)
        console.print("Written: " + ", ".join(str(file) for file in files), highlight=False, soft_wrap=True)
    if found.failures or (check and found.missed):
        raise typer.Exit(1)


def _console() -> Console:
    from rich.console import Console

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C does: unwind, and stop the servers
    console = Console()
    return console if console.is_terminal else Console(width=WIDE)


def _fail(error: Exception) -> NoReturn:
    from rich.console import Console

    Console(stderr=True).print(f"[red]bench:[/] {error}", highlight=False, soft_wrap=True)
    raise typer.Exit(1) from None


def _plan(rounds: int, duration: float, *, quick: bool) -> Plan:
    from bench.rounds import Plan, raise_file_limit, two_cores

    raise_file_limit()
    server_core, load_core = two_cores()
    return Plan(
        rounds=1 if quick else rounds,
        duration=min(duration, 1.0) if quick else duration,
        warmup=0.3 if quick else 0.7,
        server_core=server_core,
        load_core=load_core,
    )


def _progress(console: Console, total: int) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

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
    progress.add_task("", total=total)
    return progress


def _told(progress: Progress) -> Callable[[str], None]:
    """Shows what comes next."""
    (task,) = progress.task_ids
    started = 0

    def before(words: str) -> None:
        nonlocal started
        progress.update(task, completed=started, description=words)
        started += 1

    return before


def _list_gate(titles: dict[str, tuple[str, str]], console: Console) -> None:
    from rich.table import Table

    made = Table("name", "work", "goal")
    for name, (title, goal) in titles.items():
        made.add_row(name, title, goal or "-")
    console.print(made)


def _publish_gate(found: Findings, out: Path, stem: str, console: Console, *, json_output: bool) -> None:
    import json

    from bench.gate import files, plot, report
    from bench.report import QUIET

    written = files.write(found, out, stem)
    try:
        written += plot.draw(found, out, stem)
    except ImportError:
        console.print(NO_PLOT)
    if json_output:
        typer.echo(json.dumps(files.summary(found), indent=2))
        return
    for table in report.tables(found):
        console.print(table)
    for note in (*report.header(found), *found.failures):
        console.print(note, highlight=False, markup=False)
    if found.disturbance > QUIET:
        console.print(f"The machine was not quiet: neighbours used up to {found.disturbance:.2f} cores.")
    console.print("Written: " + ", ".join(str(file) for file in written), highlight=False, soft_wrap=True)


def _list(works: list[Work], console: Console) -> None:
    from rich.table import Table

    made = Table("name", "window", "work", "goal")
    for one in works:
        made.add_row(one.name, one.window, one.title, str(one.goal or "-"))
    console.print(made)


def _measure(works: list[Work], plan: Plan, console: Console) -> Report:
    from bench import figures
    from bench.machine import describe
    from bench.report import Report
    from bench.rounds import Bench, raise_file_limit
    from bench.servers import Peer

    machine = describe()
    with _progress(console, len(works) * plan.rounds * 2) as progress:
        told = _told(progress)

        def before(work: Work, number: int, peer: Peer) -> None:
            told(f"{work.key}, round {number + 1} of {plan.rounds}: {peer.value}")

        runner = Bench(plan, before=before, files=raise_file_limit())
        series = runner.run(works)
    rows = [figures.row(one) for one in series]
    return Report(plan=plan, machine=machine, series=series, rows=rows, growth=figures.growth(rows), notes=runner.notes)


def _publish(report: Report, out: Path, stem: str, console: Console, *, json_output: bool) -> None:
    import json

    from bench import plot
    from bench import report as reports

    files = reports.write(report, out, stem)
    try:
        files.append(plot.draw(report, out / f"{stem}.png"))
    except ImportError:
        console.print(NO_PLOT)
    if json_output:
        typer.echo(json.dumps(reports.summary(report), indent=2))
        return
    console.print(reports.table(report))
    for note in (*report.notes, *report.failures):
        console.print(note, highlight=False, markup=False)
    if report.disturbance > reports.QUIET:
        console.print(f"The machine was not quiet: neighbours used up to {report.disturbance:.2f} cores.")
    console.print("Written: " + ", ".join(str(file) for file in files), highlight=False, soft_wrap=True)


def _stem(wanted: list[str], plan: Plan) -> str:
    """Only a whole run may replace the results that are kept; anything less gets a name of its own."""
    from bench.servers import Peer

    parts = ["broker", *(text.replace("/", "-") for text in wanted)]
    if (plan.reference, plan.subject) != (Peer.MOSQUITTO, Peer.TIDEGATE):
        parts += [plan.reference.value, plan.subject.value]
    if plan.version == 5:
        parts.append("mqtt5")
    if plan.rounds < ENOUGH_ROUNDS:
        parts.append("quick")
    return "-".join(parts)


def _profile(works: list[Work], plan: Plan, out: Path, console: Console, prefix: str = "") -> None:
    from bench.profiling import profile

    out.mkdir(parents=True, exist_ok=True)
    for one in works:
        file = out / f"{prefix}profile-{one.key.replace('/', '-')}.txt"
        file.write_text(profile(one, plan))
        console.print(f"Written: {file}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    app()
