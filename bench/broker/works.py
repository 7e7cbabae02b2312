"""The works that are measured, and the goals they are held against: both as tables.

A work with several windows is several entries. Names are what `--work` takes. The windows say how many messages
are outstanding: 5000 saturates a server, 20 leaves it waiting most of the time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bench.harness import work as works
from bench.harness.servers import Setting
from bench.harness.work import Figure, Goal, Work
from bench.load.job import Job, Shape

SATURATED = Goal(ratio=1.7)
LIGHT = Goal(ratio=1.1)
ACKNOWLEDGED = Goal(ratio=1.4)
FAN_OUT = Goal(ratio=1.4)
LARGE = Goal(ratio=1.0)
PUNCTUAL = Goal(ratio=1.0)
SMALL = Goal(kib=4.0)
DURABLE = Goal(ratio=1.0)


def _windows(work: Work, *windows: tuple[int, Goal | None]) -> list[Work]:
    return [
        dataclasses.replace(work, job=dataclasses.replace(work.job, window=window), goal=goal)
        for window, goal in windows
    ]


def _fixed(rate: int) -> Work:
    return Work(
        name=f"rate-{rate // 1000}k",
        title=f"{rate // 1000},000 messages/s offered, 100 publishers, QoS 0",
        job=Job(shape=Shape.RATE, rate=rate),
    )


WORKS: tuple[Work, ...] = (
    Work(name="batched", title="1 publisher, batched, QoS 0", job=Job(publishers=1, batch=112)),
    *_windows(
        Work(name="qos0-100", title="100 publishers, one message at a time, QoS 0", job=Job()),
        (5000, SATURATED),
        (20, LIGHT),
    ),
    Work(
        name="qos0-100-x4",
        title="100 publishers, four messages at a time, QoS 0",
        job=Job(batch=4),
    ),
    *_windows(
        Work(name="qos0-1000", title="1000 publishers, one at a time, QoS 0", job=Job(publishers=1000)),
        (5000, SATURATED),
        (200, LIGHT),
    ),
    *_windows(
        Work(name="qos1-100", title="100 publishers, QoS 1 both ways", job=Job(qos=1)),
        (5000, ACKNOWLEDGED),
        (20, None),
    ),
    *_windows(
        Work(name="qos2-100", title="100 publishers, QoS 2 both ways", job=Job(qos=2)),
        (5000, ACKNOWLEDGED),
        (20, None),
    ),
    *_windows(
        Work(
            name="fanout-1000",
            title="fan-out, 1 publisher to 1000 subscribers, QoS 0",
            job=Job(publishers=1, subscribers=1000, fanout=True),
        ),
        (1, FAN_OUT),
        (10, FAN_OUT),
    ),
    Work(
        name="topics-100k",
        title="100,000 distinct topics, 100 publishers, QoS 0",
        job=Job(topics=100_000),
        goal=LARGE,
        grows=True,
    ),
    Work(
        name="churn-1k",
        title="1,000 subscription changes/s beside 100 publishers, QoS 0",
        job=Job(churn=1000),
        goal=LARGE,
        grows=True,
    ),
    Work(
        name="wildcards-100k",
        title="100,000 wildcard subscriptions beside 100 publishers, QoS 0",
        job=Job(wildcards=100_000),
        goal=LARGE,
        grows=True,
    ),
    _fixed(20_000),
    _fixed(50_000),
    Work(
        name="latency",
        title="p99 latency at half of the maximum rate, QoS 0",
        job=Job(shape=Shape.RATE),
        figure=Figure.LATENCY,
        goal=PUNCTUAL,
        half=True,
    ),
    Work(
        name="latency-nodelay",
        title="the same, the reference with set_tcp_nodelay",
        job=Job(shape=Shape.RATE),
        figure=Figure.LATENCY,
        setting=Setting(nodelay=True),
        half=True,
    ),
    Work(
        name="idle-10k",
        title="memory of each of 10,000 idle plain connections",
        job=Job(shape=Shape.IDLE, connections=10_000),
        figure=Figure.MEMORY,
        goal=SMALL,
    ),
    *_windows(
        Work(
            name="durable",
            title="durable QoS 1: persistent sessions, 100 publishers",
            job=Job(qos=1, persistent=True),
            setting=Setting(durable=True),
        ),
        (5000, DURABLE),
        (20, DURABLE),
    ),
)
BASE = "qos0-100/5000"


def work(key: str) -> Work:
    return next(one for one in WORKS if one.key == key)


BRIEF = ("qos0-100", "qos0-1000/5000", "qos1-100/5000", "qos2-100/5000", "fanout-1000/10", "durable/5000")
"""What is measured where there is little time."""


def chosen(wanted: Sequence[str]) -> list[Work]:
    """The works named by `wanted`, with or without their window, in the order of the table; all if it is empty."""
    known = list(dict.fromkeys(one.name for one in WORKS))
    for text in wanted:
        if not any(text == one.key for one in WORKS):
            works.chosen([text], known)
    return [one for one in WORKS if not wanted or one.name in wanted or one.key in wanted]
