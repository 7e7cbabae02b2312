"""What the holder of a capability signs with its confirmation key, and whether it did.

A proof is `COUNTER.SIGNATURE`: a decimal number, and base64url without padding. The signature (Ed25519, or ECDSA on
P-256 with SHA-256 as r and s of 32 bytes each) is over

    "tidegate-proof-1" · id · subject · action · topic · SHA-256 of the payload · counter

of which each but the first is preceded by its length in four bytes; id and subject are the token's `jti` and `sub`, the
counter has eight bytes. Numbers begin with the highest byte. By what is proven:

    action      topic                                                        payload
    write       of the message, also if an alias stands for it; of a will    its own
    read        the filters of a SUBSCRIBE in their order, NUL between them  none
    connect     the client identifier of CONNECT                             none

Enhanced authentication signs "tidegate-connect-1" · id · subject · client identifier · challenge instead.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Final

from tidegate.lazy import LazyModule
from tidegate.policy.capability.capability import Capability, PublicKey
from tidegate.policy.capability.keys import PrivateKey, decoded, encoded
from tidegate.policy.capability.ledger import Shown

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.asymmetric import utils as dss
else:
    exceptions = LazyModule("cryptography.exceptions")
    ec = LazyModule("cryptography.hazmat.primitives.asymmetric.ec")
    ed25519 = LazyModule("cryptography.hazmat.primitives.asymmetric.ed25519")
    dss = LazyModule("cryptography.hazmat.primitives.asymmetric.utils")
    hashes = LazyModule("cryptography.hazmat.primitives.hashes")

PROOF: Final = "proof"
"""The user property that carries one."""
WRITE: Final = "write"
READ: Final = "read"
CONNECT: Final = "connect"
HIGHEST: Final = 2**63 - 1
CHALLENGE: Final = 32  # bytes
_MESSAGE: Final = b"tidegate-proof-1"
_CONNECTION: Final = b"tidegate-connect-1"
_TEXT: Final = re.compile(r"([1-9][0-9]{0,18})\.([A-Za-z0-9_-]{86})")


def shown_by(pairs: Iterable[tuple[str, str]], *, repeated: bool = False) -> Shown:
    """The proof among user properties."""
    return Shown(tuple(value for name, value in pairs if name == PROOF), repeated)


def objection(capability: Capability, shown: Shown, action: str, topic: str, payload: bytes = b"") -> str:
    """Why this is not proven; nothing if it is, and then the proof has been used.

    A message may come late, over the next connection. A CONNECT may not: whoever kept one from the node could else
    take the session over with it. Nor may a SUBSCRIBE, which nobody sends again.
    """
    ledger = capability.ledger
    ledger.used = None
    if shown.before:
        return ""
    if len(shown.texts) != 1:
        return "several proofs" if shown.texts else "no proof"
    found = _TEXT.fullmatch(shown.texts[0])
    signature = decoded(found[2]) if found else None
    if found is None or signature is None or (counter := int(found[1])) > HIGHEST:
        return "the proof is not COUNTER.SIGNATURE"
    stated = statement(capability.id, capability.subject, action, topic, payload, counter)
    ledger.verified += 1
    if not verified(capability.key, signature, stated):
        return "the proof is not of this, or not by the key of the capability"
    digest = hashlib.sha256(stated).digest()[:16]
    ledger.used = ledger.take(counter, digest, repeated=shown.repeated, late=action == WRITE)
    return "" if ledger.used is not None else "the proof was used before, or is too old"


def statement(id: str, subject: str, action: str, topic: str, payload: bytes, counter: int) -> bytes:
    """What a proof signs."""
    digest = hashlib.sha256(payload).digest()
    return _joined(
        _MESSAGE, id.encode(), subject.encode(), action.encode(), topic.encode(), digest, counter.to_bytes(8, "big")
    )


def response(id: str, subject: str, client: str, challenge: bytes) -> bytes:
    """What enhanced authentication signs."""
    return _joined(_CONNECTION, id.encode(), subject.encode(), client.encode(), challenge)


def filters_of(filters: Iterable[str]) -> str:
    """What stands for the topic in the proof of a SUBSCRIBE."""
    return "\0".join(filters)


def proof(key: PrivateKey, id: str, subject: str, action: str, topic: str, payload: bytes, counter: int) -> str:
    """The text of a proof."""
    return f"{counter}.{encoded(signature(key, statement(id, subject, action, topic, payload, counter)))}"


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
