"""Links to foreign brokers: this node connects to them as a client, and bridges, as other brokers do.

A foreign broker enforces nothing, so nothing travels with a message but what MQTT has: no envelope, no owner, no floor.
What leaves is decided as if the broker were a reader of all of it: see `gate.stages.order.bridging`. What comes was
published by the link itself (`link:far->near`), over a connection of that level.

Invariants
- The session here is that of any link: queue, order, windows, QoS 2, restarts. A broker that has lost its own session
  is sent again what it has not acknowledged.
- What has come from a broker does not go back to it: the broker is told so (No Local in MQTT 5, the bit of bridges in
  3.1.1), and the path of a message says it here.
- Topics have the names of the shares: the broker's behind `remote_prefix`, ours behind `local_prefix`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from math import ceil
from typing import TYPE_CHECKING, Final

from tidegate.bounded import Bounded
from tidegate.gate import Deny
from tidegate.policy import Subject
from tidegate.policy.scopes import Broker, NodeLink, ScopeLink
from tidegate.scope.exports import without_floor
from tidegate.scope.imports import NOT_SHARED
from tidegate.scope.link_greeting import Peer
from tidegate.scope.node_links import BRIDGED, KEEP_ALIVE, LinkEnd, NodeLinks
from tidegate.session import NEVER, BrokerLinkEnd, Connection, LinkSession, Message, NodeLinkEnd, Session
from tidegate.session.broker_publishing import BrokerPublishing
from tidegate.session.context import NO_OPTIONS, MessageOptions
from tidegate.session.frames import EXACT, Parts
from tidegate.session.link_publishing import Imported
from tidegate.session.publishing import forwarded, with_floor_properties
from tidegate.wire import (
    NONE,
    V5,
    V311,
    Connack,
    Connect,
    Packet,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
    encode,
    encode_publish_parts,
    encode_varint,
)

if TYPE_CHECKING:
    from tidegate.gate import Plan
    from tidegate.scope.scope import Scope
    from tidegate.scope.seen_ids import Share

CONTEXTS: Final = 10_000  # of one link that are kept
REFUSED: Final = 0x80
UNACCEPTABLE: Final = 1  # the version of the protocol, in CONNACK of 3.1.1
OLD_REASONS: Final = {
    1: "it does not speak MQTT 3.1.1",
    2: "it does not accept the client id",
    3: "it is not available",
    4: "user name or password are wrong",
    5: "not authorized",
}
DEEPEST: Final = 200
"""Levels of a topic. Mosquitto ends the connection of whoever sends one with more."""
_SUBSCRIBE_ID: Final = 1  # nothing else that a link asks for has an identifier of this kind
_UNSUBSCRIBE_ID: Final = 2


class BrokerEnd(LinkEnd):
    """This node's end of a link to a foreign broker (session.Host)."""

    ends = BrokerLinkEnd
    publishing = BrokerPublishing

    def __init__(self, link: NodeLink, scope: Scope, links: NodeLinks) -> None:
        self.bridge_bit = True  # it is told that a bridge connects, until it does not take that
        super().__init__(link, scope, links)

    def importer(self) -> BrokerImports:
        return BrokerImports(self.scope, self, self.link.name)

    @property
    def broker(self) -> Broker:
        assert self.link.broker is not None
        return self.link.broker

    @property
    def trusted(self) -> bool:
        return False

    @property
    def version(self) -> int:
        return V5 if self.broker.mqtt5 else V311

    @property
    def far(self) -> str:
        """The broker as paths name it: nobody knows its id, but at this node it is always the same."""
        return f"{self.link.far}@{blake2b(self.link.name.encode(), digest_size=8).hexdigest()}"

    def configure(self, link: NodeLink) -> None:
        super().configure(link)
        if link.out is not None:
            session = self.session  # another version counts for the next connection
            version = self.version if session.connection is None else session.version
            self.session.exporter = BrokerExports(link.out, version)

    # -- a connection --------------------------------------------------------------------------------------------

    def greeting(self, peer: Peer | None = None) -> Connect:
        broker, v5 = self.broker, self.broker.mqtt5
        properties = NONE
        if v5:
            receive = self.site.limits.receive_maximum
            properties = Properties(session_expiry_interval=NEVER, receive_maximum=receive)
        return Connect(
            version=self.version,
            client_id=broker.client,
            clean_start=False,
            keep_alive=KEEP_ALIVE,
            username=broker.user,
            password=broker.password,
            properties=properties,
            bridge=self.bridge_bit and not v5,
        )

    def connected(self, connection: Connection, packet: Connack, peer: Peer) -> str:
        """The broker has answered: the link is open. Why it is not; empty if it is."""
        allowed, shares = packet.properties.maximum_qos, () if self.link.out is None else self.link.out.shares
        if allowed is not None and any(share.qos > allowed for share in shares):
            return f"the broker takes QoS {allowed} at most; write `qos: {allowed}` in `share`"
        self.attach(connection, peer, None, packet.properties)
        if isinstance(self.session.exporter, BrokerExports):
            self.session.exporter.retains = packet.properties.retain_available != 0
        if not packet.session_present:
            self.site.store.keep(BRIDGED, self.link.name, None)
        self._subscribe(packet.session_present)
        return ""

    def _resume(self, connection: Connection) -> None:
        session = self.session
        if session.connection is connection:
            session.pump()
            self.scope.retained.replay(session, connection, list((session.subscriptions or {}).values()))

    def _subscribe(self, resumed: bool) -> None:
        """Asks for what the shares list, and for nothing else any more."""
        into, session, v5 = self.link.into, self.session, self.broker.mqtt5
        asked = {} if into is None else {share.here + share.filter: share.qos for share in into.shares}
        before = self.links.bridged.get(self.link.name, frozenset()) if resumed else frozenset()
        if gone := tuple(sorted(before - asked.keys())):
            session.send(encode(Unsubscribe(packet_id=_UNSUBSCRIBE_ID, filters=gone), self.version))
        subscriptions = tuple(
            Subscription(
                filter=filter,
                qos=qos,
                no_local=v5,
                retain_as_published=v5,
                # what is kept in the broker's session has come, or comes; QoS 0 was not kept
                retain_handling=1 if v5 and qos and filter in before else 0,
            )
            for filter, qos in asked.items()
        )
        self.refused_filters = ()
        if subscriptions:
            session.send(encode(Subscribe(packet_id=_SUBSCRIBE_ID, subscriptions=subscriptions), self.version))
        self.links.bridged[self.link.name] = frozenset(asked)
        self.site.store.keep(BRIDGED, self.link.name, "\n".join(asked).encode())

    def refusal(self, packet: Connack) -> str:
        if self.broker.mqtt5:
            return super().refusal(packet)
        if packet.reason == UNACCEPTABLE and self.bridge_bit:
            self.bridge_bit = False  # the next attempt comes as an ordinary client
            return "it does not know the bit of bridges"
        return OLD_REASONS.get(packet.reason, f"refused ({packet.reason})")

    def take_answer(self, packet: Packet) -> None:
        """The broker says which of the filters it lets us have."""
        if not isinstance(packet, Suback):
            return
        asked = [] if self.link.into is None else [share.here + share.filter for share in self.link.into.shares]
        self.refused_filters = tuple(
            filter for filter, reason in zip(asked, packet.reasons, strict=False) if reason >= REFUSED
        )

    def end(self) -> None:
        super().end()
        self.links.bridged.pop(self.link.name, None)
        self.site.store.keep(BRIDGED, self.link.name, None)


