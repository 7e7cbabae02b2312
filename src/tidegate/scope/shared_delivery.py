"""Shared subscriptions: each message to one member of the group, chosen among those that are allowed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.gate import Deny, Step
from tidegate.gate.plan import Members
from tidegate.routing import Group
from tidegate.session import Delivery, Grant, Message, Session
from tidegate.session.packet_costs import ASKED, LOOK

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope


class Sharing:
    """The shared subscriptions of a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.unwanted = False  # of the last one that was sent to nobody: somebody may have it, and does not want it

    def send(self, group: Group[Session, Grant], message: Message, members: Members) -> bool:
        """To one member that may have it: with room if possible, else connected, else one that will come back.

        If the connections of all are too weak, it waits for a better one of one of them.
        """
        gate = self.scope.gate
        shown: dict[Session, Message | Deny] = {}

        def allowed(session: Session) -> bool:
            verdict = shown.get(session)
            if verdict is None:
                way = members.get(session)
                if way is None:
                    verdict = gate.decide(message, session, group.members[session])
                else:
                    verdict = way if isinstance(way, Deny) else way.show(message)
                shown[session] = verdict
            return isinstance(verdict, Message)

        def free(session: Session) -> bool:
            return not session.shut and (session.window > 0 or not message.qos) and allowed(session)

        def there(session: Session) -> bool:
            return session.connection is not None and allowed(session)

        def later(session: Session) -> bool:
            return message.qos > 0 and session.expiry > 0 and allowed(session)

        def waiting(session: Session) -> bool:
            return session.room(message) and there(session)

        def kept(session: Session) -> bool:
            return session.room(message) and later(session)

        def deferring(session: Session) -> bool:
            verdict = shown.get(session)
            waits = isinstance(verdict, Deny) and verdict.waits
            return waits and min(message.qos, group.members[session].qos) > 0 and session.expiry > 0

        chosen = group.pick(free)
        if chosen is None:
            self.scope.site.effort += LOOK * len(group.members)
            if any(allowed(session) for session in group.members):
                chosen = group.pick(waiting) or group.pick(kept) or group.pick(there) or group.pick(later)
        self.scope.site.effort += ASKED * len(shown)
        if chosen is None and (weak := group.pick(deferring)) is not None:
            session, grant = weak
            retain = message.retain and grant.retain_as_published
            session.defer(Delivery(message, min(message.qos, grant.qos), retain, grant.ids, grant.group))
            return True
        if chosen is None:
            self.unwanted = any(isinstance(each, Deny) and each.step is Step.WHERE for each in shown.values())
            for session, verdict in shown.items():
                if isinstance(verdict, Deny):
                    self.scope.report("read", session.outward, message.topic, verdict, message.context)
                    break  # one of them speaks for all
            return False
        session, grant = chosen
        part = shown[session]
        assert isinstance(part, Message)
        if gate.counts_allowed:
            self.scope.delivered(session, message)
        session.deliver(
            message,
            min(message.qos, grant.qos),
            message.retain and grant.retain_as_published,
            grant.ids,
            grant.group,
            part,
        )
        return True

    def hand_round(self, back: list[Delivery]) -> None:
        """What a member that left had not acknowledged goes to another."""
        for delivery in back:
            assert delivery.group is not None
            group = self.scope.shares.get(*delivery.group)
            if group is not None:
                self.send(group, delivery.message, {})
            self.scope.site.store.done(delivery)  # after it is owed to the other
