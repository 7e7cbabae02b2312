"""What the guard itself sends to a client with QoS 1 and 2: what monitors made, and what another member of a shared
subscription may not have.

The broker chooses its packet identifiers from 1 upwards, so the guard takes them from the other end. Should the two
meet all the same, the client's connection ends, and what the broker still owes to it comes again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidegate.session import Message

if TYPE_CHECKING:
    from tidegate.guard.guarded_session import GuardedSession

Done = Callable[[bool], None]
"""Told once whether the client has it."""


class Lending:
    """What one client has not acknowledged to the guard."""

    __slots__ = ("_lent", "session")

    def __init__(self, session: GuardedSession) -> None:
        self.session = session
        self._lent: dict[int, tuple[bool, Done | None]] = {}  # whether it waits for PUBCOMP, and who is told

    def __contains__(self, pid: int) -> bool:
        return pid in self._lent

    def send(self, message: Message, qos: int, retain: bool, ids: tuple[int, ...], done: Done | None = None) -> bool:
        """Sends a message that was decided; whether there is room for it in a packet, and for one more of them."""
        session = self.session
        if len(self._lent) >= session.site.limits.inflight or (session.shut and not qos):
            session.site.counters.dropped += 1
            return False
        if not qos:
            return self._emit(message, 0, retain, ids, 0, done)
        pid = next(pid for pid in range(65535, 0, -1) if pid not in self._lent)
        self._lent[pid] = qos == 2, done
        window = session.taking
        if window is None or window.has_room(pid, partial(self._emit_later, message, qos, retain, ids, pid)):
            return self._emit(message, qos, retain, ids, pid, done)
        return True

    def _emit_later(self, message: Message, qos: int, retain: bool, ids: tuple[int, ...], pid: int) -> None:
        if pid in self._lent:
            done = self._lent[pid][1]
            if not self._emit(message, qos, retain, ids, pid, done) and done is not None:
                done(False)

    def _emit(
        self, message: Message, qos: int, retain: bool, ids: tuple[int, ...], pid: int, done: Done | None
    ) -> bool:
        session = self.session
        fitting = session._fitting(message, qos, retain, ids)
        if fitting is None:
            session.site.counters.dropped += 1
            self._lent.pop(pid, None)
            return False
        if not qos:
            session.append(fitting[0] + fitting[1], acknowledged=False)
            if done is not None:
                done(True)
            return True
        if session.taking is not None:
            session.taking.sent(pid)
        session.append(b"%b%b%b" % (fitting[0], pid.to_bytes(2, "big"), fitting[1]), acknowledged=True)
        return True

    def acknowledged(self, pid: int) -> None:
        """PUBACK."""
        self._settle(pid, True)

    def received(self, pid: int, reason: int) -> None:
        """PUBREC."""
        twice, done = self._lent[pid]
        if not twice or reason >= 0x80:
            self._settle(pid, reason < 0x80)
            return
        self._lent[pid] = True, None
        self.session.send(b"\x62\x02" + pid.to_bytes(2, "big"))
        if done is not None:
            done(True)

    def completed(self, pid: int) -> None:
        """PUBCOMP."""
        self._settle(pid, True)

    def _settle(self, pid: int, taken: bool) -> None:
        _, done = self._lent.pop(pid)
        if done is not None:
            done(taken)

    def end(self) -> None:
        """The client is gone."""
        lent, self._lent = self._lent, {}
        for _, done in lent.values():
            if done is not None:
                done(False)
