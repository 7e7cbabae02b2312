"""Who holds a capability: shows it, and proves with its key that it is the holder."""

from __future__ import annotations

import time

from tidegate.policy.capability import PrivateKey, unverified
from tidegate.policy.capability.proof import NOTHING_ASKED, Asked, proof, response, signature


class CapabilityHolder:
    """A token with the key that confirms it. Counters are the time, so that they grow by themselves."""

    def __init__(self, token: str, key: PrivateKey) -> None:
        _, claims = unverified(token)
        self.token = token
        self._key = key
        self._id, self._subject = str(claims.get("jti")), str(claims.get("sub"))
        self._last = 0

    def proof(self, action: str, topic: str, payload: bytes = b"", asked: Asked = NOTHING_ASKED) -> str:
        """The value of the user property `proof`; `asked` is what else the packet asks for."""
        self._last = max(self._last + 1, time.time_ns())
        return proof(self._key, self._id, self._subject, action, topic, payload, self._last, asked)

    def response(self, client: str, challenge: bytes) -> bytes:
        """What answers the node's challenge."""
        return signature(self._key, response(self._id, self._subject, client, challenge))


def subject_of(token: str) -> str:
    """Whom a token speaks of: `user:mary`, `client:tr1` or `user:mary/client:tr1`."""
    return str(unverified(token)[1].get("sub"))


def name_of(subject: str) -> str:
    """The user name that goes with a token in place of the password: its user, or else its client."""
    return subject.removeprefix("user:").partition("/client:")[0].removeprefix("client:")
