"""What a service of the node makes of other people's messages (semantics, *Context and derived messages*).

It is written by the service, and so decided by the policies for that; to whomever it is sent, it is what it was made
of: the same owner with the same preferences, the same demand, floor, table of visibility and surroundings, and
`p.topic` is what that was published under. It takes the way of what a monitor makes (`Gate.deriving`).

Invariants
- What was sealed has been opened before anything could be made of it, so it is in clear again; under a protected topic
  it is sealed as everything else is, by the service or here.
- Below `$` a service that speaks for others writes no more than they could.
- The link that its message came over has the type of the link of the message that it was made of.

No monitor sees it on the way in: the node's own services are no entities, and have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.bounded import Bounded
from tidegate.gate import Allow, Deny, Lane, Plan, Step
from tidegate.gate.gate import RESERVED
from tidegate.keys import key_id
from tidegate.policy.demands import RELAXED
from tidegate.scope.protection import GONE
from tidegate.scope.subjects import service_subject
from tidegate.session import Context, Link, Message, Origin, Session
from tidegate.topics import valid_topic
from tidegate.wire import Properties

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

CONTEXTS: Final = 10_000  # of what was derived, kept for the next of the same kind
ID: Final = "id"
"""The user property that tells receivers the id, so that they know what they have had already."""
KEY_ID: Final = "keyId"
"""The user property that names the key that a message is under."""

Pairs = tuple[tuple[str, str], ...]
Number = tuple[Origin, int, int]
"""What an id says: see `Message.id`."""


def _crowded(plan: Plan, message: Message) -> Iterator[Session]:
    """Sessions on its way, here and in other scopes, whose queue would lose it or something else for it.

    An empty queue that is too small for it will never be larger. Of a shared subscription that is everybody or nobody:
    whoever has room is chosen.
    """
    for way in (plan, *(other for _, other in plan.flat)):
        for grant in way.targets:
            if grant.qos and _is_full(grant.session, message):
                yield grant.session
        for decisions in way.conditional:
            if _is_full(decisions[0].session, message):
                yield decisions[0].session
        for _, members in way.groups:
            if members and all(_is_full(session, message) for session in members):
                yield next(iter(members))


def _is_full(session: Session, message: Message) -> bool:
    return session.queued > 0 and not session.room(message)


def renumbered(message: Message) -> Properties:
    """The properties of what a monitor has made of something that was published here: it is another message."""
    pairs = message.properties.user_properties
    changed = tuple((name, message.id if name == ID else value) for name, value in pairs)
    return replace(message.properties, user_properties=changed)


class Way:
    """What everything has in common that is made of messages with one context and topic."""

    __slots__ = ("data", "floor", "lane", "link")

    def __init__(self, data: bytes, lane: Lane, link: str, floor: Pairs) -> None:
        self.data = data
        self.lane = lane
        self.link = link
        self.floor = floor


class Deriving:
    """One service at work in one scope, under the rules that are in force when it is made.

    `scores`: what it says of the quality of its messages is believed.
    """

    def __init__(self, scope: Scope, service: str, *, scores: bool) -> None:
        rules = scope.gate.rules
        self.scope = scope
        self.rules = rules
        self._scores = scores
        self.subject = service_subject(scope, service)
        types = rules.brokering.types(self.subject)
        self.inward = Link(self.subject, True, types.inward)
        # it takes what there is: with `levels.implied` it would demand that everything came from inside the node
        self.outward = Link(self.subject, False, types.outward, RELAXED)
        self._ways: Bounded[tuple[bytes, str], Way] = Bounded(CONTEXTS)
        self._ways_at = (-1, -1)  # what they hold for

    # -- writing -------------------------------------------------------------------------------------------------

    def planned(self, data: bytes, before: str | None, topic: str) -> tuple[Way, Plan] | Deny:
        """The way of what is made of a message with this context, that was published as `before`."""
        way = self._way(data, before, topic)
        plan = way.lane.plans.get(topic.encode())
        if plan is None:
            if (why := self._objection(topic)) is not None:
                return why
            plan = self.scope.plans.of(way.lane, topic.encode())
        return way, plan

    def _way(self, data: bytes, before: str | None, topic: str) -> Way:
        gate = self.scope.gate
        at = (gate.cache.epoch, self.scope.publishers.revision)
        if self._ways_at != at:
            self._ways_at = at
            self._ways.clear()
        key = (data, "" if before is None or before == topic else before)
        found = self._ways.get(key)
        if found is None:
            context = self._context(gate.attributes.decoded(data), key[1])
            made = context.encode()
            link = self.rules.brokering.types(context.subject).inward
            lane = gate.derived_lane(made, context, link, self.subject)
            floor = gate.floor_properties(context).user_properties
            found = self._ways[key] = Way(made, lane, link, floor)
        return found

    def _context(self, context: Context, before: str) -> Context:
        """That of what is made of a message with this one."""
        made = replace(context, sealed=False, under=None, key=None, signed=False, token="", scored=self._scores)
        return made.called(before) if before else made

    def _objection(self, topic: str) -> Deny | None:
        if topic[:1] == "$":
            return RESERVED
        if not valid_topic(topic):
            return Deny(step=Step.WRITE, rule="topic", error="this is no topic that can be published to")
        if excess := self.scope.site.limits.excess(topic):
            return Deny(step=Step.WRITE, rule="topic", error=f"it has {excess}")
        return None

    def publish(
        self,
        data: bytes,
        before: str | None,
        topic: str,
        payload: bytes,
        *,
        number: Number,
        said: Pairs,
        at: float | None = None,
        awaited: Callable[[Session], bool] = lambda session: False,
    ) -> Deny | Session | int:
        """Publishes something that was made of a message. How many it reached, or why not, which is audited.

        `said` are user properties. `at`: when the message was published that it was made of; None: now. `awaited` is
        asked about sessions whose queue has no room for it. The first that is awaited is the answer, and nothing has
        happened yet.
        """
        scope = self.scope
        found = self.planned(data, before, topic)
        if isinstance(found, Deny):
            return self.refused(data, topic, found)
        way, plan = found
        site = scope.site
        origin, count, output = number
        message = Message(
            topic,
            payload,
            min(1, site.limits.max_qos),
            False,
            site.wall if at is None else at,
            origin,
            count,
            way.data,
            way.link,
            Properties(user_properties=(*said, *way.floor)),
            None,
            output,
        )
        if plan.refusal is None and message.qos:
            for session in _crowded(plan, message):
                if awaited(session):
                    return session
        why = self._written(plan, message)
        if why is not None:
            return why
        events, why = scope.path.enter(plan, message, self.inward, None, None)
        if why is not None:
            return why
        if plan.sealing is not None:
            named = key_id(message.payload)
            assert named is not None
            message.properties = Properties(user_properties=(*said, (KEY_ID, named), *way.floor))
        return sum(scope.path.deliver(way, event, None) for way, event in events)

    def _written(self, plan: Plan, message: Message) -> Deny | None:
        """Step 1, by the message in clear, also if the service has sealed it."""
        path = self.scope.path
        keyring, came = path.protector.keyring, message.payload
        held = False
        if plan.refusal is None and plan.sealing is not None and keyring is not None:
            id = key_id(came)
            held = id is not None and keyring.holds(id, plan.sealing.group)
            if id is not None and (plan.admission or not held):
                clear = keyring.opened(came, message.topic)
                if clear is None:
                    return self.refused(message.context, message.topic, GONE)
                message.payload = clear
        why = path.write(plan, message, self.inward)
        if held:
            message.payload = came  # else the key does not seal any more, or is not of this group: it gets another one
        return why

    def refused(self, data: bytes, topic: str, why: Deny, action: str = "write") -> Deny:
        """Has it audited. `data`: the context of the message that it is about."""
        self.scope.report(action, self.inward if action == "write" else self.outward, topic, why, data)
        return why

    # -- reading -------------------------------------------------------------------------------------------------

    def readable(self, topic: str, data: bytes) -> Allow | Deny:
        """Whether it may read a message that is under a topic key: steps 7 and 8."""
        return self.scope.gate.stored.readable(topic, data, self.outward)
