"""What nodes say to each other about a certificate that one of them does not know (SEC-REDS, 2.4).

A *request* holds the certificate and a stack of the nodes that it has been to; each that passes it on pushes its own
id. A *reply* holds who it is made out to, the domain that vouches for it and the stack; each node on the way back pops
one. A *withdrawal* names the certificate.

CBOR, canonical:

    request      [1, id, certificate, [node, …]]
    reply        [1, id, domain, name, seconds, owner or null, [node, …]]
    withdrawal   [1, fingerprint]

`owner` is the id of that user at home and the number of the preferences that count, as messages carry them; null: it is
no user there.

Bytes from outside raise MalformedPacket. It does not know whom a node may believe.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tidegate.errors import MalformedPacket
from tidegate.wire import cbor

VERSION: Final = 1
ID: Final = 16  # bytes
MOST_NODES: Final = 16
"""In a stack: further away nobody is asked."""
LARGEST: Final = 16 * 1024  # bytes of a certificate
MAX_NAME: Final = 1024
LONGEST: Final = 7 * 86400.0  # seconds
UNNUMBERED: Final = 2**53 - 1
"""The highest number of preferences (`preference_sets`)."""
_NODE: Final = re.compile("[0-9a-f]{16}")
_FINGERPRINT: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRequest:
    """Does anybody know this certificate?"""

    id: bytes
    certificate: bytes  # DER
    stack: tuple[str, ...]

    def encode(self) -> bytes:
        return cbor.canonical([VERSION, self.id, self.certificate, list(self.stack)])

    @classmethod
    def decode(cls, data: bytes) -> CertificateRequest:
        match cbor.plain(data):
            case [int(version), bytes(id), bytes(certificate), list(stack)] if version == VERSION:
                if len(id) == ID and 0 < len(certificate) <= LARGEST:
                    return cls(id=id, certificate=certificate, stack=_stack(stack))
        raise MalformedPacket("it is no request for a certificate, or of another version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vouched:
    """Who a certificate is made out to, in the words of a node that knows it."""

    domain: str
    name: str
    seconds: float
    """How long that counts."""
    owner: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateReply:
    """Somebody does."""

    id: bytes
    vouched: Vouched
    stack: tuple[str, ...]
    """Whom it has to go to still, the last one first to be popped."""

    def encode(self) -> bytes:
        said = self.vouched
        owner = None if said.owner is None else list(said.owner)
        return cbor.canonical([VERSION, self.id, said.domain, said.name, said.seconds, owner, list(self.stack)])

    @classmethod
    def decode(cls, data: bytes) -> CertificateReply:
        match cbor.plain(data):
            case [
                int(version),
                bytes(id),
                str(domain),
                str(name),
                int() | float() as seconds,
                list() | None as owner,
                list(stack),
            ] if version == VERSION and len(id) == ID and 0 <= seconds <= LONGEST:
                if not (domain and name) or max(len(domain), len(name)) > MAX_NAME:
                    raise MalformedPacket("a certificate that is vouched for without a name, or with one too long")
                said = Vouched(domain=domain, name=name, seconds=float(seconds), owner=_owner(owner))
                return cls(id=id, vouched=said, stack=_stack(stack))
        raise MalformedPacket("it is no reply about a certificate, or of another version")


def encode_withdrawal(fingerprint: str) -> bytes:
    return cbor.canonical([VERSION, fingerprint])


def decode_withdrawal(data: bytes) -> str:
    """The fingerprint of the certificate that is not vouched for any more."""
    match cbor.plain(data):
        case [int(version), str(fingerprint)] if version == VERSION and _FINGERPRINT.fullmatch(fingerprint):
            return fingerprint
    raise MalformedPacket("it is no withdrawal of a certificate, or of another version")


def _owner(said: list[object] | None) -> tuple[str, int] | None:
    match said:
        case None:
            return None
        case [str(id), int(number)] if id and len(id) <= MAX_NAME and 0 <= number <= UNNUMBERED:
            return id, number
        case _:
            raise MalformedPacket("the owner in a reply about a certificate is none")


def _stack(said: list[object]) -> tuple[str, ...]:
    nodes = tuple(each for each in said if isinstance(each, str) and _NODE.fullmatch(each))
    if len(nodes) != len(said) or not 0 < len(nodes) <= MOST_NODES or len(set(nodes)) != len(nodes):
        raise MalformedPacket(f"a stack of up to {MOST_NODES} nodes, each of them once, is missing")
    return nodes