class BrokerExports:
    """What leaves for a foreign broker (session.Exporter): the message as it is, under its name there."""

    def __init__(self, link: ScopeLink, version: int) -> None:
        self.link = link
        self.version = version
        self.retains = True  # whether the broker keeps retained messages
        self._names: Bounded[bytes, bytes] = Bounded(CONTEXTS)

    def parts(self, message: Message, qos: int, retain: bool, now: float) -> Parts:
        """The frame of a message, split where the packet identifier goes."""
        crossed = self.link.crossing(message.topic)
        topic = message.topic if crossed is None else crossed[0]  # what does not cross is never sent
        _check(topic)
        properties = message.properties
        if self.version != V5:
            properties = NONE
        elif properties is not NONE or message.expires is not None:
            left = None if message.expires is None else max(1, ceil(message.expires - now - EXACT))
            properties = replace(without_floor(properties, self.link), message_expiry_interval=left)
        return encode_publish_parts(
            topic.encode(), message.payload, qos, retain and self.retains, self.version, properties
        )

    def head(self, name: bytes, source: Session) -> bytes:
        """What QoS 0 messages that take the fast lane begin with; `name` is their topic as it stands in a packet."""
        head = self._names.get(name)
        if head is None:
            crossed = self.link.crossing(name[2:].decode())
            there = name[2:] if crossed is None else crossed[0].encode()
            _check(there.decode())
            head = len(there).to_bytes(2, "big") + there + (b"\0" if self.version == V5 else b"")
            self._names[name] = head
        return head

    def frame(self, head: bytes, payloads: Sequence[bytes]) -> bytes:
        """The frames of some of them."""
        return b"".join(b"0%b%b%b" % (encode_varint(len(head) + len(each)), head, each) for each in payloads)

    def relayed(self, message: Message) -> bytes:
        return b""  # a broker takes no envelope


