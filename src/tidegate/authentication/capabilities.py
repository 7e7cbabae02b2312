"""What a node remembers of capabilities, and how one is proven by enhanced authentication.

The register holds what outlives a change of the configuration and a restart: ids that were revoked by command, and the
highest counter of the proofs that were used of each capability. A counter is kept as long as its capability could come
again, and some time longer, should the clock be put back.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final
from weakref import WeakValueDictionary

from tidegate.policy.capability import Accepts, Capability, Ledger, Unacceptable, verify
from tidegate.policy.capability.proof import CHALLENGE, response, verified
from tidegate.scope import Accepted, Continue, Identity, Refused
from tidegate.session import Connection
from tidegate.wire import V5, Connect, Reason

RULE: Final = "capability"
REVOKED: Final = "revoked capabilities"
PROOFS: Final = "proofs"
LONGER: Final = 30 * 86400.0  # seconds after its end that the counter of a capability is kept

Keep = Callable[[str, str, bytes | None], None]


class Register:
    """What is remembered. `records` is what the store kept under the two names above, `keep` is the store's."""

    def __init__(
        self,
        records: Mapping[str, Mapping[str, bytes]] = MappingProxyType({}),
        keep: Keep = lambda room, key, value: None,
        wall: float = 0.0,
    ) -> None:
        self._keep = keep
        self.on_unknown_signer: Callable[[], None] = lambda: None
        self.revoked = set(records.get(REVOKED, ()))
        self._used: dict[str, tuple[int, float]] = {}  # counter and expiry, by issuer and id
        for name, value in records.get(PROOFS, {}).items():
            counter, expires = value.decode().split()
            self._used[name] = (int(counter), float(expires))
        self._ledgers: WeakValueDictionary[str, Ledger] = WeakValueDictionary()
        self._most = 0
        self._prune(wall)

    def revoke(self, id: str) -> None:
        self.revoked.add(id)
        self._keep(REVOKED, id, b"")

    def entered(self, capability: Capability, wall: float) -> Capability:
        """The same with the ledger that all its connections share."""
        if len(self._used) > self._most:
            self._prune(wall)
        # Issuers do not know each other's ids: nobody uses up the counters of another's. Ids have no line breaks.
        name = f"{capability.issuer}\n{capability.id}"
        ledger = self._ledgers.get(name)
        if ledger is None:
            counter, _ = self._used.get(name, (0, 0.0))
            ledger = self._ledgers[name] = Ledger(counter, partial(self._note, name, capability.expires))
        return replace(capability, ledger=ledger)

    def _note(self, name: str, expires: float, counter: int) -> None:
        self._used[name] = (counter, expires)
        self._keep(PROOFS, name, b"%d %r" % (counter, expires))

    def _prune(self, wall: float) -> None:
        """Lets go of counters that nobody needs; again when there are twice as many."""
        for name in [name for name, (_, expires) in self._used.items() if expires + LONGER < wall]:
            del self._used[name]
            self._keep(PROOFS, name, None)
        self._most = 2 * len(self._used) + 1000


def verified_token(token: str, accepts: Accepts, register: Register, connection: Connection) -> Capability | Refused:
    """The capability that somebody shows over this connection, or why it does not count.

    Whether the connection has to be proven is asked when it has been.
    """
    site = connection.site
    found = verify(token, accepts.issuers, wall=site.wall, steady=site.steady)
    if isinstance(found, Unacceptable):
        if found.unknown_signer:
            register.on_unknown_signer()
        return refusal(found.why, found.id)
    if found.id in register.revoked:
        return refusal("it has been revoked", found.id)
    return register.entered(found, site.wall)


def refusal(why: str, id: str = "", reason: Reason = Reason.NOT_AUTHORIZED) -> Refused:
    """The refusal of a connection because of its capability. Ids that nobody has vouched for are not told."""
    return Refused(reason=reason, text=f"the capability is not accepted: {why}", rule=f"{RULE}:{id}" if id else RULE)


class Challenge:
    """One run of the method: the token, a challenge for this connection, its signature by the confirmation key."""

    def __init__(
        self,
        accepts: Accepts,
        register: Register,
        connection: Connection,
        packet: Connect,
        mismatch: Callable[[Connection, Connect, Capability], str],
    ) -> None:
        """`mismatch` says why a capability is not for whoever shows it."""
        self._accepts = accepts
        self._register = register
        self._connection = connection
        self._packet = packet
        self._mismatch = mismatch
        self._capability: Capability | None = None
        self._nonce = secrets.token_bytes(CHALLENGE)

    def step(self, data: bytes | None) -> Continue | Accepted | Refused:
        capability = self._capability
        if capability is None:
            found = verified_token(_text(data), self._accepts, self._register, self._connection)
            if isinstance(found, Refused):
                return found
            if why := self._mismatch(self._connection, self._packet, found):
                return refusal(why, found.id)
            self._capability = found
            return Continue(data=self._nonce)
        signed = response(capability.id, capability.subject, self._packet.client_id, self._nonce)
        if not verified(capability.key, data or b"", signed):
            return refusal("the challenge was not signed by its key", capability.id)
        proven = replace(capability, proven=True)
        if why := self._accepts.objection(proven, proofs=self._connection.version == V5):
            return refusal(why, capability.id)
        return Accepted(identity=Identity(principal=principal_of(proven), user=proven.user, capability=proven))


def principal_of(capability: Capability) -> str:
    """Whom it authenticates by itself."""
    return f"user:{capability.user}" if capability.user is not None else f"client:{capability.client}"


def _text(data: bytes | None) -> str:
    return (data or b"").decode("ascii", errors="replace")
