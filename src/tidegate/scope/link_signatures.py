"""Signatures of nodes on the messages that they have made (semantics, *Envelope* and *Trust*).

A link speaks for its neighbour's domain. What comes from further away needs a signature of a node that speaks for the
domain of its publisher, with the key of that node's certificate. It covers all that no node on the way may change, so
nobody on the way has to be believed.

- A certificate goes ahead of the first message that it is needed for, on each connection, and is passed on. It is kept
  only if an authority that links trust has issued it, and asked again whether it counts: it may expire or be revoked.
- A signed message counts once, with every QoS: somebody on the way could send it again.
- Who relays a message passes the signature on as it came, with what it is about (`Attested`). Whatever was changed does
  not have it any more: then this node signs, as the one that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import orjson

from tidegate.bounded import Bounded
from tidegate.gate.attributes import FLOOR
from tidegate.keys.signing import short_signed_by
from tidegate.session import Message, Site
from tidegate.session.carried_proof import HIDDEN
from tidegate.wire import NONE, Properties
from tidegate.wire.envelope import Envelope, MessageId, Static, encode_static, open, origin_half, signed_bytes
from tidegate.wire.properties import encode_properties

if TYPE_CHECKING:
    from tidegate.scope.node_links import LinkEnd, NodeLinks

SIGNER: Final = "$tidegate/link/signer"
ROOM: Final = "signers"
"""In the store: certificates (DER) by their digest."""
MOST: Final = 1000  # certificates
LARGEST: Final = 16 * 1024  # bytes of one
ASKED: Final = 10.0  # seconds until it is asked again whether one counts
_NOT_SIGNED: Final = HIDDEN | {FLOOR}


@dataclass(frozen=True, slots=True)
class NodeSigner:
    """This node, as far as it signs."""

    sign: Callable[[bytes], bytes]
    """A signature of 64 bytes."""
    certificate: bytes

    @property
    def digest(self) -> bytes:
        return sha256(self.certificate).digest()


@dataclass(frozen=True, slots=True)
class Attested:
    """What a signature is about beside the static part, as the message came, and the digest of its payload."""

    signature: bytes
    published: float
    qos: int
    retain: bool
    payload: bytes

    @classmethod
    def of(cls, envelope: Envelope, payload: bytes) -> Attested:
        assert envelope.signature is not None
        return cls(envelope.signature, envelope.published, envelope.qos, envelope.retain, sha256(payload).digest())

    def encode(self) -> str:
        return orjson.dumps([self.signature.hex(), self.published, self.qos, self.retain, self.payload.hex()]).decode()

    @classmethod
    def decode(cls, text: str) -> Attested:
        """Of what this node has written itself."""
        signature, published, qos, retain, payload = orjson.loads(text)
        return cls(bytes.fromhex(signature), published, qos, retain, bytes.fromhex(payload))

    @property
    def about(self) -> tuple[bytes, float, int, bool]:
        return self.signature, self.published, self.qos, self.retain

    def holds(self, message: Message) -> bool:
        """Whether the message still has the content that was signed."""
        return sha256(message.payload).digest() == self.payload


class LinkSignatures:
    """Of all links of a node."""

    def __init__(self, site: Site, links: NodeLinks) -> None:
        self.site = site
        self.own: NodeSigner | None = None
        self.name: Callable[[bytes], str] = lambda certificate: ""
        """The name in a certificate; empty: it does not count here now."""
        self._links = links
        self.certificates: dict[bytes, bytes] = {}
        """Of nodes that sign, by their digests."""
        self._names: Bounded[bytes, tuple[float, str]] = Bounded(MOST)

    def changed(self, own: NodeSigner | None, name: Callable[[bytes], str]) -> None:
        """Other authorities, or another certificate of this node."""
        self.own, self.name = own, name
        self._names.clear()

    def restore(self, records: Iterable[bytes]) -> None:
        """The certificates that the store kept."""
        for certificate in records:
            self.certificates[sha256(certificate).digest()] = certificate

    # -- this node signs -------------------------------------------------------------------------------------------

    def signature(
        self, static: Static, message: Message, qos: int, proof: bytes | None, properties: Properties
    ) -> bytes:
        """Of this node, of a message that it has made, or whose origin has not signed it. `qos`: what it was published
        with."""
        assert self.own is not None
        self.site.effort += SIGNING
        envelope = Envelope(
            static=static,
            id=MessageId(origin=message.origin.key, number=message.number, output=message.output),
            published=message.published,
            expiry=None,
            qos=qos,
            retain=message.retain,
            proof=proof,
        )
        return self.own.sign(signed_bytes(envelope, message.payload, lasting(properties)))

    def tell(self, end: LinkEnd, digest: bytes) -> None:
        """Something that this signer has signed is about to leave."""
        own = self.own
        data = own.certificate if own is not None and own.digest == digest else self.certificates.get(digest)
        if data is not None:
            end.control.tell_signer(digest, data)

    # -- others have signed ----------------------------------------------------------------------------------------

    def take(self, end: LinkEnd, data: bytes) -> None:
        """The other node brings the certificate of one that signs."""
        self.site.effort += VERIFYING
        digest = sha256(data).digest()
        if not end.trusted or digest in self.certificates:
            return
        if len(data) > LARGEST or not self.name(data):
            end.refused("a certificate of a node that signs: nobody who is trusted has issued it, or it does not count")
            return
        if len(self.certificates) >= MOST:
            self._make_room()
        if len(self.certificates) >= MOST:
            end.refused(f"a certificate of a node that signs: {MOST} are known")
            return
        self.certificates[digest] = data
        self.site.store.keep(ROOM, digest.hex(), data)

    def _make_room(self) -> None:
        """Lets go of those that do not count any more."""
        for digest, certificate in tuple(self.certificates.items()):
            if not self.name(certificate):
                del self.certificates[digest]
                self.site.store.keep(ROOM, digest.hex(), None)

    def signed_by(self, envelope: Envelope, payload: bytes, properties: Properties) -> tuple[str, str]:
        """The name of the node that has signed a message; or why nobody that counts has."""
        static, signature = envelope.static, envelope.signature
        if static.signer is None or signature is None:
            return "", "not signed"
        certificate = self.certificates.get(static.signer)
        if certificate is None:
            return "", "signed by a node whose certificate is not known here"
        self.site.effort += VERIFYING
        if not short_signed_by(certificate, signed_bytes(envelope, payload, lasting(properties)), signature):
            return "", CHANGED
        until, name = self._names.get(static.signer) or (0.0, "")
        if self.site.now >= until:
            name = self.name(certificate)
            self._names[static.signer] = self.site.now + ASKED, name
        return name, "" if name else "signed by a node whose certificate does not count any more"


CHANGED: Final = "it is not what its origin has signed"
SIGNING: Final = 30  # what it costs: see `session.packet_costs`
VERIFYING: Final = 80


def lasting(properties: Properties) -> bytes:
    """The properties of a message that are the same at every node. Links rename response topics, and tell the floor."""
    if properties is NONE:
        return b""
    pairs = tuple(pair for pair in properties.user_properties if pair[0] not in _NOT_SIGNED)
    kept = Properties(
        payload_format_indicator=properties.payload_format_indicator,
        content_type=properties.content_type,
        correlation_data=properties.correlation_data,
        user_properties=pairs,
    )
    return b"" if kept == NONE else encode_properties(kept)


def unchanged(attested: bytes, here: Static, statics: Bounded[bytes, Static]) -> bool:
    """Whether a message is what its origin said of it: the origin's half would not be written otherwise here. What it
    says of the floor and the way of other messages that it comes from is of the time when it was made."""
    said = statics[attested]
    if len(said.others) != len(here.others):
        return False
    for there, again in zip(said.others, here.others, strict=True):
        first, second = (open(each, None, statics)[0] for each in (there, again))
        halves = origin_half(encode_static(first.static)), origin_half(encode_static(second.static))
        if halves[0] != halves[1] or first.published != second.published:
            return False
    again = encode_static(replace(here, signer=said.signer, signed=said.signed, others=said.others))
    return origin_half(again) == origin_half(attested)


def renamed(original: str, topic: str) -> bool:
    """Whether a topic is neither the original one nor that with something put in front of it or taken away there, as
    links do."""
    return not (topic.endswith(original) or original.endswith(topic))
