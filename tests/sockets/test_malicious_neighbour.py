"""A neighbour with a good certificate that lies: what it says is refused or lowered, and nobody else notices.

The forger speaks raw MQTT 5 over TLS with the certificate of node `a`, whose link the node under test has. After every
attack the node still serves its own clients, and a good message still crosses the link.
"""

from __future__ import annotations

import contextlib
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from harness import Client
from processes import Served, on_uvloop
from sockets.linked_pair import Pair, over_tls
from sockets.test_audit_publishers import rows
from sockets.test_links import greeting
from tidegate import wire
from tidegate.cli import certificates
from tidegate.keys.signing import Signer
from tidegate.policy.preference_sets import UNNUMBERED, PreferenceSet, sign
from tidegate.scope.link_control import PREFIX, RETAINED
from tidegate.scope.preference_changes import TOPIC as PREFERENCES
from tidegate.scope.vocabulary import KNOWN
from tidegate.wire import Properties, Reason, cbor
from tidegate.wire.envelope import Static, encode_static, seal

NODE = """
version: 1
node: {name: b, data: data}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: remotegym, anonymous: true}
  - {url: "mqtts://127.0.0.1:REMOTE", scope: remotegym, cert: ../b.pem, key: ../b.key, client_ca: ../ca.pem,
     client_cert: optional, anonymous: true}
scopes: {remotegym: {}}
trust: {otherwise: degrade, domains: {a: {nodes: [a]}, c: {nodes: [c]}}}
links:
  - {from: remotegym, to: gym, peer: CN=a}
  - {from: remotegym, to: other, peer: CN=c}
directory:
  users:
    alice: {password: "plain:alice", roles: [coach]}
    bob: {password: "plain:bob"}
policies:
  - {id: in, subject: "link:gym->remotegym", topic: "#", action: read}
  - {id: in2, subject: "link:other->remotegym", topic: "#", action: read}
  - {id: out, subject: ["link:remotegym->gym", "link:remotegym->other"], topic: "#", action: write}
  - {id: ours, subject: "*", topic: "ours/#", action: read, when: "p.role == 'coach' || p.user == 'alice'"}
  - {id: all, subject: "*", topic: "all/#", action: [read, write]}
  - {id: strong, subject: "*", topic: "strong/#", action: read, when: "p.floor >= 'trusted'"}
audit: {}
sys: {interval: 0s}
"""
INTO: Final = """  - {id: in, subject: "link:gym->remotegym", topic: "#", action: read}
"""
NEAR: Final = "ab" * 8
"""The id that the forger gives itself."""
SOMEBODY: Final = {"kind": "client", "client": "x", "domain": "a"}
GYM: Final = f"gym@{NEAR}"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    certificates.make_ca(folder, "Test CA", days=2)
    for name in ("a", "b", "c", "d"):
        certificates.issue(folder, name, ["127.0.0.1"], client=True, days=2)
    return folder


