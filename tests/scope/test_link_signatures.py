"""Messages that the node has signed which made them: a chain a - b - c, in which c believes b nothing of a's people."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scope.nodes import Cable, Node, node_link, share
from scope.spaces import got, say
from scope.test_node_links import ALL_READ, ALL_WRITE, rule
from tidegate.cli import certificates
from tidegate.errors import KeysError
from tidegate.keys.signing import Signer, short_signed_by
from tidegate.monitor import Attachment, Direction, Monitors
from tidegate.monitor.automaton import Automaton, Transition
from tidegate.monitor.library import Mapper, Names
from tidegate.policy import Action, Policies
from tidegate.policy.domains import Domain
from tidegate.policy.scopes import ALL, TopicMapping
from tidegate.policy.trust_list import common_name
from tidegate.scope.link_signatures import ASKED, CHANGED, ROOM, NodeSigner
from tidegate.session import Volatile
from tidegate.wire import NONE, V5, Properties, Publish, Pubrel, decode, encode, frame
from tidegate.wire.envelope import encode_static, open, seal, static_cache

MONITOR = rule("m", "monitor:m", "#", Action.READ, Action.WRITE)
START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
NODES = "abcm"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    certificates.make_ca(folder, "Test CA", days=2)
    for name in NODES:
        certificates.issue(folder, name, [], client=True, days=2)
    return folder


class Chain:
    """Three nodes, each of a domain of its own (`da`, `db`, `dc`), and a subscriber at the last one."""

    def __init__(
        self, keys: Path, *, sign: tuple[bool, bool] = (True, True), shares: TopicMapping = ALL[0], **of_b: Any
    ) -> None:
        self.certificates = {name: der(keys / f"{name}.pem") for name in NODES}
        self.keys = {name: Signer.of_pem((keys / f"{name}.key").read_bytes()) for name in NODES}
        self.revoked: set[str] = set()
        first, second = sign
        self.a = self.node("a", node_link("x", "y", sign=first, out=(shares,)), believes={"db": Domain(nodes=("b",))})
        names = {"da": Domain(nodes=("a",)), "dc": Domain(nodes=("c",))}
        near, far = node_link("y", "x", sign=first, into=(shares,)), node_link("y", "z", sign=second)
        self.b = self.node("b", near, far, believes=names, **of_b)
        self.store = Kept()
        self.believes = {"da": Domain(nodes=("a",)), "db": Domain(nodes=("b",))}
        self.c = self.node("c", node_link("z", "y", sign=second), believes=self.believes, store=self.store)
        self.first = Cable(self.a, self.b, "x->y")
        self.second = Cable(self.b, self.c, "y->z")
        self.mary = self.a.peer("tr1", username="mary")
        self.reader = self.c.peer("reader")
        self.reader.subscribe("#", 2)
        self.reports: list[str] = []
        """Why c has refused something."""
        self.listen()

    def node(self, name: str, *links: Any, believes: dict[str, Domain], **fields: Any) -> Node:
        node = Node(name, *links, domain=f"d{name}", believes=believes, **fields)
        signer = NodeSigner(self.keys[name].short, self.certificates[name])
        node.realm.node_links.signatures.changed(signer, self.name)
        for end in node.realm.node_links.ends.values():
            end.configure(end.link)
        return node

    def name(self, certificate: bytes) -> str:
        """Of a certificate that counts."""
        name = common_name(certificate) if certificate in self.certificates.values() else ""
        return "" if name in self.revoked else name

    def run(self) -> None:
        for _ in range(3):
            for cable in (self.first, self.second):
                if not cable.mine.closed:
                    cable.run()

    def says(self, payload: bytes = b"x", topic: str = "t", **fields: Any) -> None:
        say(self.mary, topic, payload, **fields)
        self.run()

    @property
    def reads(self) -> list[tuple[str, bytes]]:
        self.run()
        found = got(self.reader)
        self.run()
        return found

    def listen(self) -> None:
        """What c denies is told from now on."""
        report = self.c.scope.report

        def reported(action: Any, link: Any, topic: Any, why: Any, *rest: Any) -> None:
            self.reports.append(why.detail or why.error or why.rule)
            report(action, link, topic, why, *rest)

        self.c.scope.report = reported  # type: ignore[method-assign]


class Kept(Volatile):
    """Remembers what is kept of certificates."""

    def __init__(self) -> None:
        super().__init__()
        self.certificates: dict[str, bytes] = {}

    def keep(self, room: str, key: str, data: bytes | None, urgent: bool = True) -> None:
        if room == ROOM and data is not None:
            self.certificates[key] = data
        super().keep(room, key, data, urgent=urgent)


def der(path: Path) -> bytes:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return certificate.public_bytes(serialization.Encoding.DER)


@pytest.fixture
def chain(keys: Path) -> Chain:
    return Chain(keys)


class Between:
    """Somebody at node b who changes what b sends to c."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.taken: list[Publish] = []

    def take(self, payload: bytes = b"x", **fields: Any) -> Publish:
        """The last PUBLISH of a message that mary publishes, which does not arrive. The certificates do."""
        chain = self.chain
        say(chain.mary, fields.pop("topic", "t"), payload, **fields)
        chain.first.run()
        chain.b.turn()
        data, chain.second.mine.sent = chain.second.mine.sent, b""
        packets = []
        while (found := frame(data, 0, 2**28)) is not None:
            first, start, stop = found
            packets.append(decode(first, data[start:stop], V5))
            data = data[stop:]
        *before, last = packets
        assert isinstance(last, Publish)
        for packet in before:
            self.send(packet)
        self.taken.append(last)
        return last

    def send(self, packet: Any) -> None:
        self.chain.second.theirs.connection.reader.receive(encode(packet, V5))
        self.chain.c.turn()

    def forged(self, packet: Publish, **changes: Any) -> Publish:
        """The packet with another dynamic part, proof, payload or signature."""
        envelope, payload = open(packet.payload, None, static_cache(9))
        id = envelope.id
        fields = {
            "static": envelope.static.data,
            "origin": id.origin,
            "number": id.number,
            "output": id.output,
            "published": envelope.published,
            "expiry": envelope.expiry,
            "qos": envelope.qos,
            "retain": envelope.retain,
            "payload": payload,
            "key": None,
            "proof": envelope.proof,
            "signature": envelope.signature,
            **changes,
        }
        return replace(packet, payload=seal(**fields))


