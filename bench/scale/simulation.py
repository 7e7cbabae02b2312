"""How many guards a million clients take, from the measured costs of one: a sum, and a simulation that checks it.

The simulation goes in steps of a second. Each guard has one second of CPU in each; it spends it on what is published at
it, on changes of policies, and then on clients that connect, which wait as long as there is none left. After a minute
one guard is lost, and its clients come to the others.

`python -m bench.scale.simulation --update` writes docs/design/scale.md.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RESULT: Final = ROOT / "bench" / "results" / "scale.json"
PAGE: Final = ROOT / "docs" / "design" / "scale.md"
SOURCE_PORTS: Final = 28_232  # Linux: net.ipv4.ip_local_port_range, for each address of the broker
SHARE: Final = 0.5  # of a core that a guard may need while nothing happens
DATABASE_CONNECTIONS: Final = 2  # of each guard: one to ask and change, one to listen
POSTGRES_CONNECTIONS: Final = 100  # `max_connections`, unless it is set


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of one guard, as measured."""

    message: float
    """Seconds of CPU, both passes, with several guards."""
    connect: float
    change: float
    """Of one guard for a changed policy."""
    transaction: float
    """Seconds that PostgreSQL takes for it, one after the other."""
    idle: float
    """KiB of a connection."""

    @staticmethod
    def measured() -> Costs:
        found = json.loads(RESULT.read_text())
        return Costs(
            message=median(found["micros_two_guards"]) / 1e6,
            connect=found["micros_connect"] / 1e6,
            change=found["milliseconds_change_guard"] / 1e3,
            transaction=found["milliseconds_change_database"] / 1e3,
            idle=found["kib_idle"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What clients ask for."""

    name: str
    clients: int
    messages: float
    """A second, all together; each is delivered once."""
    connects: float
    """A second, while nothing happens."""
    changes: float
    """Of policies, a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """What that takes."""

    guards: int
    why: str
    """What decides how many."""
    busy: float
    """Share of a core that each needs."""
    gib: float
    """Of memory, of each, beside the 60 MB of a process."""
    database: float
    """Share of the time in which PostgreSQL commits a change."""
    connections: int
    """Of the database."""


def demands() -> list[Demand]:
    million = 1_000_000
    return [
        Demand(name="10,000 clients, a message a second each", clients=10_000, messages=1e4, connects=1, changes=0.01),
        Demand(name="100,000, every 10 s", clients=100_000, messages=1e4, connects=5, changes=0.01),
        Demand(name="a million, every minute", clients=million, messages=million / 60, connects=50, changes=0.1),
        Demand(name="a million, every second", clients=million, messages=million, connects=50, changes=0.1),
        Demand(
            name="a million, every minute; 5 changes/s", clients=million, messages=million / 60, connects=50, changes=5
        ),
    ]


def busy(costs: Costs, demand: Demand, guards: int) -> float:
    """The share of a core that one of so many guards needs."""
    shared = demand.messages * costs.message + demand.connects * costs.connect
    return shared / guards + demand.changes * costs.change


def needed(costs: Costs, demand: Demand, *, addresses: int = 1) -> Needed:
    """With so many addresses of the broker; one guard more than that, so that one may be lost."""
    room = SHARE - demand.changes * costs.change
    if room <= 0:
        raise ValueError("changes alone take more than a guard has: more guards do not help")
    by_load = ceil((demand.messages * costs.message + demand.connects * costs.connect) / room)
    by_ports = ceil(demand.clients / (SOURCE_PORTS * addresses))
    guards = max(by_load, by_ports) + 1
    return Needed(
        guards=guards,
        why="CPU" if by_load > by_ports else "source ports",
        busy=busy(costs, demand, guards),
        gib=demand.clients / guards * costs.idle / 2**20,
        database=demand.changes * costs.transaction,
        connections=guards * DATABASE_CONNECTIONS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a lost guard does to the others."""

    seconds: int
    """Until the last of its clients is connected again; 0: they never are."""
    most: float
    """The highest share of a core that one needs meanwhile."""
    waited: float
    """Seconds that messages wait at most, if a guard does not get done with them."""


def lose_one(costs: Costs, demand: Demand, guards: int, *, seconds: int = 600) -> Lost:
    """The simulation: all guards are alike, so that one stands for those which are left."""
    left, behind, waiting, waited, most, back = guards, 0.0, 0.0, 0.0, 0.0, 0
    debt = 0.0  # of changes, which come one at a time
    for second in range(seconds):
        if second == 60:
            left, waiting = guards - 1, waiting + demand.clients / guards / (guards - 1)
        behind += demand.messages / left * costs.message  # CPU that messages need
        debt += demand.changes
        changed, debt = int(debt), debt - int(debt)
        budget = max(0.0, 1.0 - changed * costs.change)
        done = min(behind, budget)
        behind, budget = behind - done, budget - done
        waiting += demand.connects / left
        came = min(waiting, budget / costs.connect)
        waiting -= came
        used = changed * costs.change + done + came * costs.connect
        most, waited = max(most, used), max(waited, behind)
        if second >= 60 and not back and waiting < 1:
            back = second - 59
    return Lost(seconds=back, most=min(most, 1.0), waited=waited)


def table(costs: Costs) -> str:
    lines = [
        "| clients and messages | guards | decided by | CPU of each | memory of each | PostgreSQL busy | its connections | all back after one is lost |",  # noqa: E501
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for demand in demands():
        found = needed(costs, demand)
        lost = lose_one(costs, demand, found.guards)
        lines.append(
            f"| {demand.name} | {found.guards} | {found.why} | {found.busy:.0%} | {found.gib:.2f} GiB | "
            f"{found.database:.2%} | {found.connections} | {lost.seconds} s |"
        )
    return "\n".join(lines)


def page() -> str:
    costs, found = Costs.measured(), json.loads(RESULT.read_text())
    one, ratio = median(found["micros_one_guard"]), found["two_over_one"]
    full = SHARE / costs.change
    again = SOURCE_PORTS * costs.connect
    return f"""# How far guards scale

The broker behind the guards is the distributed engine: it has sessions, subscriptions, retained messages and routing.
Guards of one broker [share no sessions](../decisions/0067-several-guards.md), so a guard costs what its own clients do,
and another one can be put beside it. `python tests/bench/scale_costs.py --update` measures what that is, `python
-m bench.scale.simulation --update` writes this page, and a test checks both.

## Measured

CPU of the guards, from the kernel's clocks, two cores that others used as well (load average
{found["load_average"]:.0f}), {found["date"]}; QoS 0 with 150 bytes, MQTT 3.1.1, Mosquitto behind them, and half of what
comes in at one guard goes out at the other.

| | |
|---|---:|
| a message, one guard, both passes | {one:.1f} µs |
| a message, two guards | {costs.message * 1e6:.1f} µs ({min(found["micros_two_guards"]):.1f} to {max(found["micros_two_guards"]):.1f}) |
| what two guards carry, beside one, by CPU | {median(ratio):.2f} x ({min(ratio):.2f} to {max(ratio):.2f}; goal 1.7 x) |
| a client connects | {costs.connect * 1e6:.0f} µs |
| a connection that does nothing | {costs.idle:.1f} KiB (goal 8 KiB) |
| a changed policy, at each guard, {found["policies"]} policies | {costs.change * 1e3:.0f} ms |
| the same, transaction of PostgreSQL | {costs.transaction * 1e3:.1f} ms |
| a hop between two nodes, both sides ([links](../../bench/results/links-batched-durable-gathered-brief.md)) | 0.19 µs |

The machine was not quiet. A guard that waits for its core reads more at once and seems cheaper; two guards, a broker and
the load on two cores wait for each other in smaller pieces and seem dearer.

## What follows

Guards for half a core each while nothing happens, and one more, so that one may be lost; one address of the broker. The
last column is the simulation: a guard is lost, and its clients come to the others.

{table(costs)}

- **Source ports come first.** Each client is a connection from the guard to the broker, and Linux has {SOURCE_PORTS:,} of
  these to one address. Give the broker more addresses (`net.ipv4.ip_local_port_range` helps by a factor of two), or take
  more guards, which costs little: {SOURCE_PORTS:,} clients that do nothing need {SOURCE_PORTS * costs.idle / 1024:.0f} MiB.
- **Then messages.** A core carries some {1 / costs.message / 1000:.0f} k messages a second, and every guard is one core.
- **Changes of policies do not scale with guards**, because each guard takes up each of them: {full:.0f} a second cost half a
  core at every guard. People who edit policies are far from that; a program that writes a policy for each device is not.
  Use attributes of the directory and placeholders (`{{s.user}}`) instead.
- **PostgreSQL carries changes, not messages.** Neither a message nor a connect asks it anything. Changes are made one after
  the other: at most {1 / costs.transaction:.0f} a second. Each guard has {DATABASE_CONNECTIONS} connections to it:
  `max_connections` ({POSTGRES_CONNECTIONS} unless set) ends at {POSTGRES_CONNECTIONS // DATABASE_CONNECTIONS} guards. While it is away
  guards decide with what they know.
- **A lost guard** with {SOURCE_PORTS:,} clients makes {again:.0f} s of CPU of connecting, shared by those that are left. The
  broker has as many connects to take.
- The broker's own limits are not in these figures, nor TLS with clients, whose handshakes cost more than all of the rest.
"""  # noqa: E501


if __name__ == "__main__":
    text = page()
    print(text)
    if sys.argv[1:] == ["--update"]:
        PAGE.write_text(text)
