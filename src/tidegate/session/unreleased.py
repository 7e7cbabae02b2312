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
    from tidegate.session.connection import Connection
    from tidegate.session.session import Session


def full(session: Session, size: int) -> bool:
    """Whether there is no room for one more of that size, with the session, its user, or the node."""
    limits, accounts = session.site.limits, session.site.accounts
    if session.incoming and session.incoming_bytes + size > limits.queue_bytes:
        return True
    usage, user, node = session.usage, limits.user, limits.node
    return bool(
        accounts.full(usage, user, node, "unreleased") or accounts.full(usage, user, node, "unreleased_bytes", size)
    )


def keep(session: Session, pid: int, messages: tuple[Message, ...]) -> None:
    """Until it is released: what is handed on for it then, which may be nothing."""
    if session.incoming is None:
        session.incoming = {}
    session.incoming[pid] = messages
    _count(session, 1, sum(message.size for message in messages))


def forget(session: Session, pid: int) -> tuple[Message, ...]:
    """It is released, or let go: what was kept of it."""
    if session.incoming is None or pid not in session.incoming:
        return ()
    messages = session.incoming.pop(pid)
    _count(session, -1, -sum(message.size for message in messages))
    return messages


def _count(session: Session, entries: int, size: int) -> None:
    session.incoming_bytes += size
    for usage in (session.usage, session.usage.node):
        usage.unreleased += entries
        usage.unreleased_bytes += size


class Deadline:
    """When one connection has to have released what it sent."""

    __slots__ = ("_connection", "_since", "_timer")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._since: dict[int, float] = {}  # by packet id, the oldest first
        self._timer: Timer | None = None

    def begin(self, session: Session) -> None:
        """The connection is open: what an earlier one has left begins anew."""
        for pid in session.incoming or ():
            self.start(pid)

    def start(self, pid: int) -> None:
        site = self._connection.site
        self._since[pid] = site.now
        if self._timer is None:
            self._timer = site.timers.at(site.now + site.limits.unreleased_time, self._look)

    def stop(self, pid: int) -> None:
        self._since.pop(pid, None)

    def end(self) -> None:
        """The connection is closed."""
        self._connection.site.timers.cancel(self._timer)
        self._timer = None
        self._since.clear()

    def _look(self) -> None:
        """Lets go of what is overdue; armed again for when the next one would be."""
        self._timer = None
        connection, site = self._connection, self._connection.site
        if connection.phase is not Phase.OPEN or not self._since:
            return
        longest = site.limits.unreleased_time
        if connection.holds:  # it is not its fault that we do not read
            self._since = dict.fromkeys(self._since, site.now)
        incoming = connection.session.incoming or {}
        for pid in self._since:
            if any(message.journaled for message in incoming.get(pid, ())):
                self._since[pid] = site.now  # released: it waits for the journal
        overdue = [pid for pid, since in self._since.items() if since + longest <= site.now]
        if not overdue:
            self._timer = site.timers.at(min(self._since.values()) + longest, self._look)
            return
        session = connection.session
        for pid in overdue:
            forget(session, pid)
            if session.row:
                site.store.release(session.row, pid)
        site.counters.dropped += len(overdue)
        connection.close(Reason.QUOTA_EXCEEDED, f"QoS 2 messages were not released within {longest:g} s")
