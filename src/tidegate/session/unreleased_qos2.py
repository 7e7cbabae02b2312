"""QoS 2 messages that a client has sent and not released yet: kept in its session, within bounds, for some time.

The time passes only while the client is connected and the node reads from it: whoever is away may release them when it
is back. At its end the messages are let go and the client is disconnected with 0x97: it sends without releasing. If it
releases such a message later, it is told that there is none (0x92).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.session.message import Message
from tidegate.session.phase import Phase
from tidegate.session.timers import Timer
from tidegate.wire import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.session.connection import Connection
    from tidegate.session.session import Session


class Unreleased:
    """What one packet id of a session stands for: what is handed on when it is released, which may be nothing."""

    __slots__ = ("messages", "since", "size")

    def __init__(self, messages: tuple[Message, ...], size: int, since: float) -> None:
        self.messages = messages
        self.size = size
        self.since = since  # when it came, or when its time began anew

    @property
    def journaled(self) -> bool:
        """Whether it was released, and waits for the journal."""
        return any(message.journaled for message in self.messages)


def room(session: Session, size: int) -> bool:
    """Whether there is room for one more of that size, with the session, its user, and the node."""
    limits, accounts = session.site.limits, session.site.accounts
    if session.incoming and session.incoming_bytes + size > limits.queue_bytes:
        return False
    usage, user, whole, node = session.usage, limits.user, accounts.node, limits.node
    if (
        usage.unreleased < user.unreleased
        and whole.unreleased < node.unreleased
        and usage.unreleased_bytes + size <= user.unreleased_bytes
        and whole.unreleased_bytes + size <= node.unreleased_bytes
    ):
        return True
    # at a bound, which is counted by its name
    accounts.full(usage, user, node, "unreleased") or accounts.full(usage, user, node, "unreleased_bytes", size)
    return False


def keep(session: Session, pid: int, messages: tuple[Message, ...], size: int) -> None:
    """Until it is released."""
    incoming = session.incoming
    if incoming is None:
        incoming = session.incoming = {}
    incoming[pid] = Unreleased(messages, size, session.site.now)
    session.incoming_bytes += size
    usage = session.usage
    usage.unreleased += 1
    usage.unreleased_bytes += size
    node = usage.node
    node.unreleased += 1
    node.unreleased_bytes += size


def forget(session: Session, pid: int) -> tuple[Message, ...]:
    """It is released, or let go: what was kept of it."""
    if session.incoming is None or (kept := session.incoming.pop(pid, None)) is None:
        return ()
    size = kept.size
    session.incoming_bytes -= size
    usage = session.usage
    usage.unreleased -= 1
    usage.unreleased_bytes -= size
    node = usage.node
    node.unreleased -= 1
    node.unreleased_bytes -= size
    return kept.messages


def withdraw(session: Session, whether: Callable[[Message], bool]) -> int:
    """Takes messages back that wait for PUBREL: nothing is handed on when it comes. What is released, and waits for the
    journal, is not taken back. How many that were."""
    taken = 0
    for pid, kept in tuple((session.incoming or {}).items()):
        if not kept.messages or kept.journaled or not all(map(whether, kept.messages)):
            continue
        forget(session, pid)
        keep(session, pid, (), 0)
        if session.row:
            session.site.store.receive(session.row, pid, ())
        taken += len(kept.messages)
    return taken


class Deadline:
    """When one connection has to have released what it sent."""

    __slots__ = ("_connection", "_timer")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._timer: Timer | None = None

    def begin(self, session: Session) -> None:
        """The connection is open: what an earlier one has left begins anew."""
        for kept in (session.incoming or {}).values():
            kept.since = session.site.now
        if session.incoming:
            self.start()

    def start(self) -> None:
        """There is something to release."""
        if self._timer is None:
            site = self._connection.site
            self._timer = site.timers.at(site.now + site.limits.unreleased_time, self._look)

    def end(self) -> None:
        """The connection is closed."""
        self._connection.site.timers.cancel(self._timer)
        self._timer = None

    def _look(self) -> None:
        """Lets go of what is overdue; armed again for when the next one would be."""
        self._timer = None
        connection, site = self._connection, self._connection.site
        if connection.phase is not Phase.OPEN or not connection.session.incoming:
            return
        session, longest = connection.session, site.limits.unreleased_time
        incoming = connection.session.incoming
        for kept in incoming.values():
            if connection.holds or kept.journaled:  # it is not its fault that we do not read, or that the disk is slow
                kept.since = site.now
        overdue = [pid for pid, kept in incoming.items() if kept.since + longest <= site.now]
        if not overdue:
            self._timer = site.timers.at(min(kept.since for kept in incoming.values()) + longest, self._look)
            return
        for pid in overdue:
            forget(session, pid)
            if session.row:
                site.store.release(session.row, pid)
        site.counters.dropped += len(overdue)
        connection.close(Reason.QUOTA_EXCEEDED, f"QoS 2 messages were not released within {longest:g} s")
