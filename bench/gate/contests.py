"""Over sockets, saturated: several servers under the same load in each round, the first of them the reference.

As in `rounds`, each measurement is on a fresh server, the order rotates from round to round, and ratios are taken
within a round. Everybody gets the very same messages; what differs is what the server has to ask before it delivers
them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.gate import rulebook
from bench.harness import figures, rounds
from bench.harness.figures import Row
from bench.harness.rounds import Plan, Series
from bench.harness.servers import BenchError, Peer, Setting
from bench.harness.work import Goal, Work
from bench.load.job import Job, Outcome

MOSQUITTO = "mosquitto"
OPEN = "open"
EVERYTHING = "everything"
ENOUGH = Goal(ratio=1.4)
THE_SAME = Goal(ratio=0.9)
"""Of two servers that cost the same, either may be ahead by some percent."""
READ = Goal(ratio=1.3)
"""Rules that have to see each message."""
SIZES = {"1k": 1024, "10k": 10 * 1024}
"""Bytes of larger contents."""
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
    plain = Job(login=True, content=rulebook.content())
    monitors = {name: (title, {"more": lines}) for name, (title, lines) in rulebook.MONITORS.items()}
    return (
        _everything(100),
        _everything(1000),
        _beside_open(
            "conditions",
            "conditions that depend on the clock or on the message, 100 publishers, QoS 0",
            plain,
            rulebook.MECHANISMS,
            goals=("moment", "payload-write", "payload-read"),
        ),
        _beside_open(
            "monitors",
            "monitors in which nothing happens, and those that have to see each message, 100 publishers, QoS 0",
            plain,
            monitors,
            goals=("rate", "acting"),
        ),
        _beside_open(
            "views",
            "two subscribers to a topic, of different groups, 100 publishers, QoS 0",
            dataclasses.replace(plain, copies=len(rulebook.VIEWS), shown=rulebook.seen()),
            {"views": ("each group sees another part of the JSON", {"more": rulebook.views()})},
            goals=("views",),
        ),
        _beside_open(
            "where",
            "subscriptions with a condition of their own, MQTT 5, 100 publishers, QoS 0",
            dataclasses.replace(plain, where=rulebook.PAYLOAD_CONDITION),
            {"where": ("`where` on the content, on every subscription", {})},
            version=5,
            goals=("where",),
        ),
        *(_sized(name, size) for name, size in SIZES.items()),
        _many(),
    )


def _ruled(name: str, title: str, job: Job, rules: str, goal: Goal | None = None) -> Contender:
    """A node with these rules."""
    return Contender(name=name, title=title, job=job, setting=Setting(rules=rules, durable=True), goal=goal)


def _unguarded(job: Job) -> tuple[Contender, Contender]:
    """The reference, and the same users where everything is allowed."""
    job = dataclasses.replace(job, barred=0, shown=(), where="")
    bare = dataclasses.replace(job, login=False)
    return (
        Contender(name=MOSQUITTO, title="Mosquitto, without any security", peer=Peer.MOSQUITTO, job=bare),
        _ruled(OPEN, "the same users, `policies: open`", job, rulebook.unrestricted(job.publishers)),
    )


def _everything(publishers: int) -> Contest:
    job = Job(publishers=publishers, login=True, barred=1)
    title = (
        f"{rulebook.HERE} policies with conditions, a preference per user, levels, brokering, a monitor on every link, "
        "audit"
    )
    return Contest(
        name=f"{EVERYTHING}-{publishers}",
        title=f"{publishers} publishers, one message at a time, QoS 0",
        contenders=(
            *_unguarded(job),
            _ruled(EVERYTHING, title, job, rulebook.everything(publishers), ENOUGH),
        ),
    )


def _beside_open(
    name: str,
    title: str,
    job: Job,
    mechanisms: Mapping[str, tuple[str, Mapping[str, Any]]],
    version: int = 4,
    goals: Sequence[str] = (),
) -> Contest:
    """Each mechanism alone; by name, what it is called and what `rulebook.alone` has to be told. `goals`: of those that
    have to see each message, and are to be that much cheaper than the reference all the same."""
    return Contest(
        name=name,
        title=title,
        version=version,
        contenders=(
            *_unguarded(job),
            *(
                _ruled(one, words, job, rulebook.alone(job.publishers, **conditions), READ if one in goals else None)
                for one, (words, conditions) in mechanisms.items()
            ),
        ),
    )


def _sized(name: str, size: int) -> Contest:
    """Rules that read content of so many bytes, beside those who only pass it on."""
    job = Job(login=True, content=rulebook.content(size), size=size)
    conditions = {one: rulebook.MECHANISMS[one] for one in ("payload-write", "payload-read")}
    contest = _beside_open(f"content-{name}", f"content of {size:,} bytes, 100 publishers, QoS 0", job, conditions)
    group, names = next(iter(rulebook.VIEWS.items()))
    shown = json.dumps({one: rulebook.CONTENT[one] for one in names}, separators=(",", ":"))
    more = [
        f'views: [{{id: all, topic: "bench/#", for: "role:reader", keep: [{", ".join(f"/{one}" for one in names)}]}}]'
    ]
    view = _ruled(
        "view",
        f"everybody sees what the group `{group}` does",
        dataclasses.replace(job, shown=(shown,)),
        rulebook.alone(job.publishers, more=more),
    )
    return dataclasses.replace(contest, contenders=(*contest.contenders, view))


def _many() -> Contest:
    job = Job(login=True, barred=1)
    few, many = (
        _ruled(f"{count}", f"{count:,} policies", job, rulebook.everything(job.publishers, count), goal)
        for count, goal in ((100, None), (MANY, THE_SAME))
    )
    title = "everything, with few policies and with many, 100 publishers, QoS 0"
    return Contest(name="policies", title=title, contenders=(few, many))