class Forger:
    """Has the link of node `a` to itself, and sends what it likes."""

    def __init__(self, both: Pair, client: Client, node: str) -> None:
        self.both = both
        self.client = client
        self.node = node
        self.number = time.time_ns()
        self.pid = 0
        self.ahead = 0.0  # seconds of its clock

    def envelope(
        self, payload: bytes = b"x", *, id: tuple[bytes, int] | None = None, qos: int = 1, **fields: Any
    ) -> bytes:
        said = {"publisher": SOMEBODY, "topic": "all/x", "floor": "trusted", "path": (f"gym@{self.node}",)}
        static = encode_static(Static(**{"origin": self.node, **said, **fields}))
        self.number += 1
        origin, number = id or (bytes.fromhex(self.node) + bytes(6), self.number)
        return seal(static, origin, number, 0, time.time() + self.ahead, None, qos, False, payload, None)

    async def send(self, data: bytes, topic: str = "all/x", *, qos: int = 1, **fields: Any) -> int:
        """The reason in what answers it; 0 for QoS 0."""
        self.pid = self.pid % 65535 + 1
        pid = self.pid if qos else 0
        await self.client.send(wire.Publish(topic=topic, payload=data, qos=qos, packet_id=pid, **fields))
        if qos == 1:
            return (await self.answer(wire.Puback)).reason
        if qos == 2:
            received = await self.answer(wire.Pubrec)
            if received.reason < 0x80:
                await self.client.send(wire.Pubrel(packet_id=pid))
                await self.answer(wire.Pubcomp)
            return received.reason
        return 0

    async def answer(self, kind: Any) -> Any:
        """The next packet of this kind; others come in between, as the link is symmetric."""
        while not isinstance(packet := await self.client.receive(), kind):
            pass
        return packet

    async def forge(self, payload: bytes = b"x", to: str = "all/x", qos: int = 1, **fields: Any) -> int:
        return await self.send(self.envelope(payload, qos=qos, **fields), to, qos=qos)

    async def ended(self) -> int:
        """The reason of DISCONNECT."""
        reason = int((await self.answer(wire.Disconnect)).reason)
        await self.client.closed()
        return reason


class Attacked:
    """The node under test, and one of its clients that listens to everything it may."""

    def __init__(self, both: Pair, watcher: Client) -> None:
        self.both = both
        self.served: Served = both.remote
        self.watcher = watcher

    async def forger(self, name: str = "a", link: str = "gym->remotegym", node: str = NEAR, **fields: Any) -> Forger:
        properties = greeting(link).user_properties[0]
        properties = (properties[0], properties[1].replace(NEAR, node))
        fields = {"properties": Properties(user_properties=(properties,), session_expiry_interval=2**32 - 1), **fields}
        client = await over_tls(self.both, name, **fields)
        assert client.connack.reason == 0, client.connack
        return Forger(self.both, client, node)

    async def gets(self, *payloads: bytes) -> list[wire.Publish]:
        """Exactly these, in this order."""
        got = [await self.watcher.message() for _ in payloads]
        assert [each.payload for each in got] == list(payloads)
        return got

    async def denied(self, rule: str, link: str = "scope:gym->scope:remotegym") -> list[str]:
        """What the audit has of a rule's denials of this link; waits until there is something."""
        for _ in range(1000):
            found = [
                each.detail or "" for each in await rows(self.served, "deny") if each.rule == rule and each.link == link
            ]
            if found:
                return found
        raise AssertionError(await rows(self.served, "deny"))

    async def unharmed(self) -> None:
        """Its own clients are served, and an honest message crosses."""
        other = await self.served.connect("unharmed")
        await other.publish("all/own", b"own", qos=1)
        await self.gets(b"own")
        honest = await self.forger()
        assert await honest.forge(b"honest") == 0
        await self.gets(b"honest")
        honest.client.abort()


@contextlib.asynccontextmanager
async def attacked(keys: Path, tmp_path: Path, text: str = NODE) -> AsyncIterator[Attacked]:
    both = Pair(tmp_path)
    for name in ("ca.pem", "b.pem", "b.key", "a.pem", "a.key", "c.pem", "c.key", "d.pem", "d.key"):
        (tmp_path / name).write_bytes((keys / name).read_bytes())
    async with both.node("remote", text, ""):
        watcher = await both.remote.connect("watcher")
        for filter in ("all/#", "ours/#", "strong/#"):
            await watcher.subscribe(filter, qos=2)
        node = Attacked(both, watcher)
        yield node
        await node.unharmed()


# -- envelopes -----------------------------------------------------------------------------------------------------


@on_uvloop
async def test_garbage_and_truncated_envelopes(keys: Path, tmp_path: Path) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        good = forger.envelope(b"")
        for data in (
            b"",
            b"TG",
            b"{}",
            good[:1],
            good[:7],
            good[:-1],
            b"TH" + good[2:],
            b"TG\xff" + good[3:],
            b"\0" * 99,
        ):
            for qos in (0, 1, 2):
                await forger.client.send(wire.Publish(topic="all/x", payload=data, qos=qos, packet_id=qos))
                assert await forger.ended() == Reason.PROTOCOL_ERROR, data
                forger = await node.forger()


