"""Holders of capabilities in tests of the door: an issuer, its tokens, and clients that show and prove them."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from harness import Client
from processes import Served
from sockets.acts import Section, setting
from tidegate import wire
from tidegate.policy.capability import PrivateKey, sign
from tidegate.policy.capability.jwk import decoded, encoded, jwk_of
from tidegate.policy.capability.proof import (
    CONNECT,
    NOTHING_ASKED,
    READ,
    WRITE,
    Asked,
    filters_of,
    proof,
    response,
    signature,
)

METHOD = "tidegate-capability"
ISSUER = Ed25519PrivateKey.generate()
DEVICE = Ed25519PrivateKey.generate()
OTHER = ec.generate_private_key(ec.SECP256R1())
EVERYTHING = ("read,write:#",)
_ids = count(1)
_counters = count(1)


def issuing(folder: Path, *, key: PrivateKey = ISSUER, **more: Any) -> Section:
    """The section of the configuration, with the issuer's key beside it."""
    file = folder / "issuer.pub"
    file.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    issuer = {"name": "ward", "keys": str(file), **({"grants": more.pop("grants")} if "grants" in more else {})}
    return {"issuers": [issuer], **more}


def gated(folder: Path, *policies: Section, certificates: Path | None = None, data: bool = False, **more: Any) -> str:
    """The configuration of a node that takes capabilities; `more` is about these, or other sections by their names."""
    names = ("proof", "required", "revoked", "key", "grants")
    said = {name: more.pop(name) for name in names if name in more}
    return setting(*policies, certificates=certificates, data=data, capabilities=issuing(folder, **said), **more)


class Holder:
    """A token and the key that goes with it."""

    def __init__(
        self,
        *rights: str,
        subject: str = "user:mary",
        key: PrivateKey = DEVICE,
        issuer: PrivateKey = ISSUER,
        lasts: float = 3600.0,
        now: float | None = None,
        **changed: Any,
    ) -> None:
        self.key = key
        self.subject = subject
        self.id = changed.pop("jti", f"cap-{next(_ids)}")
        made = {
            "iss": "ward",
            "sub": subject,
            "jti": self.id,
            "exp": (time.time() if now is None else now) + lasts,
            "cnf": {"jwk": jwk_of(key.public_key())},
            "rights": [
                {"action": action.split(","), "topic": topic}
                for action, _, topic in (right.partition(":") for right in rights or EVERYTHING)
            ],
            **changed,
        }
        self.token = sign({name: value for name, value in made.items() if value is not None}, issuer)

    @property
    def rule(self) -> str:
        return f"capability:{self.id}"

    # -- proofs

    def proof(
        self,
        action: str,
        topic: str,
        payload: bytes = b"",
        counter: int | None = None,
        asked: Asked = NOTHING_ASKED,
    ) -> tuple[str, str]:
        """A user property."""
        number = next(_counters) if counter is None else counter
        return "proof", proof(self.key, self.id, self.subject, action, topic, payload, number, asked)

    def write(
        self, topic: str, payload: bytes = b"x", counter: int | None = None, *, qos: int = 1, **asked: Any
    ) -> tuple[str, str]:
        """Of a PUBLISH or a will: by default of QoS 1, and nothing else is asked."""
        return self.proof(WRITE, topic, payload, counter, Asked(qos=(qos,), **{"retain": False, **asked}))

    def read(self, *filters: str, counter: int | None = None, qos: int = 0, **asked: Any) -> wire.Properties:
        """Properties of a SUBSCRIBE."""
        terms = Asked(qos=(qos,) * len(filters), **asked)
        pair = self.proof(READ, filters_of(filters), counter=counter, asked=terms)
        return wire.Properties(user_properties=(*terms.properties, pair))

    def shows(self, client: str | None = None, counter: int | None = None) -> list[tuple[str, str]]:
        """User properties of a CONNECT; with a client identifier, also the proof that the key is there."""
        proofs = [] if client is None else [self.proof(CONNECT, client, counter=counter)]
        return [("capability", self.token), *proofs]

    # -- connections

    async def begins(
        self,
        node: Served,
        client: str = "mary",
        *,
        tls: ssl.SSLContext | None = None,
        stays: bool = False,
        asks: Iterable[tuple[str, str]] = (),
        token: str | None = None,
        **fields: Any,
    ) -> Client:
        """CONNECT of an enhanced authentication; nothing of the answer has been read."""
        end = await node.dial(node.ports["TLS_PORT" if tls is not None else "PORT"], tls)
        properties = wire.Properties(
            authentication_method=METHOD,
            authentication_data=(token or self.token).encode(),
            user_properties=tuple(asks),
            session_expiry_interval=1000 if stays else None,
        )
        fields.setdefault("clean_start", not stays)
        packet = wire.Connect(version=wire.V5, client_id=client, keep_alive=0, properties=properties, **fields)
        await end.send(packet)
        return end

    def responds(self, challenge: bytes, client: str = "mary", key: PrivateKey | None = None) -> bytes:
        return signature(key or self.key, response(self.id, self.subject, client, challenge))

    async def come(self, node: Served, client: str = "mary", *, expect: int = 0, **more: Any) -> Client:
        """Connected by enhanced authentication."""
        end = await self.begins(node, client, **more)
        packet = await end.receive()
        if isinstance(packet, wire.Auth):
            await answer(end, self.responds(packet.properties.authentication_data or b"", client))
            packet = await end.receive()
        assert isinstance(packet, wire.Connack), packet
        end.connack = packet
        assert packet.reason == expect, packet
        return end

    async def again(self, end: Client, client: str = "mary") -> wire.Packet:
        """Authenticates an open connection with this capability; the node's last answer."""
        await answer(end, self.token.encode(), wire.Reason.RE_AUTHENTICATE)
        packet = await end.receive()
        if isinstance(packet, wire.Auth):
            await answer(end, self.responds(packet.properties.authentication_data or b"", client))
            packet = await end.receive()
        return packet


async def answer(end: Client, data: bytes, reason: int = wire.Reason.CONTINUE_AUTHENTICATION) -> None:
    properties = wire.Properties(authentication_method=METHOD, authentication_data=data)
    await end.send(wire.Auth(reason=reason, properties=properties))


def widened(token: str, **changed: Any) -> str:
    """The same token with other claims, and the signature that was there."""
    header, body, signed = token.split(".")
    claims = {**json.loads(decoded(body) or b""), **changed}
    return f"{header}.{encoded(json.dumps(claims).encode())}.{signed}"


async def denials(node: Served) -> list[tuple[str | None, ...]]:
    """Stage, action, rule and detail of every denial in the audit, in their order."""
    rows = []
    async for piece in node.node.audit.stream(kinds=["deny"]):
        rows += piece
    return [(row[8], row[6], row[9], row[12]) for row in rows]


async def denied(node: Served, rule: str, stage: str, detail: str = "") -> bool:
    """Whether the audit has a denial by this rule in this stage, with this in its detail."""
    return any(found[0] == stage and found[2] == rule and detail in (found[3] or "") for found in await denials(node))
