"""The one door. Stages in their fixed order, compiled into plans.

- A plan is valid for one version of the policies and for the subscriptions of its topic. `change` bumps the version
  and empties every lane at once; `touch` reaches only the plans whose topics a changed subscription matches.
- A plan that stands in a lane is valid: nobody checks it again. That is why invalidation removes it at once.
- Plans are bounded by their total cost; the oldest go first, one or two per new one, so that a flood of distinct
  topics costs the same per message at any time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from itertools import islice

from tidegate.errors import ProtocolError
from tidegate.gate.plan import Plan, combine
from tidegate.gate.verdict import ALLOW, Allow, Deny, Known, Residual, Stage
from tidegate.routing import Shares, Subscriptions, TopicTree
from tidegate.session import Grant, Link, Message, Session
from tidegate.topics import valid_topic
from tidegate.wire import Reason

WHOLESALE = 2000  # plans that one subscription may reach before all are made anew, each when its topic comes
PLAN_COST = 400_000  # about 200 MB in the worst case, 100,000 topics with one target each in 60 MB


class Lane:
    """The plans of all sources that are decided alike and speak the same protocol version."""

    __slots__ = ("plans", "protocol", "source")

    def __init__(self, source: Link, protocol: int) -> None:
        self.source = source  # a representative: stages look only at what `kin` compares
        self.protocol = protocol
        self.plans: dict[bytes, Plan] = {}


class Gate:
    """Decides and compiles for one scope."""

    def __init__(
        self,
        subscriptions: Subscriptions[Session, Grant],
        shares: Shares[Session, Grant],
        *,
        ingress: tuple[Stage, ...] = (),
        egress: tuple[Stage, ...] = (),
        bound: int = PLAN_COST,
    ) -> None:
        self.subscriptions = subscriptions
        self.shares = shares
        self.ingress = ingress
        self.egress = egress
        self.bound = bound
        self.version = 1
        self.cost = 0
        self._lanes: dict[Hashable, Lane] = {}
        self._index: TopicTree[list[Lane]] = TopicTree()
        self._order: deque[tuple[Lane, bytes, Plan]] = deque()

    # -- plans -------------------------------------------------------------------------------------------------

    def lane(self, source: Link, protocol: int) -> Lane:
        """Where a source of this kind finds its plans."""
        key = (protocol, *(stage.kin(source) for stage in self.ingress + self.egress))
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(source, protocol)
        return lane

    def plan(self, lane: Lane, name: bytes) -> Plan:
        """Compiles the plan for a topic that has none yet."""
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            raise ProtocolError("topic is not UTF-8", Reason.TOPIC_NAME_INVALID) from None
        if not valid_topic(topic):
            raise ProtocolError("invalid topic name", Reason.TOPIC_NAME_INVALID)
        plan = self.compile(topic, lane.source, lane.protocol)
        lane.plans[name] = plan
        holders = self._index.get(topic)
        if holders is None:
            self._index.set(topic, [lane])
        else:
            holders.append(lane)
        self._order.append((lane, name, plan))
        self.cost += plan.cost
        while self.cost > self.bound and len(self._order) > 1:
            self._evict()
        return plan

    def compile(self, topic: str, source: Link, protocol: int) -> Plan:
        """Evaluates every stage with what is known; keeps what is not."""
        plan = Plan(topic, self.version)
        if self.ingress:
            answer = self._ask(self.ingress, self._known(topic, source, None))
            if isinstance(answer, Deny):
                plan.refusal = answer
                return plan
            plan.admission = answer
        levels = topic.split("/")
        self._targets(plan, self.subscriptions.match(levels), source)
        if len(self.shares):
            plan.groups = tuple(self.shares.match(levels))
        plan.settle(protocol)
        return plan

    def _targets(self, plan: Plan, found: list[tuple[Session, Grant]], source: Link) -> None:
        grants = [grant for _, grant in found]
        if len(found) > 1:
            by_session: dict[Session, list[Grant]] = {}
            for session, grant in found:
                by_session.setdefault(session, []).append(grant)
            if len(by_session) < len(found):
                grants = [one[0] if len(one) == 1 else combine(one) for one in by_session.values()]
        if not self.egress:
            plan.targets = tuple(grants)
            return
        targets = []
        conditional = []
        denied = []
        for grant in grants:
            answer = self._ask(self.egress, self._known(plan.topic, source, grant.session.outward))
            if isinstance(answer, Deny):
                denied.append((grant, answer))
            elif answer:
                conditional.append((grant, answer))
            else:
                targets.append(grant)
        plan.targets, plan.conditional, plan.denied = tuple(targets), tuple(conditional), tuple(denied)

    def _known(self, topic: str, source: Link, target: Link | None) -> Known:
        return Known(topic=topic, link=source.type, context=b"", source=source, target=target)

    def _ask(self, stages: tuple[Stage, ...], known: Known) -> Deny | tuple[Residual, ...]:
        left = []
        for stage in stages:
            answer = stage.evaluate(known)
            if isinstance(answer, Deny):
                return answer
            if isinstance(answer, Residual):
                left.append(answer)
        return tuple(left)

    # -- decided now, without a plan ---------------------------------------------------------------------------

    def decide(self, message: Message, target: Link) -> Allow | Deny:
        """Whether a queued, retained or resumed message may be sent over `target` at this moment."""
        if not self.egress:
            return ALLOW
        known = Known(topic=message.topic, link=message.link, context=message.context, source=None, target=target)
        answer = self._ask(self.egress, known)
        if isinstance(answer, Deny):
            return answer
        for residual in answer:
            verdict = residual.decide(message)
            if isinstance(verdict, Deny):
                return verdict
        return ALLOW

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        """Whether a SUBSCRIBE with this filter (without its share) is granted."""
        for stage in self.egress:
            answer = stage.grant(filter, target)
            if isinstance(answer, Deny):
                return answer
        return ALLOW

    # -- invalidation ------------------------------------------------------------------------------------------

    def touch(self, filter: str) -> None:
        """A subscription with this filter came, went or changed."""
        index = self._index
        reached = list(islice(index.iterate(filter), WHOLESALE))
        if len(reached) == WHOLESALE:
            self.forget()
            return
        for topic, holders in reached:
            index.pop(topic)
            name = topic.encode()
            for lane in holders:
                plan = lane.plans.pop(name, None)
                if plan is not None:
                    self.cost -= plan.cost
        if len(self._order) > 1024 and len(self._order) > 2 * len(index) + 1024:
            self._order = deque(entry for entry in self._order if entry[0].plans.get(entry[1]) is entry[2])

    def change(self, ingress: tuple[Stage, ...], egress: tuple[Stage, ...]) -> None:
        """New policies: from the next message on nothing is decided by the old ones."""
        self.ingress = ingress
        self.egress = egress
        self.version += 1
        self.forget()
        self._lanes = {}

    @property
    def topics(self) -> int:
        """How many topics have plans."""
        return len(self._index)

    def forget(self) -> None:
        """All plans at once; they are made anew as messages come."""
        for lane in self._lanes.values():
            lane.plans.clear()  # in place: a peer in the middle of a chunk holds it
        self._index = TopicTree()
        self._order = deque()
        self.cost = 0

    def _evict(self) -> None:
        lane, name, plan = self._order.popleft()
        if lane.plans.get(name) is not plan:
            return  # it was invalidated before
        del lane.plans[name]
        self.cost -= plan.cost
        topic = plan.topic
        holders = self._index.get(topic)
        if holders is not None:
            holders.remove(lane)
            if not holders:
                self._index.pop(topic)

    def __len__(self) -> int:
        return sum(len(lane.plans) for lane in self._lanes.values())