@on_uvloop
async def test_a_raised_floor_is_lowered_to_that_of_the_link(keys: Path, tmp_path: Path) -> None:
    """The same bytes over a better connection, and then over a weaker one."""
    weaker = "levels: {order: [plain, tls, mtls, trusted]}\n"
    async with attacked(keys, tmp_path, NODE + weaker) as node:
        forger = await node.forger()
        said = forger.envelope(b"1", topic="strong/x")
        assert await forger.send(said, "strong/x") == 0
        await node.gets(b"1")
        assert await forger.forge(b"2", "strong/x", floor="heaven", topic="strong/x") in (
            0,
            Reason.NO_MATCHING_SUBSCRIBERS,
            Reason.NOT_AUTHORIZED,
        )
        assert await forger.forge(b"3", "strong/x", floor="plain", topic="strong/x") in (
            0,
            Reason.NO_MATCHING_SUBSCRIBERS,
            Reason.NOT_AUTHORIZED,
        )
        assert await forger.forge(b"4") == 0
        await node.gets(b"4")


@pytest.mark.parametrize("domain", ["b", "c", "nowhere", "", None, 7])
@on_uvloop
async def test_a_domain_it_does_not_speak_for(keys: Path, tmp_path: Path, domain: object) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        publisher = {"kind": "client", "client": "x", "user": "alice", "roles": ["coach"], "domain": domain}
        if domain is None:
            del publisher["domain"]
        for qos, reason in ((0, 0), (1, Reason.NOT_AUTHORIZED), (2, Reason.NOT_AUTHORIZED)):
            assert await forger.forge(b"bad", "ours/x", qos, publisher=publisher) == reason
        assert "nobody whom this link speaks for" in (await node.denied("envelope"))[0]


@on_uvloop
async def test_a_domain_it_does_not_speak_for_behind_one_that_it_does(keys: Path, tmp_path: Path) -> None:
    """A derived message names whom it comes from; each of them needs somebody who speaks for it."""
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        alice = {"kind": "client", "client": "x", "user": "alice", "domain": "b"}
        other = forger.envelope(b"", publisher=alice)
        assert await forger.forge(b"bad", others=(other,)) == Reason.NOT_AUTHORIZED
        assert "nobody whom this link speaks for" in (await node.denied("envelope"))[0]
        await forger.client.send(wire.Publish(topic="all/x", payload=forger.envelope(others=(b"garbage",)), qos=0))
        assert await forger.ended() == Reason.PROTOCOL_ERROR


@on_uvloop
async def test_an_id_of_this_node(keys: Path, tmp_path: Path) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        own = node.served.node.site.origin
        id = bytes.fromhex(own.node) + own.boot.to_bytes(6, "big"), 10**6
        assert await forger.forge(b"bad", id=id) == Reason.NOT_AUTHORIZED
        assert await forger.forge(b"bad", origin=own.node) == Reason.NOT_AUTHORIZED
        await node.denied("envelope")


@pytest.mark.parametrize("user", ["alice", "alice@b", "b", "alice@b@a"])
@on_uvloop
async def test_names_and_roles_of_this_domain(keys: Path, tmp_path: Path, user: str) -> None:
    """They are called otherwise here; with the owner's preferences unknown nobody receives it anyway."""
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        person = {**SOMEBODY, "user": user, "roles": ["coach", "coach@b"], "groups": ["coach"]}
        await forger.forge(b"bad", "ours/x", publisher=person)
        client = {**SOMEBODY, "roles": ["coach", "coach@b"], "kind": "service", "client": "alice"}
        await forger.forge(b"bad", "ours/x", publisher=client)
        await forger.forge(b"good")
        await node.gets(b"good")


