"""Monitors in tests of the door: sections of the configuration, what the audit says of them, and some in Python."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from harness import Client
from processes import Served
from sockets.acts import Section, inbox
from tidegate import wire
from tidegate.monitor import Event
from tidegate.store.journal.rows import AuditRow


def entering(id: str, **more: Any) -> Section:
    """A monitor of every link into the scope."""
    return {"id": id, "scope": "main", "direction": "im_pub", **more}


def leaving(id: str, **more: Any) -> Section:
    """A monitor of every link out of it."""
    return {"id": id, "scope": "main", "direction": "im_sub", **more}


def watching(side: str, id: str, **more: Any) -> Section:
    return (entering if side == "in" else leaving)(id, **more)


def automaton(start: str, **states: list[Section]) -> Section:
    return {"automaton": {"start": start, "states": states}}


def emitting(on: str, *outputs: str | Section) -> Section:
    """An automaton of one state that answers to a topic."""
    return automaton("s", s=[{"on": on, "emit": list(outputs)}])


def gated(guarded: str, opening: str, closing: str) -> Section:
    """What is guarded passes between what opens and what closes; it is closed at first."""
    closed: list[Section] = [{"on": opening, "go": "open"}, {"on": guarded, "emit": []}]
    return automaton("closed", closed=closed, open=[{"on": closing, "go": "closed"}])


async def got(end: Client) -> list[tuple[str, bytes]]:
    """Topics and payloads of everything it has been sent up to now."""
    return [(one.topic, one.payload) for one in await inbox(end)]


async def names(end: Client) -> list[str]:
    return [one.topic for one in await inbox(end)]


def told(packet: wire.Publish) -> dict[str, str]:
    """Its user properties."""
    return dict(packet.properties.user_properties)


def states(node: Served, id: str) -> dict[str, Any]:
    """Whose state is what."""
    found = node.node.scopes["main"].path.monitoring.states.instances
    return {key: one.state for (monitor, key), one in found.items() if monitor == id}


def tally(node: Served, id: str) -> tuple[int, int, int, int]:
    """What it has seen, suppressed, made, and where it failed."""
    found = node.node.scopes["main"].path.monitoring.states.tallies[id]
    return found.seen, found.suppressed, found.added, found.failed


async def denials(node: Served, rule: str) -> list[AuditRow]:
    """The rows of the audit in which this rule denied something."""
    rows: list[AuditRow] = []
    async for piece in node.node.audit.stream(kinds=["deny"], rule=rule):
        rows += [AuditRow(*row) for row in piece]
    return rows


# -- an administrator's own --------------------------------------------------------------------------------------


class Numbering:
    """Writes into each payload how many there have been."""

    def start(self) -> int:
        return 0

    def step(self, state: int, event: Event) -> tuple[int, Sequence[Event]]:
        return state + 1, [event.changed(payload=b"%d" % (state + 1))]


class Raising:
    """Fails on one topic, after it has changed what it was given."""

    def __init__(self, on: str = "bad") -> None:
        self.on = on

    def start(self) -> list[int]:
        return [0]

    def step(self, state: list[int], event: Event) -> tuple[list[int], Sequence[Event]]:
        state[0] += 1
        if event.topic == self.on:
            event.topic = "changed"
            raise LookupError("nothing there")
        return state, [event]


class Slow:
    """Takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def start(self) -> None:
        return None

    def step(self, state: None, event: Event) -> tuple[None, Sequence[Event]]:
        time.sleep(self.seconds)
        return state, [event]


class Wrong:
    """Answers with what no monitor may; which, the payload says. Anything else passes."""

    def start(self) -> int:
        return 0

    def step(self, state: int, event: Event) -> Any:
        wrong: dict[bytes, Any] = {
            b"nothing": None,
            b"no pair": state,
            b"no event": (state, ["t"]),
            b"wildcard": (state, [Event("a/#", b"")]),
            b"reserved": (state, [Event("$SYS/x", b"")]),
            b"qos": (state, [Event("t", b"", 3)]),
            b"payload": (state, [Event("t", "text")]),  # type: ignore[arg-type]
            b"retain": (state, [Event("t", b"", 0, 1)]),  # type: ignore[arg-type]
            b"too many": (state, [Event("t", b"")] * 101),
            b"state": ({1: 2}, [event]),
            b"large state": ("x" * 70_000, [event]),
        }
        return wrong.get(event.payload, (state + 1, [event]))


class Keeper:
    """Lets what is said at the `door` pass between `key` and `lock`, and says so."""

    def start(self) -> bool:
        return False

    def step(self, state: bool, event: Event) -> tuple[bool, Sequence[Event]]:
        if event.topic == "door":
            return state, [event, event.changed(topic="said")] if state else []
        return {"key": True, "lock": False}.get(event.topic, state), [event]
