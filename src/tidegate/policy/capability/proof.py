"""What the holder of a capability signs with its confirmation key, and whether it did.

A proof is `COUNTER.SIGNATURE`: a decimal number, and base64url without padding. The signature (Ed25519, or ECDSA on
P-256 with SHA-256 as r and s of 32 bytes each) is over

    "tidegate-proof-2" · id · subject · action · topic · SHA-256 of the payload · QoS · retain · expiry · view · require
        · counter

of which each but the first is preceded by its length in four bytes; id and subject are the token's `jti` and `sub`, the
counter has eight bytes. Numbers begin with the highest byte. By what is proven:

    action      topic                                                        payload  QoS            retain
    write       of the message, also if an alias stands for it; of a will    its own  one byte       one byte, 0 or 1
    read        the filters of a SUBSCRIBE in their order, NUL between them  none     one byte each  none
    connect     the client identifier of CONNECT                             none     none           none
    key         the mark of a request for a key over HTTP                    none     none           none

Expiry is the message expiry interval in four bytes, or nothing. View is every user property `view` of the packet as
`view=VALUE`, require every `require` and `s` as `require=VALUE` and `s=VALUE`, in their order, NUL between them.

Enhanced authentication signs "tidegate-connect-1" · id · subject · client identifier · challenge instead.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from tidegate.lazy import dss, ec, ed25519, exceptions, hashes
from tidegate.policy.capability.capability import Capability, PublicKey
from tidegate.policy.capability.jwk import PrivateKey, decoded, encoded
from tidegate.policy.capability.proof_replay import Pairs, Shown
from tidegate.policy.demands import REQUIRE, SHORT

PROOF: Final = "proof"
"""The user property that carries one."""
_VIEW: Final = ("view",)
_DEMAND: Final = (REQUIRE, SHORT)
_COVERED: Final = frozenset((*_VIEW, *_DEMAND))
WRITE: Final = "write"
READ: Final = "read"
CONNECT: Final = "connect"
KEY: Final = "key"
HIGHEST: Final = 2**63 - 1
CHALLENGE: Final = 32  # bytes
_MESSAGE: Final = b"tidegate-proof-2"
_CONNECTION: Final = b"tidegate-connect-1"
_TEXT: Final = re.compile(r"([1-9][0-9]{0,18})\.([A-Za-z0-9_-]{86})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a packet asks for besides its topic and payload, as far as a proof covers it."""

    qos: tuple[int, ...] = ()
    """Of the message, or of each filter."""
    retain: bool | None = None
    expiry: int | None = None
    properties: Pairs = ()
    """User properties; those that are no demand and no table of visibility do not count."""

    def parts(self) -> tuple[bytes, ...]:
        return (
            bytes(self.qos),
            b"" if self.retain is None else bytes((self.retain,)),
            b"" if self.expiry is None else self.expiry.to_bytes(4, "big"),
            *(_pairs(self.properties, names) for names in (_VIEW, _DEMAND)),
        )


NOTHING_ASKED: Final = Asked()


def _pairs(pairs: Pairs, names: tuple[str, ...]) -> bytes:
    return "\0".join(f"{name}={value}" for name, value in pairs if name in names).encode()


def shown_by(pairs: Iterable[tuple[str, str]], *, repeated: bool = False, expiry: int | None = None) -> Shown:
    """The proof among user properties, and those that it covers."""
    pairs = tuple(pairs)
    asked = tuple(pair for pair in pairs if pair[0] in _COVERED)
    return Shown(tuple(value for name, value in pairs if name == PROOF), repeated, asked=asked, expiry=expiry)


def objection(
    capability: Capability,
    shown: Shown,
    action: str,
    topic: str,
    payload: bytes = b"",
    asked: Asked = NOTHING_ASKED,
    *,
    message: bytes = b"",
) -> str:
    """Why this is not proven; nothing if it is, and then the proof has been used.

    `message`: the id of a message that comes from another node: a repetition is one of the same message.

    A message may come late, over the next connection, and so may a request for a key, which comes beside one. A CONNECT
    may not: whoever kept one from the node could else take the session over with it. Nor may a SUBSCRIBE, which nobody
    sends again.
    """
    ledger = capability.ledger
    ledger.used = None
    if shown.before:
        return ""
    if len(shown.texts) != 1:
        return "several proofs" if shown.texts else "no proof"
    match = _TEXT.fullmatch(shown.texts[0])
    signature = decoded(match[2]) if match else None
    if match is None or signature is None or (counter := int(match[1])) > HIGHEST:
        return "the proof is not COUNTER.SIGNATURE"
    stated = statement(capability.id, capability.subject, action, topic, payload, counter, asked)
    ledger.verified += 1
    if not verified(capability.key, signature, stated):
        return "the proof is not of this, or not by the key of the capability"
    digest = hashlib.sha256(stated + message).digest()[:16]
    ledger.used = ledger.take(counter, digest, repeated=shown.repeated, late=action in (WRITE, KEY))
    return "" if ledger.used is not None else "the proof was used before, or is too old"


def statement(
    id: str, subject: str, action: str, topic: str, payload: bytes, counter: int, asked: Asked = NOTHING_ASKED
) -> bytes:
    """What a proof signs."""
    digest = hashlib.sha256(payload).digest()
    words = (word.encode() for word in (id, subject, action, topic))
    return _joined(_MESSAGE, *words, digest, *asked.parts(), counter.to_bytes(8, "big"))


def response(id: str, subject: str, client: str, challenge: bytes) -> bytes:
    """What enhanced authentication signs."""
    return _joined(_CONNECTION, id.encode(), subject.encode(), client.encode(), challenge)


def filters_of(filters: Iterable[str]) -> str:
    """What stands for the topic in the proof of a SUBSCRIBE."""
    return "\0".join(filters)


def proof(
    key: PrivateKey,
    id: str,
    subject: str,
    action: str,
    topic: str,
    payload: bytes,
    counter: int,
    asked: Asked = NOTHING_ASKED,
) -> str:
    return f"{counter}.{encoded(signature(key, statement(id, subject, action, topic, payload, counter, asked)))}"


@cache
def _ecdsa() -> ec.ECDSA:
    return ec.ECDSA(hashes.SHA256())


def signature(key: PrivateKey, data: bytes) -> bytes:
    """64 bytes, whichever the key."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(data)
    r, s = dss.decode_dss_signature(key.sign(data, _ecdsa()))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def verified(key: PublicKey | None, signature: bytes, data: bytes) -> bool:
    """Whether the holder of a key has signed this."""
    if key is None or len(signature) != 64:
        return False
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, data)
        else:
            r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            key.verify(dss.encode_dss_signature(r, s), data, _ecdsa())
    except exceptions.InvalidSignature:
        return False
    return True


def _joined(context: bytes, *parts: bytes) -> bytes:
    return context + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