@pytest.mark.parametrize(
    "attributes",
    [
        {"user": "alice", "role": "coach", "roles": ["coach"], "level": "trusted"},
        [1, 2],
        {"a": {"b": [{"c": 1}]}, "": 1},
    ],
)
@on_uvloop
async def test_attributes_that_are_names_or_no_attributes(keys: Path, tmp_path: Path, attributes: object) -> None:
    """Nobody becomes a coach of this domain by them, and nothing breaks."""
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        said = {**SOMEBODY, "attributes": attributes}
        await forger.forge(b"not for a coach", "ours/x", topic="ours/x", publisher=said)
        await forger.forge(b"passes", publisher=said)
        await node.gets(b"passes")
        forger.client.abort()


@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_a_message_from_the_future(keys: Path, tmp_path: Path, qos: int) -> None:
    """It counts as published when it comes, so that conditions on its age are not fooled, and that is audited."""
    fresh = '  - {id: fresh, subject: "*", topic: "fresh/#", action: read, when: "p.time <= e.now"}\n'
    text = NODE.replace("  - {id: strong", fresh + "  - {id: strong") + "limits: {clock_skew: 5s}\n"
    async with attacked(keys, tmp_path, text) as node:
        reader = await node.served.connect("reader")
        await reader.subscribe("fresh/#", qos=2)
        forger = await node.forger()
        for ahead, payload in ((0.0, b"now"), (1000.0, b"ahead"), (0.0, b"now again"), (1e6, b"far ahead")):
            forger.ahead = ahead
            await forger.forge(payload, "fresh/x", qos=qos, topic="fresh/x")
            assert (await reader.message()).payload == payload
        errors = [each for each in await rows(node.served, "error") if each.rule == "clock_skew"]
        assert sum(each.count for each in errors) == 2
        forger.client.abort()


@on_uvloop
async def test_a_floor_does_not_outlive_its_connection(keys: Path, tmp_path: Path) -> None:
    """What was decided over a trusted connection does not hold for the same bytes over a weaker one."""
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        end = node.served.node.realm.node_links.ends["remotegym->gym"]
        static = forger.envelope(b"1", topic="strong/x")
        assert await forger.send(static, "strong/x") == 0
        await node.gets(b"1")
        assert end.peer is not None
        end.peer = type(end.peer)(subject=end.peer.subject, name=end.peer.name, level="mtls", address="127.0.0.1")
        end.identify()
        await forger.forge(b"2", "strong/x", topic="strong/x")
        await forger.forge(b"3")
        await node.gets(b"3")


# -- ids, paths ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_replayed_messages(keys: Path, tmp_path: Path, qos: int) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        said = forger.envelope(b"1", qos=qos)
        assert await forger.send(said, qos=qos) == 0
        for _ in range(3):
            assert await forger.send(said, qos=qos) == (0x10 if qos == 1 else Reason.PACKET_IDENTIFIER_IN_USE)
        forger = await node.forger()
        assert await forger.send(said, qos=qos) != 0
        await node.gets(b"1")
        await forger.forge(b"2")
        await node.gets(b"2")


@on_uvloop
async def test_nobody_uses_up_the_ids_of_another_domain(keys: Path, tmp_path: Path) -> None:
    async with attacked(keys, tmp_path) as node:
        forger, good = await node.forger(), await node.forger("c", "other->remotegym", "cd" * 8)
        publisher = {**SOMEBODY, "domain": "c"}
        id = bytes.fromhex("cd" * 8) + bytes(6), 5
        assert await forger.forge(b"forged", id=id, origin="cd" * 8) == 0
        path = (f"other@{'cd' * 8}",)
        assert await good.forge(b"good", id=id, publisher=publisher, path=path) == 0
        await node.gets(b"forged", b"good")


