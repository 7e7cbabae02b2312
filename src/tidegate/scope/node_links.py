"""Links to scopes of other nodes: one session for each, at both ends, and how a connection is attached to it.

The end that connects sends CONNECT (`LinkEnd.greeting`), and hands its socket over when CONNACK has come
(`LinkEnd.connected`). The end that is connected to is asked by the handshake (`NodeLinks.find`, `LinkEnd.welcome`).
From then on both are the same: PUBLISH and its acknowledgements have no direction in MQTT.

Who the other node is has been found out before: by its certificate, which both ends have tested (`Peer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import orjson

from tidegate.errors import ProtocolError
from tidegate.gate import Deny, RuleSet, Step
from tidegate.gate.scope_links import FORWARD
from tidegate.policy.domains import spoken_for
from tidegate.policy.home_preferences import TravellingPreferences
from tidegate.policy.levels import TRUSTED
from tidegate.policy.preference_sets import Key, Verify
from tidegate.policy.scopes import Forward, NodeLink, Overflow, ScopeLink
from tidegate.scope import untrusted_link, vocabulary
from tidegate.scope.authenticator import Refused
from tidegate.scope.better_connections import BetterConnections
from tidegate.scope.certificate_requests import ROOM as CERTIFICATES
from tidegate.scope.certificate_requests import CertificateRequests
from tidegate.scope.imports import LinkImports
from tidegate.scope.link_control import PREFIX, LinkControl
from tidegate.scope.link_greeting import Greeting, Peer, refusal_text, takes_bundles
from tidegate.scope.link_questions import Answerer
from tidegate.scope.link_signatures import ROOM as SIGNERS
from tidegate.scope.link_signatures import LinkSignatures
from tidegate.scope.neighbourhood import Neighbourhood
from tidegate.scope.preference_changes import ROOM as TOLD
from tidegate.scope.preference_changes import OwnerSets
from tidegate.scope.seen_ids import ROOM as SEEN
from tidegate.scope.seen_ids import by_link
from tidegate.scope.several_ways import Copies, link_path
from tidegate.scope.spreading_rules import SpreadingRules
from tidegate.scope.spreading_subscriptions import ASK, WANTED, SpreadingSubscriptions, WantedHere, WantedThere
from tidegate.scope.spreading_subscriptions import ROOM as WANTED_ROOM
from tidegate.scope.subscribing import NoSubscriptions
from tidegate.scope.travelled_capabilities import TravelledCapabilities
from tidegate.session import NEVER, Connection, Grant, LinkSession, Message, NodeLinkEnd, StoredSession, Subject
from tidegate.session import unreleased_qos2 as unreleased
from tidegate.session.link_publishing import LinkPublishing
from tidegate.session.usage import name_weight
from tidegate.wire import (
    NONE,
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Reason,
    Subscription,
    encode,
)

if TYPE_CHECKING:
    from tidegate.scope.bridge import BrokerImports
    from tidegate.scope.foreign_preferences import ForeignOwners
    from tidegate.scope.path import Path
    from tidegate.scope.scope import Scope
    from tidegate.scope.standby_connections import StandbyEnd
    from tidegate.scope.stored_publisher_rules import Publishers

BRIDGED: Final = "bridge"
"""In the store, by link: the filters that its foreign broker has been asked for, one per line."""
TWIN: Final = "the other node has the id of this one; was its data folder copied?"
FATAL: Final = Deny(step=Step.READ, rule="refused", error="the other side ends the connection over it")
OVERFLOW: Final = Deny(step=Step.READ, rule="overflow", error="the queue of the link is full")
PRINCIPAL: Final = "link:"
"""Before the name of a link, the principal of its session."""
KEEP_ALIVE: Final = 30  # seconds
WINDOW: Final = 1000


class LinkEnd:
    """This node's end of a link to another one: its session, and the connection that it has (session.Host)."""

    ends: type[NodeLinkEnd] = NodeLinkEnd
    publishing: type[LinkPublishing] = LinkPublishing
    session_type: type[LinkSession] = LinkSession

    def __init__(self, link: NodeLink, scope: Scope, links: NodeLinks) -> None:
        self.scope = scope
        self.site = scope.site
        self.links = links
        self.peer: Peer | None = None
        self.greeted: Greeting | None = None  # by whom it was greeted last
        self.since = 0.0  # wall clock
        self.found: Peer | None = None  # who is there, as its certificate says
        self.degraded = self.told_degraded = ""
        """Why the connection that there is counts as untrusted; empty: it does not."""
        self.agreed: tuple[ScopeLink, ...] = ()
        """What crossed when its connection was opened."""
        self.terms = NONE
        """What the other node has said of itself when the connection was opened."""
        self.wanted_there = WantedThere(self)
        self.wanted_here = WantedHere(self)
        self.better = BetterConnections(self)
        self.standbys: dict[str, StandbyEnd] = {}
        """The connections that are open beside the one that carries, by name."""
        self.carried_by = ""  # the name of the one that carries, if that was a standby
        self.session = self.session_type(
            site=self.site,
            decider=scope.path.egress,
            principal=f"{PRINCIPAL}{link.name}",
            name=link.name,
            subject=Subject(kind="link", client=link.name, user=None, scope=link.near, node=scope.node),
        )
        self.ended_with: int | None = None  # what the other side said when it ended the last connection
        self.session.displaced, self.session.fatal = self._displaced, self._fatal
        self.session.deferring = self.better.look
        self.link = link
        self.handshake = scope.handshake
        self.lifetime = self
        self.subscribing = NoSubscriptions()
        self.lacks: tuple[str, ...] = ()
        """What preferences here call, and the other node does not have."""
        self.refused_filters: tuple[str, ...] = ()
        """What a foreign broker does not let us have."""
        self.control = LinkControl(self, links)
        self.plans = self.importer()
        self.configure(link)

    def importer(self) -> LinkImports | BrokerImports:
        """What takes what comes over it."""
        return untrusted_link.imports(self)

    @property
    def path(self) -> Path:
        return link_path(self.scope, self.links.copies, self.session.ringed)

    @property
    def version(self) -> int:
        """The protocol that its connections speak."""
        return V5

    @property
    def far(self) -> str:
        """The scope at the other end as paths name it; empty while its node is not known."""
        return "" if self.greeted is None else f"{self.link.far}@{self.greeted.node}"

    @property
    def trusted(self) -> bool:
        """Whether there is a connection now, to a node that was found on the trust list."""
        if self.peer is None or self.link.broker is not None or self.untrusted:
            return False
        ranks = self.scope.gate.rules.levels.ranks
        return TRUSTED not in ranks or ranks.get(self.peer.level, 0) >= ranks[TRUSTED]

    @property
    def untrusted(self) -> bool:
        """Whether the other node is not believed, ever or over this connection: see `untrusted_link`."""
        return bool(self.degraded) or not self.link.trusted

    def refused(self, why: str) -> None:
        """Has it audited that something the other node said was not believed."""
        self.scope.report("read", self.session.inward, PREFIX, Deny(step=Step.WRITE, rule="link", error=why))

    def _displaced(self, message: Message) -> None:
        """The queue is full, and its oldest message goes."""
        self.scope.report(FORWARD, self.session.outward, message.topic, OVERFLOW, message.context, message)

    def _fatal(self, message: Message) -> None:
        """The other side ends the connection over it."""
        self.scope.report(FORWARD, self.session.outward, message.topic, FATAL, message.context, message)

    def told_of_default(self, payload: bytes) -> None:
        """The other node speaks of the default connection, over one that carries."""
        raise ProtocolError("this connection carries already")

    # -- rules ---------------------------------------------------------------------------------------------------

    def configure(self, link: NodeLink) -> None:
        """The link as the rules have it now."""
        self.session.begin_anew()  # what was gathered was decided by the rules before
        if self.link.into is not None and self.link.into != link.into:
            self.plans.former = self.link.into
        if self.session.connection is not None and link.trusted is not self.link.trusted:
            self.session.connection.close(Reason.ADMINISTRATIVE_ACTION, "who is trusted has changed")
        self.link = link
        self.session.refusing = link.overflow is Overflow.REFUSE
        node = self.site.origin.node
        if link.out is not None:  # else nothing is sent
            here = f"{link.near}@{node}"
            self.session.exporter = untrusted_link.exports(self, link.out, here)
        self.plans.here = frozenset(f"{name}@{node}" for name in self.links.joined(link.near))
        self.identify()
        for standby in tuple(self.standbys.values()):
            standby.configure(link)

    def identify(self) -> None:
        """Which links it acts over, by the rules and the connection of now."""
        peer, link, rules, session = self.peer, self.link, self.scope.gate.rules, self.session
        here = Subject(
            kind="link",
            client=f"{link.near}->{link.far}",
            user=None,
            scope=link.near,
            node=self.scope.node,
            domain=rules.domain,
            level=rules.levels.order[0] if peer is None else peer.level,
            facts=() if peer is None else peer.facts,
            address="" if peer is None else peer.address,
            listener="" if peer is None else peer.listener,
            tls={} if peer is None else peer.tls,
        )
        there = replace(here, client=f"{link.far}->{link.near}")
        ends = untrusted_link.ends(self)
        session.act(ends(here, False, link.out, self.far), ends(there, True, link.into, self.far))
        session.generation = self.site.generation
        # a name that this domain had before means its people: see `Attributes`
        self.plans.domains = (
            frozenset() if peer is None or self.untrusted else spoken_for(peer.name, rules.domains) - rules.formerly
        )
        self.plans.renew()
        self.scope.path.monitoring.states.attach(session)

    def route(self, *, replay: bool = True) -> None:
        """What crosses is routed to it; what does not any more is not. With `replay`, what is retained crosses, too."""
        session, subscribing = self.session, self.scope.subscribing
        out = self.link.out
        if self.link.forward is Forward.SUBSCRIPTIONS:
            self.wanted_there.arrange(out)
            wanted = {filter: want.qos for filter, want in self.wanted_there.here.items()}
        else:
            wanted = {} if out is None else {share.here + share.filter: share.qos for share in out.shares}
        if session.subscriptions is None:
            session.subscriptions = {}
        for filter in [filter for filter in session.subscriptions if filter not in wanted]:
            subscribing.forget(session, filter)
            del session.subscriptions[filter]
        granted: list[Grant] = []
        for filter, qos in wanted.items():
            known = session.subscriptions.get(filter)
            if known is None or known.qos != qos:
                subscription = Subscription(filter=filter, qos=qos, retain_as_published=True)
                granted.append(subscribing.add(session, subscription))
        if session.connection is not None and granted and replay:
            self.scope.retained.replay(session, session.connection, granted)

    def told_what_is_wanted(self) -> None:
        """The other side has told everything that it wants: what of that is retained goes there."""
        self.route(replay=False)
        if self.session.connection is not None:
            self._carry_retained(self.session.connection)

    def _carry_retained(self, connection: Connection) -> None:
        granted = list((self.session.subscriptions or {}).values())
        self.scope.retained.replay(self.session, connection, granted, then=self.control.retained_sent)

    # -- a connection --------------------------------------------------------------------------------------------

    def greeting(self, peer: Peer | None = None) -> Connect:
        """What the end that connects says first to whom it has found there."""
        limits = self.site.limits
        return Connect(
            version=V5,
            client_id=self.link.name,
            clean_start=False,
            keep_alive=KEEP_ALIVE,
            properties=Properties(
                session_expiry_interval=NEVER,
                receive_maximum=limits.receive_maximum,
                user_properties=self._said(peer),
            ),
        )

    def _said(self, peer: Peer | None) -> tuple[tuple[str, str], ...]:
        own = Greeting(link=self.link.name, node=self.site.origin.node, domain=self.scope.gate.rules.domain)
        return own.pairs(untrusted=peer is not None and untrusted_link.why(self, peer) != "")

    def refusal(self, packet: Connack) -> str:
        """Why the other side says that it does not open the link."""
        return refusal_text(packet)

    def take_answer(self, packet: Packet) -> None:
        """The other side answers what no node asks."""
        raise ProtocolError(f"{type(packet).__name__.upper()} over a link to another node")

    def connected(self, connection: Connection, packet: Connack, peer: Peer) -> str:
        """The other node has answered: the link is open. Why it is not; empty if it is."""
        greeting = Greeting.read(packet.properties.user_properties)
        if greeting is None:
            return "the other side is no Tidegate node, or speaks another version"
        if greeting.link != f"{self.link.far}->{self.link.near}":
            return f"the other side answers for another link, {greeting.link[:100]}"
        if greeting.node == self.site.origin.node:
            return TWIN
        if why := self.links.neighbourhood.objection(self, greeting.node):
            return why
        if why := untrusted_link.refused(self, peer, packet.properties):
            return why
        self.attach(connection, peer, greeting, packet.properties)
        return ""

    def welcome(self, connection: Connection, packet: Connect, peer: Peer) -> Refused | None:
        """Another node has connected: the link is open, and CONNACK is sent; or why not."""
        greeting = Greeting.read(packet.properties.user_properties)
        if greeting is None or packet.version != V5:
            return Refused(reason=Reason.PROTOCOL_ERROR, text="a link needs MQTT 5")
        if greeting.node == self.site.origin.node:
            return Refused(text=TWIN)
        if packet.will is not None or packet.clean_start:
            return Refused(reason=Reason.PROTOCOL_ERROR, text="a link has no will, and does not start clean")
        if why := self.links.neighbourhood.objection(self, greeting.node):
            return Refused(text=why, rule="topology")
        if why := untrusted_link.refused(self, peer, packet.properties):
            return Refused(reason=Reason.SERVER_BUSY, text=why)
        limits = self.site.limits
        keep_alive = self.scope.handshake.keep_alive(connection, packet)
        answer = Connack(
            session_present=True,
            reason=Reason.SUCCESS,
            properties=Properties(
                session_expiry_interval=None,
                receive_maximum=limits.receive_maximum,
                maximum_packet_size=connection.reader.max_packet,
                server_keep_alive=None if keep_alive == packet.keep_alive else keep_alive,
                user_properties=self._said(peer),
            ),
        )
        self.attach(connection, peer, greeting, packet.properties, encode(answer, V5))
        return None

    def attach(
        self, connection: Connection, peer: Peer, greeting: Greeting | None, terms: Properties, answer: bytes = b""
    ) -> None:
        """The session goes on over this connection. `answer` is sent before anything else."""
        session = self.session
        if session.connection is not None:
            session.connection.close(Reason.SESSION_TAKEN_OVER)
        untrusted_link.judge(self, peer, terms)
        self.greeted, self.since = greeting, self.site.wall
        self.terms, self.carried_by = terms, ""
        self.agreed = self.link.directions
        self.control.opened()
        self.wanted_here.opened()
        self.configure(self.link)  # with nothing that the other node has been told before
        if greeting is not None and not (self.degraded and self.link.trusted):
            self.links.owners.foreign.found(self.link.far, greeting.node)
        connection.version = self.version
        connection.shell.hold_more()
        publishing = self.publishing(connection, self.plans)
        connection.publishes_with(publishing, publishing.read_ahead)
        window = terms.receive_maximum or 65535
        session.bundling = takes_bundles(terms)
        session.attach(
            connection,
            version=self.version,
            window=min(window, self.site.limits.inflight),
            maximum=terms.maximum_packet_size or 0,
            aliases=0,
        )
        self.identify()
        session.save()
        connection.accept(session, self.scope.gate.nowhere)
        self.scope.credential_expiry.came(session)
        self.scope.connected += 1
        self.scope.path.monitoring.states.up(session)
        self.site.counters.connections += 1
        self.scope.subscribing.retouch(session)  # over another connection
        self.scope.audit.connected(session)
        if answer:
            session.send(answer)
        self.site.store.after(self._resume, connection)
        connection.finish_handshake()

    def _resume(self, connection: Connection) -> None:
        session = self.session
        if session.connection is connection:
            self.control.tell_signers()
            self.control.preferences.tell_again()
            self.links.spreading.tell_all(self)
            self.links.certificates.opened(self)
            self.links.neighbourhood.opened(self)
            vocabulary.tell(self)
            session.pump()
            if self.degraded and self.link.trusted:
                return  # what is retained crosses when it is trusted again, as what it is
            if self.link.forward is Forward.SUBSCRIPTIONS:
                self.control.tell(WANTED, ASK)
            else:
                self._carry_retained(connection)

    # -- session.Lifetime ----------------------------------------------------------------------------------------

    def disconnected(self, connection: Connection, packet: Disconnect | None, reason: Reason) -> None:
        """A connection ended. What is owed to the other node stays owed."""
        session = self.session
        if session.connection is not connection:
            return
        self.ended_with = None if packet is None else packet.reason
        if packet is not None:
            session.cut_off(packet.reason)
        session.detach()
        self.control.questions.ended()
        self.wanted_here.opened()
        self.scope.credential_expiry.left(session)
        self.peer, self.degraded = None, ""
        self.scope.connected -= 1
        self.scope.path.monitoring.states.down(session)
        self.scope.audit.disconnected(session, reason)
        self.identify()
        session.save()
        self.scope.subscribing.retouch(session)
        self.links.neighbourhood.changed()

    # -- the end -------------------------------------------------------------------------------------------------

    @property
    def owed(self) -> int:
        """How many messages the other side has not acknowledged."""
        session = self.session
        return session.queued + session.inflight + len(session.deferred or ())

    def end(self) -> None:
        """The link is gone from the rules, and what was owed over it."""
        session = self.session
        for each in (session, *(standby.session for standby in tuple(self.standbys.values()))):
            if each.connection is not None:
                each.connection.close(Reason.ADMINISTRATIVE_ACTION, "this link is gone")
        self.scope.lifetime.end(session)
        self.plans.seen_ids.end()
        self.control.preferences.ended()
        self.wanted_there.end()


