"""How a client presents a capability in CONNECT or over HTTP, and what a node remembers of capabilities.

A client presents its capability by enhanced authentication of MQTT 5 (`Challenge`), in a user property, or as the
password, which is the way of MQTT 3.1.1. In clear, that is without a challenge, it counts over TLS only, unless a proof
in CONNECT shows that the client has its key. A request for a topic key over HTTP presents it in a header, and the proof
in another one.

The register holds what outlives a change of the configuration and a restart: ids that were revoked by command, and the
highest counter of the proofs that were used of each capability. A counter is kept as long as its capability could come
again, and some time longer, should the clock be put back.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final
from weakref import WeakValueDictionary

from tidegate.policy.capability import PROPERTY, Accepts, Capability, Ledger, Unacceptable, looks_like_one, verify
from tidegate.policy.capability.proof import CHALLENGE, CONNECT, KEY, Asked, objection, response, shown_by, verified
from tidegate.policy.capability.proof_replay import Shown
from tidegate.scope import Accepted, Continue, Identity, Refused
from tidegate.session import Connection, Site
from tidegate.wire import V5, Connect

RULE: Final = "capability"
REVOKED: Final = "revoked capabilities"
PROOFS: Final = "proofs"
LONGER: Final = 30 * 86400.0  # seconds after its end that the counter of a capability is kept

NEEDED: Final = Refused(text="every client needs a capability here", rule=RULE)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A capability that CONNECT shows in clear."""

    text: str
    password: bool = False


def token_in(packet: Connect, accepts: Accepts | None) -> Token | Refused | None:
    """What CONNECT shows in clear: in a user property, or as the password."""
    texts = [value for name, value in packet.properties.user_properties if name == PROPERTY]
    if accepts is None:
        return refusal("this node takes none") if texts else None
    tokens = [Token(text=text) for text in texts]
    if looks_like_one(packet.password or b""):
        tokens.append(Token(text=(packet.password or b"").decode("ascii"), password=True))
    if len(tokens) > 1:
        return refusal("there are several")
    return tokens[0] if tokens else None


def capability_of(
    connection: Connection,
    packet: Connect,
    token: str,
    accepts: Accepts | None,
    register: Register,
    certificate_name: str | None,
) -> Capability | Refused:
    """The capability that is shown in clear: it counts over TLS, or if CONNECT proves that the key is there, too."""
    if accepts is None:  # a reload came in between
        return refusal("this node takes none")
    found = verified_token(token, accepts, register, connection.site)
    if isinstance(found, Refused):
        return found
    shown = shown_by(packet.properties.user_properties)
    why = _mismatch(packet, found, certificate_name)
    if not why and shown.texts:
        why = objection(found, shown, CONNECT, packet.client_id, asked=Asked(properties=shown.asked))
        found = replace(found, proven=True)
    elif not why and connection.certificate is None:
        why = "without a proof it is shown over TLS only"
    why = why or accepts.objection(found, proofs=packet.version == V5)
    return refusal(why, found.id) if why else found


def _mismatch(packet: Connect, capability: Capability, certificate_name: str | None) -> str:
    """Why it is not for whoever shows it; nothing if it is."""
    client, user, named = capability.client, capability.user, packet.username
    if client is not None and client != packet.client_id:
        return "it is for another client"
    if named and user is not None and named != user:
        return "it is for another user"
    if named and user is None and named != client and looks_like_one(packet.password or b""):
        return "it is for a client, and the user name is another"
    if certificate_name is not None and user is not None and certificate_name not in (user, client):
        return "it is for another user than the certificate"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request for a topic key or with data, as far as capabilities are concerned. `mark` is that of the request."""

    user: str
    mark: str
    encrypted: bool
    capability: str | None = None
    proof: str | None = None


def capability_of_request(
    request: HttpRequest, accepts: Accepts | None, register: Register, site: Site
) -> Capability | Refused | None:
    """What is shown over HTTP, judged as in CONNECT; None: nothing is, and nothing has to be."""
    if request.capability is None:
        return NEEDED if accepts is not None and accepts.required else None
    if accepts is None:
        return refusal("this node takes none")
    found = verified_token(request.capability, accepts, register, site)
    if isinstance(found, Refused):
        return found
    why = "" if found.user == request.user else "it is for another user"
    if not why and request.proof is not None:
        why = objection(found, Shown((request.proof,)), KEY, request.mark)
        found = replace(found, proven=True)
    elif not why and not request.encrypted:
        why = "without a proof it is shown over TLS only"
    elif not why and found.client is not None:
        why = "it is for one client of this user, which has to prove that it has the key"
    why = why or accepts.objection(found, proofs=True)
    return refusal(why, found.id) if why else found


def verified_token(token: str, accepts: Accepts, register: Register, site: Site) -> Capability | Refused:
    """The capability that somebody shows, or why it does not count.

    Whether the connection has to be proven is asked when it has been.
    """
    found = verify(token, accepts.issuers, wall=site.wall, steady=site.steady)
    if isinstance(found, Unacceptable):
        if found.unknown_signer:
            register.on_unknown_signer()
        return refusal(found.why, found.id)
    if found.id in register.revoked:
        return refusal("it has been revoked", found.id)
    return register.entered(replace(found, token=token) if accepts.travel else found, site.wall)


def travelled(
    token: str, known: Capability | None, accepts: Accepts | None, register: Register, site: Site
) -> Capability | str:
    """A capability that came with a message of another node; why it does not count here. `known`: it has been seen
    before."""
    if accepts is None:
        return "this node takes none"
    if known is None:
        found = verified_token(token, accepts, register, site)
        if isinstance(found, Refused):
            return found.text
        known = replace(found, proven=True, token=token)
    if known.left(site.wall, site.steady) <= 0:
        return "it has expired"
    if known.id in register.revoked:
        return "it has been revoked"
    return accepts.objection(known, proofs=True) or known


def refusal(why: str, id: str = "") -> Refused:
    """The refusal of a connection because of its capability. Ids that nobody has vouched for are not told."""
    return Refused(text=f"the capability is not accepted: {why}", rule=f"{RULE}:{id}" if id else RULE)


@dataclass(slots=True, eq=False)
class Challenge:
    """One run of the method: the token, a challenge for this connection, its signature by the confirmation key."""

    accepts: Accepts
    register: Register
    connection: Connection
    packet: Connect
    certificate_name: Callable[[], str | None]
    _capability: Capability | None = None
    _nonce: bytes = field(default_factory=lambda: secrets.token_bytes(CHALLENGE))

    def step(self, data: bytes | None) -> Continue | Accepted | Refused:
        capability = self._capability
        if capability is None:
            token = (data or b"").decode("ascii", errors="replace")
            found = verified_token(token, self.accepts, self.register, self.connection.site)
            if isinstance(found, Refused):
                return found
            if why := _mismatch(self.packet, found, self.certificate_name()):
                return refusal(why, found.id)
            self._capability = found
            return Continue(data=self._nonce)
        signed = response(capability.id, capability.subject, self.packet.client_id, self._nonce)
        if not verified(capability.key, data or b"", signed):
            return refusal("the challenge was not signed by its key", capability.id)
        proven = replace(capability, proven=True)
        if why := self.accepts.objection(proven, proofs=self.connection.version == V5):
            return refusal(why, capability.id)
        return Accepted(identity=Identity(principal=principal_of(proven), user=proven.user, capability=proven))


def principal_of(capability: Capability) -> str:
    """Whom it authenticates by itself."""
    return f"user:{capability.user}" if capability.user is not None else f"client:{capability.client}"