@on_uvloop
async def test_a_flood_of_ids_leaves_those_of_another_link_alone(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.scope.seen_ids.MOST", 50)
    async with attacked(keys, tmp_path) as node:
        forger, good = await node.forger(), await node.forger("c", "other->remotegym", "cd" * 8)
        said = good.envelope(b"good", publisher={**SOMEBODY, "domain": "c"}, path=(f"other@{'cd' * 8}",))
        assert await good.send(said) == 0
        await node.gets(b"good")
        for _ in range(120):
            assert await forger.forge(b"y") == 0
            await node.gets(b"y")
        assert len(node.served.node.realm.scope("remotegym").seen_ids) <= 100
        assert await good.send(said) == 0x10


@on_uvloop
async def test_paths(keys: Path, tmp_path: Path) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        here = f"remotegym@{node.served.node.site.origin.node}"
        assert await forger.forge(b"bad", path=(here, GYM)) == 0x10  # it has been here
        # a scope that leaves itself out is in the path all the same, and nothing comes back to it
        assert await forger.forge(b"1", path=()) == 0
        assert await forger.forge(b"2", path=tuple(f"s{n}@{'12' * 8}" for n in range(63))) == 0
        await node.gets(b"1", b"2")
        path = node.served.node.realm.node_links.ends["remotegym->gym"]
        assert path.session.queued == 0
        too_long = forger.envelope(b"", path=())
        await forger.client.send(wire.Publish(topic="all/x", payload=too_long[:3] + b"\xff\xff" * 9000, qos=0))
        assert await forger.ended() == Reason.PROTOCOL_ERROR


@on_uvloop
async def test_ids_outlive_a_restart(keys: Path, tmp_path: Path) -> None:
    """It was delivered, its acknowledgement was lost, and the node was started again: it comes once."""
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        said = forger.envelope(b"1")
        assert await forger.send(said) == 0
        await node.gets(b"1")
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        assert await forger.send(said) == 0x10
        ours = node.served.node.realm.scope("remotegym").seen_ids
        assert len(ours) > 0
        await forger.forge(b"2")
        await node.gets(b"2")
        gone = NODE.replace("  - {from: remotegym, to: gym, peer: CN=a}\n", "").replace('"link:remotegym->gym", ', "")
        await node.served.reload(node.both.text(gone.replace(INTO, ""), ""))
        assert len(ours) == 0  # and with the link they are gone
        await node.served.reload(node.both.text(NODE, ""))


@on_uvloop
async def test_what_cannot_be_made_safe_is_not_acknowledged(keys: Path, tmp_path: Path) -> None:
    """With a reason in PUBACK the other node would let go of it. Without an acknowledgement it sends it again."""
    async with attacked(keys, tmp_path) as node:
        store: Any = node.served.node.site.store
        durable = await node.served.connect("durable", properties=Properties(session_expiry_interval=3600))
        await durable.subscribe("all/#", qos=2)
        forger = await node.forger()
        for qos in (1, 2):
            said = forger.envelope(b"%d" % qos, qos=qos)
            store.refusing = True  # as with a full disk
            await forger.client.send(wire.Publish(topic="all/x", payload=said, qos=qos, packet_id=qos))
            assert await forger.ended() == Reason.QUOTA_EXCEEDED
            store.refusing = False
            forger = await node.forger()
            assert await forger.send(said, qos=qos) == 0
            await node.gets(b"%d" % qos)


@on_uvloop
async def test_a_message_under_an_identifier_that_was_left_behind(keys: Path, tmp_path: Path) -> None:
    """QoS 2: sent and not released over one connection. Over the next one the identifier means the same, or another."""
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        first, second = forger.envelope(b"1", qos=2), forger.envelope(b"2", qos=2)
        for pid, said in ((1, first), (2, forger.envelope(b"left", qos=2))):
            await forger.client.send(wire.Publish(topic="all/x", payload=said, qos=2, packet_id=pid))
            await forger.answer(wire.Pubrec)
        forger.client.abort()
        again = await node.forger()
        assert await again.send(first, qos=2) == 0
        await node.gets(b"1")
        assert await again.send(second, qos=2) == 0
        await node.gets(b"2")


# -- owners ----------------------------------------------------------------------------------------------------------


def signed(folder: Path, name: str, *, by: str | None = None, **fields: Any) -> bytes:
    """A set of preferences of `mary`, with the certificate of a node, and signed by it or by another."""
    certificate = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())
    signer = Signer.of_pem((folder / f"{by or name}.key").read_bytes())
    content = {"domain": "a", "owner": "user:mary", "name": "mary", "number": 5, **fields}
    return sign(PreferenceSet(**content), signer, certificate.public_bytes(serialization.Encoding.DER)).encode()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "d"}, "nobody who speaks for its domain"),  # on no list
        ({"name": "a", "domain": "b"}, "nobody who speaks for its domain"),  # ours
        ({"name": "a", "domain": "c"}, "nobody who speaks for its domain"),  # somebody else's
        ({"name": "a", "domain": "nowhere"}, "nobody who speaks for its domain"),
        (
            {"name": "a", "by": "c"},
            "nobody who speaks for its domain",
        ),  # by another key than its own
    ],
)
@on_uvloop
async def test_preferences_that_it_cannot_speak_for(
    keys: Path, tmp_path: Path, fields: dict[str, Any], why: str
) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        said = {key: value for key, value in fields.items() if key not in ("name", "by")}
        data = signed(keys, fields["name"], by=fields.get("by"), **said)
        await forger.client.send(wire.Publish(topic=PREFERENCES, payload=data, qos=0))
        await forger.forge(b"1")
        await node.gets(b"1")
        assert why in (await node.denied("link"))[0]
        assert len(node.served.node.realm.foreign) == 0


