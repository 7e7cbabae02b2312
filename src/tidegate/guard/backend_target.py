"""The guarded broker as the gate sees it: where everything goes that may be written in its scope.

It stands in the routing as the one subscriber of everything, so that plans, lanes and the fast lane are those of any
scope. It is no reader: only levels are asked before a message goes there (semantics, *Guard*).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.bounded import Weighed
from tidegate.guard.envelopes import STATICS
from tidegate.guard.guarded_session import GuardedSession
from tidegate.guard.service_session import PRINCIPAL
from tidegate.policy import Subject
from tidegate.policy.brokering import PLAIN
from tidegate.policy.demands import RELAXED
from tidegate.policy.levels import Transport
from tidegate.session import BackendEnd, LinkSession, Message, Session
from tidegate.wire import V5, encode_varint
from tidegate.wire.envelope import STATIC_BYTES, authenticated

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope
    from tidegate.guard.upstream import Upstream
    from tidegate.session.host import Route


class BackendTarget(LinkSession):
    """Stands for the broker in the routing of its scope."""

    __slots__ = ("_heads", "scope", "source")

    guards = True

    def __init__(self, scope: GuardedScope) -> None:
        self.scope = scope
        subject = self._subject(scope)
        super().__init__(
            site=scope.site, decider=scope.path.egress, principal=PRINCIPAL, name=scope.name, subject=subject
        )
        self.expiry = 0  # nothing waits here for a better connection
        self.refusing = True
        self.connection = self  # over which connection it goes is known
        self.source: Session | None = None  # whose message is being delivered
        self._heads: Weighed[tuple[bytes, bytes, str], tuple[bytes, bytes]] = Weighed(
            STATICS, STATIC_BYTES, lambda key: len(key[0]) + len(key[1])
        )
        self.renew()

    def renew(self) -> None:
        """There are other rules."""
        self.subject = subject = self._subject(self.scope)
        self.outward = BackendEnd(subject, False, PLAIN.outward, RELAXED)
        self.inward = BackendEnd(subject, True, PLAIN.inward, RELAXED)
        self.generation = self.site.generation
        self.forget_heads()

    def forget_heads(self) -> None:
        """What messages begin with has to be made anew."""
        self._heads.clear()

    @staticmethod
    def _subject(scope: GuardedScope) -> Subject:
        rules, address = scope.gate.rules, scope.settings.address
        levels = rules.levels
        if scope.settings.inside:
            level, facts = levels.highest, tuple(levels.facts)
        else:
            transport = Transport(address=address.host, tls_version="" if address.tls else None)
            level, facts = levels.level_of(transport), levels.facts_of(transport)
        if scope.settings.level is not None:
            level = scope.settings.level
        return Subject(
            kind="service",
            client="backend",
            user=None,
            scope=scope.name,
            node=scope.node,
            domain=rules.domain,
            level=level,
            facts=facts,
            address=address.host,
        )

    def refuses(self, message: Message) -> bool:
        """Asked of what its client does not send to the broker itself."""
        return self.scope.service.session.refuses(message)

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        ids: tuple[int, ...],
        group: tuple[str, str] | None = None,
        shown: Message | None = None,
    ) -> None:
        source = self.source
        upstream = source.upstream if isinstance(source, GuardedSession) else None
        if upstream is None or not upstream.opened or (message.qos and not upstream.exchange):
            if not message.qos and isinstance(source, GuardedSession) and source.connection is not None:
                self.site.counters.dropped += 1  # the broker is gone, and nobody waits for this
            else:
                done = None
                if message.qos and isinstance(source, GuardedSession) and source.connection is not None:
                    done = source.relaying.besides()  # without a connection it is a will, and nobody waits
                self.scope.service.session.publish(message, done)
        else:
            upstream.publish(message)

    def carry(self, route: Route, name: bytes, payload: bytes, source: Session) -> None:
        """A QoS 0 message of a client, which a plan has decided."""
        # hot: one look-up, one MAC, one join
        assert isinstance(source, GuardedSession)
        upstream = source.upstream
        if upstream is None or upstream.shut:
            self.site.counters.dropped += 1
            return
        if self.scope.settings.as_property or not self.scope.enforcing:
            self._carry_with_properties(name, payload, source, upstream)
            return
        key = (source.context, name, source.inward.type)
        known = self._heads.get(key)
        if known is None:
            envelopes = self.scope.envelopes
            topic = name[2:].decode()
            if (objection := self.scope.settings.abilities.objection(topic)) is not None:
                self.scope.report("write", self.outward, topic, objection, source.context)
                return
            try:
                static = envelopes.frame_head(source, topic)
            except ValueError:  # too much stands beside it
                self.site.counters.dropped += 1
                return
            known = self._heads[key] = (static, envelopes.origin(self.site.origin))
        site = self.site
        site.number += 1
        body = authenticated(known[0], known[1], site.number, site.wall, payload, self.scope.settings.key)
        block = b"\0" if upstream.version == V5 else b""
        frame = b"0%b%b%b%b" % (encode_varint(len(name) + len(block) + len(body)), name, block, body)
        if upstream.maximum and len(frame) > upstream.maximum:
            site.counters.dropped += 1
            return
        out = upstream.out
        if not out:
            site.dirty.append(upstream)
        out.append(frame)

    def _carry_with_properties(self, name: bytes, payload: bytes, source: GuardedSession, upstream: Upstream) -> None:
        """The same where no envelope stands before the content."""
        site = self.site
        site.number += 1
        topic, link = name[2:].decode(), source.inward.type
        message = Message(topic, payload, 0, False, site.wall, site.origin, site.number, source.context, link)
        if upstream.publish(message) is None:
            site.counters.dropped += 1
