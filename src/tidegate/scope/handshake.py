"""CONNECT: from the packet to an open session, or to a refusal that says why.

Order: what the packet alone shows to be wrong, then who it is, then the session (take-over, clean start, resume),
then CONNACK, then what was owed. Nothing of a session is touched before the client is authenticated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from tidegate.errors import ProtocolError
from tidegate.gate import Deny, Step
from tidegate.gate.stages.write_and_read_capability import proving
from tidegate.policy import Demand
from tidegate.policy.capability import Capability, proof
from tidegate.policy.control_topics import SAID
from tidegate.policy.demands import REQUIRE, read_demand, unknown_name
from tidegate.policy.subject import state_topic
from tidegate.scope import wills
from tidegate.scope.authenticator import Accepted, Authenticator, Continue, Exchange, Identity, Refused
from tidegate.scope.link_greeting import GREETING, VERSION, Greeting
from tidegate.scope.rbac_member import Member
from tidegate.scope.standby_connections import standby_of
from tidegate.session import NEVER, Connection, Hold, Host, Link, Phase, Session, Subject
from tidegate.session.usage import name_weight
from tidegate.wire import V5, Auth, Connack, Connect, Properties, Reason, Will, encode

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

LEVEL = "level"
"""The user property of CONNACK that tells the level of the connection, then its facts."""
RESUMED: Final = 10  # microseconds for each message that a session is sent when its client is back
RECEIVE_MAXIMUM = 65535  # when a client does not say


class Conversation:
    """An enhanced authentication, under way or done: its method is kept for re-authentication."""

    __slots__ = ("exchange", "method", "packet")

    def __init__(self, method: str, exchange: Exchange | None, packet: Connect) -> None:
        self.method = method
        self.exchange = exchange
        self.packet = packet


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A CONNECT that was granted and is not answered yet."""

    principal: str
    subject: Subject
    demand: Demand | None
    accepted: Accepted | None  # by which exchange
    will_proven: bool
    generation: int  # of the rules under which it was