@on_uvloop
async def test_preferences_that_contradict_each_other(keys: Path, tmp_path: Path) -> None:
    """The same number with another content is refused; until it is settled the first one counts."""
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        mary = {**SOMEBODY, "user": "mary"}

        async def tell(number: int, *preferences: dict[str, Any]) -> None:
            data = signed(keys, "a", number=number, preferences=preferences)
            await forger.client.send(wire.Publish(topic=PREFERENCES, payload=data, qos=0))

        async def mary_says(payload: bytes, number: int) -> None:
            await forger.forge(payload, publisher=mary, preferences=("a", "user:mary", number))

        await tell(5)
        await mary_says(b"1", 5)
        await node.gets(b"1")
        denying = {"id": "n", "user": "mary", "topic": "#", "effect": "deny", "when": "true"}
        await tell(5, denying)
        assert await node.denied("link")
        await mary_says(b"2", 6)  # a number that nobody has told of: unknown, so denied
        await mary_says(b"3", UNNUMBERED)
        await tell(UNNUMBERED - 1)  # as high as it goes, of its own people: nobody else is concerned
        await mary_says(b"4", UNNUMBERED - 1)
        await node.gets(b"4")


# -- what nobody asks of a link --------------------------------------------------------------------------------------


@on_uvloop
async def test_names_of_what_it_knows_are_heard_once(keys: Path, tmp_path: Path) -> None:
    """Each time all preferences here are looked at, and the log says what it lacks."""
    text = NODE + 'preferences: [{id: p, user: alice, topic: "ours/#", when: "s.level >= \'mtls\'"}]\n'
    async with attacked(keys, tmp_path, text) as node:
        links = node.served.node.realm.node_links
        told: list[tuple[str, ...]] = []
        links.on_lack.append(lambda link, names: told.append(names))
        forger = await node.forger()
        for names in ([], ["mtls"], [], ["mtls"]):
            data = cbor.canonical([[], names, []])
            await forger.client.send(wire.Publish(topic=KNOWN, payload=data, qos=0))
        assert any("it has said them" in why for why in await node.denied("link"))
        assert told == [("mtls",)]