class NodeLinks:
    """All links of a node to other nodes."""

    def __init__(
        self,
        scopes: Mapping[str, Scope],
        foreign: ForeignOwners,
        publishers: Publishers,
        bridge: Callable[[NodeLink, Scope, NodeLinks], LinkEnd],
    ) -> None:
        self._scopes = scopes
        self._bridge = bridge
        self.bridged: dict[str, frozenset[str]] = {}
        """By link, the filters that its foreign broker has been asked for."""
        self.owners = OwnerSets(foreign)
        self.spreading = SpreadingRules(publishers, self)
        self.capabilities = TravelledCapabilities()
        self.signatures = LinkSignatures(publishers.site, self)
        self.copies = Copies()
        self.certificates = CertificateRequests(publishers.site, self)
        self.subscriptions = SpreadingSubscriptions(scopes, self)
        self.neighbourhood = Neighbourhood(publishers.site, self)
        self._neighbours: dict[str, frozenset[str]] = {}
        self.ends: dict[str, LinkEnd] = {}  # by `near->far`
        self.on_change: list[Callable[[], None]] = []
        self.answerer: Answerer | None = None  # who answers what other nodes ask; None: nobody
        self.on_lack: list[Callable[[str, tuple[str, ...]], None]] = []
        """Called with the name of a link, and what the other node lacks of what preferences here call."""
        self.on_end: list[Callable[[str, int], None]] = []
        """Called with the name of a link that is gone, and how many messages were owed over it."""
        self.on_trust: list[Callable[[str, str], None]] = []  # told of a link, and why it is degraded; empty: it is not
        self._begun = False

    def arrange(self, rules: RuleSet) -> None:
        """The links that the rules name; who was linked by others is not any more."""
        self._neighbours = rules.space.joined
        links = {link.name: link for link in rules.space.remote}
        brokers = {name: end.link.broker is not None for name, end in self.ends.items()}
        for name in [
            name for name in brokers if name not in links or (links[name].broker is not None) != brokers[name]
        ]:
            end = self.ends.pop(name)
            owed = end.owed
            end.end()
            for ended in self.on_end:
                ended(name, owed)
        for name, link in links.items():
            scope = self._scopes[link.near]
            if (known := self.ends.get(name)) is not None:
                end = known
                end.configure(link)
            else:
                make = LinkEnd if link.broker is None else self._bridge
                end = self.ends[name] = make(link, scope, self)
                scope.sessions[end.session.principal, end.session.client] = end.session
                scope.site.accounts.add(end.session.usage, "sessions", name_weight(name))
            end.route()
            if self._begun and not end.session.row:
                end.session.save()
        for scope in self._scopes.values():
            scope.node_links = self
        self.certificates.review()
        if self.subscriptions.active:
            self.subscriptions.rearranged()
        if self._begun:
            self.neighbourhood.changed()
        for changed in self.on_change:
            changed()

    def begin(self, records: Mapping[str, Mapping[str, bytes]] = MappingProxyType({})) -> None:
        """What the store kept is restored, with these records: from now on what is owed over a link is kept there."""
        self.restore_ids(records.get(SEEN, {}))
        self.restore_told(records.get(TOLD, {}))
        self.signatures.restore(records.get(SIGNERS, {}).values())
        self._restore_wanted(records.get(WANTED_ROOM, {}))
        self.certificates.restore(records.get(CERTIFICATES, {}))
        for name, filters in records.get(BRIDGED, {}).items():
            self.bridged[name] = frozenset(filters.decode().split("\n")) - {""}
        self._begun = True
        for end in self.ends.values():
            if not end.session.row:
                end.session.save()

    def travel(self, travelling: TravellingPreferences | None, verify: Verify) -> None:
        """What owners of this domain say now, and whose signatures count for others."""
        self.owners.travelling, self.owners.verify = travelling, verify
        for end in self.ends.values():
            end.configure(end.link)  # numbers are in what has been encoded
            end.control.preferences.tell_again()
        for scope in self._scopes.values():
            scope.travelled()

    def renumbered(self, key: Key, source: LinkEnd) -> None:
        """A newer set of an owner has come over one link: it goes on over the others."""
        for end in self.ends.values():
            if end is not source:
                end.control.preferences.renumbered(key)

    def joined(self, scope: str) -> frozenset[str]:
        """A scope, and those that it is linked with inside this node: what has been in one of them has been here."""
        return self._neighbours.get(scope, frozenset((scope,)))

    @property
    def joint_scopes(self) -> list[tuple[str, ...]]:
        """All scopes of this node; those that are linked with each other stand together."""
        return sorted({tuple(sorted(names)) for names in self._neighbours.values()})

    def find(self, greeting: Greeting) -> LinkEnd | None:
        """The end here of a link that another node speaks of."""
        near, _, far = greeting.link.partition("->")
        return self.ends.get(f"{far}->{near}")

    def owns(self, record: StoredSession) -> bool:
        """Whether a stored session is that of a link."""
        return record.principal.startswith(PRINCIPAL)

    def restore_ids(self, records: Mapping[str, bytes]) -> None:
        """The ids of messages that came over links, as the store kept them, before anything comes over one."""
        for name, ids in by_link(records):
            end = self.ends.get(name)
            if end is not None:
                end.plans.seen_ids.restore(ids)
            else:  # the link is gone
                for place in ids:
                    next(iter(self._scopes.values())).site.store.keep(SEEN, f"{name} {place}", None)

    def restore_told(self, records: Iterable[str]) -> None:
        """Of which owners other nodes have been given messages, as the store kept it."""
        for name in records:
            link, domain, owner = orjson.loads(name)
            end = self.ends.get(link)
            if end is not None:
                end.control.preferences.restore([(domain, owner)])
            else:  # the link is gone
                next(iter(self._scopes.values())).site.store.keep(TOLD, name, None)

    def _restore_wanted(self, records: Mapping[str, bytes]) -> None:
        """What the other sides wanted, as the store kept it."""
        for name, data in records.items():
            link, filter = orjson.loads(name)
            end = self.ends.get(link)
            if end is not None and end.link.forward is Forward.SUBSCRIPTIONS:
                end.wanted_there.restore(filter, data)
            else:
                next(iter(self._scopes.values())).site.store.keep(WANTED_ROOM, name, None)
        for end in self.ends.values():
            if end.link.forward is Forward.SUBSCRIPTIONS:
                end.route()

    def restore(self, record: StoredSession) -> None:
        """A session as the store kept it; that of a link which is gone ends."""
        end = self.ends.get(record.client)
        if end is None:
            scope = self._scopes[record.scope]
            scope.lifetime.end(scope.lifetime.restore(record))
            return
        session = end.session
        session.row = record.row
        for pid, messages in record.incoming.items():
            unreleased.keep(session, pid, messages, sum(message.size for message in messages))
        session.restore(record.deliveries)
