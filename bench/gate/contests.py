"""Over sockets, saturated: several servers under the same load in each round, the first of them the reference.

As in `rounds`, each measurement is on a fresh server, the order rotates from round to round, and ratios are taken
within a round. Everybody gets the very same messages; what differs is what the server has to ask before it delivers
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench import figures, rounds
from bench.figures import Row
from bench.gate import rulebook
from bench.job import Job, Outcome
from bench.rounds import Plan, Series
from bench.servers import BenchError, Peer, Setting
from bench.works import Goal, Work

MOSQUITTO = "mosquitto"
OPEN = "open"
EVERYTHING = "everything"
ENOUGH = Goal(ratio=1.4)
THE_SAME = Goal(ratio=0.9)
"""Of two servers that cost the same, either may be ahead by some percent."""
MANY = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One server, and the load as it meets it."""

    name: str
    title: str
    job: Job
    peer: Peer = Peer.TIDEGATE
    setting: Setting = field(default_factory=Setting)
    goal: Goal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Servers that are compared with the first of them."""

    name: str
    title: str
    contenders: tuple[Contender, ...]
    version: int = 4

    @property
    def reference(self) -> Contender:
        return self.contenders[0]

    def work(self, contender: Contender) -> Work:
        """One line of the table: this contender against the reference."""
        return Work(
            name=f"{self.name}/{contender.name}",
            title=contender.title,
            job=contender.job,
            goal=contender.goal,
            setting=contender.setting,
        )


@dataclass(slots=True, kw_only=True)
class Rounds:
    """What all rounds of a contest found. A measurement that failed is None."""

    contest: Contest
    outcomes: dict[str, list[Outcome | None]]
    failures: list[str] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """All but the reference, each against it."""
        contest = self.contest
        return [
            figures.row(
                Series(
                    work=contest.work(one),
                    reference=self.outcomes[contest.reference.name],
                    subject=self.outcomes[one.name],
                )
            )
            for one in contest.contenders[1:]
        ]


def run(contest: Contest, plan: Plan, before: Callable[[str], None]) -> Rounds:
    """Every contender in every round. `before` is told what comes next."""
    plan = dataclasses.replace(plan, version=contest.version)
    found = Rounds(contest=contest, outcomes={one.name: [] for one in contest.contenders})
    for number in range(plan.rounds):
        first = number % len(contest.contenders)
        for one in contest.contenders[first:] + contest.contenders[:first]:
            before(f"{contest.name}, round {number + 1} of {plan.rounds}: {one.name}")
            outcome: Outcome | None = None
            try:
                outcome = rounds.measure(one.peer, one.job, contest.work(one), plan)
            except BenchError as error:
                found.failures.append(f"{contest.name}/{one.name}, round {number + 1}: {error}")
            found.outcomes[one.name].append(outcome)
    return found


# -- what is compared ------------------------------------------------------------------------------------------------


def contests() -> tuple[Contest, ...]:
    """All of them, in the order of the table."""
    return (
        _everything(100),
        _everything(1000),
        _conditions(),
        _monitors(),
        _views(),
        _where(),
        _many(),
    )


def _bare(job: Job) -> Contender:
    return Contender(
        name=MOSQUITTO,
        title="Mosquitto, without any security",
        peer=Peer.MOSQUITTO,
        job=dataclasses.replace(job, login=False, barred=0, shown=(), where=""),
    )


def _open(job: Job) -> Contender:
    return Contender(
        name=OPEN,
        title="the same users, `policies: open`",
        job=dataclasses.replace(job, barred=0, shown=(), where=""),
        setting=Setting(rules=rulebook.unrestricted(job.publishers), durable=True),
    )


def _everything(publishers: int) -> Contest:
    job = Job(publishers=publishers, login=True, barred=1)
    return Contest(
        name=f"{EVERYTHING}-{publishers}",
        title=f"{publishers} publishers, one message at a time, QoS 0",
        contenders=(
            _bare(job),
            _open(job),
            Contender(
                name=EVERYTHING,
                title=f"{rulebook.HERE} policies with conditions, a preference per user, levels, brokering, a monitor "
                "on every link, audit",
                job=job,
                setting=Setting(rules=rulebook.everything(publishers), durable=True),
                goal=ENOUGH,
            ),
        ),
    )


def _conditions() -> Contest:
    return _one_by_one(
        "conditions",
        "conditions that depend on the clock or on the message, 100 publishers, QoS 0",
        rulebook.MECHANISMS,
    )


def _monitors() -> Contest:
    return _one_by_one(
        "monitors",
        "monitors in which nothing happens, and those that have to see each message, 100 publishers, QoS 0",
        {name: (title, {"more": monitors}) for name, (title, monitors) in rulebook.MONITORS.items()},
    )


def _one_by_one(name: str, title: str, mechanisms: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Contest:
    """Each mechanism alone; by name, what it is called and what `rulebook.alone` has to be told."""
    job = Job(login=True, content=rulebook.content())
    return Contest(
        name=name,
        title=title,
        contenders=(
            _bare(job),
            _open(job),
            *(
                Contender(
                    name=one,
                    title=called,
                    job=job,
                    setting=Setting(rules=rulebook.alone(job.publishers, **told), durable=True),
                )
                for one, (called, told) in mechanisms.items()
            ),
        ),
    )


def _views() -> Contest:
    job = Job(login=True, content=rulebook.content(), copies=len(rulebook.VIEWS), shown=rulebook.seen())
    return Contest(
        name="views",
        title="two subscribers to a topic, of different groups, 100 publishers, QoS 0",
        contenders=(
            _bare(job),
            _open(job),
            Contender(
                name="views",
                title="each group sees another part of the JSON",
                job=job,
                setting=Setting(rules=rulebook.alone(job.publishers, more=rulebook.views()), durable=True),
            ),
        ),
    )


def _where() -> Contest:
    job = Job(login=True, content=rulebook.content(), where=rulebook.PAYLOAD_CONDITION)
    return Contest(
        name="where",
        title="subscriptions with a condition of their own, MQTT 5, 100 publishers, QoS 0",
        version=5,
        contenders=(
            _bare(job),
            _open(job),
            Contender(
                name="where",
                title="`where` on the content, on every subscription",
                job=job,
                setting=Setting(rules=rulebook.alone(job.publishers), durable=True),
            ),
        ),
    )


def _many() -> Contest:
    job = Job(login=True, barred=1)

    def having(policies: int, goal: Goal | None = None) -> Contender:
        rules = rulebook.everything(job.publishers, policies)
        return Contender(
            name=f"{policies}",
            title=f"{policies:,} policies",
            job=job,
            setting=Setting(rules=rules, durable=True),
            goal=goal,
        )

    return Contest(
        name="policies",
        title="everything, with few policies and with many, 100 publishers, QoS 0",
        contenders=(having(100), having(MANY, THE_SAME)),
    )
