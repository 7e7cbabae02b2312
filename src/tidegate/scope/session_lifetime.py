"""How long sessions are kept: after a disconnection, over a restart, until they expire or end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.policy.revocation import PeerCertificate
from tidegate.policy.subject import state_topic
from tidegate.scope import wills
from tidegate.scope.authenticator import Refused
from tidegate.session import NEVER, Connection, Context, Session, StoredSession, Terms
from tidegate.session import unreleased_qos2 as unreleased
from tidegate.session.usage import name_weight
from tidegate.wire import Disconnect, Reason

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope


class SessionLifetime:
    """The coming back, expiry and end of one scope's sessions (session.Lifetime)."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.site = scope.site

    def disconnected(self, connection: Connection, packet: Disconnect | None, reason: Reason) -> None:
        """A connection ended. The session stays as long as it asked to."""
        session = connection.session
        if session.connection is not connection:
            return
        session.detach()
        self.scope.credential_expiry.left(session)
        self.scope.presences.left(session)
        self.scope.connected -= 1
        self.scope.path.monitoring.states.down(session)
        self.scope.audit.disconnected(session, reason)
        if packet is not None:
            asked = packet.properties.session_expiry_interval
            if asked is not None:
                session.expiry = self.allowed_expiry(asked)
            if packet.reason == Reason.SUCCESS:  # [MQTT-3.14.4-3]
                wills.keep(session, None)
        if self.site.closing and session.will is not None and session.expiry:
            # MQTT 5, 3.1.2.5: at shutdown wills may wait for the next start; those of persistent sessions do
            session.save()
            return
        if not session.expiry:
            self.end(session)
            return
        if session.will is not None:
            delay = min(session.will.properties.will_delay_interval or 0, session.expiry)
            if delay:
                self.scope.wills.fire_later(session, delay)
            else:
                self.scope.wills.fire(session)
        self._expire_later(session, session.expiry)
        session.save()
        self.scope.subscribing.retouch(session)  # what it is owed from now on is sent over another connection

    def allowed_expiry(self, asked: int) -> int:
        longest = self.site.limits.session_expiry
        return asked if longest is None else min(asked, longest)

    def _expire_later(self, session: Session, seconds: float) -> None:
        if session.expiry != NEVER:
            session.timer = self.site.timers.at(self.site.now + seconds, self.end, session)

    def end(self, session: Session) -> None:
        """The session is over: its subscriptions go, its will is due, what others could take is handed to them."""
        if self.scope.sessions.pop((session.principal, session.client), None) is session:
            self.site.accounts.add(session.usage, "sessions", -name_weight(session.client))
        if self.scope.bridges.get(session.client) is session:
            del self.scope.bridges[session.client]
        self.scope.publishers.ended(session)
        timers = self.site.timers
        timers.cancel(session.timer)
        timers.cancel(session.will_timer)
        session.timer = session.will_timer = None
        shared = False
        for filter in session.subscriptions or ():
            shared = self.scope.subscribing.forget(session, filter) or shared
        back = session.shared_out() if shared else []
        session.subscriptions = None
        if session.will is not None:
            self.scope.wills.fire(session)
        self.scope.sharing.hand_round(back)
        session.clear()
        self.site.accounts.settle(session.usage)
        self.scope.path.monitoring.states.ended(session)

    def adopt(self, session: Session, identity: str) -> None:
        """A session that was stored before there were identities belongs to this one."""
        subject = replace(session.subject, identity=identity)
        self.scope.subjects.identify(session, subject, session.inward.demand)
        session.generation = -1
        if session.row:
            session.save()

    def rename(self, names: Mapping[str, str]) -> None:
        """Users are called otherwise: their sessions, and what monitors remember of them, are theirs as before."""
        sessions = self.scope.sessions
        moved: list[tuple[Session, str]] = []
        for session in list(sessions.values()):
            name = names.get(session.subject.identity)
            if name is None or not session.principal.startswith("user:") or session.principal == f"user:{name}":
                continue
            moved.append((session, f"user:{name}"))
            del sessions[session.principal, session.client]
        for session, principal in moved:  # when all have left their names: two may have exchanged them
            if (other := sessions.get((principal, session.client))) is not None:
                self.scope.withdrawn_access.withdraw(other, Refused(ended=True))  # of somebody who had this name before
            session.principal = principal
            sessions[principal, session.client] = session
            if session.row:
                session.save()
        self.scope.path.monitoring.states.rename(names)

    def restore(self, record: StoredSession) -> Session:
        """A session as the store kept it. One that was connected then has lost its connection with the node."""
        site = self.site
        context = Context.decode(record.context)
        certificate, certified = PeerCertificate.decode(record.certificate) if record.certificate else (None, False)
        # whether the certificate of a client still counts cannot be told if the store has not kept it
        will = None if record.certificate is None and context.subject.tls else record.will
        subject = replace(
            context.subject,
            scope=self.scope.name,
            node=self.scope.node,
            client=record.client,
            certified=certified,
            bridge=record.will is not None and record.will.topic == state_topic(record.client),
        )
        session = self.scope.session(record.principal, record.client, subject)
        session.identify(subject, context.demand, record.context, entrance=self.scope.entrance.name)
        session.generation = -1  # what is known of it now is looked up when it matters
        session.version = record.version
        session.expiry = record.expiry
        session.row = record.row
        session.certificate = certificate
        wills.keep(session, will)
        session.ended = site.wall if record.ended is None else record.ended
        for pid, messages in record.incoming.items():
            unreleased.keep(session, pid, messages, sum(message.size for message in messages))
        session.restore(record.deliveries)
        self.scope.sessions[session.principal, session.client] = session
        if subject.bridge:
            self.scope.bridges[session.client] = session
        site.accounts.add(session.usage, "sessions", name_weight(session.client))
        session.subscriptions = {}
        for subscription, identifier, terms in record.subscriptions.values():
            self.scope.subscribing.restore(session, subscription, identifier, Terms.decode(terms))
        away = max(0.0, site.wall - session.ended)
        left = record.expiry - away
        if session.will is not None:
            delay = max(0.0, min((session.will.properties.will_delay_interval or 0) - away, left))
            self.scope.wills.fire_later(session, delay)
        self._expire_later(session, max(0.0, left))
        if record.ended is None:
            session.save()  # from now on it is away, also for the start after the next crash
        return session