@pytest.mark.parametrize("sign", [(True, True), (True, False)])
def test_what_is_signed_needs_nobody_on_the_way(keys: Path, sign: tuple[bool, bool]) -> None:
    chain = Chain(keys, sign=sign)
    text = Properties(user_properties=(("unit", "bpm"),), content_type="text/plain", correlation_data=b"1")
    for qos in range(3):
        chain.says(b"%d" % qos, qos=qos)
        chain.says(b"p%d" % qos, qos=qos, packet_id=8 * (qos > 0), properties=text)
    for pid in (7, 8):
        chain.mary.send(Pubrel(packet_id=pid))
    chain.run()
    found = {each.payload: each for each in chain.reader.messages()}
    assert found.keys() == {b"0", b"p0", b"1", b"p1", b"2", b"p2"}
    for each in found.values():
        assert "tidegate-signature" not in dict(each.properties.user_properties)
    assert found[b"p1"].properties.user_properties[0] == ("unit", "bpm")
    assert not chain.reports


@pytest.mark.parametrize("sign", [(False, False), (False, True)])
def test_what_comes_from_further_away_is_refused_without_it(keys: Path, sign: tuple[bool, bool]) -> None:
    """What b signs of a's, because a does not, counts as b's word only."""
    chain = Chain(keys, sign=sign)
    chain.says(qos=1)
    assert chain.reads == []
    signed = ", signed by b, who does not speak for it" if sign[1] else ""
    assert chain.reports == [f"of the domain 'da'{signed}"]
    chain.c.change(domains=chain.believes | {"da": Domain(nodes=("a",), through=("b",))})
    chain.says(b"2", qos=1)
    assert chain.reads == [("t", b"2")]


