"""Which plan a message follows, and the context that it carries (step 3 of the path).

A connection asks for the plan of each topic it publishes to, or of a message with options of its own. A message that
does not come as a packet gets its context here. A QoS 2 message gets both again when it is released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidegate.bounded import Bounded
from tidegate.errors import ProtocolError
from tidegate.gate import Gate, Lane, Plan
from tidegate.policy.demands import RELAXED
from tidegate.scope.protection import Keyring
from tidegate.session import (
    NO_OPTIONS,
    Connection,
    Link,
    Message,
    MessageOptions,
    NodeLinkEnd,
    Route,
    Site,
    with_floor_properties,
)
from tidegate.wire import NONE, V5, Properties, Reason

CONTEXTS = 8  # of messages with options of their own, kept for each connection


class Plans:
    """The plans of one scope's messages (session.Plans)."""

    def __init__(self, gate: Gate, site: Site, keyring: Keyring | None) -> None:
        self.gate = gate
        self.site = site
        self.keyring = keyring

    def plan(self, connection: Connection, topic: bytes) -> Plan:
        lane, link = self._lane(connection), connection.session.inward
        connection.reader.lane, plan = self._followed(lane, link, topic, NO_OPTIONS, self._published)
        return plan

    def plan_as(self, connection: Connection, topic: bytes, options: MessageOptions) -> tuple[Route, bytes]:
        base, link = self._lane(connection), connection.session.inward
        connection.reader.lane, plan = self._followed(base, link, topic, options, self._published)
        contexts = connection.contexts
        if contexts is None or contexts[0] is not link:
            contexts = connection.contexts = (link, Bounded(CONTEXTS))
        context = contexts[1].get(options)
        if context is None:
            context = contexts[1][options] = self.gate.context(link, options).encode()
        return plan, context

    def read_options(self, properties: Properties) -> tuple[MessageOptions, Properties]:
        options, left = self.gate.read_options(properties)
        if left is properties.user_properties:
            return NO_OPTIONS, properties
        if not self.gate.rules.enforcing:
            return options, properties  # its receivers get what any broker would give them
        properties = replace(properties, user_properties=left)
        return options, NONE if properties == NONE else properties

    def _followed(
        self, lane: Lane, link: Link, topic: bytes, options: MessageOptions, find: Callable[[Lane, bytes], Plan]
    ) -> tuple[Lane, Plan]:
        """The plan of a source's message, and the lane of the source: one of its own where its messages are counted."""
        gate = self.gate
        way = lane if options is NO_OPTIONS else gate.options_lane(lane, link, options)
        plan = find(way, topic)
        if not gate.counted_apart(way, plan):
            return lane, plan
        return self._followed(gate.own_lane(lane, link), link, topic, options, find)

    def over(self, link: Link, topic: bytes) -> Plan:
        """The plan of a message that comes over a link without a packet."""
        return self._followed(self.gate.lane(link, V5), link, topic, NO_OPTIONS, self.of)[1]

    def again(self, link: Link, message: Message) -> Plan:
        """The plan of now for a message that has come over a link before."""
        topic = message.topic.encode()
        if not isinstance(link, NodeLinkEnd):
            return self.over(link, topic)
        return self.of(self.gate.imported_lane(message.context, self.gate.attributes.context(message), link), topic)

    def of(self, lane: Lane, topic: bytes) -> Plan:
        """The plan of a message that is in the node already: a link may have put levels in front of its topic."""
        return lane.plans.get(topic) or self.gate.plan(lane, topic)

    def _published(self, lane: Lane, topic: bytes) -> Plan:
        """The plan of a message that a client publishes."""
        plan = lane.plans.get(topic)
        if plan is not None:
            return plan
        limits = self.site.limits
        if topic.count(b"/") >= limits.topic_levels or len(topic) > limits.topic_length:
            excess = limits.excess(topic.decode(errors="replace"))
            raise ProtocolError(f"the topic has {excess}", Reason.TOPIC_NAME_INVALID)
        return self.gate.plan(lane, topic)

    def _lane(self, connection: Connection) -> Lane:
        """The lane of a connection, brought up to the rules in force."""
        session = connection.session
        if not session.decider.fresh(session):
            raise ProtocolError("your access has been withdrawn", Reason.NOT_AUTHORIZED)
        lane = connection.reader.lane
        if not isinstance(lane, Lane) or lane.version != self.gate.version:
            lane = connection.reader.lane = self.gate.lane(session.inward, connection.version)
            connection.publishing.path = connection.host.path
        return lane

    def message(
        self,
        link: Link,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
        expiry: int | None = None,
    ) -> tuple[Plan, Message]:
        """A message that comes over a link without a packet, with its context and its plan."""
        gate, site = self.gate, self.site
        lane = gate.lane(link, V5)
        options = NO_OPTIONS
        if properties.user_properties:
            options, properties = self.read_options(properties)
        if lane.floor_properties is not NONE:
            properties = with_floor_properties(properties, lane.floor_properties)
        site.number += 1
        message = Message(
            topic,
            payload,
            qos,
            retain,
            site.wall,
            site.origin,
            site.number,
            gate.context(link, options).encode(),
            link.type,
            properties,
            None if expiry is None else site.now + expiry,
        )
        return self._followed(lane, link, topic.encode(), options, self.of)[1], message

    def released(self, connection: Connection, message: Message) -> Plan:
        """The plan of a QoS 2 message that is released, and its context as the connection is now."""
        gate, source = self.gate, connection.session
        message.published = self.site.wall
        topic = message.topic.encode()
        lane = connection.reader.lane  # has no plans if the rules have changed
        plan = lane.plans.get(topic)
        if not isinstance(plan, Plan):
            plan = self.plan(connection, topic)
        if message.context == source.context and message.link == source.inward.type:
            return plan
        # It came with options of its own, over an earlier connection, under earlier rules, or out of the store.
        context = gate.attributes.decoded(message.context)
        if context.sealed:
            payload = None if self.keyring is None else self.keyring.opened(message.payload, message.topic)
            if payload is not None:
                message.payload = payload  # else its publisher has sealed it
            context = replace(context, sealed=False, under=None)
        message.link = source.inward.type
        now = gate.context(source.inward)
        message.properties = gate.with_floor(message.properties, now)
        if (context.demand, context.view) == (now.demand, now.view):
            message.context = source.context
        else:
            options = MessageOptions(RELAXED if context.demand is None else context.demand, context.view)
            route, message.context = self.plan_as(connection, topic, options)
            assert isinstance(route, Plan)
            plan = route
        if now.signed and not context.signed:  # a proof is demanded now, and it came without one: it never has any
            message.context = gate.attributes.decoded(message.context).unsigned.encode()
        message.facts = None
        return plan