@pytest.mark.parametrize("topic", ["unknown", "", "settled/x", "preferences/x"])
@on_uvloop
async def test_control_topics_that_nobody_knows(keys: Path, tmp_path: Path, topic: str) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        await forger.client.send(wire.Publish(topic=f"{PREFIX}{topic}", payload=b"x", qos=0))
        assert await forger.ended() == Reason.PROTOCOL_ERROR
        forger = await node.forger()
        assert await forger.forge(b"bad", f"{PREFIX}{topic}") == Reason.NOT_AUTHORIZED  # never routed
        watcher = await node.served.connect("control")
        await watcher.subscribe("$tidegate/#")


@pytest.mark.parametrize("data", [b"", b"\xff" * 100, b"\xa0", b"\x9f" * 10_000, b"\xa1aaaa"])
@on_uvloop
async def test_preferences_that_cannot_be_read(keys: Path, tmp_path: Path, data: bytes) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        await forger.client.send(wire.Publish(topic=PREFERENCES, payload=data, qos=0))
        assert await forger.ended() == Reason.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "packet",
    [
        wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="#", qos=2),)),
        wire.Unsubscribe(packet_id=1, filters=("#",)),
        wire.Auth(reason=0x19, properties=Properties(authentication_method="x")),
        wire.Connect(version=wire.V5, client_id="gym->remotegym", clean_start=False, keep_alive=0),
        wire.Publish(topic="", payload=b"x", qos=0, properties=Properties(topic_alias=1)),
        wire.Publish(topic="all/x", payload=b"x", qos=0, properties=Properties(topic_alias=1)),
        wire.Publish(topic="all/x", payload=b"x", qos=0, properties=Properties(subscription_identifiers=(1,))),
    ],
)
@on_uvloop
async def test_packets_that_do_not_belong_on_a_link(keys: Path, tmp_path: Path, packet: wire.Packet) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        await forger.client.send(packet)
        assert await forger.ended() == Reason.PROTOCOL_ERROR


@on_uvloop
async def test_acknowledgements_of_nothing(keys: Path, tmp_path: Path) -> None:
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        for kind in (wire.Puback, wire.Pubcomp, wire.Pubrec, wire.Pubrel):
            await forger.client.send(kind(packet_id=7))
        await forger.forge(b"1")
        await node.gets(b"1")


@on_uvloop
async def test_a_huge_packet(keys: Path, tmp_path: Path) -> None:
    async with attacked(
        keys, tmp_path, NODE.replace("client_cert: optional,", "client_cert: optional, max_packet: 64KiB,")
    ) as node:
        forger = await node.forger()
        assert (forger.client.connack.properties.maximum_packet_size or 0) <= 2**16
        await forger.client.raw(b"\x30\xff\xff\xff\x7f" + bytes(1000))
        assert await forger.ended() == Reason.PACKET_TOO_LARGE


# -- who opens a link ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "link", "text"),
    [
        (None, "gym->remotegym", "shows its certificate"),
        ("d", "gym->remotegym", "CN=d is not on the trust list"),
        ("a", "other->remotegym", "CN=a is not"),
        ("c", "gym->remotegym", "CN=c is not"),
        ("a", "gym->nowhere", "no link of this node"),
        ("a", "->", "no link of this node"),
        ("a", "x" * 10_000, "no link of this node"),
    ],
)
@on_uvloop
async def test_links_of_others(keys: Path, tmp_path: Path, name: str | None, link: str, text: str) -> None:
    async with attacked(keys, tmp_path) as node:
        held = await node.forger()
        client = await over_tls(node.both, name, properties=greeting(link))
        assert client.connack.reason == Reason.NOT_AUTHORIZED
        assert text in (client.connack.properties.reason_string or "")
        await held.forge(b"still there")
        await node.gets(b"still there")