class Handshake:
    """The connecting side of a scope."""

    def __init__(self, scope: Scope, authenticator: Authenticator) -> None:
        self.scope = scope
        self.site = scope.site
        self.authenticator = authenticator

    def connect(self, connection: Connection, packet: Connect) -> None:
        if any(name == GREETING for name, _ in packet.properties.user_properties):
            if (objection := self._open_link(connection, packet)) is not None:
                self._refuse(connection, packet, objection)
            return
        refusal = self._unacceptable(packet)
        if refusal is not None:
            self._refuse(connection, packet, refusal)
            return
        method = packet.properties.authentication_method
        if method is not None:
            exchange = self.authenticator.exchange(connection, packet, method)
            if exchange is None:
                self._unknown_method(connection, packet, method)
                return
            connection.authentication = Conversation(method, exchange, packet)
            self._step(connection, connection.authentication, packet.properties.authentication_data)
            return
        self._authenticate(connection, packet)

    def _unknown_method(self, connection: Connection, packet: Connect, method: str) -> None:
        unknown = Refused(reason=Reason.BAD_AUTHENTICATION_METHOD, text="unknown authentication method")
        self._refuse(connection, packet, unknown)

    def _authenticate(self, connection: Connection, packet: Connect) -> None:
        """Finds out who it is, by what CONNECT alone says."""
        answered = False

        def answer(found: Identity | Refused) -> None:
            nonlocal answered
            answered = True
            self.site.open()
            if connection.phase is not Phase.WAITING:
                return  # it went away meanwhile
            if isinstance(found, Refused):
                self._refuse(connection, packet, found)
            else:
                self.welcome(connection, packet, found, None)

        self.authenticator.authenticate(connection, packet, answer)
        if not answered:
            connection.hold_reading(Hold.HANDSHAKE)

    def _open_link(self, connection: Connection, packet: Connect) -> Refused | None:
        """Another node greets: the link that it speaks of has the connection from now on, or why not.

        It comes with its certificate alone. Its end of the link decides everything else.
        """
        greeting = Greeting.read(packet.properties.user_properties)
        if greeting is None:
            return Refused(reason=Reason.PROTOCOL_ERROR, text=f"this node speaks version {VERSION} of {GREETING}")
        if packet.username is not None or packet.properties.authentication_method is not None:
            return Refused(text="a node shows its certificate, and nothing else")
        links, tls = self.scope.node_links, connection.certificate
        end = None if links is None else links.find(greeting)
        expected, plain = (None, False) if end is None else (end.link.peer, end.link.plain)
        peer = self.authenticator.peer(connection, expected, plain)
        if end is None and tls is not None and tls["certificate"]:  # others are told nothing of the links here
            far, _, near = greeting.link[:200].partition("->")
            return Refused(text=f"there is no link of this node from `{near}` to `{far}`; add it under `links`")
        if isinstance(peer, Refused):
            return peer
        assert end is not None
        if end.link.via:  # each would end the connection that the other has made
            return Refused(text=f"this end of the link connects, too; remove `via` from `{end.link.name}` or there")
        end = standby_of(end, packet.properties.user_properties)
        host, connection.host = connection.host, cast(Host, end)  # what comes over a link asks for less
        refusal = end.welcome(connection, packet, peer)
        if refusal is not None:
            connection.host = host
        return refusal

    def _refuse(self, connection: Connection, packet: Connect, found: Refused) -> None:
        self._tell(connection, packet, found)
        connection.refuse(found.reason, found.text)

    def _tell(self, connection: Connection, packet: Connect, found: Refused) -> None:
        name, user = packet.client_id, packet.username
        self.scope.audit.refused(connection.address, name, user, found.reason, found.text, found.rule)

    def misdirected(self, connection: Connection, text: str) -> None:
        self.scope.audit.refused(connection.address, "", None, Reason.PROTOCOL_ERROR, text, "protocol")

    def _unacceptable(self, packet: Connect) -> Refused | None:
        will = packet.will
        limits = self.site.limits
        if will is not None:
            if will.qos > limits.max_qos:
                return Refused(reason=Reason.QOS_NOT_SUPPORTED, text="QoS of the will is not supported")
            if excess := limits.excess(will.topic):
                return Refused(reason=Reason.TOPIC_NAME_INVALID, text=f"the topic of the will has {excess}")
            if will.retain and not limits.retain:
                return Refused(reason=Reason.RETAIN_NOT_SUPPORTED, text="retained wills are not supported")
        return None

    # -- enhanced authentication (MQTT 5, 4.12) ----------------------------------------------------------------

    def auth(self, connection: Connection, packet: Auth) -> None:
        conversation = connection.authentication
        properties = packet.properties
        if not isinstance(conversation, Conversation):
            raise ProtocolError("AUTH without an authentication method in CONNECT")
        if properties.authentication_method != conversation.method:
            raise ProtocolError("AUTH with another method than CONNECT", Reason.BAD_AUTHENTICATION_METHOD)
        if packet.reason == Reason.RE_AUTHENTICATE and connection.phase is Phase.OPEN:
            if conversation.exchange is not None:
                raise ProtocolError("a re-authentication is under way")
            conversation.exchange = self.authenticator.exchange(connection, conversation.packet, conversation.method)
        elif packet.reason != Reason.CONTINUE_AUTHENTICATION:
            raise ProtocolError("AUTH with a reason that is not the client's to send")
        if conversation.exchange is None:
            raise ProtocolError("no authentication is under way")
        self._step(connection, conversation, properties.authentication_data)

    def _step(self, connection: Connection, conversation: Conversation, data: bytes | None) -> None:
        assert conversation.exchange is not None
        found = conversation.exchange.step(data)
        if isinstance(found, Continue):
            answer = Properties(authentication_method=conversation.method, authentication_data=found.data)
            connection.write(encode(Auth(reason=Reason.CONTINUE_AUTHENTICATION, properties=answer), V5))
            return
        conversation.exchange = None
        if isinstance(found, Accepted):
            complete = self.authenticator.completed(connection, conversation.packet.client_id, found.identity)
            found = complete if isinstance(complete, Refused) else replace(found, identity=complete)
        if connection.phase is Phase.OPEN:  # re-authentication
            self._again(connection, conversation, found)
        elif isinstance(found, Refused):
            self._refuse(connection, conversation.packet, found)
        else:
            self.welcome(connection, conversation.packet, found.identity, found)

    def _again(self, connection: Connection, conversation: Conversation, found: Accepted | Refused) -> None:
        session = connection.session
        if isinstance(found, Refused):
            self._tell(connection, conversation.packet, found)
            connection.close(found.reason, found.text)
        elif found.identity.principal != session.principal:
            connection.close(Reason.NOT_AUTHORIZED, "re-authenticated as somebody else")
        else:
            subject = self._subject(connection, session.client, found.identity, bridge=session.subject.bridge)
            if objection := self._objection(found.identity, subject):
                connection.close(Reason.NOT_AUTHORIZED, objection)
                return
            self.scope.subjects.identify(session, subject, session.inward.demand)
            self.scope.presences.came(session)
            connection.reader.lane = self.scope.entrance.gate.lane(session.inward, connection.version)
            self.scope.credential_expiry.came(session)
            if session.row:
                session.save()
            self.scope.subscribing.retouch(session)
            answer = Properties(authentication_method=conversation.method, authentication_data=found.data)
            session.send(encode(Auth(reason=Reason.SUCCESS, properties=answer), V5))
            self.scope.subscribing.wake(session)
            session.pump()  # what waits for a better connection may have one

    # -- the session -------------------------------------------------------------------------------------------

    def _subject(self, connection: Connection, client: str, identity: Identity, *, bridge: bool) -> Subject:
        return self.scope.subjects.subject(
            identity,
            client=client,
            address=connection.address,
            listener=connection.listener.name,
            bridge=bridge,
        )

    def _objection(self, identity: Identity, subject: Subject) -> str:
        """Why a client may not be connected here; empty if it may."""
        presences = self.scope.presences
        return self.scope.subjects.objection(identity, subject) or presences.watch.objection(presences.of(subject))

    def welcome(self, connection: Connection, packet: Connect, identity: Identity, accepted: Accepted | None) -> None:
        """Whoever it is may come in here, or has to hear why not."""
        scope = self.scope
        placed = scope.gate.rules.space.role(scope.name, scope.subjects.own_roles(identity))
        if isinstance(placed, str):
            self._refuse(connection, packet, Refused(text=placed))
            return
        if placed is not None:
            home = scope.neighbours[placed.receiving]
            connection.host = Member(home)
            home.handshake.welcome(connection, packet, identity, accepted)
            return
        client = packet.client_id or self.site.random_id()
        if packet.will is not None and packet.will.topic == state_topic(client):
            connection.bridge = True  # those that speak MQTT 5 have no bit to say so
        other = scope.bridges.get(client)
        if other is not None and other.connection is not None and other.principal != identity.principal:
            # it bridges all the same, but the state of that name is for the one who came first to tell
            states = False
            if packet.will is not None and packet.will.topic == state_topic(client):
                packet.will = None
        else:
            states = connection.bridge
        subject = self._subject(connection, client, identity, bridge=states)
        brokering = scope.gate.rules.brokering
        if objection := self._objection(identity, subject):
            self._refuse(connection, packet, Refused(text=objection))
            return
        levels = scope.gate.rules.levels
        demand = read_demand(levels, packet.properties.user_properties)
        will_demand = None if packet.will is None else read_demand(levels, packet.will.properties.user_properties)
        why = unknown_name(levels, demand) or unknown_name(levels, will_demand)
        if why and scope.gate.rules.enforcing:
            reason = Reason.IMPLEMENTATION_SPECIFIC_ERROR
            self._refuse(connection, packet, Refused(reason=reason, text=f"{REQUIRE}: {why}", rule=REQUIRE))
            return
        holder = proving(subject, scope.gate.rules.capabilities)
        if packet.will is not None:
            # semantics.md, Time: a will is checked against what is static at CONNECT, and decided when it fires
            link = Link(subject, True, brokering.types(subject).inward, demand)
            refusal = scope.entrance.gate.admits(packet.will.topic, link) or self._unproven(holder, packet.will)
            if scope.entrance.shadow is not None and (refusal is None or not scope.gate.rules.enforcing):
                scope.entrance.shadow.admitted(packet.will.topic, link)
                refusal = refusal if scope.gate.rules.enforcing or packet.will.topic in SAID else None
            if refusal is not None:
                scope.audit.denied("write", link, packet.will.topic, refusal)
                self.site.counters.denied += 1
                text = "the will may not be published"
                if self.site.limits.explain:
                    text += f": denied by {refusal.rule}"
                connection.refuse(refusal.reason, text)
                return
        admitted = Admitted(
            principal=identity.principal,
            subject=subject,
            demand=demand,
            accepted=accepted,
            will_proven=packet.will is not None and holder is not None,
            generation=self.site.generation,
        )
        capability = identity.capability
        if admitted.will_proven or (capability is not None and capability.proven and accepted is None):
            connection.hold_reading(Hold.HANDSHAKE)
            self.site.store.after(self._used, connection, packet, admitted)
        else:
            self._attach(connection, packet, admitted)

    def _used(self, connection: Connection, packet: Connect, admitted: Admitted) -> None:
        """The counters of its proofs are safe: only then does anybody learn that they were taken."""
        if connection.phase is not Phase.WAITING:
            return  # it went away meanwhile
        if admitted.generation != self.site.generation:
            changed = Refused(reason=Reason.SERVER_BUSY, text="the rules have changed meanwhile; connect again")
            self._refuse(connection, packet, changed)
        else:
            self._attach(connection, packet, admitted)

    def _attach(self, connection: Connection, packet: Connect, admitted: Admitted) -> None:
        scope = self.scope
        principal, subject, accepted = admitted.principal, admitted.subject, admitted.accepted
        client = subject.client
        key = (principal, client)
        old = scope.sessions.get(key)
        payer = connection.reader.payer  # the address: whoever comes again and again pays for what is sent each time
        if old is not None and scope.subjects.another(old, subject):
            scope.withdrawn_access.withdraw(old, Refused(ended=True))
            old = None
        if refusal := self._no_session(principal, client, packet.will, old):
            self._refuse(connection, packet, refusal)
            return
        if old is not None and old.connection is not None:
            old.connection.close(Reason.SESSION_TAKEN_OVER)
            old = scope.sessions.get(key)  # gone if it was transient
        if old is not None and packet.clean_start:
            scope.lifetime.end(old)
            old = None
        session = old or scope.session(principal, client, subject)
        scope.subjects.identify(session, subject, admitted.demand)
        session.authenticated = self.site.generation
        if scope.sessions.get(key) is not session:
            self.site.accounts.add(session.usage, "sessions", name_weight(client))
        lane = scope.entrance.gate.lane(session.inward, packet.version)
        scope.sessions[key] = session
        if subject.bridge:
            scope.bridges[client] = session
        timers = self.site.timers
        timers.cancel(session.timer)
        timers.cancel(session.will_timer)  # [MQTT-3.1.3-9] it came back in time
        session.timer = session.will_timer = None
        properties = packet.properties
        self._expiry(session, packet)
        limits = self.site.limits
        asked = properties.receive_maximum
        session.attach(
            connection,
            version=packet.version,
            window=limits.inflight if asked is None else min(asked, limits.inflight),
            maximum=properties.maximum_packet_size or 0,
            aliases=min(properties.topic_alias_maximum or 0, limits.topic_aliases),
        )
        wills.keep(session, packet.will)
        session.will_proven = admitted.will_proven
        if session.expiry or session.row:
            session.save()
        self._attached(connection, session)
        connection.accept(session, lane)
        if old is not None:
            self.site.charge(payer, RESUMED * min(old.queued + old.inflight, old.window + old.inflight))
        scope.credential_expiry.came(session)
        scope.presences.came(session)
        scope.connected += 1
        scope.path.monitoring.states.up(session)
        self.site.counters.connections += 1
        if old is not None:
            scope.subscribing.retouch(
                session
            )  # it speaks another version, has other limits, or comes over another connection
        scope.audit.connected(session)
        keep_alive = self.keep_alive(connection, packet)
        answer = self._connack(packet, session, client, keep_alive)
        if accepted is not None:
            answer = replace(
                answer,
                authentication_method=properties.authentication_method,
                authentication_data=accepted.data,
            )
        present = self._present(connection, old) and not connection.old  # 3.1 has no such flag
        connack = Connack(session_present=present, reason=Reason.SUCCESS, properties=answer)
        if self.scope.gate.rules.enforcing:
            said = encode(self._with_level(connack, session), packet.version)
        else:
            said = encode(connack, packet.version)
        if session.maximum and len(said) > session.maximum:
            said = encode(connack, packet.version)  # [MQTT-3.2.2-20] the level is left out
        if session.maximum and len(said) > session.maximum:
            # [MQTT-3.1.2-24] it may not be sent, and without it there is no connection
            wills.keep(session, None)
            connection.lost()
            return
        session.send(said)
        if old is not None:
            scope.subscribing.wake(session)
        if session.row:
            # packet identifiers of QoS 2 are in the store before they are used on the wire
            self.site.store.after(self._resume, session, connection)
        else:
            session.pump()
        connection.finish_handshake()

    def _attached(self, connection: Connection, session: Session) -> None:
        """A session has its connection, which reads nothing yet."""

    def _present(self, connection: Connection, old: Session | None) -> bool:
        """Whether the client goes on with a session."""
        return old is not None

    def _with_level(self, connack: Connack, session: Session) -> Connack:
        """The same, which tells the client the level and the facts of its connection."""
        levels, subject = self.scope.gate.rules.levels, session.subject
        told = (LEVEL, levels.told(subject.level, levels.floor_facts(subject.facts)))
        return replace(connack, properties=replace(connack.properties, user_properties=(told,)))

    def _no_session(self, principal: str, client: str, will: Will | None, old: Session | None) -> Refused | None:
        """Why there is no room for one more session of a user, or for its will."""
        accounts, limits = self.site.accounts, self.site.limits
        usage, what, bound = accounts.seen(principal), "sessions", ""
        if old is None:
            bound = accounts.full(usage, limits.user, limits.node, what, name_weight(client))
        more = wills.size(will) - wills.size(None if old is None else old.will)
        if not bound and more > 0:
            what = "bytes of wills and queued messages"
            bound = accounts.full(usage, limits.user, limits.node, "queued_bytes", more)
        if not bound:
            return None
        whose = "one user" if bound.startswith("limits.user") else "the node"
        return Refused(reason=Reason.QUOTA_EXCEEDED, text=f"there are as many {what} as {whose} may have", rule=bound)

    def _unproven(self, capability: Capability | None, will: Will) -> Deny | None:
        """A will is proven when it comes, not when it fires, by whoever has to prove each message."""
        if capability is None:
            return None
        expiry = will.properties.message_expiry_interval
        shown = proof.shown_by(will.properties.user_properties, expiry=expiry)
        asked = proof.Asked(qos=(will.qos,), retain=will.retain, expiry=expiry, properties=shown.asked)
        why = proof.objection(capability, shown, proof.WRITE, will.topic, will.payload, asked)
        return Deny(step=Step.WRITE, rule=capability.rule, error=why) if why else None

    def _resume(self, session: Session, connection: Connection) -> None:
        if session.connection is connection:
            session.pump()

    def _expiry(self, session: Session, packet: Connect) -> None:
        if packet.version == V5:
            asked = packet.properties.session_expiry_interval or 0
        else:
            asked = 0 if packet.clean_start else NEVER
        session.expiry = self.scope.lifetime.allowed_expiry(asked)

    def keep_alive(self, connection: Connection, packet: Connect) -> int:
        """Arms it; what is in force. 3.1.1 cannot be told of another value, so it keeps its own."""
        seconds = packet.keep_alive
        longest = self.site.limits.max_keep_alive
        if longest is not None and packet.version == V5 and not 0 < seconds <= longest:
            seconds = longest
        self.site.timers.cancel(connection.timer)  # the time allowed before CONNECT
        connection.timer = None
        connection.keep_alive = seconds * 1.5  # [MQTT-3.1.2-22]
        if seconds:
            connection.timer = self.site.timers.at(self.site.now + connection.keep_alive, self._silent, connection)
        return seconds

    def _silent(self, connection: Connection) -> None:
        """Looks whether a client has been silent for too long; armed again for when it would be."""
        if connection.phase is not Phase.OPEN:
            return
        deadline = connection.reader.last_read + connection.keep_alive
        if connection.holds:  # it is not its fault that we do not read
            deadline = self.site.now + connection.keep_alive
        if deadline <= self.site.now:
            connection.close(Reason.KEEP_ALIVE_TIMEOUT)
        else:
            connection.timer = self.site.timers.at(deadline, self._silent, connection)

    def _connack(self, packet: Connect, session: Session, client: str, keep_alive: int) -> Properties:
        limits = self.site.limits
        asked = packet.properties.session_expiry_interval or 0
        connection = session.connection
        assert connection is not None
        return Properties(
            session_expiry_interval=session.expiry if session.expiry != asked else None,
            receive_maximum=limits.receive_maximum if limits.receive_maximum != RECEIVE_MAXIMUM else None,
            maximum_qos=limits.max_qos if limits.max_qos < 2 else None,
            retain_available=None if limits.retain else 0,
            maximum_packet_size=connection.reader.max_packet,
            assigned_client_identifier=None if packet.client_id else client,
            topic_alias_maximum=limits.topic_aliases or None,
            wildcard_subscription_available=None if limits.wildcards else 0,
            shared_subscription_available=None if limits.shared else 0,
            server_keep_alive=None if keep_alive == packet.keep_alive else keep_alive,
        )