def test_a_message_that_was_changed_on_the_way_is_refused(chain: Chain) -> None:
    between = Between(chain)
    text = Properties(user_properties=(("unit", "bpm"),))
    good = between.take(qos=1, properties=text)
    envelope, payload = open(good.payload, None, static_cache(9))
    static, signature = envelope.static, envelope.signature
    assert signature is not None
    strange = replace(static, publisher={**static.publisher, "user": "eve"})
    for changed in (
        between.forged(good, payload=b"y"),
        between.forged(good, number=envelope.id.number + 1),
        between.forged(good, output=1),
        between.forged(good, published=envelope.published - 1),
        between.forged(good, qos=2),
        between.forged(good, proof=b"p"),
        between.forged(good, signature=bytes(64)),
        between.forged(good, signature=signature[:-1] + bytes([signature[-1] ^ 1])),
        between.forged(good, static=encode_static(strange)),
        between.forged(good, static=encode_static(replace(static, view=None, topic="u")), signature=signature),
        replace(good, properties=NONE),
        replace(good, properties=Properties(user_properties=(("unit", "kg"),))),
    ):
        between.send(changed)
        assert chain.reports.pop() == CHANGED
    between.send(replace(between.forged(good, signature=None)))
    assert chain.reports.pop() == "of the domain 'da'"  # stripped
    assert chain.reads == []
    between.send(good)
    assert chain.reads == [("t", payload)]


def test_a_signature_is_for_one_topic_and_not_to_be_kept(chain: Chain) -> None:
    between = Between(chain)
    good = between.take(topic="gym/t")
    for topic in ("door", "gym/t/x"):
        between.send(replace(good, topic=topic))
        assert chain.reports.pop() == "it was signed for the topic 'gym/t'"
    between.send(replace(good, retain=True))
    assert chain.reports.pop() == "it was not published as retained"
    between.send(replace(good, topic="far/gym/t"))  # as a link with a prefix calls it
    assert chain.reads == [("far/gym/t", b"x")]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_signed_message_counts_once(keys: Path, qos: int) -> None:
    chain = Chain(keys)
    between = Between(chain)
    good = between.take(qos=qos)
    between.send(good)
    assert chain.reads == [("t", b"x")]
    for again in (good, replace(good, dup=qos > 0), replace(good, qos=1 - qos, packet_id=3 * (1 - qos))):
        between.send(again)
        assert chain.reads == []
    chain.second.cut()
    chain.second.plug()
    between.send(good)
    assert chain.reads == []


def test_a_signer_that_is_not_known_or_does_not_count(chain: Chain) -> None:
    between = Between(chain)
    first = between.take(b"1")
    signatures = chain.c.realm.node_links.signatures
    known = signatures.certificates.copy()
    signatures.certificates.clear()
    between.send(first)
    assert chain.reports.pop() == "of the domain 'da', signed by a node whose certificate is not known here"
    signatures.certificates.update(known)
    chain.revoked.add("a")
    between.send(first)
    assert chain.reports.pop().endswith("whose certificate does not count any more")
    chain.revoked.clear()
    chain.c.turn(ASKED + 1)
    between.send(first)
    assert chain.reads == [("t", b"1")]
    chain.c.change(domains={**chain.believes, "da": Domain()})
    chain.says(b"2")
    assert chain.reads == []
    assert chain.reports.pop() == "of the domain 'da', signed by a, who does not speak for it"


def test_certificates_are_kept_if_they_count(chain: Chain) -> None:
    chain.revoked.add("m")
    chain.b.realm.node_links.ends["y->z"].control.tell_signer(b"m", chain.certificates["m"])
    chain.run()
    assert chain.reports.pop().startswith("a certificate of a node that signs: ")
    chain.says()
    kept = chain.store.certificates
    assert sorted(kept.values()) == sorted(chain.certificates[name] for name in "ab")
    again = Node("c", node_link("z", "y"), domain="dc", believes=chain.believes)
    again.realm.node_links.begin({ROOM: kept})
    assert again.realm.node_links.signatures.certificates.keys() == {bytes.fromhex(digest) for digest in kept}


def test_one_at_a_time_of_those_that_take_the_fast_lane(chain: Chain) -> None:
    for number in range(5):
        chain.mary.send(Publish(topic="t", payload=b"%d" % number))
    assert chain.reads == [("t", b"%d" % number) for number in range(5)]
    assert not chain.reports


