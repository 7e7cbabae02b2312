"""Messages that the present connection of a session is too weak for (semantics, *Levels and demands*).

QoS 1 and 2 wait, if the session outlives its connection; see `session.waiting_deliveries` for where. QoS 0 is denied.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from tidegate.gate import Deny, PartialDecision, passed
from tidegate.session import Delivery, Grant, Message, Session

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope


class WaitingForLevel:
    """Decides for one scope what waits for a better connection."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def waits(self, verdict: Message | Deny, session: Session, message: Message, grant: Grant | None = None) -> bool:
        """Whether a message waits, because of this verdict, for a better connection, over which it might be sent.

        `grant`: the subscription that it is for; None: any.
        """
        if not isinstance(verdict, Deny) or not verdict.waits or not session.expiry:
            return False
        gate = self.scope.gate
        if grant is not None:
            return isinstance(gate.decide(message, session, grant, later=True), Message)
        return isinstance(gate.permits(message, session, later=True), Message)

    def keeps(self, verdict: Message | Deny, session: Session, delivery: Delivery) -> bool:
        """Whether a delivery waits for a better connection of this session.

        What came through a shared subscription goes to another member, but not QoS 2 that was sent [MQTT-4.8.2-5].
        """
        group = delivery.group
        if group is None:
            return self.waits(verdict, session, delivery.message)
        if delivery.qos < 2 or not delivery.pid:
            return False
        grant = (session.subscriptions or {}).get(f"$share/{group[0]}/{group[1]}")
        return self.waits(verdict, session, delivery.message, grant)

    def defer(
        self,
        weak: Deny,
        ways: tuple[PartialDecision, ...],
        message: Message,
        source: Session | None,
        seen: set[tuple[object, int]] | None,
    ) -> int:
        """Owes a message to a session whose connection is too weak, as a plan says. How many it reached.

        `seen`: who has been delivered it, if it can reach them more than once.
        """
        session = ways[0].session
        if seen is not None and (session, message.output) in seen:
            return 0
        verdict = passed(ways, message)
        if isinstance(verdict, Deny) or not message.qos:
            why = verdict if isinstance(verdict, Deny) else weak
            self.scope.report("read", session.outward, message.topic, why, message.context)
            return 0
        grant, _ = verdict
        if seen is not None:
            seen.add((session, message.output))
        if session is source:
            if grant.no_local:
                return 1
            grant = grant.own or grant
        retain = message.retain and grant.retain_as_published
        session.defer(Delivery(message, min(message.qos, grant.qos), retain, grant.ids))
        return 1

    def too_weak(self, session: Session, delivery: Delivery) -> bool:
        """Whether a delivery that monitors have not seen waits for a better connection (session.Decider)."""
        if not delivery.qos or delivery.overheard or delivery.group is not None:
            return False
        return self.waits(self.scope.gate.permits(delivery.message, session), session, delivery.message)

    def stream(self, message: Message) -> Hashable:
        """Its publisher and its topic (session.Decider): what is alike in both stays in order."""
        publisher = self.scope.gate.attributes.context(message).subject
        return publisher.kind, publisher.session, publisher.domain, publisher.node, message.topic
