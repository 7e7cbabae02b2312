"""CONNECT: from the packet to an open session, or to a refusal that says why.

Order: what the packet alone shows to be wrong, then who it is, then the session (take-over, clean start, resume),
then CONNACK, then what was owed. Nothing of a session is touched before the client is authenticated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidegate.errors import ProtocolError
from tidegate.gate import Deny, Step
from tidegate.gate.capability import proving
from tidegate.policy import Demand
from tidegate.policy.capability import Capability, proof
from tidegate.scope.authenticator import Accepted, Authenticator, Continue, Exchange, Identity, Refused
from tidegate.scope.role_member import Member
from tidegate.session import NEVER, Hold, Link, Peer, Phase, Session, Subject
from tidegate.wire import V5, Auth, Connack, Connect, Properties, Reason, Will, encode

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

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

    def connect(self, peer: Peer, packet: Connect) -> None:
        refusal = self._unacceptable(packet)
        if refusal is not None:
            self._refuse(peer, packet, refusal)
            return
        method = packet.properties.authentication_method
        if method is not None:
            exchange = self.authenticator.exchange(peer, packet, method)
            if exchange is None:
                unknown = Refused(reason=Reason.BAD_AUTHENTICATION_METHOD, text="unknown authentication method")
                self._refuse(peer, packet, unknown)
                return
            peer.authentication = Conversation(method, exchange, packet)
            self._step(peer, peer.authentication, packet.properties.authentication_data)
            return
        answered = False

        def answer(found: Identity | Refused) -> None:
            nonlocal answered
            answered = True
            self.site.open()
            if peer.phase is not Phase.WAITING:
                return  # it went away meanwhile
            if isinstance(found, Refused):
                self._refuse(peer, packet, found)
            else:
                self.welcome(peer, packet, found, None)

        self.authenticator.authenticate(peer, packet, answer)
        if not answered:
            peer.hold_reading(Hold.HANDSHAKE)

    def _refuse(self, peer: Peer, packet: Connect, found: Refused) -> None:
        self._tell(peer, packet, found)
        peer.refuse(found.reason, found.text)

    def _tell(self, peer: Peer, packet: Connect, found: Refused) -> None:
        name, user = packet.client_id, packet.username
        self.scope.audit.refused(peer.address, name, user, found.reason, found.text, found.rule)

    def _unacceptable(self, packet: Connect) -> Refused | None:
        will = packet.will
        limits = self.site.limits
        if will is not None:
            if will.qos > limits.max_qos:
                return Refused(reason=Reason.QOS_NOT_SUPPORTED, text="QoS of the will is not supported")
            if will.topic.count("/") >= limits.topic_levels:
                return Refused(reason=Reason.TOPIC_NAME_INVALID, text="the topic of the will has too many levels")
            if will.retain and not limits.retain:
                return Refused(reason=Reason.RETAIN_NOT_SUPPORTED, text="retained wills are not supported")
        return None

    # -- enhanced authentication (MQTT 5, 4.12) ----------------------------------------------------------------

    def auth(self, peer: Peer, packet: Auth) -> None:
        conversation = peer.authentication
        properties = packet.properties
        if not isinstance(conversation, Conversation):
            raise ProtocolError("AUTH without an authentication method in CONNECT")
        if properties.authentication_method != conversation.method:
            raise ProtocolError("AUTH with another method than CONNECT", Reason.BAD_AUTHENTICATION_METHOD)
        if packet.reason == Reason.RE_AUTHENTICATE and peer.phase is Phase.OPEN:
            if conversation.exchange is not None:
                raise ProtocolError("a re-authentication is under way")
            conversation.exchange = self.authenticator.exchange(peer, conversation.packet, conversation.method)
        elif packet.reason != Reason.CONTINUE_AUTHENTICATION:
            raise ProtocolError("AUTH with a reason that is not the client's to send")
        if conversation.exchange is None:
            raise ProtocolError("no authentication is under way")
        self._step(peer, conversation, properties.authentication_data)

    def _step(self, peer: Peer, conversation: Conversation, data: bytes | None) -> None:
        assert conversation.exchange is not None
        found = conversation.exchange.step(data)
        if isinstance(found, Continue):
            answer = Properties(authentication_method=conversation.method, authentication_data=found.data)
            peer.write(encode(Auth(reason=Reason.CONTINUE_AUTHENTICATION, properties=answer), V5))
            return
        conversation.exchange = None
        if isinstance(found, Accepted):
            complete = self.authenticator.completed(peer, conversation.packet.client_id, found.identity)
            found = complete if isinstance(complete, Refused) else replace(found, identity=complete)
        if peer.phase is Phase.OPEN:  # re-authentication
            self._again(peer, conversation, found)
        elif isinstance(found, Refused):
            self._refuse(peer, conversation.packet, found)
        else:
            self.welcome(peer, conversation.packet, found.identity, found)

    def _again(self, peer: Peer, conversation: Conversation, found: Accepted | Refused) -> None:
        session = peer.session
        if isinstance(found, Refused):
            self._tell(peer, conversation.packet, found)
            peer.close(found.reason, found.text)
        elif found.identity.principal != session.principal:
            peer.close(Reason.NOT_AUTHORIZED, "re-authenticated as somebody else")
        else:
            subject = self._subject(peer, session.client, found.identity)
            objection = self.scope.objection(found.identity, subject)
            if objection := objection or self.scope.watch.objection(self.scope.presence(subject)):
                peer.close(Reason.NOT_AUTHORIZED, objection)
                return
            self.scope.identify(session, subject, session.inward.demand)
            self.scope.seen(session)
            peer.lane = self.scope.entrance.gate.lane(session.inward, peer.version)
            self.scope.validity.came(session)
            if session.row:
                session.save()
            self.scope.retouch(session)
            answer = Properties(authentication_method=conversation.method, authentication_data=found.data)
            session.send(encode(Auth(reason=Reason.SUCCESS, properties=answer), V5))
            self.scope.wake(session)

    # -- the session -------------------------------------------------------------------------------------------

    def _subject(self, peer: Peer, client: str, identity: Identity) -> Subject:
        return self.scope.subject(identity, client=client, address=peer.address, listener=peer.listener.name)

    def welcome(self, peer: Peer, packet: Connect, identity: Identity, accepted: Accepted | None) -> None:
        """Whoever it is may come in here, or has to hear why not."""
        scope = self.scope
        placed = scope.gate.rules.space.role(scope.name, identity.roles)
        if isinstance(placed, str):
            self._refuse(peer, packet, Refused(text=placed))
            return
        if placed is not None:
            home = scope.neighbours[placed.receiving]
            peer.host = Member(home)
            home.welcome(peer, packet, identity, accepted)
            return
        client = packet.client_id or self.site.random_id()
        subject = self._subject(peer, client, identity)
        brokering = scope.gate.rules.brokering
        if objection := scope.objection(identity, subject) or scope.watch.objection(scope.presence(subject)):
            self._refuse(peer, packet, Refused(text=objection))
            return
        demand = scope.gate.rules.levels.demand(packet.properties.user_properties)
        holder = proving(subject, scope.gate.rules.capabilities)
        if packet.will is not None:
            # semantics.md, Time: a will is checked against what is static at CONNECT, and decided when it fires
            link = Link(subject, True, brokering.types(subject).inward, demand)
            refusal = scope.entrance.gate.admits(packet.will.topic, link) or self._unproven(holder, packet.will)
            if refusal is not None:
                scope.audit.denied("write", link, packet.will.topic, refusal)
                self.site.counters.denied += 1
                peer.refuse(refusal.reason, scope.explained("the will may not be published", refusal))
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
            peer.hold_reading(Hold.HANDSHAKE)
            self.site.store.after(self._used, peer, packet, admitted)
        else:
            self._attach(peer, packet, admitted)

    def _used(self, peer: Peer, packet: Connect, admitted: Admitted) -> None:
        """The counters of its proofs are safe: only then does anybody learn that they were taken."""
        if peer.phase is not Phase.WAITING:
            return  # it went away meanwhile
        if admitted.generation != self.site.generation:
            changed = Refused(reason=Reason.SERVER_BUSY, text="the rules have changed meanwhile; connect again")
            self._refuse(peer, packet, changed)
        else:
            self._attach(peer, packet, admitted)

    def _attach(self, peer: Peer, packet: Connect, admitted: Admitted) -> None:
        scope = self.scope
        principal, subject, accepted = admitted.principal, admitted.subject, admitted.accepted
        client = subject.client
        key = (principal, client)
        old = scope.sessions.get(key)
        if old is not None and old.peer is not None:
            old.peer.close(Reason.SESSION_TAKEN_OVER)
            old = scope.sessions.get(key)  # gone if it was transient
        if old is not None and packet.clean_start:
            scope.end(old)
            old = None
        session = old or Session(site=self.site, decider=scope, principal=principal, client=client, subject=subject)
        scope.identify(session, subject, admitted.demand)
        session.authenticated = self.site.generation
        lane = scope.entrance.gate.lane(session.inward, packet.version)
        scope.sessions[key] = session
        timers = self.site.timers
        timers.cancel(session.timer)
        timers.cancel(session.will_timer)  # [MQTT-3.1.3-9] it came back in time
        session.timer = session.will_timer = None
        properties = packet.properties
        self._expiry(session, packet)
        limits = self.site.limits
        asked = properties.receive_maximum
        session.attach(
            peer,
            version=packet.version,
            window=limits.inflight if asked is None else min(asked, limits.inflight),
            maximum=properties.maximum_packet_size or 0,
            aliases=min(properties.topic_alias_maximum or 0, limits.topic_aliases),
        )
        session.will = packet.will
        session.will_proven = admitted.will_proven
        if session.expiry or session.row:
            session.save()
        peer.accept(session, lane)
        scope.validity.came(session)
        scope.seen(session)
        scope.connected += 1
        scope.path.monitoring.states.up(session)
        self.site.counters.connections += 1
        if old is not None:
            scope.retouch(session)  # it speaks another version, has other limits, or comes over another connection
        scope.audit.connected(session)
        keep_alive = self._keep_alive(peer, packet)
        answer = self._connack(packet, session, client, keep_alive)
        if accepted is not None:
            answer = replace(
                answer,
                authentication_method=properties.authentication_method,
                authentication_data=accepted.data,
            )
        connack = Connack(session_present=old is not None, reason=Reason.SUCCESS, properties=answer)
        said = encode(connack, packet.version)
        if session.maximum and len(said) > session.maximum:
            # [MQTT-3.1.2-24] it may not be sent, and without it there is no connection
            session.will = None
            peer.lost()
            return
        session.send(said)
        if old is not None:
            scope.wake(session)
        if session.row:
            # packet identifiers of QoS 2 are in the store before they are used on the wire
            self.site.store.after(self._resume, session, peer)
        else:
            session.resume()
        peer.go_on()

    def _unproven(self, capability: Capability | None, will: Will) -> Deny | None:
        """A will is proven when it comes, not when it fires, by whoever has to prove each message."""
        if capability is None:
            return None
        shown = proof.shown_by(will.properties.user_properties)
        why = proof.objection(capability, shown, proof.WRITE, will.topic, will.payload)
        return Deny(step=Step.WRITE, rule=capability.rule, error=why) if why else None

    def _resume(self, session: Session, peer: Peer) -> None:
        if session.peer is peer:
            session.resume()

    def _expiry(self, session: Session, packet: Connect) -> None:
        if packet.version == V5:
            asked = packet.properties.session_expiry_interval or 0
        else:
            asked = 0 if packet.clean_start else NEVER
        session.expiry = self.scope.allowed_expiry(asked)

    def _keep_alive(self, peer: Peer, packet: Connect) -> int:
        """Arms it; what is in force. 3.1.1 cannot be told of another value, so it keeps its own."""
        seconds = packet.keep_alive
        longest = self.site.limits.max_keep_alive
        if longest is not None and packet.version == V5 and not 0 < seconds <= longest:
            seconds = longest
        self.site.timers.cancel(peer.timer)  # the time allowed before CONNECT
        peer.timer = None
        peer.keep_alive = seconds * 1.5  # [MQTT-3.1.2-22]
        if seconds:
            peer.timer = self.site.timers.at(self.site.now + peer.keep_alive, self._silent, peer)
        return seconds

    def _silent(self, peer: Peer) -> None:
        """Looks whether a client has been silent for too long; armed again for when it would be."""
        if peer.phase is not Phase.OPEN:
            return
        deadline = peer.seen + peer.keep_alive
        if peer.held:  # it is not its fault that we do not read
            deadline = self.site.now + peer.keep_alive
        if deadline <= self.site.now:
            peer.close(Reason.KEEP_ALIVE_TIMEOUT)
        else:
            peer.timer = self.site.timers.at(deadline, self._silent, peer)

    def _connack(self, packet: Connect, session: Session, client: str, keep_alive: int) -> Properties:
        limits = self.site.limits
        asked = packet.properties.session_expiry_interval or 0
        peer = session.peer
        assert peer is not None
        return Properties(
            session_expiry_interval=session.expiry if session.expiry != asked else None,
            receive_maximum=limits.receive_maximum if limits.receive_maximum != RECEIVE_MAXIMUM else None,
            maximum_qos=limits.max_qos if limits.max_qos < 2 else None,
            retain_available=None if limits.retain else 0,
            maximum_packet_size=peer.limit,
            assigned_client_identifier=None if packet.client_id else client,
            topic_alias_maximum=limits.topic_aliases or None,
            wildcard_subscription_available=None if limits.wildcards else 0,
            shared_subscription_available=None if limits.shared else 0,
            server_keep_alive=None if keep_alive == packet.keep_alive else keep_alive,
        )
