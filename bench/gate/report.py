"""The report of `bench gate`: its tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bench.gate import changes, files, levels, memory, proofs_in_process, rulebook, steps
from bench.gate.changes import Phase, Run, Runs
from bench.gate.findings import Findings, beyond_open
from bench.gate.plot import pictures
from bench.gate.proofs_sockets import DEMANDS, WINDOW
from bench.gate.steps import Cost
from bench.harness import figures
from bench.harness.figures import Spread, spread
from bench.harness.report import Report, Table, cell, not_quiet, show, who_was_busy
from bench.harness.work import Figure
from bench.load.job import PAYLOAD


def report(found: Findings) -> Report:
    plan = found.plan
    lines = files.files(found)
    return Report(
        title="Gate: what deciding costs",
        machine=found.machine,
        header=[
            f"{PAYLOAD}-byte payloads, QoS 0, {plan.rounds} round(s) of {plan.duration:g} s, server on one core, load "
            "on another; figures are medians of the rounds with the lowest and the highest. Ratios and differences are "
            "taken within a round; a ratio above 1 is in favour of Tidegate. µs are CPU of the server per message "
            "delivered."
        ],
        notes=not_quiet(found.disturbance),
        tables=[
            _contests(found),
            _steps(found),
            _paths(found),
            _compiled(found),
            _proofs(found),
            _memory(found),
            _changes(found),
            _reloads(found),
            _forwarded(found),
            _connected(found),
            _bytes(found),
        ],
        files=lines,
        pictures=list(pictures(found)),
        failures=found.failures,
        missed=found.missed,
    )


# -- over sockets ----------------------------------------------------------------------------------------------------


def _signed(micros: Spread | None) -> str:
    if micros is None:
        return "-"
    text = f"{micros.median:+.2f} µs"
    return text if micros.low == micros.high else f"{text} ({micros.low:+.2f}..{micros.high:+.2f})"


def _contests(found: Findings) -> Table:
    lines: list[tuple[str, ...]] = []
    for rounds in found.contests:
        contest = rounds.contest
        reference = figures.side(rounds.outcomes[contest.reference.name])
        window = str(contest.reference.job.window)
        lines.append((contest.name, window, contest.reference.title, cell(Figure.FLOW, reference), *("-",) * 5))
        for one, row in zip(contest.contenders[1:], rounds.rows(), strict=True):
            more = beyond_open(rounds, one)
            lines.append(
                (
                    contest.name,
                    window,
                    one.title,
                    cell(Figure.FLOW, row.subject),
                    show(row.throughput),
                    show(row.cost),
                    _signed(more),
                    str(one.goal or "-"),
                    row.reached.value or "-",
                )
            )
    return Table(
        title="Saturated, over sockets",
        after="\n".join(["### Who was busy", "", *who_was_busy(found.sides(), found.disturbance)]),
        words=(
            "The first line of each work is what the others are compared with. A goal is judged by the ratio of CPU "
            "per message. `more than open` is what the gate adds to the same node with `policies: open`. Publishers "
            "and subscribers are users with passwords of their own; with everything, one more subscriber asks for all "
            "messages and may read none, and the monitors on all links listen to the topics of the load while nothing "
            "happens in them. A monitor on the way out sees all that its client may read, subscribed to or not: those "
            f"that count (`rate`) are moved {rulebook.SUBSCRIBERS} times by each message. Of "
            f"{changes.TRIALS[-1].policies:,} policies, {rulebook.HERE} speak of the topics of the load and the rest "
            "of others. Windows are messages outstanding."
        ),
        columns=(
            "work",
            "window",
            "what decides",
            "rate, CPU",
            "throughput ratio",
            "CPU ratio",
            "more than open",
            "goal",
            "reached",
        ),
        lines=lines,
    )


# -- without sockets -------------------------------------------------------------------------------------------------


def _ns(cost: Cost | None, nothing: str = "-") -> str:
    return nothing if cost is None else cost.nanos.show(0)


def _us(nanos: Spread) -> str:
    return nanos.show(1 if nanos.median >= 1e4 else 2, 1e-3)


def _steps(found: Findings) -> Table:
    by = {(one.group, one.name): one for one in found.costs}
    names = [name for name, _, _ in steps.STEPS] if found.costs_of("asked") else []
    return Table(
        title="Each step alone, without sockets",
        words=(
            "Nanoseconds. A step is asked once, when the plan of a publisher's topic is compiled; with "
            f"{rulebook.HERE} policies, {(rulebook.HERE - 1) // rulebook.TOPICS} of them about this topic. What it "
            "decides then costs a message nothing. The other columns are for conditions that depend on the message or "
            "on the moment: on the content, parsed for it; on content that another step has parsed before; on the "
            "clock, where the answer stands for no time at all."
        ),
        columns=(
            "step",
            "when compiled",
            "each message, decided then",
            "each message, by content",
            "the same, parsed before",
            "each message, by the clock",
        ),
        lines=[
            (
                name,
                _ns(by.get(("asked", name))),
                "0",
                _ns(by.get(("content", name))),
                _ns(by.get(("content again", name))),
                _ns(by.get(("clock", name))),
            )
            for name in names
        ],
    )


PATHS = {
    "size": "the cheapest condition on a message: `o.size`",
    "preferences": "a preference on the content: `o.payload`",
    "views": "views of two groups (two deliveries)",
    "where": "`where` on the content, MQTT 5",
    **{name: title for name, (title, _) in rulebook.MECHANISMS.items()},
    **{name: title for name, (title, _) in rulebook.MONITORS.items()},
}


def _paths(found: Findings) -> Table:
    costs = found.costs_of("path")
    base = costs[0].nanos.median if costs else 0.0
    return Table(
        title="The whole way without sockets",
        words=(
            "From the bytes of a PUBLISH to the bytes for its subscriber, in turns of 64 messages. Everything: with "
            "automata on every link, in a state where nothing happens. A monitor that counts what may be sent is "
            f"moved {rulebook.SUBSCRIBERS} times by each message, for everybody may read it."
        ),
        columns=("way", "ns per message", "more than the fast lane"),
        lines=[(PATHS.get(one.name, one.name), _ns(one), f"{one.nanos.median - base:+.0f}") for one in costs],
    )


def _compiled(found: Findings) -> Table:
    titles = {
        "compile": "a plan, with",
        "message": "a message in the fast lane, with",
        "stored": "a queued or retained message,",
        "change": "other rules in force:",
    }
    return Table(
        title="Compiling, stored messages and changes, without sockets",
        words=(
            "Microseconds. A plan is compiled for the first message of a publisher on a topic, for one subscriber and "
            "one who is denied. Stored messages are decided again when they are sent. After a change the first "
            "message of every publisher also finds out who that is now."
        ),
        columns=("what", "µs"),
        lines=[
            (f"{title} {one.name}", _us(one.nanos)) for group, title in titles.items() for one in found.costs_of(group)
        ],
    )


def _proofs(found: Findings) -> Table:
    by = {(one.group, one.name): one.nanos for one in found.costs}
    titles = {
        **{f"proof {way}": f"a message, {way}" for way in proofs_in_process.WAYS.values()},
        "proof alone": "of that, verifying alone",
        **{
            f"proof sockets {proofs_in_process.WAYS[demanded]}": f"over sockets, {proofs_in_process.WAYS[demanded]}"
            for demanded in DEMANDS
        },
    }
    return Table(
        title="A proof with each message",
        words=(
            "Microseconds, by the key of the capability. The same packets of MQTT 5, each with a proof of its own as a "
            f"user property, from their bytes to the bytes for the subscriber, in turns of {proofs_in_process.TURN}; "
            f"and over sockets, CPU of the node with {WINDOW} messages outstanding. Without a capability nobody looks "
            "at the proof."
        ),
        columns=("what", *proofs_in_process.KEYS),
        lines=[
            (title, *(_us(by[group, name]) if (group, name) in by else "failed" for name in proofs_in_process.KEYS))
            for group, title in titles.items()
            if found.costs_of(group)
        ],
    )


# -- memory ----------------------------------------------------------------------------------------------------------


def _memory(found: Findings) -> Table:
    seen = found.memory
    lines = []
    for title, value, judged in (
        ("without monitors", seen.of(memory.WITHOUT), False),
        ("a monitor for each client", seen.of(memory.WITH), False),
        ("what that adds", seen.added, True),
    ):
        goal, reached = (str(memory.SMALL), seen.reached) if judged else ("-", "-")
        lines.append((title, value.show(2, 1 / 1024) if value is not None else "failed", goal, reached))
    return Table(
        title="Memory of a monitor for each client",
        words=(
            f"KiB of resident memory of the node for each of {seen.clients:,} connected clients. Each has published a "
            "message with QoS 1, so its monitor (`rate`, one for each client) is not in its first state, and has "
            "been stored."
        ),
        columns=("node", "KiB each", "goal", "reached"),
        lines=lines if seen.bytes_each else [],
    )


# -- a change under load ---------------------------------------------------------------------------------------------


def _milli(values: Iterable[float]) -> str:
    return show(spread(values), 2, 1e3)


def _phases(runs: Runs) -> Iterator[tuple[str, list[Run], Phase]]:
    yield "no change", [one for one in runs.steady if one is not None], Phase.BEFORE
    changed = [one for one in runs.changed if one is not None]
    for phase in Phase:
        yield f"{phase.value} changes", changed, phase


def _changes(found: Findings) -> Table:
    lines: list[tuple[str, ...]] = []
    for runs in found.changes:
        for words, made, phase in _phases(runs):
            seen = [one.phases[phase] for one in made if one.phases[phase].messages]
            lines.append(
                (
                    runs.trial.title,
                    words,
                    _milli(one.stall for one in seen),
                    _milli(one.p50 for one in seen),
                    _milli(one.p99 for one in seen),
                    _milli(one.slowest for one in seen),
                    runs.reached if phase is Phase.DURING else "-",
                )
            )
    rate = found.changes[0].trial.rate if found.changes else 0
    return Table(
        title="A change of policy under load",
        words=(
            f"{rate:,} messages a second offered, everything switched on. Milliseconds. A stall is the longest time "
            "without a delivery, less what the generator itself was not running; latency is from sending to receiving. "
            f"During: from asking for a change until {changes.SETTLING:g} s after it is in force. Goal, by medians: no "
            f"stall over {changes.LONGEST_STALL * 1e3:.0f} ms during changes, and no message that takes more than that "
            "longer than the slowest without changes."
        ),
        columns=("load", "when", "longest stall", "p50", "p99", "slowest", "goal reached"),
        lines=lines,
    )


def _reloads(found: Findings) -> Table:
    lines = []
    for runs in found.changes:
        for words, made in (("no change", runs.steady), ("changes", runs.changed)):
            seen = [one for one in made if one is not None]
            lines.append(
                (
                    runs.trial.title,
                    words,
                    str(sum(len(one.changes) for one in seen)),
                    _milli(change.seconds for one in seen for change in one.changes),
                    _milli(one.delay[0] for one in seen),
                    _milli(one.delay[1] for one in seen),
                    show(spread(one.outcome.micros for one in seen)),
                    show(spread(one.outcome.load_busy for one in seen)),
                    str(sum(one.outcome.lost for one in seen)),
                )
            )
    return Table(
        title="The node during those runs",
        words=(
            "How long a change took from asking until it was in force, and the loop's longest delay so far as "
            "`tidegate status` tells it (since the node started, so connecting is in it): when measuring began and at "
            "the end. CPU per message includes reading the new configuration."
        ),
        columns=(
            "load",
            "run",
            "changes",
            "in force after, ms",
            "longest delay at first, ms",
            "at the end, ms",
            "CPU, µs per message",
            "generator busy",
            "lost",
        ),
        lines=lines,
    )


# -- levels ----------------------------------------------------------------------------------------------------------


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"


def _forwarded(found: Findings) -> Table:
    done = [one for one in found.levels.forwarded if one.seconds]
    lines = [
        (
            one.title,
            str(len(one.seconds[levels.WITH])),
            *(
                f"{one.median(name) * 1e6:.0f}"
                for name in (levels.MOSQUITTO, levels.WITHOUT, levels.CONTROL, levels.WITH)
            ),
            f"{one.added * 1e6:+.0f}",
            _p(one.ranks.p),
            _p(one.control.p),
            one.reached,
        )
        for one in done
    ]
    return Table(
        title="Levels: one message, with and without enforcement",
        words=(
            "Medians in microseconds from send() to recv(), one message at a time, servers in turns. `control` is a "
            "second node that enforces nothing: its p says how much two equal nodes differ. p is that of the rank test "
            "of Mann and Whitney, two-sided; below "
            f"{levels.FOUND:g} a difference is called found, which happens by chance in one of "
            f"{1 / levels.FOUND:.0f} comparisons. Mosquitto has `set_tcp_nodelay true`. The seed's medians, inside "
            "its broker: 109 ms without and 111 ms with enforcement."
        ),
        columns=(
            "clients",
            "runs",
            "mosquitto",
            "without",
            "control",
            "with",
            "added",
            "p, with",
            "p, control",
            "below 1 ms and not found",
        ),
        lines=lines,
    )


def _connected(found: Findings) -> Table:
    done = [one for one in found.levels.connected if one.seconds]
    return Table(
        title="Levels: time to connect",
        words=(
            "Milliseconds from opening the socket to CONNACK, with the handshake of TLS where there is one: median "
            "(fastest..slowest). The seed, on a microcontroller: 9.54 plain, 3207.53 with TLS."
        ),
        columns=("connection", "runs", "mosquitto", "without", "with", "p, with"),
        lines=[
            (
                one.title,
                str(len(one.seconds[levels.WITH])),
                *(_milli(one.seconds[name]) for name in (levels.MOSQUITTO, levels.WITHOUT, levels.WITH)),
                _p(one.ranks.p),
            )
            for one in done
        ],
    )


def _bytes(found: Findings) -> Table:
    return Table(
        title="Levels: bytes that a demand adds",
        words="Sent over a real connection and counted by the kernel. An implied demand adds none. The seed: 7.",
        columns=("packet", "user property", "bytes"),
        lines=[(one.packet, f"`{one.form}`", f"{one.bytes:+d}") for one in found.levels.added],
    )
