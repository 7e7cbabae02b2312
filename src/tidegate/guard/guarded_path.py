"""The path of a guarded scope: the same eleven steps, with the broker between the way in and the way out.

After step 5 a message goes to the broker (`deliver`, with `BackendTarget` as the one whom plans name). What the broker
delivers to a client takes steps 6 to 11 for that client alone (`GuardedEgress.received`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.gate import Deny, Plan
from tidegate.gate.stages.write_reserved_topics import is_own_state
from tidegate.guard.guarded_session import GuardedSession
from tidegate.scope.delivered_once import Seen
from tidegate.scope.egress import Egress
from tidegate.scope.path import Path
from tidegate.session import Delivery, Link, Message, Session
from tidegate.wire import NONE, Properties

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope


class GuardedPath(Path):
    """The path of a guarded scope."""

    scope: GuardedScope
    egress: GuardedEgress

    def _egress(self, stopwatch: Callable[[], float]) -> GuardedEgress:
        return GuardedEgress(self.scope, self.monitoring, stopwatch)

    def send(
        self,
        link: Link,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
        expiry: int | None = None,
        source: Session | None = None,
    ) -> Deny | int:
        """The will of a bridge between environments says whether it is connected."""
        if isinstance(source, GuardedSession) and source.bridge is not None and is_own_state(source.subject, topic):
            source.bridge.tell_state(source, topic, payload, retain)
            return 1
        return super().send(
            link, topic, payload, qos=qos, retain=retain, properties=properties, expiry=expiry, source=source
        )

    def arrived(self, plan: Plan, message: Message, source: Session | None, seen: Seen | None = None) -> int:
        """What is retained the broker keeps."""
        if plan.flat:
            plan.apart += 1
        else:
            plan.passed += 1
        return self.egress.hand_out(plan, message, source, seen)


class GuardedEgress(Egress):
    """What leaves a guarded scope: to the broker, and from there to its clients."""

    scope: GuardedScope

    def hand_out(self, plan: Plan, message: Message, source: Session | None, seen: Seen | None = None) -> int:
        target = self.scope.target
        before, target.source = target.source, source
        try:
            return super().hand_out(plan, message, source, seen)
        finally:
            target.source = before

    def received(self, session: GuardedSession, message: Message) -> list[tuple[Delivery | None, Message]] | Deny:
        """Steps 6 to 11 for a message that the broker delivers to a client: what it gets. What monitors have made has a
        delivery of its own."""
        scope = self.scope
        if scope.shadow is not None:
            scope.shadow.path.egress.received(session, message)
        shown = scope.gate.permits(message, session) if session.asks else scope.gate.decide(message, session)
        if isinstance(shown, Deny):
            return shown
        if scope.gate.stored.failed:
            scope.audit.failed(session.outward, message.topic, scope.gate.stored.failed)
        if scope.gate.counts_allowed:
            scope.delivered(session, message)
        if not session.leaving:
            return [(None, shown)]
        sent = self.monitored(session, Delivery(message, message.qos), shown)
        return [(None if visible is shown else delivery, visible) for delivery, visible in sent]
