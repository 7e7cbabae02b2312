"""A monitor at work: its state on one link, for one client, or for a scope; and who is watched by it.

`mode` is the state itself if it is one of finitely many, so that the fast lane can ask whether anything would happen
at all; a `Laden` state if the instance remembers contexts that what passes has to carry. A `ModeCounts` counts the
modes of all instances whose links are up.

What it will not do: decide where outputs go, or keep anything safe. The scope does.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from tidegate.monitor.attachment import Attachment
from tidegate.monitor.event import State
from tidegate.monitor.machine import Machine


class Laden(NamedTuple):
    """The mode of an instance that remembers whose events have led to a state."""

    state: str


def calm_modes(machine: Machine, topic: str) -> frozenset[Hashable]:
    """The modes in which every event of a topic passes unchanged, with nothing more to carry, and changes nothing."""
    calm = machine.calm(topic)
    if calm and machine.remembers and machine.passes(topic):
        return calm | {Laden(state) for state in calm if isinstance(state, str)}
    return calm


class Instance:
    """One state of one monitor. Slotted: there may be one for each client."""

    __slots__ = (
        "armed",
        "attachment",
        "cause",
        "dirty",
        "identity",
        "key",
        "laden",
        "mode",
        "own",
        "post",
        "principal",
        "sources",
        "state",
        "stored",
        "timer",
    )

    def __init__(self, attachment: Attachment, key: str, state: State) -> None:
        self.attachment = attachment
        self.key = key  # whose state it is
        self.identity = ""  # and their id, if they have one: a name is not an identity
        self.principal = ""  # with which the key begins
        self.post: ModeCounts | None = None  # counts its mode while its link is up
        self.cause: Any = None  # the last message that reached it, if its timer needs to know
        self.sources: tuple[Any, ...] = ()  # the contexts whose events moved it since its start state
        self.own: Any = None  # whose events alone reach it, if that is one
        self.laden = False  # what passes has to carry them, if another state would not let it pass
        self.timer: Any = None
        self.armed = 0.0  # steady time at which that comes
        self.dirty = False  # waits to be written down
        self.stored = False  # has been written down before
        self.state = state
        self.mode: Hashable = state if isinstance(state, str) else None

    def move(self, state: State) -> bool:
        """To another state; whether it is another."""
        if state == self.state:
            return False
        self.state = state
        if self.mode is not None or isinstance(state, str):
            self._enter_mode()
        return True

    def lade(self, laden: bool) -> None:
        """Whether it has something to carry from now on."""
        if laden is not self.laden:
            self.laden = laden
            self._enter_mode()

    def _enter_mode(self) -> None:
        before, state = self.mode, self.state
        self.mode = None if not isinstance(state, str) else Laden(state) if self.laden else state
        if self.post is not None and before != self.mode:
            self.post.leave(before)
            self.post.enter(self.mode)


class ModeRevision:
    """How often a mode appeared at one of a scope's posts in which no instance had been."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class ModeCounts:
    """The links of one attachment that leave the scope and are up, and the modes of its instances there."""

    __slots__ = ("attachment", "holders", "modes", "sessions", "shift")

    def __init__(self, attachment: Attachment, shift: ModeRevision) -> None:
        self.attachment = attachment
        self.shift = shift
        self.modes: dict[Hashable, int] = {}
        self.sessions: dict[Any, Instance] = {}  # in the order they came, and by whose state each is watched
        self.holders: dict[Instance, int] = {}  # how many of them each instance watches

    def enter(self, mode: Hashable) -> None:
        before = self.modes.get(mode, 0)
        self.modes[mode] = before + 1
        if not before:
            self.shift.number += 1

    def leave(self, mode: Hashable) -> None:
        left = self.modes[mode] - 1
        if left:
            self.modes[mode] = left
        else:
            del self.modes[mode]

    def add(self, session: Any, instance: Instance) -> None:
        if session in self.sessions:
            return
        self.sessions[session] = instance
        held = self.holders.get(instance, 0)
        self.holders[instance] = held + 1
        if not held:
            instance.post = self
            self.enter(instance.mode)

    def remove(self, session: Any, instance: Instance) -> None:
        if session not in self.sessions:
            return
        del self.sessions[session]
        held = self.holders.pop(instance) - 1
        if held:
            self.holders[instance] = held
        else:
            instance.post = None
            self.leave(instance.mode)