@pytest.mark.parametrize("node_id", ["", "x", "ab" * 9, "AB" * 8, "own"])
@on_uvloop
async def test_ids_that_no_node_has(keys: Path, tmp_path: Path, node_id: str) -> None:
    async with attacked(keys, tmp_path) as node:
        said = node.served.node.site.origin.node if node_id == "own" else node_id
        properties = Properties(user_properties=(("tidegate-link", f"1 gym->remotegym {said} a"),))
        client = await over_tls(node.both, "a", properties=properties)
        assert client.connack.reason == (Reason.NOT_AUTHORIZED if node_id == "own" else Reason.PROTOCOL_ERROR)


@on_uvloop
async def test_a_plain_client_that_greets(keys: Path, tmp_path: Path) -> None:
    async with attacked(keys, tmp_path) as node:
        client = await node.served.connect("x", expect=Reason.NOT_AUTHORIZED, clean_start=False, properties=greeting())
        assert "shows its certificate" in (client.connack.properties.reason_string or "")


@on_uvloop
async def test_twice_at_once(keys: Path, tmp_path: Path) -> None:
    """The second connection has the link; nothing of the first counts twice."""
    async with attacked(keys, tmp_path) as node:
        first = await node.forger()
        said = first.envelope(b"1")
        assert await first.send(said) == 0
        second = await node.forger()
        assert await first.ended() == Reason.SESSION_TAKEN_OVER
        assert await second.send(said) == 0x10
        await node.gets(b"1")


# -- floods ----------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_flood_of_different_statics_is_bounded(keys: Path, tmp_path: Path) -> None:
    """Ten thousand contexts, each as large as it may be: what is kept of them has a bound in bytes."""
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()

        async def flood(first: int, count: int) -> None:
            for number in range(first, first + count):
                publisher = {**SOMEBODY, "client": f"{number}/" + "x" * 12_000}
                data = forger.envelope(b"", qos=0, publisher=publisher)
                await forger.client.send(wire.Publish(topic="none/x", payload=data, qos=0))
            await forger.forge(b"done")
            await node.gets(b"done")

        await flood(0, 100)
        tracemalloc.start(1)
        try:
            before = tracemalloc.get_traced_memory()[0]
            await flood(100, 5000)
            gc.collect()
            kept = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert kept < 80 * 2**20, kept


@on_uvloop
async def test_a_flood_of_retained_messages(keys: Path, tmp_path: Path) -> None:
    """It fills what a neighbour may have of the node, and no share of anybody of this domain."""
    limits = "limits: {user: {retained: 20}}\nsys:"
    async with attacked(keys, tmp_path, NODE.replace("sys:", limits)) as node:
        forger = await node.forger()
        for number in range(60):
            person = {**SOMEBODY, "client": f"c{number}", "kind": ("client", "service", "link")[number % 3]}
            data = forger.envelope(b"r", publisher=person)
            await forger.send(data, f"quiet/{number}", retain=True)
        scope = node.served.node.realm.scope("remotegym")
        assert len(scope.retained) == 20
        alice = await node.served.connect("alice", username="alice", password=b"alice")
        await alice.publish("all/kept", b"kept", qos=1, retain=True)
        await node.gets(b"kept")
        assert scope.retained.get("all/kept") is not None


@on_uvloop
async def test_retained_topics_without_end(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came since the link has opened is remembered up to a bound; beyond it nothing is dropped at the end mark."""
    monkeypatch.setattr("tidegate.scope.link_control.REPEATED", 2000)
    async with attacked(keys, tmp_path) as node:
        forger = await node.forger()
        control = node.served.node.realm.node_links.ends["remotegym->gym"].control
        for number in range(100):
            await forger.forge(b"r", f"quiet/{number}", path=(GYM,))
            data = forger.envelope(b"r", qos=0)
            await forger.client.send(wire.Publish(topic=f"many/{number}", payload=data, qos=0, retain=True))
        await forger.forge(b"done")
        await node.gets(b"done")
        assert control.remembered <= 2000
        await forger.client.send(wire.Publish(topic=RETAINED, payload=b"", qos=0))
        await forger.forge(b"done")
        await node.gets(b"done")
