"""A neighbour with a good certificate that lies about rules, certificates, nodes and capabilities: refused, bounded and
audited, over a real link. What each of these may say at all is tested in `tests/scope/`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from processes import on_uvloop, until
from sockets.holding import Holder, issuing
from sockets.test_malicious_neighbour import NODE, Attacked, Forger, attacked, keys
from tidegate import wire
from tidegate.policy.certificate_packets import CertificateReply, CertificateRequest, Vouched, encode_withdrawal
from tidegate.policy.known_nodes import NodeState
from tidegate.policy.publisher_rules import Book, Rule
from tidegate.policy.selector import Selector
from tidegate.policy.travelling_rules import TravellingRules
from tidegate.policy.trust_list import fingerprint
from tidegate.scope import certificate_requests, neighbourhood, spreading_rules
from tidegate.scope.certificate_requests import REPLY, REQUEST, WITHDRAWAL
from tidegate.scope.neighbourhood import STATE
from tidegate.scope.spreading_rules import RULES

__all__ = ["keys"]  # a fixture

CERTIFICATE = b"somebody's"


async def tell(forger: Forger, topic: str, data: bytes) -> None:
    await forger.client.send(wire.Publish(topic=topic, payload=data, qos=0))


async def refused(node: Attacked, count: int, text: str) -> None:
    """The audit has so many refusals with this text. It may count several in one row."""
    found: list[str] = []
    for _ in range(1000):
        found = [each for each in await node.denied("link") if text in each]
        if len(found) >= count:
            return
    raise AssertionError((count, text, found))


def rules(domain: str, user: str = "alice", sequence: int = 99, *ids: str) -> bytes:
    made = {id: Rule(id=id, topic="#", subject=Selector.parse("*")) for id in ids}
    return TravellingRules(domain=domain, user=user, identity="", book=Book(sequence=sequence, rules=made)).encode(0.0)


@on_uvloop
async def test_rules_of_people_it_does_not_speak_for(keys: Path, tmp_path: Path) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        for domain in ("b", "c", "nowhere"):
            await tell(forger, RULES, rules(domain, "alice", 99, "r"))
        await refused(node, 3, "does not speak for that domain")
        assert len(node.served.node.realm.publishers) == 0


@on_uvloop
async def test_a_flood_of_rules(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading_rules, "SHARE", 20)
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        for number in range(100):
            await tell(forger, RULES, rules("a", f"u{number}", 1, "r"))
        await refused(node, 1, "may come over one link")
        assert len(node.served.node.realm.publishers) == 20
        await tell(forger, RULES, b"garbage")
        assert await forger.ended() == wire.Reason.PROTOCOL_ERROR


@on_uvloop
async def test_certificate_requests_without_end_and_in_circles(keys: Path, tmp_path: Path) -> None:
    async with attacked(keys, tmp_path) as node:
        forger, other = await node.forger(), await node.forger("c", "other->remotegym", "cd" * 8)
        here = node.served.node.site.origin.node
        for stack in ((here, forger.node), (forger.node, here), ("ef" * 8,)):
            await tell(forger, REQUEST, CertificateRequest(id=b"i" * 16, certificate=b"c", stack=stack).encode())
        await refused(node, 1, "its way here is not the one that it names")
        for number in range(int(certificate_requests.BURST) + 50):
            said = CertificateRequest(id=number.to_bytes(16, "big"), certificate=b"c", stack=(forger.node,))
            await tell(forger, REQUEST, said.encode())
        await refused(node, 1, "too many at a time")
        passed: list[Any] = []
        other.client.writer.write(wire.encode(wire.Pingreq(), wire.V5))
        while not isinstance(packet := await other.client.receive(), wire.Pingresp):
            if isinstance(packet, wire.Publish) and packet.topic == REQUEST:
                passed.append(CertificateRequest.decode(packet.payload))
        assert 0 < len(passed) <= certificate_requests.BURST
        assert {each.stack for each in passed} == {(forger.node, here)}


@on_uvloop
async def test_vouching_unasked_for_our_own_names_and_taking_back_what_it_never_gave(
    keys: Path, tmp_path: Path
) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        certificates = node.served.node.realm.node_links.certificates
        certificates.lifetime = 60.0
        said = CertificateReply(
            id=b"i" * 16,
            vouched=Vouched(domain="a", name="x", seconds=60.0),
            stack=(node.served.node.site.origin.node,),
        )
        await tell(forger, REPLY, said.encode())
        await refused(node, 1, "nobody has asked")
        await tell(forger, WITHDRAWAL, encode_withdrawal(fingerprint(CERTIFICATE)))
        await refused(node, 1, "which it has not given")
        # asked now, it says that somebody is Alice of this very domain; then the truth, twice
        node.served.node.site.open()
        certificates.ask(CERTIFICATE, lambda: None)
        node.served.node.site.close()
        while (packet := await forger.answer(wire.Publish)).topic != REQUEST:
            pass
        request = CertificateRequest.decode(packet.payload)
        for domain in ("b", "a", "a"):
            reply = CertificateReply(
                id=request.id, vouched=Vouched(domain=domain, name="alice", seconds=60.0), stack=request.stack
            )
            await tell(forger, REPLY, reply.encode())
        await refused(node, 1, "nobody else vouches for the domain of this node")
        await refused(node, 1, "it has been said before")  # one answer from each neighbour: the first was a lie
        assert certificates.vouched(CERTIFICATE) is None


@on_uvloop
async def test_a_flood_of_nodes(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbourhood, "MOST", 20)
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        around = node.served.node.realm.node_links.neighbourhood
        for number in range(100):
            said = NodeState(node=f"{number:016x}", name="x", number=1, joined=(("x",),))
            await tell(forger, STATE, said.encode())
        await until(lambda: len(around._states) > 1)
        assert len(around._states) <= 20
        assert all("x@" not in member for group in around.groups for member in group)


@on_uvloop
async def test_a_capability_of_another_nodes_issuer_or_of_somebody_else(keys: Path, tmp_path: Path) -> None:
    text = f"{NODE}capabilities: {json.dumps(issuing(tmp_path))}\n"
    async with attacked(keys, tmp_path, text) as node:
        forger = await node.forger()
        publisher = {"kind": "client", "client": "x", "user": "mary", "domain": "a"}
        strange = Holder(issuer=Ed25519PrivateKey.generate(), jti="c1")
        others = Holder(subject="user:eve", jti="c2")
        narrow = Holder("write:other/#", jti="c3")
        proving = Holder(proof="per-message", jti="c4")
        for holder in (strange, others, narrow, proving):
            fields = {"publisher": publisher, "capability": holder.token.encode()}
            for qos, reason in ((0, 0), (1, wire.Reason.NOT_AUTHORIZED), (2, wire.Reason.NOT_AUTHORIZED)):
                assert await forger.forge(b"bad", qos=qos, **fields) == reason
        assert "no key of its issuer has signed it" in str(await node.denied("capability"))
        for rule, why in (
            ("capability:c2", "it is for another user"),
            ("capability:c3", "does not let its holder write that topic"),
            ("capability:c4", "no proof"),
        ):
            assert why in str(await node.denied(rule))
