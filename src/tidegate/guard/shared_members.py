"""Shared subscriptions of a guarded scope: the broker picks a member, and the guard another if that may not have it.

The broker is told that a message has been taken when the other member has acknowledged it. Only members that are
connected to this guard can be chosen. If the member that the broker picked has another subscription to the topic, it
cannot be told by which of them a message came: it is not handed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.gate import Deny
from tidegate.guard.guarded_session import GuardedSession
from tidegate.session import Message

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope
    from tidegate.guard.lending import Done


class SharedMembers:
    """Who has which shared subscription."""

    def __init__(self, scope: GuardedScope) -> None:
        self.scope = scope
        self._members: dict[str, dict[GuardedSession, None]] = {}  # by the filter with its share; last chosen last

    def join(self, filter: str, session: GuardedSession) -> None:
        self._members.setdefault(filter, {})[session] = None

    def leave(self, filter: str, session: GuardedSession) -> None:
        members = self._members.get(filter, {})
        members.pop(session, None)
        if not members:
            self._members.pop(filter, None)

    def hand_on(self, session: GuardedSession, message: Message, qos: int, done: Done) -> bool:
        """Gives a message that a member may not have to one that may; False: there is none."""
        if not session.shares:
            return False
        grants = session.matching(message.topic)
        if not grants or any(grant.group is None for grant in grants):
            return False
        tried = {session}

        def settled(taken: bool) -> None:
            if taken or not (
                session.upstream is not None and self._give(grants[0].filter, tried, message, qos, settled)
            ):
                done(taken)

        return self._give(grants[0].filter, tried, message, qos, settled)

    def _give(self, filter: str, tried: set[GuardedSession], message: Message, qos: int, done: Done) -> bool:
        for member in list(self._members.get(filter, ())):
            if member in tried or member.upstream is None or member.shut or member.subscriptions is None:
                continue
            tried.add(member)
            grant = member.subscriptions[filter]
            shown = self.scope.gate.decide(message, member, grant)
            if isinstance(shown, Deny):
                continue
            members = self._members[filter]
            members[member] = members.pop(member)
            if member.lending.send(shown, min(qos, grant.qos), False, grant.ids, done):
                return True
        return False