def test_sign_counts_from_the_next_message_on(keys: Path) -> None:
    """Also for what takes the fast lane, and the other way round."""
    chain = Chain(keys, sign=(False, False))
    near = chain.b.peer("near", username="nick")

    def says(number: int) -> list[tuple[str, bytes]]:
        near.send(Publish(topic="n", payload=b"%d" % number))
        return chain.reads

    assert [says(number) for number in range(2)] == [[("n", b"0")], [("n", b"1")]]
    chain.c.change(space=replace(chain.c.made["space"], remote=(node_link("z", "y", sign=True),)))
    assert says(2) == []
    assert chain.reports == ["it is not signed"]
    links = (node_link("y", "x"), node_link("y", "z", sign=True))
    chain.b.change(space=replace(chain.b.made["space"], remote=links))
    assert says(3) == [("n", b"3")]
    assert chain.reports == ["it is not signed"]


def test_what_waits_and_what_is_retained_is_signed_too(chain: Chain) -> None:
    chain.second.cut()
    chain.says(b"kept", topic="k", retain=True, qos=1)
    chain.says(b"1", qos=1)
    chain.b.realm.node_links.ends["y->z"].configure(chain.b.realm.node_links.ends["y->z"].link)  # nothing is cached
    chain.second.plug()
    assert sorted(chain.reads) == [("k", b"kept"), ("t", b"1")]
    assert not chain.reports


def test_names_of_shares(keys: Path) -> None:
    chain = Chain(keys, shares=share("#", there="MyGym/"))
    chain.says(b"1", properties=Properties(response_topic="answers"))
    assert chain.reads == [("MyGym/t", b"1")]


def test_what_a_node_makes_of_it_is_signed_by_that_node(keys: Path) -> None:
    """A monitor at b changes what a has signed: that is not a's word any more."""
    upper = Attachment(id="m", monitor=Mapper(Names({"t": "v"})), scope="y", direction=Direction.EX_PUB)
    chain = Chain(keys, monitors=Monitors([upper]), policies=Policies([ALL_READ, ALL_WRITE, MONITOR], domain="db"))
    chain.says(qos=1)
    chain.says(b"as it was", topic="u", qos=1)
    assert chain.reads == [("u", b"as it was")]
    assert chain.reports == ["of the domain 'da', signed by b, who does not speak for it"]
    chain.c.change(domains=chain.believes | {"da": Domain(nodes=("a",), through=("b",))})
    chain.says(b"2", qos=1)
    assert chain.reads == [("v", b"2")]


def test_what_others_restrict_is_not_what_was_signed(keys: Path) -> None:
    """After eve has armed it, an automaton at b lets mary's message pass, which then comes from both of them."""
    waits = [Transition(on=("arm",), go="armed"), Transition(on=("t",), emit=())]
    post = Attachment(
        id="m", monitor=Automaton("idle", {"idle": waits, "armed": []}), scope="y", direction=Direction.EX_PUB
    )
    chain = Chain(keys, monitors=Monitors([post]))
    chain.says(b"early", qos=1)  # is suppressed
    eve = chain.b.peer("eve", username="eve")
    say(eve, "arm", qos=1)
    chain.says(b"late", qos=1)
    assert chain.reads == [("arm", b"x")]
    assert chain.reports == ["of the domain 'da', signed by b, who does not speak for it"]


def test_a_key_that_has_no_short_signatures() -> None:
    signer = Signer(ec.generate_private_key(ec.SECP384R1()))
    with pytest.raises(KeysError, match="no signatures of 64 bytes"):
        signer.short(b"x")


@pytest.mark.parametrize("key", [Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1())])
def test_short_signatures(key: Any) -> None:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, START, END)
    made = builder.sign(key, None if isinstance(key, Ed25519PrivateKey) else hashes.SHA256())
    certificate = made.public_bytes(serialization.Encoding.DER)
    signature = Signer(key).short(b"data")
    assert len(signature) == 64
    assert short_signed_by(certificate, b"data", signature)
    assert not short_signed_by(certificate, b"date", signature)
    assert not short_signed_by(certificate, b"data", signature + b"x")
    assert not short_signed_by(b"no certificate", b"data", signature)
