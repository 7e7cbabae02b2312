"""`tidegate learn`: policies and monitors proposed from what was seen, with the evidence for each."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.options import Json, Since, Until, parse_time
from tidegate.cli.tables import rows_table
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from tidegate.config import Config
    from tidegate.learn.monitors import ProposedMonitor
    from tidegate.learn.propose import Proposals
    from tidegate.learn.table import Person, Row, Seen, Table

_PATIENCE: Final = 2.0  # seconds before there is a progress bar
_LISTED: Final = 20  # lines of a list; --json tells more
_WIDE: Final = 2000
_FAILED: Final = re.compile(r"`tests\[(\d+)\]`")


def learn(
    config: Annotated[
        Path, typer.Option("-c", "--config", help="Configuration of the node that recorded.", metavar="FILE")
    ] = Path("tidegate.yaml"),
    journal: Annotated[
        Path | None,
        typer.Option("--journal", help="Data folder with the journals. Default: that of the node.", metavar="FOLDER"),
    ] = None,
    since: Since = None,
    until: Until = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="File for the proposals; it must not exist. Default: standard output.", metavar="FILE"
        ),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Add up the traffic on Spark.")] = False,
    include_denied: Annotated[bool, typer.Option("--include-denied", help="Learn what was denied, too.")] = False,
    users: Annotated[int, typer.Option("--min-users", help="People that a placeholder needs.", min=2, metavar="N")] = 2,
    topics: Annotated[int, typer.Option("--min-topics", help="Values that a `+` needs.", min=2, metavar="N")] = 3,
    monitors: Annotated[
        bool, typer.Option("--monitors", help="Propose monitors, too: sequences, rates and ranges that always held.")
    ] = False,
    json: Json = False,
) -> None:
    """Propose the smallest readable policies that allow what was seen.

    Learns from recorded traffic (`record: traffic`), or from the audit (`record: decisions`) where there is none. The
    proposals are `policies` and `tests` that `tidegate check FILE -c tidegate.yaml` takes. Nothing is changed.

    Exit code 0; 1 if nothing was seen.

    [dim]tidegate learn -c tidegate.yaml --since 7d --out learned.yaml[/dim]
    """
    from zoneinfo import ZoneInfo

    from tidegate.config import load
    from tidegate.learn.as_yaml import plain, tests
    from tidegate.learn.propose import Options, propose
    from tidegate.learn.table import tabulate
    from tidegate.learn.templates import Evidence

    base = load(config)
    data = journal or base.node.data
    if data is None:
        terminal.fail("the configuration has no `node.data`, so nothing was recorded; set it, or give --journal")
    if out is not None and out.exists():
        terminal.usage(f"{out} exists; choose another name, or remove it")
    zone = ZoneInfo(base.node.timezone)
    begin = 0.0 if since is None else parse_time(since, "--since", zone)
    end = time.time() if until is None else parse_time(until, "--until", zone)
    if journal is None:
        _settle(base)
    with ExitStack() as stack:
        rows = _rows(base, data, begin, end, stack, spark=spark)
        table = tabulate(rows, _others(base), base.node.domain, base.built.directory.clients)
    _annotate(table)
    if not table.uses:
        terminal.fail("nothing was seen in that time; choose another with --since and --until, or record for longer")
    options = Options(evidence=Evidence(users=users, topics=topics), include_denied=include_denied)
    proposals = propose(table, options)
    kept = _kept(base)
    proposed = _monitors(data, proposals, begin, end) if monitors else []
    text, dropped = _tested(config, proposals, tests(proposals, table.people), kept, proposed)
    if out is not None:
        _write(out, text)
    if json:
        found = [{**entry, "evidence": list(evidence)} for entry, evidence in proposed]
        terminal.print_json(plain(proposals) | {"kept": kept, "monitors": found, "yaml": text})
        return
    if out is None:
        typer.echo(text, nl=False)
    _show(proposals, proposed, terminal.err() if out is None else terminal.out())
    if dropped:
        terminal.note(f"note: {len(dropped):,} tests are not generated, because other rules than policies decide them")


# -- what was seen -----------------------------------------------------------------------------------------------------


def _rows(config: Config, data: Path, since: float, until: float, stack: ExitStack, *, spark: bool) -> Iterator[Row]:
    from zoneinfo import ZoneInfo

    from tidegate.audit.uses import uses_of_audit
    from tidegate.config.pipeline import Spark
    from tidegate.pipeline.replay.uses_job import uses_here, uses_on_spark
    from tidegate.store.journal import TRAFFIC
    from tidegate.store.journal.segment import first_offsets, folder_of

    if first_offsets(folder_of(data, TRAFFIC, 0)):
        if spark:
            from tidegate.pipeline.spark import working

            settings = Spark() if config.pipeline is None else config.pipeline.spark
            session = stack.enter_context(
                working("tidegate learn", master=settings.master, memory=settings.memory, conf=settings.conf)
            )
            progress = stack.enter_context(terminal.progress("reading", after=_PATIENCE))
            return uses_on_spark(session, config, data, since=since, until=until, progress=progress)
        progress = stack.enter_context(terminal.progress("reading", after=_PATIENCE))
        return uses_here(config, data, since=since, until=until, progress=progress)
    if spark:
        terminal.usage("--spark reads recorded traffic, and there is none; set `record: traffic`, or leave it out")
    progress = stack.enter_context(terminal.progress("reading", after=_PATIENCE))
    policies = config.built.rules.policies
    return uses_of_audit(
        data,
        config.built.directory,
        policies=[] if policies is None else [each.id for each in policies.policies],
        since=since,
        until=until,
        zone=ZoneInfo(config.node.timezone),
        progress=progress,
    )


def _settle(config: Config) -> None:
    """Has a node that runs write down what has happened."""
    from tidegate.errors import TidegateError
    from tidegate.net import control_socket as control

    with suppress(TidegateError, OSError):  # it does not run: then everything is written
        control.ask(config.control_socket, "audit_written")


def _monitors(data: Path, proposals: Proposals, since: float, until: float) -> list[ProposedMonitor]:
    from tidegate.learn.monitors import propose_monitors
    from tidegate.pipeline.replay.observe import observe
    from tidegate.store.journal import TRAFFIC
    from tidegate.store.journal.segment import first_offsets, folder_of

    if not first_offsets(folder_of(data, TRAFFIC, 0)):
        terminal.usage("--monitors reads recorded traffic, and there is none; set `record: traffic`, or leave it out")
    with terminal.progress("looking for sequences", after=_PATIENCE) as progress:
        observed = observe(data, since=since, until=until, progress=progress)
    return propose_monitors(observed, proposals.policies)


def _others(config: Config) -> Iterator[Person]:
    """Everybody whom the directory knows."""
    from tidegate.learn.table import Person

    directory = config.built.directory
    for name in sorted(directory.users):
        known = directory.known(user=name)
        attributes = dict(known.attributes) | {"roles": known.roles, "groups": known.groups}
        yield Person.of(name, "", attributes)


def _annotate(table: Table) -> None:
    """Takes the sums that are no uses out of the table, and says what they mean."""
    from tidegate.pipeline.replay import report
    from tidegate.pipeline.replay.uses import TOTAL

    totals = {use.topic: times.count for use, times in table.uses.items() if use.action == TOTAL}
    table.uses = {use: times for use, times in table.uses.items() if use.action != TOTAL}
    for name, text in (
        (
            report.OPEN,
            "deliveries depend on what was not recorded, and are not learned; set `traffic: {payloads: true}`",
        ),
        (report.OTHER_RULES, "messages were recorded under other rules than those of the configuration"),
        (report.LOST, "rows are missing because the disk was too slow"),
        (report.MISSED, "rows cannot be read: they were deleted meanwhile, or are damaged"),
        (report.CONFUSED, "sessions of one user and client identifier in several scopes cannot be told apart"),
    ):
        if count := totals.get(name, 0):
            table.notes.append(f"{count:,} {text}")


# -- what comes of it --------------------------------------------------------------------------------------------------


def _kept(config: Config) -> list[dict[str, Any]]:
    """Policies for links, services and monitors, which are not learned."""
    from tidegate.config.policies import Policies
    from tidegate.config.section import as_tuple

    kept: list[dict[str, Any]] = []
    scopes = [f"scope:{name}" for name in config.scopes] if len(config.scopes) > 1 or config.links else []
    if config.policies is None or config.policies is Policies.OPEN:
        if config.policies is Policies.OPEN and scopes:
            kept.append({"id": "links-as-before", "subject": scopes, "topic": "#", "action": ["read", "write"]})
        return kept
    for policy in config.policies:
        subjects = [
            each for each in as_tuple(policy.subject) if each.startswith(("scope:", "link:", "service:", "monitor:"))
        ]
        if "*" in as_tuple(policy.subject):
            subjects = [*scopes, *subjects]
        if not subjects:
            continue
        entry = policy.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        kept.append({**entry, "subject": subjects[0] if len(subjects) == 1 else subjects})
    return kept


def _tested(
    config: Path,
    proposals: Proposals,
    cases: list[dict[str, Any]],
    kept: list[dict[str, Any]],
    monitors: Sequence[ProposedMonitor],
) -> tuple[str, list[dict[str, Any]]]:
    """The text, with those tests that hold in the configuration: other rules than policies may decide, too."""
    from tidegate.config.document import read_source, source_of
    from tidegate.explain.file_tests import run_tests
    from tidegate.learn.as_yaml import to_yaml
    from tidegate.pipeline.replay.candidate import overlay

    text = to_yaml(proposals, cases, kept=kept, monitors=monitors)
    merged = overlay(read_source(config), source_of(text, config, None))
    failed: set[int] = set()
    for problem in run_tests(merged, file=str(config)).problems:
        if (found := _FAILED.match(str(problem.args[0]))) is not None:
            failed.add(int(found[1]))
    if not failed:
        return text, []
    good = [case for at, case in enumerate(cases) if at not in failed]
    return to_yaml(proposals, good, kept=kept, monitors=monitors), [cases[at] for at in sorted(failed)]


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as broken:
        raise ConfigError(f"cannot be written ({broken.strerror}); choose another name", file=str(path)) from None


# -- what is shown -----------------------------------------------------------------------------------------------------


def _show(proposals: Proposals, proposed: Sequence[ProposedMonitor], out: Console) -> None:
    from tidegate.learn.as_yaml import iso

    rows = []
    for each in proposals.policies:
        what = f"{', '.join(each.subjects.selectors)} {'+'.join(each.actions)} {each.topic}"
        what += f" when {each.when}" if each.when else ""
        last = iso(each.last) if each.last else ""
        cells = (each.id, what, f"{each.used:,}", f"{len(each.by):,}", last)
        rows.append([Text(terminal.harmless(cell, lines=False)) for cell in cells])
    titles = ("rule", "allows", "used", "people", "last used")
    width = None if out.is_terminal else _WIDE
    out.print(rows_table(titles, rows, numbers=(2, 3), box=None, header_style="bold"), width=width)
    _list(out, "always held", [f"{entry['id']}: {'; '.join(evidence)}" for entry, evidence in proposed])
    _list(out, "seen once only", [_line(each) for each in proposals.once])
    _list(out, "stays denied", [_line(each) for each, _ in proposals.denied])
    _list(out, "was denied, and would be allowed", [f"{_line(each)}, by {by}" for each, by in proposals.allowed_now])
    _list(out, "no policy can say", [f"{_line(each)}: {why}" for each, why in proposals.not_expressed])
    for note in proposals.notes:
        terminal.note(f"note: {note}")


def _line(each: Seen) -> str:
    times = "" if each.count == 1 else f" ({each.count:,} times)"
    return f"{each.person.name} {each.action} {each.topic}{times}"


def _list(out: Console, title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    out.print(Text(f"{title} ({len(lines):,}):", style="bold"))
    for line in lines[:_LISTED]:
        out.print(f"  {terminal.harmless(line, lines=False)}", markup=False, highlight=False)
    if len(lines) > _LISTED:
        out.print(f"  and {len(lines) - _LISTED:,} more; --json tells all", markup=False)