class BrokerImports:
    """What comes from a foreign broker (session.Plans): published by the link, under our names."""

    def __init__(self, scope: Scope, end: BrokerEnd, name: str) -> None:
        self.scope = scope
        self.end = end
        self.here: frozenset[str] = frozenset()
        self.domains: frozenset[str] = frozenset()
        self.former: ScopeLink | None = None
        self.seen_ids: Share = scope.seen_ids.share(name, scope.site.store)  # a broker gives none: it stays empty
        self._contexts: Bounded[tuple[MessageOptions, str | None, int | None], bytes] = Bounded(CONTEXTS)

    @property
    def epoch(self) -> int:
        return self.scope.gate.cache.epoch

    def renew(self) -> None:
        """There is another connection, or there are other rules."""
        self._contexts.clear()

    def opened(self, connection: Connection, packet: Publish) -> Imported | Deny | None:
        """A message and its plan, or why it is refused."""
        session, site, gate = connection.session, self.scope.site, self.scope.gate
        link = session.inward
        assert isinstance(session, LinkSession)
        assert isinstance(link, NodeLinkEnd)
        crossed = None if link.link is None else link.link.crossing(packet.topic)
        if link.link is None or crossed is None:
            self.scope.report("read", link, packet.topic, NOT_SHARED)
            return NOT_SHARED
        topic, most = crossed
        properties, options, expires = packet.properties, NO_OPTIONS, None
        if properties is not NONE:
            if (interval := properties.message_expiry_interval) is not None:
                expires = site.now + interval
            options, properties = self.scope.plans.read_options(forwarded(properties))
            properties = self._answerable(properties, link.link)
        lowered = packet.qos if most < packet.qos else None
        context = self._context(link, options, packet.topic if packet.topic != topic else None, lowered)
        lane = gate.imported_lane(context, gate.attributes.decoded(context), link)
        name = topic.encode()
        plan = lane.plans.get(name) or gate.plan(lane, name)
        if plan.floor_properties is not NONE:
            properties = with_floor_properties(properties, plan.floor_properties)
        site.number += 1
        message = Message(
            topic,
            packet.payload,
            min(packet.qos, most),
            packet.retain,
            site.wall,
            site.origin,
            site.number,
            context,
            link.type,
            properties,
            expires,
        )
        return Imported(plan, message)  # nothing is read ahead: there is no envelope

    @staticmethod
    def _answerable(properties: Properties, link: ScopeLink) -> Properties:
        """The same with a response topic that finds its way back over the link, or with none."""
        response = properties.response_topic
        if response is None:
            return properties
        properties = replace(properties, response_topic=link.answered(response) if link.brings_back(response) else None)
        return NONE if properties == NONE else properties

    def _context(self, link: NodeLinkEnd, options: MessageOptions, original: str | None, lowered: int | None) -> bytes:
        """`original`: what it is called there, if that is another name; `lowered`: its QoS there, if it is another."""
        key = (options, original, lowered)
        data = self._contexts.get(key)
        if data is None:
            subject: Subject = link.subject
            context = replace(
                self.scope.gate.context(link, options),
                topic=original,
                qos=lowered,
                floor=subject.level,
                held=subject.facts,
                path=(self.end.far,),
            )
            data = self._contexts[key] = context.encode()
        return data

    def supposed(self, packet: Publish) -> Deny:
        """A broker asks nothing."""
        return NOT_SHARED

    def told(self, packet: Publish) -> bool:
        return False

    def seen(self, message: Message) -> None: ...
    def note(self, message: Message) -> None: ...
    def is_ringed(self, ringed: bool) -> None: ...
    def gone(self, message: Message) -> None: ...
    def alike(
        self, other: Message, origin: bytes, number: int, output: int, published: float, payload: bytes
    ) -> None: ...

    def same(self, packet: Publish, messages: tuple[Message, ...]) -> bool:
        return True  # [MQTT-4.3.3-10] an identifier that is in use is that of the same message

    def settled(self, message: Message, published: bool) -> None: ...

    def released(self, connection: Connection, message: Message) -> Plan | None:
        """The plan of a QoS 2 message that is released; None: it is not shared any more."""
        link = connection.session.inward
        assert isinstance(link, NodeLinkEnd)
        if link.before(message.topic) is None:
            self.scope.report("read", link, message.topic, NOT_SHARED)
            return None
        message.link = link.type
        message.facts = None
        return self.scope.plans.again(link, message)


def _check(topic: str) -> None:
    if topic.count("/") >= DEEPEST:
        raise ValueError(f"a broker takes topics of {DEEPEST} levels")
