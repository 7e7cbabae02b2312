"""One event space: puts sessions, routing, the gate and the path together, and changes the rules of all of them.

A connection sees it as its host (session.Host) and hands each kind of packet to the part that takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidegate.gate import Deny, Gate, Lane, Plan, RuleSet, Step
from tidegate.monitor import ModeRevision
from tidegate.routing import Shares, Subscriptions
from tidegate.scope.authenticator import ANONYMOUS, Authenticator
from tidegate.scope.credential_expiry import CredentialExpiry
from tidegate.scope.decision_reports import Audit, Silent
from tidegate.scope.foreign_preferences import ForeignOwners
from tidegate.scope.handshake import Handshake
from tidegate.scope.node_links import PRINCIPAL, NodeLinks
from tidegate.scope.path import Path
from tidegate.scope.plans import Plans
from tidegate.scope.presences import Presences
from tidegate.scope.protection import Keyring
from tidegate.scope.retained import Retained
from tidegate.scope.seen_ids import SeenIds
from tidegate.scope.session_lifetime import SessionLifetime
from tidegate.scope.sessions import Sessions
from tidegate.scope.shared_delivery import Sharing
from tidegate.scope.stored_publisher_rules import Publishers
from tidegate.scope.subjects import Subjects
from tidegate.scope.subscribing import Subscribing
from tidegate.scope.wills import Wills
from tidegate.scope.withdrawn_access import WithdrawnAccess
from tidegate.session import Grant, Link, Message, Session, Site, Subject
from tidegate.session.packet_costs import NODE, OVERLAPPING, PLAN, TARGET

if TYPE_CHECKING:
    from tidegate.scope.shadow import ShadowScope

NOBODY = Silent()


class Scope:
    """One event space of a node."""

    brokered = False
    """Whether a broker stands behind it, which delivers what clients have subscribed to."""

    def __init__(
        self,
        *,
        name: str,
        node: str,
        site: Site,
        authenticator: Authenticator,
        rules: RuleSet,
        audit: Audit = NOBODY,
        stopwatch: Callable[[], float] = lambda: 0.0,
        publishers: Publishers | None = None,
        foreign: ForeignOwners | None = None,
        shift: ModeRevision | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        self.name = name
        self.node = node
        self.site = site
        self.audit = audit
        self.rules = rules
        self.shadow: ShadowScope | None = None  # decides what is not enforced here
        self.sessions = Sessions()
        self.bridges: dict[
            str, Session
        ] = {}  # of other brokers, by their names: see `gate.stages.write_reserved_topics`
        self.subscriptions: Subscriptions[Session, Grant] = Subscriptions()
        self.shares: Shares[Session, Grant] = Shares()
        self.publishers = Publishers(site, {name: self}, audit) if publishers is None else publishers
        self.entrance = self  # where its clients publish
        self.neighbours: Mapping[str, Scope] = {name: self}  # all scopes of the node
        self.node_links: NodeLinks | None = None  # of the node to others
        self.seen_ids = SeenIds()  # of QoS 1 and 2 messages that came from other nodes
        self.subjects = Subjects(self, authenticator)
        self.presences = Presences(self, rules)
        self.gate = Gate(
            self.subscriptions,
            self.shares,
            rules=rules.in_force(name),
            clock=site,
            fresh=self.subjects.fresh,
            retired=audit.retired,
            publishers=self.publishers,
            foreign=foreign,
            compiled=self._compiled,
            mode_revision=shift,
            stopwatch=stopwatch,
        )
        self.gate.counts_denied = audit is not NOBODY
        site.on_alarm.append(self.gate.cache.tick)
        self.connected = 0
        self.sharing = Sharing(self)
        self.plans = Plans(self.gate, site, keyring)
        self.path = self._path(keyring, stopwatch)
        self.path.change()
        self.retained = Retained(site, self.path.egress.deliver_retained, self._owner, name)
        self.wills = Wills(self)
        self.credential_expiry = CredentialExpiry(self)
        self.handshake = self._handshake(authenticator)
        self.subscribing = self._subscribing()
        self.lifetime = self._lifetime()
        self.withdrawn_access = WithdrawnAccess(self)
        self._sweeping = False

    def session(self, principal: str, client: str, subject: Subject) -> Session:
        """One for a client that has none."""
        return Session(site=self.site, decider=self.path.egress, principal=principal, client=client, subject=subject)

    # A scope that guards a broker has others of these.

    def _path(self, keyring: Keyring | None, stopwatch: Callable[[], float]) -> Path:
        return Path(self, keyring, stopwatch)

    def _handshake(self, authenticator: Authenticator) -> Handshake:
        return Handshake(self, authenticator)

    def _subscribing(self) -> Subscribing:
        return Subscribing(self)

    def _lifetime(self) -> SessionLifetime:
        return SessionLifetime(self)

    def _compiled(self, lane: Lane, plan: Plan) -> None:
        """The gate has made a plan."""
        copied = lane.shared is not None and not plan.branches
        self.site.effort += PLAN if copied or self.gate.rules.policies is None else 5 * PLAN
        if not copied:
            self.site.effort += OVERLAPPING * plan.overlapping + TARGET * plan.cost
            self.site.effort += NODE * (self.subscriptions.visited + self.shares.visited)
        self.audit.compiled(lane, plan)
        for session, errors in plan.failed:  # conditions that could not be evaluated, and count as false
            self.audit.failed(session.outward, plan.topic, errors)

    def _owner(self, message: Message) -> str | None:
        """Whom a retained message counts for: its publisher, or the link that it came over. None: the node itself."""
        context = self.gate.attributes.context(message)
        if context.path:
            return f"{PRINCIPAL}{context.path[-1]}"
        subject = context.subject
        if subject.kind != "client":
            return None
        return subject.principal or (ANONYMOUS if subject.user is None else f"user:{subject.user}")

    def keepable(self, message: Message) -> bool:
        """Whether there is room for a retained message. If not, it is delivered to those who are there, and audited."""
        full = self.retained.refusal(message)
        if full is None:
            return True
        publisher = self.gate.attributes.context(message).subject
        self.report("write", Link(publisher, True, message.link), message.topic, full, message.context)
        message.retain = False
        return False

    def report(
        self,
        action: str,
        link: Link,
        topic: str,
        why: Deny,
        context: bytes | None = None,
        message: Message | None = None,
    ) -> None:
        """Counts and audits a denial. `context`: that of the message, if it is about one; `message`: if nothing else
        was made of it."""
        if why.step is Step.WHERE:  # the subscriber does not want it: nobody has denied anything
            if why.error:
                self.audit.failed(link, topic, ((why.rule, why.error),))
            return
        self.site.counters.denied += 1
        publishers = None if context is None else self.gate.attributes.decoded(context).publishers
        self.audit.denied(action, link, topic, why, publishers or None, message)

    def delivered(self, session: Session, message: Message) -> None:
        """Has the audit count a delivery that was allowed and that no plan counts."""
        publishers = self.gate.attributes.context(message).publishers
        self.audit.delivered(session.outward, message.topic, publishers)

    def change(self, rules: RuleSet) -> None:
        """Other rules. The next message is decided by them; who has to go is told so soon after."""
        before = self.rules
        self.adopt(rules)
        self.publishers.changed(before)
        self.site.generation += 1
        self.review()

    def adopt(self, rules: RuleSet) -> None:
        """Other rules are in force here, and will be in all scopes of the node before anything else happens."""
        self.rules = rules
        self.gate.change(rules.in_force(self.name))
        self.path.change()
        self.subscribing.changed()

    def review(self) -> None:
        """Looks at all sessions and plans after a change, in pieces."""
        self.withdrawn_access.review()
        self.sweep()

    def travelled(self) -> None:
        """What owners of this domain say to other nodes may have another number."""

    def sweep(self) -> None:
        if self.gate.cache.deferred and not self._sweeping:
            self._sweeping = True
            self.site.unfinished.append(self._swept)

    def _swept(self) -> bool:
        self._sweeping = self.gate.cache.sweep()
        return self._sweeping
