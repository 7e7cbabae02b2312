"""QoS 0 messages that cross a link together, and QoS 1 messages that are like one before: faster, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pure import End
from scope.nodes import Cable, Node, node_link
from scope.spaces import got, say
from scope.test_node_links import ALL_READ, ALL_WRITE, denial, pair, policies, rule
from tidegate.errors import StoreError
from tidegate.policy import Action, Effect, Policies
from tidegate.policy.domains import Domain
from tidegate.scope.link_control import PREFIX
from tidegate.scope.link_greeting import BUNDLES, BUNDLES_VERSION, takes_bundles
from tidegate.scope.seen_ids import _OLD, ROOM, SeenIds, by_link
from tidegate.session import Volatile
from tidegate.session.link_publishing import LinkPublishing
from tidegate.wire import V5, V311, Properties, Puback, Publish, Reason, decode, encode, encode_varint, frame
from tidegate.wire.envelope import BUNDLED, is_bundle

WARM = 2  # messages until there is a plan at both ends


def publishes(data: bytes) -> list[Publish]:
    """Those that are written to a socket, without what nodes tell each other."""
    found, pos = [], 0
    while (whole := frame(data, pos, len(data))) is not None:
        first, start, pos = whole
        packet = decode(first, data[start:pos], V5)
        if isinstance(packet, Publish) and not packet.topic.startswith(PREFIX):
            found.append(packet)
    return found


def warm(cable: Cable, publisher: End, *topics: str, qos: int = 0) -> None:
    for number in range(WARM):
        for topic in topics:
            say(publisher, topic, b"warm %d" % number, qos=qos)
            cable.run()


def burst(publisher: End, *messages: tuple[str, bytes]) -> None:
    """As one read of a socket brings them."""
    data = b"".join(encode(Publish(topic=topic, payload=payload), publisher.version) for topic, payload in messages)
    publisher.connection.reader.receive(data)


MESSAGES = [("t/1" if number % 2 else "t/2", b"%d" % number * (number + 1)) for number in range(360)]


@pytest.mark.parametrize("announces_floor", [False, True])
@pytest.mark.parametrize("conditional", [False, True], ids=["fast lane", "decided one by one"])
@pytest.mark.pure
def test_what_leaves_in_one_turn_leaves_together(
    conditional: bool, announces_floor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = policies(ALL_WRITE, ALL_READ)
    if conditional:
        long = replace(rule("d", "client:new", "#", Action.READ, when="o.size > 400"), effect=Effect.DENY)
        rules = policies(ALL_WRITE, ALL_READ, long)
    a = Node("a", node_link("x", "y"), policies=policies(ALL_WRITE, ALL_READ))
    b = Node("b", node_link("y", "x"), policies=rules, announces_floor=announces_floor)
    cable = Cable(a, b, "x->y")
    old, new, publisher = b.peer("old", version=V311), b.peer("new"), a.peer("pub")
    old.subscribe("#")
    new.subscribe("#")
    warm(cable, publisher, "t/1", "t/2")
    old.messages(), new.messages()
    before = b.site.counters.frames_sent
    burst(publisher, *MESSAGES)
    a.turn()
    sent = publishes(cable.mine.sent)
    assert len(sent) < 20
    assert all(is_bundle(packet.payload) for packet in sent)
    assert max(len(packet.payload) for packet in sent) > 16_384  # whose length has three bytes
    one_by_one: list[LinkPublishing] = []
    each = LinkPublishing._publish_each
    monkeypatch.setattr(LinkPublishing, "_publish_each", lambda *args: (one_by_one.append(args[0]), each(*args)))
    cable.run()
    assert bool(one_by_one) is conditional
    for subscriber, most in ((old, 10_000), (new, 400 if conditional else 10_000)):
        arrived = got(subscriber)
        for topic in ("t/1", "t/2"):  # in the order of each topic
            expected = [payload for name, payload in MESSAGES if name == topic and len(payload) <= most]
            assert [payload for name, payload in arrived if name == topic] == expected
    if not conditional:
        assert b.site.counters.frames_sent - before == 2 * len(MESSAGES)


def test_who_has_sent_much_waits_a_moment() -> None:
    a, b, cable = pair()
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#")
    warm(cable, publisher, "t")
    a.turn(1.0)
    burst(publisher, *(("t", b"1") for _ in range(10)))
    a.site.close()
    assert len(publishes(cable.mine.sent)) == 1
    a.site.open()
    burst(publisher, ("t", b"2"))
    a.site.close()
    assert len(publishes(cable.mine.sent)) == 1
    a.site.open()
    burst(publisher, ("t", b"3"))
    a.site.close()
    a.turn()  # what is to be done a moment later
    assert len(publishes(cable.mine.sent)) == 2
    a.turn(1.0)
    for number in (3, 4):  # few have left lately
        burst(publisher, ("t", b"4"))
        a.site.close()
        assert len(publishes(cable.mine.sent)) == number
        a.site.open()
    for number in range(10):
        burst(publisher, ("t", b"%d" % number))
    a.realm.node_links.ends["x->y"].session.connection.close(0)
    cable.run()
    numbers = [b"%d" % number for number in range(10)]
    assert [payload for _, payload in got(subscriber)][WARM:] == [b"1"] * 10 + [b"2", b"3", b"4", b"4", *numbers]


def test_what_is_alone_or_long_leaves_by_itself() -> None:
    a, b, cable = pair()
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#")
    warm(cable, publisher, "t")
    for payloads in ((b"1",), (b"2" * 20_000, b"3")):
        burst(publisher, *(("t", payload) for payload in payloads))
        a.turn()
        assert [is_bundle(packet.payload) for packet in publishes(cable.mine.sent)] == [False] * len(payloads)
        cable.run()
    assert [payload for _, payload in got(subscriber)][WARM:] == [b"1", b"2" * 20_000, b"3"]


@pytest.mark.parametrize(
    ("terms", "takes"),
    [
        (Properties(), False),
        (Properties(user_properties=((BUNDLES, "2"),)), False),
        (Properties(user_properties=((BUNDLES, BUNDLES_VERSION),)), True),
        (Properties(user_properties=((BUNDLES, BUNDLES_VERSION),), maximum_packet_size=2**16), False),
    ],
)
def test_only_whoever_says_so_takes_several(terms: Properties, takes: bool) -> None:
    assert takes_bundles(terms) is takes
    a, b, cable = pair()
    assert a.realm.node_links.ends["x->y"].session.bundling
    assert b.realm.node_links.ends["y->x"].session.bundling
    a.realm.node_links.ends["x->y"].session.bundling = takes
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#")
    warm(cable, publisher, "t")
    burst(publisher, *(("t", b"%d" % number) for number in range(10)))
    a.turn()
    assert len(publishes(cable.mine.sent)) == (1 if takes else 10)
    cable.run()
    assert [payload for _, payload in got(subscriber)][WARM:] == [b"%d" % number for number in range(10)]


def test_nothing_overtakes_what_was_gathered() -> None:
    a, b, cable = pair()
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 1)
    warm(cable, publisher, "t")
    frames = [
        Publish(topic="t", payload=b"1"),
        Publish(topic="t", payload=b"2"),
        Publish(topic="t", payload=b"3", retain=True),
        Publish(topic="t", payload=b"4"),
        Publish(topic="t", payload=b"5", qos=1, packet_id=5),
        Publish(topic="t", payload=b"6"),
        Publish(topic="t", payload=b"7", properties=Properties(content_type="x")),
    ]
    publisher.connection.reader.receive(b"".join(encode(packet, V5) for packet in frames))
    cable.run()
    assert [payload for _, payload in got(subscriber)][WARM:] == [b"%d" % number for number in range(1, 8)]


def test_a_changed_policy_counts_for_the_next_message_of_a_bundle() -> None:
    allowed = policies(ALL_WRITE, ALL_READ)
    a, b, cable = pair(policies=allowed)
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#")
    warm(cable, publisher, "t")
    b.change(policies=policies(ALL_WRITE, ALL_READ, denial("d", "link:x->y", "t", Action.READ)))
    burst(publisher, *(("t", b"denied") for _ in range(10)))
    cable.run()
    b.change(policies=allowed)
    burst(publisher, ("t", b"1"), ("t", b"2"))
    cable.run()
    assert [payload for _, payload in got(subscriber)][WARM:] == [b"1", b"2"]
    assert b.site.counters.denied == 10


def damaged() -> dict[str, tuple[int, bytes]]:
    """Behind the flags of the dynamic part: where other bytes stand, and which."""
    return {
        "no message": (39, bytes(4)),
        "too many": (39, (257).to_bytes(4, "big")),
        "more than there are": (39, (7).to_bytes(4, "big")),
        "a length": (43, b"\x00\x09"),
        "another flag": (0, bytes((BUNDLED | 1,))),
        "an output": (23, bytes(7) + b"\x01"),
        "a number": (15, b"\x7f" + b"\xff" * 7),
        "a time": (31, b"\xff" * 8),
    }


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", damaged())
def test_damaged_bundles_end_the_connection(name: str, known: bool) -> None:
    a, b, cable = pair()
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#")
    warm(cable, publisher, "t" if known else "other")
    publisher.connection.reader.receive(encode(Publish(topic="t", payload=b"x"), V5))  # there is a plan at this end
    a.turn()
    cable.mine.sent = b""
    burst(publisher, ("t", b"1"), ("t", b"2"))
    a.turn()
    (packet,) = publishes(cable.mine.sent)
    whole = packet.payload
    edge = len(whole) - 43 - 4 - 2
    at, other = damaged()[name]
    payload = whole[: edge + at] + other + whole[edge + at + len(other) :]
    body = b"\0\1t\0" + payload
    cable.theirs.connection.reader.receive(b"0" + encode_varint(len(body)) + body)
    b.turn()
    assert cable.theirs.closed
    assert [payload for _, payload in got(subscriber)][WARM:] == []


# -- QoS 1 -----------------------------------------------------------------------------------------------------------


def test_messages_that_are_alike_are_taken_once() -> None:
    a, b, cable = pair()
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 1)
    warm(cable, publisher, "t", qos=1)
    say(publisher, "t", b"1", qos=1)
    a.turn()
    sent = cable.mine.sent
    cable.run()
    cable.theirs.sent = b""
    cable.theirs.connection.reader.receive(sent)
    b.turn()
    answer = frame(cable.theirs.sent, 0, 100)
    assert answer is not None
    puback = decode(answer[0], cable.theirs.sent[answer[1] : answer[2]], V5)
    assert isinstance(puback, Puback)
    assert puback.reason == Reason.NO_MATCHING_SUBSCRIBERS  # it has been here
    assert [payload for _, payload in got(subscriber)][WARM:] == [b"1"]


@pytest.mark.parametrize("what", ["policies", "domains"])
def test_messages_that_are_alike_follow_the_rules_of_now(what: str) -> None:
    allowed = policies(ALL_WRITE, ALL_READ)
    a, b, cable = pair(policies=allowed)
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 1)
    warm(cable, publisher, "t", qos=1)
    denied: dict[str, Policies | dict[str, Domain]] = {
        "policies": policies(ALL_WRITE, ALL_READ, denial("d", "link:x->y", "t", Action.READ)),
        "domains": {"d": Domain(nodes=("b",))},
    }
    b.change(**{what: denied[what]})
    for _ in range(3):
        say(publisher, "t", b"denied", qos=1)
        cable.run()
    b.change(policies=allowed)
    say(publisher, "t", b"1", qos=1)
    cable.run()
    assert [payload for _, payload in got(subscriber)][WARM:] == [b"1"]


class Kept(Volatile):
    """What was written under which key."""

    def __init__(self) -> None:
        super().__init__()
        self.sequence = 1
        self.records: dict[str, bytes | bytearray] = {}
        self.writes = 0

    def keep(self, room: str, key: str, value: bytes | bytearray | None, *, urgent: bool = True) -> None:
        assert room == ROOM
        self.writes += 1
        if value is None:
            del self.records[key]
        else:
            self.records[key] = value


def test_ids_of_one_commit_are_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.scope.seen_ids.MOST", 100)
    store, seen = Kept(), SeenIds()
    share = seen.share("x->y", store)
    ids = [("d", bytes(14), number, 0) for number in range(130)]
    for batch in range(13):
        store.sequence += 1
        for id in ids[10 * batch : 10 * batch + 10]:
            share.add(id)
            share.add(id)  # known
    assert store.writes == 13 + 3
    assert [id in seen for id in ids] == [False] * 30 + [True] * 100
    again = SeenIds()
    ((link, records),) = by_link({key: bytes(data) for key, data in store.records.items()})
    kept = again.share(link, store)
    kept.restore(records)
    assert [id in again for id in ids] == [False] * 30 + [True] * 100
    kept.add(("d", bytes(14), 130, 0))  # the oldest record makes room, and no key is used twice
    assert [id in again for id in ids[30:41]] == [False] * 10 + [True]
    assert len(store.records) == 10
    kept.end()
    assert not store.records
    assert len(again) == 0


def test_ids_as_earlier_versions_kept_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.scope.seen_ids.MOST", 20)
    store, seen = Kept(), SeenIds()
    for position in range(15, 35):
        store.records[f"x->y {position % 20}"] = _OLD.pack(position, bytes(14), position, 0) + b"d"
    ((link, records),) = by_link({key: bytes(data) for key, data in store.records.items()})
    share = seen.share(link, store)
    share.restore(records)
    for number in range(35, 40):
        share.add(("d", bytes(14), number, 0))
    assert [("d", bytes(14), number, 0) in seen for number in range(15, 40)] == [False] * 5 + [True] * 20
    for damage in ("x->y b1", "x->y z", "x->y 3"):
        with pytest.raises(StoreError, match="cannot be read"):
            list(by_link({damage: b"\0" * 33}))


def test_a_stream_follows_its_source_and_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources append to what is gathered without asking: also when they are somebody else, or after some time."""
    monkeypatch.setattr("tidegate.session.gathering.STREAMS", 3)
    a, b, cable = pair()
    subscriber, publisher, other = b.peer("sub"), a.peer("pub"), a.peer("other")
    subscriber.subscribe("#")
    topics = [f"t/{number}" for number in range(5)]
    warm(cable, publisher, *topics)
    warm(cable, other, *topics)
    got(subscriber)
    session = publisher.connection.session
    expected = []
    for round in range(4):
        for end in (publisher, other):
            messages = [(topic, b"%d %d" % (round, number)) for topic in topics for number in range(3)]
            burst(end, *messages)
            expected += messages
            if round == 1 and end is publisher:
                session.identify(session.subject, context=session.context)  # as after another look at who it is
                assert not session.crossing
            burst(end, *messages)
            expected += messages
        cable.run()
        a.turn(0.5 * round)
    cable.run()
    arrived = got(subscriber)
    for topic in topics:
        assert [payload for name, payload in arrived if name == topic] == [
            payload for name, payload in expected if name == topic
        ]
    burst(publisher, ("t/0", b"last"))
    cable.run()
    assert session.crossing
    a.turn(2.0)
    assert not session.crossing  # nothing of it is kept
