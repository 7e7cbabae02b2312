"""The way of QoS 0 messages whose plan has residuals: steps 1 and 6 to 10, without what only others need.

It does what `Path.publish` and `Egress.hand_out` do, for plans of which `gate/asked.py` says that it may: no monitor
that has to look closer, nothing retained, no other scope, no key, no journal. What is asked is asked of a message that
stands in for the one that came; a message of its own is made only for the audit, and for receivers that need more than
a frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.gate import UNSEEN, Asked, Deny, Plan, Step, passed
from tidegate.gate.asked import SAME, Receiver
from tidegate.scope.glancing import let_pass
from tidegate.scope.large_fanout import PIECE, LargeFanout
from tidegate.scope.monitors import Monitoring
from tidegate.session import Message, Session

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope


class AskedLane:
    """Takes the messages of one scope."""

    __slots__ = ("_large_fanout", "_monitoring", "_stopwatch", "scope", "site")

    def __init__(
        self, scope: Scope, monitoring: Monitoring, large_fanout: LargeFanout, stopwatch: Callable[[], float]
    ) -> None:
        self.scope, self.site, self._stopwatch = scope, scope.site, stopwatch
        self._monitoring, self._large_fanout = monitoring, large_fanout

    def publish(self, plan: Plan, asked: Asked, payload: bytes, frame: bytes, source: Session) -> Deny | bool:
        """A QoS 0 message without properties: why it must not be written, which is audited; True: it went on. False:
        nothing has happened, and it has to take the general path."""
        # hot: what the plan asks, and one append for each who gets it
        site = self.site
        message, facts = asked.message, asked.facts
        if facts is None:
            facts = asked.facts = message.facts = self.scope.gate.attributes.read(message, asked.decode)
        message.payload, message.published = payload, site.wall
        message.context, message.link = source.context, source.inward.type
        begun = self._stopwatch()
        try:
            if asked.reads:
                facts.look(payload)
            else:
                facts.clear()
            for residual in plan.admission:
                answer = residual.decide(message)
                if isinstance(answer, Deny):
                    self.scope.report(
                        "write", source.inward, plan.topic, answer, source.context, self._own(plan, payload, source)
                    )
                    return answer
            if asked.glances and not let_pass(self._monitoring, asked, message, source):
                return False
            plan.passed += 1
            dirty = site.dirty
            for form, session in asked.always:
                if session.postponed:
                    session.deliver(self._own(plan, payload, source), 0, False, ())
                    continue
                out = session.out
                if not out:
                    dirty.append(session)
                out.append(frame if form == SAME else asked.encoded(payload, form))
            if asked.receivers:
                self._hand_out(plan, asked, payload, frame, source, begun)
        finally:
            facts.clear()  # nothing of it is kept, nor taken for what comes next
            message.payload = b""
            site.effort += 1 + int((self._stopwatch() - begun) * 1e6)
        return True

    def _hand_out(self, plan: Plan, asked: Asked, payload: bytes, frame: bytes, source: Session, begun: float) -> None:
        """Steps 6 to 10 for those who are asked for."""
        message, dirty, receivers = asked.message, self.site.dirty, asked.receivers
        counts, several = self.scope.gate.counts_allowed, len(receivers) > 1
        parts: dict[object, bytes | None] | None = None
        for number, receiver in enumerate(receivers):
            session, way = receiver.session, receiver.way
            if several and number and self._stopwatch() - begun > PIECE:
                self._postpone(receivers[number:], self._own(plan, payload, source), source)
                return
            if session.postponed:
                self._deliver(receiver, self._own(plan, payload, source))
                continue
            view = way.ask(message)
            if not isinstance(view, Deny):
                if view.keep is None:
                    data = frame if receiver.form == SAME else asked.encoded(payload, receiver.form)
                    for residual in way.wants:
                        answer = residual.decide(message)
                        if isinstance(answer, Deny):
                            view = answer
                            break
                elif way.wants or way.whole:
                    self._deliver(receiver, self._own(plan, payload, source))
                    continue
                else:  # one for all who see the same
                    if parts is None:
                        parts = {}
                    key = view.keep, receiver.cut
                    if key in parts:
                        part = parts[key]
                    else:
                        left = view.apply(payload)
                        part = parts[key] = None if left is None else asked.encoded(left, receiver.cut, cut=True)
                    if part is None:
                        view = UNSEEN
                    else:
                        data = part
            if isinstance(view, Deny):
                if view.step is not Step.WHERE or view.error:  # else it is not wanted, and nobody is told
                    own = self._own(plan, payload, source)
                    self.scope.report("read", session.outward, plan.topic, view, source.context, own)
                continue
            if way.failed:
                self.scope.audit.failed(session.outward, plan.topic, way.failed)
            if counts:
                self.scope.delivered(session, message)
            out = session.out
            if not out:
                dirty.append(session)
            out.append(data)

    def _own(self, plan: Plan, payload: bytes, source: Session) -> Message:
        """A message as the general path has it."""
        site = self.site
        site.number += 1
        return Message(
            plan.topic,
            payload,
            0,
            False,
            site.wall,
            site.origin,
            site.number,
            source.context,
            source.inward.type,
            plan.floor_properties,
        )

    def _deliver(self, receiver: Receiver, message: Message) -> None:
        """To a receiver that needs more than a frame."""
        session, way = receiver.session, receiver.way
        verdict = passed((way,), message)
        if isinstance(verdict, Deny):
            self.scope.report("read", session.outward, message.topic, verdict, message.context, message)
            return
        if way.failed:
            self.scope.audit.failed(session.outward, message.topic, way.failed)
        if self.scope.gate.counts_allowed:
            self.scope.delivered(session, message)
        session.deliver(message, 0, False, (), None, verdict[1])

    def _postpone(self, receivers: tuple[Receiver, ...], message: Message, source: Session) -> None:
        """To those for whom there is no time now."""
        grants = [receiver.way.grant for receiver in receivers if receiver.way.grant is not None]
        self._large_fanout.postpone(grants, message, source)
