"""Rules of publishers go from node to node: SEC-REDS, figure 2.13, without sockets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from policy.written import policy_of
from pure import End
from scope.nodes import Cable, Node, node_link, share
from scope.spaces import got, say
from session.test_safe import Disk
from tidegate import wire
from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.policy import Policies
from tidegate.policy.domains import Domain
from tidegate.policy.publisher_rules import MAX_RULES, Book, Rule, read
from tidegate.policy.selector import Selector
from tidegate.policy.travelling_rules import TravellingRules, newer
from tidegate.scope import spreading_rules
from tidegate.scope.spreading_rules import RULES
from tidegate.scope.stored_publisher_rules import ROOM

CONTROL = "$tidegate/rules"
WRITING = Policies(
    [
        policy_of(id="w", subject="*", topic="#", action="write"),
        policy_of(id="in", subject=["link:x->y", "link:y->z", "link:y->x", "link:z->y"], topic="#", action="read"),
        policy_of(id="out", subject=["link:x->y", "link:y->z"], topic="#", action="write"),
    ]
)
OPEN: Mapping[str, Any] = {"policies": WRITING, "ceiling": ("#",), "holds": True}


class Chain:
    """Three nodes: x of a, y of b, z of c."""

    def __init__(self, **rules: Any) -> None:
        rules = {**OPEN, **rules}
        self.a = Node("a", node_link("x", "y"), **rules)
        self.b = Node("b", node_link("y", "x"), node_link("y", "z"), **rules)
        self.c = Node("c", node_link("z", "y"), **rules)
        self.cables = [Cable(self.a, self.b, "x->y"), Cable(self.b, self.c, "y->z")]

    def run(self) -> None:
        for _ in range(3):
            for cable in self.cables:
                cable.run()


def rules(end: End, *entries: Mapping[str, Any], sequence: int | None = None) -> int:
    """Sends them; the reason of PUBACK."""
    body: Any = list(entries) if sequence is None else {"sequence": sequence, "rules": list(entries)}
    end.send(wire.Publish(topic=CONTROL, payload=json.dumps(body).encode(), qos=1, packet_id=9))
    answer = [packet for packet in end.take() if isinstance(packet, wire.Puback)][-1]
    return answer.reason


def allow(subject: str = "user:mark", topic: str = "t/#", id: str = "r", **more: Any) -> dict[str, Any]:
    return {"id": id, "topic": topic, "subject": subject, **more}


def known(node: Node) -> dict[str, tuple[int, list[str]]]:
    publishers = node.realm.publishers
    said = {key: publishers.said(key) for key in publishers.keys()}  # noqa: SIM118 - it is no mapping
    return {key: (each[0].sequence, [*each[0].rules]) for key, each in said.items() if each is not None}


def told(**fields: Any) -> TravellingRules:
    rule = Rule(id="r", topic="t/#", subject=Selector.parse("user:mark"))
    fields = {"book": Book(sequence=1, rules={"r": rule}), "domain": "d", "user": "mary", "identity": "", **fields}
    return TravellingRules(**fields)


def test_figure_2_13_a_rule_goes_to_all_nodes_and_opens_what_is_retained_and_what_comes() -> None:
    chain = Chain()
    mary, mark = chain.a.peer("m", username="mary"), chain.c.peer("k", username="mark")
    say(mary, "t/1", b"kept", qos=1, retain=True)
    mark.subscribe("t/#")
    chain.run()
    assert got(mark) == []  # held
    assert rules(mary, allow()) == 0
    chain.run()
    assert got(mark) == [("t/1", b"kept")]
    for qos in (0, 1):
        say(mary, "t/2", b"%d" % qos, qos=qos)
    chain.run()
    assert got(mark) == [("t/2", b"0"), ("t/2", b"1")]
    assert known(chain.a) == known(chain.b) == known(chain.c) == {"user:mary": (1, ["r"])}


def test_a_rule_that_is_taken_back_is_gone_everywhere() -> None:
    chain = Chain()
    mary, mark = chain.a.peer("m", username="mary"), chain.c.peer("k", username="mark")
    mark.subscribe("t/#")
    rules(mary, allow())
    chain.run()
    for qos in (0, 0, 1):  # the second one takes the fast lane over both links
        say(mary, "t/1", b"1", qos=qos)
    chain.run()
    assert len(got(mark)) == 3
    rules(mary, {"id": "r", "remove": True})
    chain.run()
    for qos in (0, 0, 1):
        say(mary, "t/1", b"2", qos=qos)
    chain.run()
    assert got(mark) == []
    assert known(chain.c) == {"user:mary": (2, [])}


def test_a_node_that_joins_later_is_told() -> None:
    chain = Chain()
    chain.cables[1].cut()
    mary, mark = chain.a.peer("m", username="mary"), chain.c.peer("k", username="mark")
    mark.subscribe("t/#")
    rules(mary, allow())
    say(mary, "t/1", b"kept", qos=1, retain=True)
    chain.cables[0].run()
    assert known(chain.c) == {}
    chain.cables[1].plug()
    chain.run()
    assert got(mark) == [("t/1", b"kept")]


def test_one_series_wherever_it_publishes() -> None:
    """Mary speaks at one node, then at another one: what she says there is added to what she has said here."""
    chain = Chain()
    rules(chain.a.peer("m", username="mary"), allow(id="one"))
    chain.run()
    there = chain.c.peer("m", username="mary")
    assert rules(there, allow(id="two"), sequence=1) != 0  # it has been seen
    assert rules(there, allow(id="two")) == 0
    chain.run()
    assert known(chain.a) == known(chain.b) == known(chain.c) == {"user:mary": (2, ["one", "two"])}


def test_of_two_with_the_same_number_all_nodes_keep_the_same() -> None:
    chain = Chain()
    for cable in chain.cables:
        cable.cut()
    for node, id in ((chain.a, "one"), (chain.b, "two"), (chain.c, "three")):
        rules(node.peer("m", username="mary"), allow(id=id))
    for cable in chain.cables:
        cable.plug()
    chain.run()
    assert known(chain.a) == known(chain.b) == known(chain.c)
    assert len(known(chain.a)["user:mary"][1]) == 1


def test_it_is_about_the_topic_that_the_publisher_chose() -> None:
    to = (share("t/#", there="far/"),)
    a = Node("a", node_link("x", "y", out=to), **OPEN)
    b = Node("b", node_link("y", "x", into=(share("far/#"),)), **OPEN)
    cable = Cable(a, b, "x->y")
    mary, mark = a.peer("m", username="mary"), b.peer("k", username="mark")
    mark.subscribe("far/#")
    rules(mary, allow(topic="t/1"))
    cable.run()
    for topic in ("t/1", "t/2"):
        say(mary, topic, qos=1)
    cable.run()
    assert got(mark) == [("far/t/1", b"x")]


def test_names_mean_those_of_the_publishers_domain_and_what_that_believes() -> None:
    """Node a is of the domain `home`, which believes that doctors of `clinic` are its own; node b is of `clinic`."""
    believes = {"clinic": Domain(nodes=("b",), users={"bob": "robert"})}
    a = Node("a", node_link("x", "y"), domain="home", believes=believes, **OPEN)
    b = Node("b", node_link("y", "x"), domain="clinic", believes={"home": Domain(nodes=("a",))}, **OPEN)
    cable = Cable(a, b, "x->y")
    mary = a.peer("m", username="mary")
    readers = {name: b.peer(name, username=name) for name in ("mark", "bob", "zoe", "ann")}
    for reader in readers.values():
        reader.subscribe("t/#")
    rules(
        mary,
        allow("user:mark", id="a"),  # a Mark at home, whom there is none of here
        allow("user:robert", id="b"),
        allow("user:zoe@clinic", id="c"),
        allow("*", id="d", topic="t/ann", when="s.user == 'ann@clinic' && p.user == 'mary'"),
    )
    for topic in ("t/1", "t/ann"):
        say(mary, topic, qos=1)
    cable.run()
    found = {name: [topic for topic, _ in got(reader)] for name, reader in readers.items()}
    assert found == {"mark": [], "bob": ["t/1", "t/ann"], "zoe": ["t/1", "t/ann"], "ann": ["t/ann"]}


def test_a_rule_that_denies_denies_everywhere() -> None:
    reading = policy_of(id="r", subject="*", topic="#", action="read")
    chain = Chain(policies=Policies([*WRITING.policies, reading]))
    mary, mark, zoe = (
        chain.a.peer("m", username="mary"),
        chain.c.peer("k", username="mark"),
        chain.c.peer("z", username="zoe"),
    )
    for reader in (mark, zoe):
        reader.subscribe("t/#")
    rules(mary, allow(effect="deny"))
    say(mary, "t/1", qos=1)
    chain.run()
    assert (got(mark), got(zoe)) == ([], [("t/1", b"x")])


def test_how_long_a_rule_has_left_travels() -> None:
    chain = Chain()
    chain.c.wall += 86400.0  # its clock is wrong
    mary, mark = chain.a.peer("m", username="mary"), chain.c.peer("k", username="mark")
    mark.subscribe("t/#")
    rules(mary, allow(expires="20s"))
    for waited, expected in ((0.0, 1), (19.0, 1), (2.0, 0)):
        for node in (chain.a, chain.b, chain.c):
            node.turn(waited)
        say(mary, "t/1", qos=1)
        chain.run()
        assert len(got(mark)) == expected, waited


def test_what_has_come_over_a_link_is_kept_over_a_restart() -> None:
    disk = Disk()
    link = node_link("y", "x")
    a, b = Node("a", node_link("x", "y"), **OPEN), Node("b", link, store=disk, **OPEN)
    cable = Cable(a, b, "x->y")
    rules(a.peer("m", username="mary"), allow())
    cable.run()
    again = Node("b", link, **OPEN)
    kept = {key: value for (room, key), value in disk._batch.records.items() if room == ROOM and value is not None}
    again.realm.publishers.restore(kept)
    assert known(again) == {"user:mary": (1, ["r"])}
    assert again.realm.publishers.counted("y->x").rules == 1


# -- a neighbour that lies -------------------------------------------------------------------------------------------


def neighbours(**fields: Any) -> tuple[Node, Node, Cable, list[str]]:
    """Two nodes, and what the second one refuses of the first one."""
    domains = {"near": Domain(nodes=("a",))}
    a = Node("a", node_link("x", "y"), domain="near", believes={"far": Domain(nodes=("b",))}, **OPEN)
    b = Node("b", node_link("y", "x"), domain="far", believes=domains, **{**OPEN, **fields})
    cable = Cable(a, b, "x->y")
    refused: list[str] = []
    end = b.realm.node_links.ends["y->x"]
    end.refused = refused.append  # type: ignore[method-assign]
    return a, b, cable, refused


def lie(a: Node, cable: Cable, said: TravellingRules) -> None:
    a.realm.node_links.ends["x->y"].control.tell(RULES, said.encode(0.0))
    cable.run()


@pytest.mark.parametrize("domain", ["far", "other", "near@far"])
def test_rules_of_a_domain_that_it_does_not_speak_for(domain: str) -> None:
    a, b, cable, refused = neighbours()
    rules(b.peer("m", username="mary"), allow("user:zoe"))
    lie(a, cable, told(domain=domain, book=Book(sequence=99, rules={})))
    assert known(b) == {"user:mary": (1, ["r"])}
    assert refused == [f"rules of mary@{domain}: this link does not speak for that domain"]


def test_a_flood_of_rules_fills_the_share_of_that_neighbour_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading_rules, "SHARE", 5)
    a, b, cable, refused = neighbours()
    for number in range(20):
        lie(a, cable, told(domain="near", user=f"u{number}"))
    assert len(b.realm.publishers) == 5
    assert len(refused) == 15
    assert "may come over one link" in refused[0]
    assert rules(b.peer("m", username="mary"), allow()) == 0  # what is said here has room
    lie(a, cable, told(domain="near", user="u1", book=Book(sequence=2)))  # and what makes room is taken
    lie(a, cable, told(domain="near", user="u2", book=Book(sequence=2, rules=told().book.rules)))
    assert len(b.realm.publishers) == 5
    assert len(refused) == 15


def test_an_old_set_of_rules_that_is_repeated_changes_nothing() -> None:
    a, b, cable, refused = neighbours()
    lie(a, cable, told(domain="near", book=Book(sequence=2)))
    lie(a, cable, told(domain="near"))
    assert known(b) == {"user:mary@near": (2, [])}
    assert refused == []


def test_over_a_connection_that_is_not_trusted_nothing_is_said_or_believed() -> None:
    a, b = (
        Node("a", node_link("x", "y"), **OPEN),
        Node("b", node_link("y", "x"), **OPEN),
    )
    cable = Cable(a, b, "x->y", level="tls")
    rules(a.peer("m", username="mary"), allow())
    cable.run()
    assert known(b) == {}
    lie(a, cable, told())
    assert known(b) == {}


def test_rules_that_nobody_could_have_sent_end_the_connection() -> None:
    _, b, _, _ = neighbours()
    end = b.realm.node_links.ends["y->x"]
    with pytest.raises(ProtocolError):
        end.control.take(RULES, b"garbage")
    many = {f"r{n}": Rule(id=f"r{n}", topic="t", subject=Selector.parse("*")) for n in range(MAX_RULES + 1)}
    with pytest.raises(ProtocolError, match="101 rules"):
        end.control.take(RULES, told(domain="near", book=Book(sequence=1, rules=many)).encode(0.0))


@pytest.mark.parametrize(
    "change",
    [
        {0: 2},
        {1: ""},
        {2: 7},
        {3: "a\nb"},
        {4: -1},
        {4: 2**63},
        {5: {"x": 1}},
        {6: [["r", "t/#", [], "allow", None, None, 0.0]]},
        {6: [["r", "t/#/x", ["*"], "allow", None, None, 0.0]]},
        {6: [["r/r", "t", ["*"], "allow", None, None, 0.0]]},
        {6: [["r", "t", ["*"], "perhaps", None, None, 0.0]]},
        {6: [["r", "t", ["*"], "allow", None, -1, 0.0]]},
        {6: [["r", "t", ["*"], "allow", "x" * 600, None, 0.0]]},
        {6: [["r", "t", ["*"], "allow", None, None, 0.0]] * 2},
        {6: [["r", "t", ["nobody"], "allow", None, None, 0.0]]},
        {6: [["r", "t"]]},
        {6: ["r"]},
    ],
)
def test_what_is_no_set_of_rules(change: dict[int, Any]) -> None:
    from tidegate.wire import cbor

    plain = cbor.plain(told().encode(0.0))
    assert isinstance(plain, list)
    assert TravellingRules.decode(cbor.canonical(plain), 0.0) == told()
    for place, value in change.items():
        plain[place] = value
    with pytest.raises(MalformedPacket):
        TravellingRules.decode(cbor.canonical(plain), 0.0)


def test_the_newer_of_two_is_the_same_everywhere() -> None:
    said = read(json.dumps([allow(expires=60), allow(id="s", subject=["user:a", "user:b"])]).encode(), 0.0)
    book = Book().after(said, ("#",))  # type: ignore[arg-type]
    assert isinstance(book, Book)
    travelled = TravellingRules.decode(told(book=book).encode(50.0), 1000.0).book
    assert travelled.rules["r"].expires == 1010.0
    assert not newer(book, travelled)
    assert not newer(travelled, book)
    other = Book(sequence=1, rules={})
    assert newer(other, book) is not newer(book, other)
    assert newer(Book(sequence=2), book)


def test_what_somebody_of_another_domain_says_here_does_not_travel_with_what_this_domain_believes() -> None:
    believes = {"far": Domain(nodes=("b",), users={"zoe": "zoe"}), "third": Domain(nodes=("c",))}
    a = Node("a", node_link("x", "y"), domain="near", believes=believes, **OPEN)
    b = Node("b", node_link("y", "x"), domain="far", believes={"third": Domain(through=("a",))}, **OPEN)
    cable = Cable(a, b, "x->y")
    rules(a.peer("m", username="mary"), allow("user:mark"))
    publishers = a.realm.publishers
    book = publishers.said("user:mary")
    assert book is not None
    publishers.told("user:carl@third", book[0], "", {})
    cable.run()
    said = b.realm.publishers.said("user:carl@third")
    assert said is not None
    assert said[2] == {}
