"""QoS 0 messages that a node passes on from one link to others as they came: the same arrives as if it decided each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pure import End
from scope.nodes import Cable, Node, node_link, share
from scope.spaces import got
from scope.test_link_bundles import burst, publishes, warm
from scope.test_node_links import ALL_READ, ALL_WRITE, denial, policies
from tidegate.policy import Action
from tidegate.session import LinkSession
from tidegate.session.link_publishing import LinkPublishing
from tidegate.wire import V311, Publish, encode_varint
from tidegate.wire.envelope import Envelope, is_bundle, open, single, static_cache

MESSAGES = [("t/1" if number % 3 else "t/2", b"%d" % number * (1 + number % 9)) for number in range(300)]
ALONE = [("t/1", b"one"), ("t/2", b"two")]


class Chain:
    """a, b and c in a row. b calls it `far/…` for c."""

    def __init__(self, *, clock_ahead: float = 0.0) -> None:
        renamed = (share("t/+", there="far/"),)
        self.a = Node("a", node_link("x", "y"))
        self.b = Node("b", node_link("y", "x"), node_link("y", "z", out=renamed))
        self.c = Node("c", node_link("z", "y", into=renamed))
        self.a.wall += clock_ahead
        self.first, self.second = Cable(self.a, self.b, "x->y"), Cable(self.b, self.c, "y->z")
        self.here, self.older, self.there = self.b.peer("here"), self.b.peer("old", version=V311), self.c.peer("there")
        for subscriber in (self.here, self.older, self.there):
            subscriber.subscribe("#")
        self.publisher: End = self.a.peer("pub")
        warm(self.first, self.publisher, "t/1", "t/2")
        self.run()
        self.taken()

    def run(self) -> None:
        self.first.run()
        self.second.run()

    def taken(self) -> list[list[tuple[str, bytes]]]:
        return [got(self.here), got(self.older), got(self.there)]

    def sent(self, *messages: tuple[str, bytes]) -> list[Publish]:
        """What b sends to c of them."""
        burst(self.publisher, *messages)
        self.first.run()
        self.b.turn()
        return publishes(self.second.mine.sent)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topics of what b decides by itself, from now on."""
    found: list[str] = []
    publish = LinkPublishing.publish

    def counted(self: LinkPublishing, packet: Publish) -> None:
        if packet.topic[:1] != "$":
            found.append(packet.topic)
        publish(self, packet)

    monkeypatch.setattr(LinkPublishing, "publish", counted)
    return found


def opened(packets: list[Publish]) -> Iterator[tuple[str, Envelope, bytes]]:
    statics = static_cache(100)
    for packet in packets:
        for payload in single(packet.payload) if is_bundle(packet.payload) else [packet.payload]:
            yield packet.topic, *open(payload, None, statics)


@pytest.mark.parametrize("messages", [ALONE, MESSAGES], ids=["alone", "together"])
@pytest.mark.pure
def test_the_same_leaves_and_arrives(
    messages: list[tuple[str, bytes]], one_by_one: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    relayed, decided = Chain(), Chain()
    one_by_one.clear()
    sent = relayed.sent(*messages)
    assert not one_by_one
    assert len(sent) < 10  # as they came
    relayed.run()
    monkeypatch.setattr(LinkPublishing, "_relays", lambda *args: False)
    sent_before = decided.sent(*messages)
    assert len(one_by_one) >= len(messages)
    decided.run()
    by_topic = [
        [each for each in opened(packets) if each[0] == topic]
        for packets in (sent, sent_before)
        for topic in ("far/t/1", "far/t/2")
    ]
    assert by_topic[:2] == by_topic[2:]  # ids, times, and all that is said of them
    (here, older, there), others = relayed.taken(), decided.taken()
    for topic in ("t/1", "t/2"):
        payloads = [payload for name, payload in messages if name == topic]
        assert [payload for name, payload in here if name == topic] == payloads
        assert [payload for name, payload in older if name == topic] == payloads
        assert [payload for name, payload in there if name == f"far/{topic}"] == payloads
    assert sorted(there) == sorted(others[2])


def test_a_changed_policy_counts_for_the_next_message() -> None:
    chain = Chain()
    chain.b.change(policies=policies(ALL_WRITE, ALL_READ, denial("d", "link:y->z", "t/1", Action.WRITE)))
    for _ in range(2):
        assert [topic for topic, _, _ in opened(chain.sent(*ALONE))] == ["far/t/2"]
        chain.run()
        here, _, there = chain.taken()
        assert here == ALONE
        assert there == [("far/t/2", b"two")]


def test_a_clock_that_is_ahead_is_corrected_where_it_is_noticed() -> None:
    chain = Chain(clock_ahead=3600)
    found = list(opened(chain.sent(*ALONE)))
    assert [envelope.published for _, envelope, _ in found] == [chain.b.wall] * 2


@pytest.mark.pure
def test_another_boot_and_whoever_takes_one_at_a_time(one_by_one: list[str]) -> None:
    chain = Chain()
    chain.b.realm.node_links.ends["y->z"].session.bundling = False
    one_by_one.clear()
    assert [is_bundle(packet.payload) for packet in chain.sent(*MESSAGES)] == [False] * len(MESSAGES)
    assert len(one_by_one) >= len(MESSAGES)
    chain.run()
    chain.taken()
    chain.a.site.origin = type(chain.a.site.origin)(chain.a.site.origin.node, 2)
    for first in (True, False):
        one_by_one.clear()
        assert {envelope.id.boot for _, envelope, _ in opened(chain.sent(*ALONE))} == {2}
        assert bool(one_by_one) is first


def test_what_is_damaged_is_not_passed_on() -> None:
    chain = Chain()
    burst(chain.publisher, ("t/1", b"1"), ("t/1", b"2"))
    chain.a.turn()
    (whole,) = publishes(chain.first.mine.sent)
    payload = whole.payload[:-3] + b"\x09" + whole.payload[-2:]  # the length of the second
    body = b"\0\3t/1\0" + payload
    chain.first.theirs.connection.reader.receive(b"0" + encode_varint(len(body)) + body)
    chain.b.turn()
    assert chain.first.theirs.closed
    assert not publishes(chain.second.mine.sent)


@pytest.mark.pure
def test_a_packet_that_is_too_large_for_one_is_decided_for_each(one_by_one: list[str]) -> None:
    chain = Chain()
    chain.b.realm.node_links.ends["y->z"].session.maximum = 400
    one_by_one.clear()
    assert [payload for _, _, payload in opened(chain.sent(("t/1", b"1" * 100), ("t/1", b"2" * 100)))] == [
        b"1" * 100,
        b"2" * 100,
    ]
    assert len(one_by_one) >= 2


@pytest.mark.pure
def test_the_broker_behind_a_guarded_scope_is_no_node(one_by_one: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkSession, "guards", True)
    chain = Chain()
    one_by_one.clear()
    assert len(list(opened(chain.sent(*MESSAGES)))) == len(MESSAGES)
    assert len(one_by_one) >= len(MESSAGES)
