"""One event space whose sessions, subscriptions, retained messages and routing are those of another broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidegate.bounded import Weighed
from tidegate.gate import RuleSet
from tidegate.guard.backend_authentication import BackendAuthentication
from tidegate.guard.backend_target import BackendTarget
from tidegate.guard.bridging import Bridge
from tidegate.guard.envelopes import Envelopes
from tidegate.guard.guarded_handshake import GuardedHandshake
from tidegate.guard.guarded_lifetime import GuardedLifetime
from tidegate.guard.guarded_path import GuardedPath
from tidegate.guard.guarded_session import GuardedSession
from tidegate.guard.guarded_subscribing import GuardedSubscribing
from tidegate.guard.name_proof import NameProof
from tidegate.guard.passed_messages import PassedMessages
from tidegate.guard.service_connection import ServiceConnection
from tidegate.guard.settings import Settings
from tidegate.guard.shared_members import SharedMembers
from tidegate.scope import Scope
from tidegate.scope.authenticator import Authenticator
from tidegate.scope.protection import Keyring
from tidegate.session import Session, Subject
from tidegate.wire import Subscription
from tidegate.wire.envelope import STATIC_BYTES

if TYPE_CHECKING:
    from tidegate.guard.upstream import Upstream

INTERNED: Final = 100_000

Dial = Callable[["Upstream"], None]
"""Opens the socket of a connection to the broker, or calls its `failed`."""


class GuardedScope(Scope):
    """A scope that guards a broker."""

    brokered = True
    path: GuardedPath
    subscribing: GuardedSubscribing
    handshake: GuardedHandshake

    def __init__(
        self, *, settings: Settings, dial: Dial, on_bug: Callable[[Any, BaseException], None], **parts: Any
    ) -> None:
        self.settings = settings
        self.dial = dial
        self.on_bug = on_bug
        self.owners: dict[str, GuardedSession] = {}
        """By client identifier: the session that has it at the broker."""
        self.interned: Weighed[bytes, bytes] = Weighed(INTERNED, STATIC_BYTES, len, lambda key: key)
        """What the last messages of many clients are kept under."""
        self.members = SharedMembers(self)
        self.authenticator = BackendAuthentication(self, parts["authenticator"])
        super().__init__(**{**parts, "authenticator": self.authenticator})
        self.subjects.identified = self._identified
        self.envelopes = Envelopes(self)
        self.passed = PassedMessages(self)
        self.target = BackendTarget(self)
        self.target.subscriptions = {}
        self.subscribing.add(self.target, Subscription(filter="#", qos=2, retain_as_published=True))
        self.service = ServiceConnection(self)
        self.name_proof = NameProof(self)

    def _identified(self, session: Session) -> None:
        """Who a client is has been found out under the rules in force."""
        if isinstance(session, GuardedSession):
            bridge = self.settings.bridges.get(session.subject.user or "")
            session.crosses(None if bridge is None else Bridge(self, bridge, session.subject))

    @property
    def enforcing(self) -> bool:
        """Whether it enforces its rules. If not, messages lie in the broker as they would without the guard."""
        return self.gate.rules.enforcing

    @property
    def oldest(self) -> int:
        """In microseconds: when that was published which the broker may still owe to anybody."""
        most = self.settings.max_age
        return 0 if most is None else int((self.site.wall - most) * 1e6)

    def session(self, principal: str, client: str, subject: Subject) -> GuardedSession:
        session = GuardedSession(
            site=self.site, decider=self.path.egress, principal=principal, client=client, subject=subject
        )
        session.interned = self.interned
        self.owners[client] = session
        return session

    def _path(self, keyring: Keyring | None, stopwatch: Callable[[], float]) -> GuardedPath:
        return GuardedPath(self, keyring, stopwatch)

    def _handshake(self, authenticator: Authenticator) -> GuardedHandshake:
        return GuardedHandshake(self, authenticator)

    def _subscribing(self) -> GuardedSubscribing:
        return GuardedSubscribing(self)

    def _lifetime(self) -> GuardedLifetime:
        return GuardedLifetime(self)

    def adopt(self, rules: RuleSet) -> None:
        super().adopt(rules)
        self.passed.clear()
        self.renew()
        self.travelled()

    def travelled(self) -> None:
        self.envelopes.renew()
        self.target.forget_heads()

    def renew(self) -> None:
        """There are other rules, or the broker is another one."""
        self.target.renew()
        self.service.session.renew()
