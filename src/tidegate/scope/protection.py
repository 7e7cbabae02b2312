"""Step 4 at work: payloads are sealed before anything is stored, recorded or routed (semantics, *Protected topics*).

Invariants
- What has passed here is under a key of its plan's group, or was when it came; its context says so.
- A message that cannot be sealed is denied.
- An empty retained message stays empty: it tells nothing but that there is nothing any more [MQTT-3.3.1-10].
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from tidegate.bounded import Bounded
from tidegate.errors import KeysError
from tidegate.gate import Deny, Known, Plan, Step
from tidegate.gate.key_groups import Protection
from tidegate.keys import Group, key_id
from tidegate.session import Message, Session, Subject
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

CONTEXTS: Final = 10_000
RULE: Final = "keys"


class Keyring(Protocol):
    """Who has the topic keys of a node."""

    def sealed(self, group: Group, payload: bytes, topic: str) -> bytes:
        """The payload under the key of the group; KeysError if that cannot be."""
        ...

    def opened(self, message: bytes, topic: str) -> bytes | None:
        """What is in a sealed message; None if its key is not here."""
        ...

    def holds(self, id: str, group: Group) -> bool:
        """Whether a key is one of this group that can be read with."""
        ...

    def genuine(self, message: bytes, topic: str) -> bool:
        """Whether a message is sealed with the key it names, under that topic; as far as that can be seen here."""
        ...

    def ask(self, scope: Scope, session: Session, message: Message) -> int:
        """A request for a key, which is answered now or later; 0 if its sender would not hear the answer."""
        ...


class Protector:
    """Protects what comes into one scope."""

    def __init__(self, scope: Scope, keyring: Keyring | None) -> None:
        self.scope = scope
        self.keyring = keyring
        self._contexts: Bounded[bytes, bytes] = Bounded(CONTEXTS, self._sealed)  # by that of the message before sealing

    def changed(self) -> None:
        """Other rules are in force."""
        self._contexts.clear()

    def protect(self, plan: Plan, message: Message) -> Deny | None:
        """Seals a message that nobody has seen yet, in place; why that cannot be, if it cannot."""
        protection = plan.sealing
        if protection is None or (message.retain and not message.payload):
            return None
        keyring = self.keyring
        if keyring is None:
            return _denied("there are no keys here")
        if protection.under is not None:
            self._again(keyring, protection, message)
            return None
        topic = plan.topic
        id = key_id(message.payload) if message.payload[:1] == b"{" else None
        if id is None or not self._holds(keyring, id, protection.group, message):
            if protection.end_to_end:
                why = "comes sealed or not at all: ask for its key on `$tidegate/keys/publish`"
                return _denied(f"what is published to `{topic}` {why}")
            try:
                message.payload = keyring.sealed(protection.group, message.payload, topic)
            except KeysError as error:
                return _denied(str(error), Reason.IMPLEMENTATION_SPECIFIC_ERROR)  # a PUBACK has no code for too large
        self.mark(message)
        return None

    def _holds(self, keyring: Keyring, id: str, group: Group, message: Message) -> bool:
        """Whether its publisher has sealed it with that key: one of the group, or its own."""
        if not keyring.holds(id, group):
            who = reader(self.scope.gate.attributes.decoded(message.context).subject)
            if not keyring.holds(id, group.sealed_by(who)):
                return False
        # the id of a key is no secret: what only names one may be in clear
        return keyring.genuine(message.payload, message.topic)

    def rename(self, message: Message) -> None:
        """A monitor has given a message another topic, on its way out."""
        gate = self.scope.gate
        context = gate.attributes.context(message)
        if context.under is None or self.keyring is None:
            return
        known = Known(topic=message.topic, context=context, link=message.link, now=gate.clock.wall)
        protection = gate.stages.key_groups.protection(known)
        if isinstance(protection, Protection) and protection.under is not None:
            self._again(self.keyring, protection, message)

    def _again(self, keyring: Keyring, protection: Protection, message: Message) -> None:
        """Under the topic that it has now. What cannot be opened here stays as it is: its publisher sealed it."""
        assert protection.under is not None
        payload = keyring.opened(message.payload, protection.under)
        if payload is not None:
            message.payload = keyring.sealed(protection.group, payload, message.topic)
            self.mark(message)

    def mark(self, message: Message) -> None:
        """It is sealed from now on."""
        message.context = self._contexts[message.context]
        message.facts = None
        message.form = 0  # the bytes it came in are not what is sent
        message.head = message.tail = b""

    def _sealed(self, data: bytes) -> bytes:
        return replace(self.scope.gate.attributes.decoded(data), sealed=True, under=None).encode()


def reader(subject: Subject) -> str:
    """As the directory calls whoever reads, or seals."""
    return f"client:{subject.client}" if subject.user is None else f"user:{subject.user}"


def _denied(why: str, reason: int = Reason.NOT_AUTHORIZED) -> Deny:
    return Deny(step=Step.PROTECT, rule=RULE, reason=reason, error=why, said=f"{RULE}: {why}")


GONE: Final = _denied("it is under a key that has ended, or was changed since it was sealed: ask for another key")
