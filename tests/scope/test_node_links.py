"""Links between nodes, without sockets: what crosses, as whose, and once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pure import End
from scope.nodes import DOMAIN, Cable, Node, node_link, share
from scope.spaces import both, got, say
from tidegate.errors import ProtocolError
from tidegate.monitor import Attachment, Direction, Monitors
from tidegate.monitor.library import Mapper, Names
from tidegate.policy import Action, Effect, Policies, Policy, Preference, Preferences
from tidegate.policy.brokering import Brokering, Types
from tidegate.policy.domains import Domain
from tidegate.policy.home_preferences import HomePreferences, TravellingPreferences
from tidegate.policy.preference_sets import Verify
from tidegate.policy.scopes import Overflow, ScopeGraph, TopicMapping
from tidegate.policy.selector import Selector
from tidegate.policy.template import Template
from tidegate.predicate import compile
from tidegate.scope.preference_changes import ROOM
from tidegate.session import Limits, Message, Site, Volatile
from tidegate.session.journal import Unwritten
from tidegate.wire import V5, V311, Properties, Puback, Publish, Pubrel, encode
from tidegate.wire.envelope import Static, encode_static, seal


def pair(**fields: object) -> tuple[Node, Node, Cable]:
    a = Node("a", node_link("x", "y"), **fields)
    b = Node("b", node_link("y", "x"), **fields)
    return a, b, Cable(a, b, "x->y")


def test_a_message_crosses() -> None:
    a, b, cable = pair()
    assert cable.why == ""
    subscriber, publisher = b.peer("sub"), a.peer("pub", username="mary")
    subscriber.subscribe("#", 2)
    for qos in range(3):
        say(publisher, "t/1", b"m%d" % qos, qos=qos)
        if qos == 2:
            publisher.send(Pubrel(packet_id=7))
    cable.run()
    found = [(message.topic, message.payload, message.qos) for message in subscriber.messages()]
    assert found[:2] == [("t/1", b"m0", 0), ("t/1", b"m1", 1)]
    assert found[2] == ("t/1", b"m2", 2)


def test_it_crosses_both_ways() -> None:
    a, b, cable = pair()
    left, right = a.peer("left"), b.peer("right")
    left.subscribe("#")
    right.subscribe("#")
    say(left, "l")
    say(right, "r")
    cable.run()
    assert got(left) == [("l", b"x"), ("r", b"x")]
    assert got(right) == [("r", b"x"), ("l", b"x")]  # its own at once, and nothing comes back


def test_what_waits_crosses_after_a_cut_once_and_in_order() -> None:
    a, b, cable = pair()
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 1)
    say(publisher, "t", b"0", qos=1)
    cable.cut()  # before anything was carried
    for number in range(1, 5):
        say(publisher, "t", b"%d" % number, qos=1)
    cable.plug()
    cable.run()
    assert [payload for _, payload in got(subscriber)] == [b"0", b"1", b"2", b"3", b"4"]


def test_what_was_delivered_before_a_cut_is_not_delivered_again() -> None:
    a, b, cable = pair()
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 1)
    say(publisher, "t", b"0", qos=1)
    a.turn()
    data, cable.mine.sent = cable.mine.sent, b""
    cable.theirs.connection.reader.receive(data)
    cable.cut()  # PUBACK is lost
    cable.plug()
    cable.run()
    assert got(subscriber) == [("t", b"0")]


def test_retained_messages_cross_when_the_link_opens() -> None:
    a, b, cable = pair()
    publisher = a.peer("pub")
    cable.cut()
    say(publisher, "state", b"on", retain=True)
    cable.plug()
    cable.run()
    late = b.peer("late")
    late.subscribe("#")
    (message,) = late.messages()
    assert (message.topic, message.payload, message.retain) == ("state", b"on", True)
    cable.cut()
    cable.plug()
    cable.run()
    assert got(late) == []  # it has that one


def test_names_of_a_share() -> None:
    mapping = share("+/speed", there="MyGym/")
    a = Node("a", node_link("x", "y", out=(mapping,), into=()))
    b = Node("b", node_link("y", "x", out=(), into=(mapping,)))
    cable = Cable(a, b, "x->y")
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#")
    say(publisher, "tr1/speed")
    say(publisher, "tr1/heartbeats")
    cable.run()
    assert got(subscriber) == [("MyGym/tr1/speed", b"x")]


def test_policies_of_both_ends_know_a_topic_as_it_is_called_before_the_link() -> None:
    mapping = share("+/speed", there="MyGym/")
    leaving, entering = rule("l", "link:x->y", "+/speed", Action.WRITE), rule("l", "link:x->y", "+/speed", Action.READ)
    publisher_rule, reader = rule("p", "client:pub", "#", Action.WRITE), rule("s", "client:sub", "#", Action.READ)
    a = Node("a", node_link("x", "y", out=(mapping,), into=()), policies=policies(leaving, publisher_rule))
    b = Node("b", node_link("y", "x", out=(), into=(mapping,)), policies=policies(entering, reader))
    cable = Cable(a, b, "x->y")
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 1)
    for qos in (0, 1):
        say(publisher, "tr1/speed", qos=qos)
        cable.run()
    assert got(subscriber) == [("MyGym/tr1/speed", b"x")] * 2


def test_what_the_other_side_does_not_share_is_refused() -> None:
    a = Node("a", node_link("x", "y"))
    b = Node("b", node_link("y", "x", into=(share("ok/#"),)))
    cable = Cable(a, b, "x->y")
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#")
    say(publisher, "ok/1")
    say(publisher, "other")
    cable.run()
    assert got(subscriber) == [("ok/1", b"x")]
    assert b.site.counters.denied == 1


def policies(*rules: Policy) -> Policies:
    return Policies(rules, domain=DOMAIN)


def rule(id: str, subject: str, topic: str, *actions: Action, when: str | None = None) -> Policy:
    return Policy(
        id=id,
        subject=Selector.parse(subject),
        topic=Template.parse(topic),
        action=frozenset(actions),
        when=None if when is None else compile(when),
    )


def denial(id: str, subject: str, topic: str, *actions: Action) -> Policy:
    return replace(rule(id, subject, topic, *actions), effect=Effect.DENY)


ALL_WRITE = rule("w", "*", "#", Action.WRITE)
ALL_READ = rule("r", "*", "#", Action.READ)


@pytest.mark.parametrize("level", ["trusted", "tls"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_ring_delivers_once(qos: int, level: str) -> None:
    a = Node("a", node_link("x", "y"), node_link("x", "z"))
    b = Node("b", node_link("y", "x"), node_link("y", "z"))
    c = Node("c", node_link("z", "y"), node_link("z", "x"))
    cables = [Cable(a, b, "x->y", level=level), Cable(b, c, "y->z", level=level), Cable(c, a, "z->x", level=level)]
    ends: list[End] = [node.peer("s") for node in (a, b, c)]

    def run() -> None:
        for _ in range(6):
            for cable in cables:
                if not cable.mine.closed:
                    cable.run()

    run()  # the nodes hear of the ring
    for end in ends:
        end.subscribe("#", 1)
    publisher = a.peer("p")
    for number in range(4):  # also those that might take the fast lane
        say(publisher, "t", b"%d" % number, qos=qos)
        run()
        assert [got(end) for end in ends] == [[("t", b"%d" % number)]] * 3
    cables[1].cut()
    run()
    say(publisher, "t", b"x", qos=qos)
    run()
    assert [got(end) for end in ends] == [[("t", b"x")]] * 3


@pytest.mark.parametrize("lowest", [0, 1])
def test_the_qos_of_then_is_known_however_many_links_have_lowered_it(lowest: int) -> None:
    a = Node("a", node_link("x", "y", out=(share("#", qos=lowest),)))
    b = Node("b", node_link("y", "x", into=(share("#", qos=lowest),)), node_link("y", "z"))
    reads = rule("r", "*", "#", Action.READ, when="p.qos == 2")
    c = Node("c", node_link("z", "y"), policies=policies(ALL_WRITE, rule("in", "link:y->z", "#", Action.READ), reads))
    cables = [Cable(a, b, "x->y"), Cable(b, c, "y->z")]
    end, publisher = c.peer("s"), a.peer("p")
    end.subscribe("#", 2)
    for number in range(2):
        say(publisher, "t", b"%d" % number, qos=2)
        publisher.send(Pubrel(packet_id=7))
        for cable in cables:
            cable.run()
        assert got(end) == [("t", b"%d" % number)]
    say(publisher, "t", qos=1)
    for cable in cables:
        cable.run()
    assert got(end) == []


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("back", [True, False])
def test_two_links_into_scopes_that_are_linked_with_each_other(qos: int, back: bool) -> None:
    a = Node("a", node_link("x", "p"), node_link("x", "q"))
    inside = both("p", "q")
    space = ScopeGraph(scopes=("p", "q"), links=inside if back else inside[:1])
    b = Node("b", node_link("p", "x"), node_link("q", "x"), space=space)
    cables = [Cable(a, b, "x->p"), Cable(a, b, "x->q")]
    ends = [a.peer("s"), b.peer("sp", scope="p"), b.peer("sq", scope="q")]
    for end in ends:
        end.subscribe("#", 1)
    publisher = a.peer("p")
    for number in range(3):
        say(publisher, "t", b"%d" % number, qos=qos)
        if qos == 2:
            publisher.send(Pubrel(packet_id=7))
        for cable in (*cables, *reversed(cables)):
            cable.run()
        assert [got(end) for end in ends] == [[("t", b"%d" % number)]] * 3


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_copy_that_was_refused_does_not_shadow_a_good_one(qos: int) -> None:
    """What comes directly is of a type that may not be read; what comes by the other node may."""
    a = Node("a", node_link("x", "z"), node_link("x", "y"))
    b = Node("b", node_link("y", "x"), node_link("y", "z"))
    types = Brokering([("in", "out")], default=Types(inward="in", outward="out"))
    c = Node("c", node_link("z", "x", types=("in", "shut")), node_link("z", "y"), brokering=types)
    direct, first, second = Cable(a, c, "x->z"), Cable(a, b, "x->y"), Cable(b, c, "y->z")
    for _ in range(4):
        for cable in (direct, first, second):
            cable.run()
    end, publisher = c.peer("s"), a.peer("p")
    end.subscribe("#", 1)
    for number in range(3):
        say(publisher, "t", b"%d" % number, qos=qos)
        if qos == 2:
            publisher.send(Pubrel(packet_id=7))
        direct.run()
        assert got(end) == []
        first.run()
        second.run()
        assert got(end) == [("t", b"%d" % number)]


@pytest.mark.parametrize("direct_first", [True, False])
def test_a_retained_message_keeps_the_types_of_all_links_that_it_has_come_over(direct_first: bool) -> None:
    a = Node("a", node_link("x", "z"), node_link("x", "y"))
    b = Node("b", node_link("y", "x"), node_link("y", "z"))
    types = Brokering([("in", "out")], default=Types(inward="in", outward="out"))
    c = Node("c", node_link("z", "x", types=("in", "shut")), node_link("z", "y"), brokering=types)
    cables = [Cable(a, c, "x->z"), Cable(a, b, "x->y"), Cable(b, c, "y->z")]

    def run() -> None:
        for cable in cables if direct_first else reversed((*cables, *cables[1:])):
            cable.run()

    run()
    run()
    publisher = a.peer("p")
    say(publisher, "t", b"1", qos=1, retain=True)
    run()
    run()
    late = c.peer("late")
    late.subscribe("#", 1)
    assert got(late) == [("t", b"1")]
    say(publisher, "t", b"", qos=1, retain=True)
    run()
    run()
    assert c.scope.retained.get("t") is None


def test_where_there_is_no_ring_nothing_is_remembered_of_qos_0() -> None:
    a = Node("a", node_link("x", "y"))
    b = Node("b", node_link("y", "x"), node_link("y", "z"))
    c = Node("c", node_link("z", "y"))
    cables = [Cable(a, b, "x->y"), Cable(b, c, "y->z")]
    publisher = a.peer("p")
    for _ in range(3):
        say(publisher, "t")
        for cable in cables:
            cable.run()
    for node in (a, b, c):
        assert not node.scope.seen_ids.unkept
        assert not any(end.plans.ringed for end in node.realm.node_links.ends.values())


def test_the_floor_is_the_lower_of_what_is_claimed_and_of_the_connection() -> None:
    a = Node("a", node_link("x", "y"))
    b = Node("b", node_link("y", "x"), announces_floor=True)
    cable = Cable(a, b, "x->y", level="tls")
    subscriber = b.peer("sub")
    subscriber.subscribe("#")
    say(a.peer("pub"), "t")
    cable.run()
    (message,) = subscriber.messages()
    assert ("floor", "plain") in message.properties.user_properties


def test_a_demand_that_the_connection_does_not_meet_waits() -> None:
    a, b, _ = Node("a", node_link("x", "y")), Node("b", node_link("y", "x")), None
    cable = Cable(a, b, "x->y", level="tls")
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 1)
    say(publisher, "t", b"1", qos=1, properties=Properties(user_properties=(("require", "mtls"),)))
    say(publisher, "u", b"2", qos=1)
    cable.run()
    assert [topic for topic, _ in got(subscriber)] == ["u"]
    cable.cut()
    cable.level = "trusted"
    cable.plug()
    cable.run()
    assert a.realm.node_links.ends["x->y"].session.queued == 0


def test_people_of_another_domain_are_nobody_here() -> None:
    believes = {"other": Domain(nodes=("a",))}
    a = Node("a", node_link("x", "y"), domain="other")
    b = Node("b", node_link("y", "x"), believes=believes)
    cable = Cable(a, b, "x->y")
    subscriber = b.peer("sub")
    subscriber.subscribe("#")
    say(a.peer("pub", username="mary"), "t")
    cable.run()
    assert got(subscriber) == [("t", b"x")]
    context = b.scope.gate.attributes
    plan = next(iter(b.scope.gate.cache.derived.values()))
    assert context.publisher(plan.context.subject)["user"] == "mary@other"


def test_a_node_speaks_only_for_the_domains_that_it_is_listed_with() -> None:
    a = Node("a", node_link("x", "y"), domain="other")
    b = Node("b", node_link("y", "x"), believes={"other": Domain(nodes=("somebody",))})
    cable = Cable(a, b, "x->y")
    subscriber = b.peer("sub")
    subscriber.subscribe("#")
    say(a.peer("pub"), "t")
    cable.run()
    assert got(subscriber) == []
    assert b.site.counters.denied == 1


@pytest.mark.parametrize("allowed", [False, True])
def test_types_of_both_ends(allowed: bool) -> None:
    pairs = [("in", "out"), ("far", "out"), *([("in", "far")] if allowed else [])]
    brokering = Brokering(pairs, default=Types(inward="in", outward="out"))
    a = Node("a", node_link("x", "y", types=("far", "far")), brokering=brokering)
    b = Node("b", node_link("y", "x", types=("far", "far")), brokering=brokering)
    cable = Cable(a, b, "x->y")
    subscriber = b.peer("sub")
    subscriber.subscribe("#")
    say(a.peer("pub"), "t")
    cable.run()
    assert got(subscriber) == ([("t", b"x")] if allowed else [])


@pytest.mark.parametrize(
    ("a_rules", "b_rules", "crosses"),
    [
        ((ALL_WRITE,), (ALL_READ, ALL_WRITE), True),
        ((rule("w", "user:mary", "#", Action.WRITE),), (ALL_READ,), False),  # the link may not forward out
        ((ALL_WRITE,), (rule("s", "client:sub", "#", Action.READ),), False),  # the link may not import
        ((ALL_WRITE,), (rule("l", "link:x->y", "#", Action.READ),), False),  # nobody may read there
        (
            (rule("w", "user:mary", "#", Action.WRITE), rule("f", "link:x->y", "t", Action.WRITE)),
            (rule("l", "link:x->y", "t", Action.READ), rule("s", "client:sub", "#", Action.READ)),
            True,
        ),
    ],
)
def test_policies_of_both_ends(a_rules: tuple[Policy, ...], b_rules: tuple[Policy, ...], crosses: bool) -> None:
    hold = rule("sub", "client:sub", "#", Action.READ)
    a = Node("a", node_link("x", "y"), policies=policies(*a_rules, hold))
    b = Node("b", node_link("y", "x"), policies=policies(*b_rules), holds=True)
    cable = Cable(a, b, "x->y")
    subscriber = b.peer("sub")
    subscriber.subscribe("#")
    say(a.peer("pub", username="mary"), "t")
    cable.run()
    assert got(subscriber) == ([("t", b"x")] if crosses else [])


def test_a_changed_policy_counts_for_what_waits() -> None:
    allowed = policies(ALL_WRITE, ALL_READ)
    a = Node("a", node_link("x", "y"), policies=allowed)
    b = Node("b", node_link("y", "x"), policies=allowed)
    cable = Cable(a, b, "x->y")
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 1)
    cable.cut()
    say(publisher, "t", qos=1)
    a.change(policies=policies(rule("p", "client:pub", "#", Action.WRITE)))
    cable.plug()
    cable.run()
    assert got(subscriber) == []
    assert a.site.counters.denied == 1


def test_an_owner_decides_who_it_is_forwarded_to() -> None:
    preferences = Preferences(
        [Preference(id="u", user="mary", topic="#", to="y", when=compile("o.qos == 1"))], domain="d"
    )
    a = Node("a", node_link("x", "y"), preferences=preferences)
    b = Node("b", node_link("y", "x"))
    cable = Cable(a, b, "x->y")
    subscriber, publisher = b.peer("sub"), a.peer("pub", username="mary")
    subscriber.subscribe("#", 1)
    say(publisher, "t", b"0")
    say(publisher, "t", b"1", qos=1)
    cable.run()
    assert got(subscriber) == [("t", b"1")]


def test_a_table_of_visibility_travels() -> None:
    a, b, cable = pair()
    mary, bob, publisher = b.peer("m", username="mary"), b.peer("b", username="bob"), a.peer("pub")
    mary.subscribe("#")
    bob.subscribe("#")
    table = Properties(user_properties=(("view", '{"user:mary": ["/a"]}'),))
    say(publisher, "t", b'{"a": 1, "b": 2}', properties=table)
    cable.run()
    assert got(mary) == [("t", b'{"a":1}')]
    assert got(bob) == []


def test_monitors_at_both_borders() -> None:
    def border(id: str, direction: Direction, scope: str, **letters: str) -> Monitors:
        return Monitors([Attachment(id=id, monitor=Mapper(Names(letters)), scope=scope, direction=direction)])

    a = Node("a", node_link("x", "y"), monitors=border("ma", Direction.EX_PUB, "x", t="u"))
    b = Node("b", node_link("y", "x"), monitors=border("mb", Direction.EX_SUB, "y", u="v"))
    cable = Cable(a, b, "x->y")
    here, there, publisher = a.peer("here"), b.peer("there"), a.peer("pub")
    here.subscribe("#")
    there.subscribe("#")
    say(publisher, "t")
    cable.run()
    assert got(here) == [("t", b"x")]
    assert got(there) == [("v", b"x")]


def test_a_message_that_expires_says_how_long_it_has_left() -> None:
    a, b, cable = pair()
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 1)
    cable.cut()
    say(publisher, "t", b"short", qos=1, properties=Properties(message_expiry_interval=5))
    say(publisher, "t", b"long", qos=1, properties=Properties(message_expiry_interval=100))
    a.turn(10)
    b.turn(10)
    cable.plug()
    cable.run()
    (message,) = subscriber.messages()
    assert (message.payload, message.properties.message_expiry_interval) == (b"long", 90)


def test_a_link_that_is_gone_carries_nothing_and_keeps_nothing() -> None:
    a, b, cable = pair()
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#")
    a.change(space=ScopeGraph(scopes=("x",)))
    assert cable.mine.closed
    assert a.realm.node_links.ends == {}
    say(publisher, "t")
    assert a.scope.sessions.keys() == {("anonymous", "pub")}


def test_forged_envelopes_are_refused() -> None:
    _, b, cable = pair()
    b.peer("sub").subscribe("#")
    frame = Publish(topic="t", payload=b"no envelope", qos=0)
    with pytest.raises(ProtocolError, match="without a valid envelope"):
        cable.theirs.connection.publishing.publish(frame)


def test_a_full_link_drops_the_oldest_or_refuses() -> None:
    limits = Limits(queue_messages=2)
    for overflow, kept, answers in (
        (Overflow.DROP, [b"2", b"3"], [0, 0, 0, 0]),
        (Overflow.REFUSE, [b"0", b"1"], [0, 0, 0x97, 0x97]),
    ):
        a = Node("a", node_link("x", "y", overflow=overflow), limits=limits)
        b = Node("b", node_link("y", "x"))
        cable = Cable(a, b, "x->y")
        here, there, publisher = a.peer("here"), b.peer("there"), a.peer("pub")
        here.subscribe("#", 1)
        there.subscribe("#", 1)
        cable.cut()
        told = []
        for number in range(4):
            say(publisher, "t", b"%d" % number, qos=1)
            told += [packet.reason for packet in publisher.take() if isinstance(packet, Puback)]
        cable.plug()
        cable.run()
        assert told == answers
        assert [payload for _, payload in got(there)] == kept
        assert len(got(here)) == answers.count(0)


def test_a_changed_policy_counts_for_the_next_message_of_the_fast_lane() -> None:
    allowed = policies(ALL_WRITE, ALL_READ)
    a = Node("a", node_link("x", "y"), policies=allowed)
    b = Node("b", node_link("y", "x"), policies=allowed)
    cable = Cable(a, b, "x->y")
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#")
    for number in range(3):  # the first one is compiled for
        say(publisher, "t", b"%d" % number)
        cable.run()
    b.change(policies=policies(ALL_WRITE, ALL_READ, denial("d", "link:x->y", "t", Action.READ)))
    say(publisher, "t", b"denied there")
    cable.run()
    b.change(policies=allowed)
    a.change(policies=policies(ALL_WRITE, ALL_READ, denial("d", "link:x->y", "t", Action.WRITE)))
    say(publisher, "t", b"denied here")
    cable.run()
    a.change(policies=allowed)
    say(publisher, "t", b"3")
    cable.run()
    assert [payload for _, payload in got(subscriber)] == [b"0", b"1", b"2", b"3"]
    assert b.site.counters.denied == 1


def test_versions_and_floors_of_subscribers_behind_the_fast_lane() -> None:
    a = Node("a", node_link("x", "y"))
    b = Node("b", node_link("y", "x"), announces_floor=True)
    cable = Cable(a, b, "x->y", level="tls")
    old, new, publisher = b.peer("old", version=V311), b.peer("new"), a.peer("pub")
    old.subscribe("#")
    new.subscribe("#")
    for number in range(3):
        say(publisher, "t", b"%d" % number)
        cable.run()
    assert [message.payload for message in old.messages()] == [b"0", b"1", b"2"]
    floors = [message.properties.user_properties for message in new.messages()]
    assert floors == [(("floor", "plain"),)] * 3


def test_a_chain_of_three() -> None:
    a, c = Node("a", node_link("x", "y")), Node("c", node_link("z", "y"))
    b = Node("b", node_link("y", "x"), node_link("y", "z"))
    cables = [Cable(a, b, "x->y"), Cable(b, c, "y->z")]
    ends = [b.peer("b"), c.peer("c")]
    for end in ends:
        end.subscribe("#")
    publisher = a.peer("pub")
    for number in range(3):
        say(publisher, "t", b"%d" % number)
        for cable in cables:
            cable.run()
    assert [got(end) for end in ends] == [[("t", b"0"), ("t", b"1"), ("t", b"2")]] * 2


def trusting(*domains: tuple[str, str]) -> Verify:
    """Signatures count of these nodes, for these domains."""
    known = dict(domains)
    return lambda signer, signed, signature: known.get(signer.decode()) if signature == b"signed" else None


def owners(domain: str, *rows: tuple[str, str]) -> Preferences:
    made = [
        Preference(id=f"u{at}", user=user, topic="#", when=compile(when), text=when)
        for at, (user, when) in enumerate(rows)
    ]
    return Preferences(made, domain=domain)


@pytest.mark.parametrize("home", ["other", DOMAIN])
def test_preferences_bind_at_the_other_node(home: str) -> None:
    preferences = owners(home, ("mary", "s.user == 'alice@d'" if home == "other" else "s.user == 'alice'"))
    believes = {home: Domain(nodes=("a",))}
    a = Node("a", node_link("x", "y"), domain=home, believes=believes, preferences=preferences)
    b = Node("b", node_link("y", "x"), believes=believes)
    b.realm.node_links.travel(None, trusting(("a", home)))
    cable = Cable(a, b, "x->y")
    alice, bob, publisher = b.peer("1", username="alice"), b.peer("2", username="bob"), a.peer("pub", username="mary")
    for end in (alice, bob):
        end.subscribe("#")
    for number in range(2):
        say(publisher, "t", b"%d" % number)
        cable.run()
    assert got(alice) == [("t", b"0"), ("t", b"1")]
    assert got(bob) == []


def test_a_change_of_preferences_counts_for_what_is_there_already() -> None:
    believes = {"other": Domain(nodes=("a",))}
    before, after = owners("other", ("mary", "true")), owners("other", ("mary", "false"))
    a = Node("a", node_link("x", "y"), domain="other", believes=believes, preferences=before)
    b = Node("b", node_link("y", "x"), believes=believes)
    b.realm.node_links.travel(None, trusting(("a", "other")))
    cable = Cable(a, b, "x->y")
    say(a.peer("pub", username="mary"), "t", b"kept", retain=True)
    cable.run()
    early = b.peer("early")
    early.subscribe("#")
    assert got(early) == [("t", b"kept")]
    home = HomePreferences(after)
    numbers = {each.owner: each for each in home.renumbered({}, 1_800_000_000.0)}
    a.change(preferences=after)
    a.realm.node_links.travel(
        TravellingPreferences(home, numbers, signer=lambda data: b"signed", certificate=b"a"), trusting()
    )
    cable.run()
    late = b.peer("late")
    late.subscribe("#")
    assert got(late) == []


def test_preferences_that_nobody_of_their_domain_has_signed_are_refused() -> None:
    believes = {"other": Domain(nodes=("a",))}
    preferences = owners("other", ("mary", "true"))
    a = Node("a", node_link("x", "y"), domain="other", believes=believes, preferences=preferences)
    b = Node("b", node_link("y", "x"), believes=believes)
    b.realm.node_links.travel(None, trusting(("a", "third")))
    cable = Cable(a, b, "x->y")
    subscriber = b.peer("sub")
    subscriber.subscribe("#")
    say(a.peer("pub", username="mary"), "t")
    cable.run()
    assert got(subscriber) == []
    assert b.site.counters.denied == 1


def test_retained_messages_that_are_gone_are_gone_there() -> None:
    a, b, cable = pair()
    publisher, other = a.peer("pub"), b.peer("other")
    say(publisher, "state/1", b"on", retain=True)
    say(publisher, "state/2", b"on", retain=True)
    say(other, "own", b"x", retain=True)
    cable.run()
    cable.cut()
    say(publisher, "state/1", b"", retain=True)
    cable.plug()
    cable.run()
    late = b.peer("late")
    late.subscribe("#")
    assert sorted(got(late)) == [("own", b"x"), ("state/2", b"on")]


def foreign_publisher(**fields: object) -> tuple[Node, End, Cable]:
    """Node b, a subscriber there, and a link over which a node sends a message of this publisher."""
    brokering = Brokering([("in", "out"), ("far", "none")], default=Types(inward="in", outward="out"))
    a = Node("a", node_link("x", "y"))
    b = Node("b", node_link("y", "x", types=("far", "far")), brokering=brokering)
    cable = Cable(a, b, "x->y")
    subscriber = b.peer("sub")
    subscriber.subscribe("#")
    static = Static(
        origin="0" * 16, publisher={"domain": DOMAIN, **fields}, topic="t", floor="plain", path=("x@" + "0" * 16,)
    )
    payload = seal(encode_static(static), bytes(14), 1, 0, 1.0, None, 0, False, b"x", None)
    cable.theirs.connection.reader.receive(encode(Publish(topic="t", payload=payload, qos=0), V5))
    b.turn()
    return b, subscriber, cable


def test_another_node_is_not_this_one_when_it_says_so() -> None:
    # the node's own statistics are exempt from brokering; what another says of itself is not
    _, subscriber, _ = foreign_publisher(kind="service", client="sys")
    assert got(subscriber) == []


@pytest.mark.parametrize(
    ("out", "into"),
    [((share("t", qos=0), share("#")), (share("#"),)), ((share("#"),), (share("t", qos=0), share("#")))],
)
def test_the_first_share_says_the_qos_at_either_end(
    out: tuple[TopicMapping, ...], into: tuple[TopicMapping, ...]
) -> None:
    a = Node("a", node_link("x", "y", out=out))
    b = Node("b", node_link("y", "x", into=into))
    cable = Cable(a, b, "x->y")
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 2)
    for topic in ("t", "u"):
        say(publisher, topic, qos=1)
    cable.run()
    assert {message.topic: message.qos for message in subscriber.messages()} == {"t": 0, "u": 1}


@pytest.mark.parametrize("qos", [0, 1])
def test_a_change_of_preferences_counts_for_the_next_message_of_the_fast_lane(qos: int) -> None:
    believes = {"other": Domain(nodes=("a",))}
    before, after = owners("other", ("mary", "true")), owners("other", ("mary", "false"))
    a = Node("a", node_link("x", "y"), domain="other", believes=believes, preferences=before)
    b = Node("b", node_link("y", "x"), believes=believes)
    cable = Cable(a, b, "x->y")
    subscriber, publisher = b.peer("sub"), a.peer("pub", username="mary")
    subscriber.subscribe("#", qos)
    for number in range(3):
        say(publisher, "t", b"%d" % number, qos=qos)
        cable.run()
    assert len(got(subscriber)) == 3
    home = HomePreferences(after)
    numbers = {each.owner: each for each in home.renumbered({}, a.wall + 10)}
    travelling = TravellingPreferences(home, numbers, signer=lambda data: b"signed", certificate=b"a")
    (owner,) = numbers
    newer = travelling.signed(owner)
    assert newer is not None
    b.realm.foreign.take(newer, "another link", b.realm.node_links.owners.verify)  # before the publisher's node has it
    say(publisher, "t", b"not any more", qos=qos)
    cable.run()
    assert got(subscriber) == []


def said_now(node: Node, preferences: Preferences) -> None:
    """The owners of a node's domain say something else from now on."""
    home = HomePreferences(preferences)
    numbers = {each.owner: each for each in home.renumbered({}, 1_800_000_000.0)}
    node.change(preferences=preferences)
    node.realm.node_links.travel(
        TravellingPreferences(home, numbers, signer=lambda data: b"signed", certificate=b"a"), trusting()
    )


class Told(Volatile):
    """A store that keeps of whom other nodes have been told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, bytes] = {}

    def keep(self, room: str, key: str, value: bytes | None, *, urgent: bool = True) -> None:
        if room == ROOM and value is not None:
            self.told[key] = value
        elif room == ROOM:
            del self.told[key]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("when", ["connected", "apart", "connected anew", "started anew"])
def test_who_has_messages_of_an_owner_is_told_of_a_change(when: str, first: bool) -> None:
    believes = {"other": Domain(nodes=("a",))}
    before = owners("other", *(() if first else (("mary", "true"),)))
    store = Told()
    a = Node("a", node_link("x", "y"), domain="other", believes=believes, preferences=before, store=store)
    b = Node("b", node_link("y", "x"), believes=believes)
    b.realm.node_links.travel(None, trusting(("a", "other")))
    cable = Cable(a, b, "x->y")
    waiting = b.peer("waiting", clean_start=False, properties=Properties(session_expiry_interval=1000))
    waiting.subscribe("#", 1)
    waiting.lose()
    say(a.peer("pub", username="mary"), "t", b"kept", qos=1)
    cable.run()
    if when != "connected":
        cable.cut()
    if when == "connected anew":
        cable.plug()
    if when == "started anew":
        a = Node("a", node_link("x", "y"), domain="other", believes=believes, preferences=before)
        a.realm.node_links.restore_told(store.told)
    said_now(a, owners("other", ("mary", "false")))
    if when == "apart":
        cable.plug()
    if when == "started anew":
        cable = Cable(a, b, "x->y")
    cable.run()
    assert got(b.peer("waiting", clean_start=False)) == []


def test_of_whom_the_other_node_was_told_is_forgotten_with_the_link() -> None:
    store = Told()
    a, b = Node("a", node_link("x", "y"), store=store), Node("b", node_link("y", "x"))
    cable = Cable(a, b, "x->y")
    say(a.peer("pub", username="mary"), "t")
    cable.run()
    assert len(store.told) == 1
    a.change(space=ScopeGraph(scopes=("x",)))
    assert store.told == {}


def test_a_newer_set_goes_along_with_a_message_from_before_there_was_any() -> None:
    believes = {"other": Domain(nodes=("a",))}
    a = Node("a", node_link("x", "y"), domain="other", believes=believes)
    b = Node("b", node_link("y", "x"), node_link("y", "z"), believes=believes)
    c = Node("c", node_link("z", "y"), believes=believes)
    left = Cable(a, b, "x->y")
    publisher = a.peer("pub", username="mary")
    say(publisher, "t", b"kept", retain=True)
    left.run()
    said_now(a, owners("other", ("mary", "false")))
    left.run()
    Cable(b, c, "y->z").run()
    late = c.peer("late")
    late.subscribe("#")
    assert got(late) == []
    assert len(c.realm.foreign) == 1


class Written(Unwritten):
    """A journal that is safe at the end of the turn."""

    def __init__(self, site: Site) -> None:
        self.rows: list[bytes] = []
        self._site = site

    def write(self, message: Message) -> bool:
        self.rows.append(message.payload)
        return True

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        self._site.store.after(callback, *args)


def test_what_is_in_the_journal_is_imported_and_not_written_by_the_link() -> None:
    entering, reader = rule("l", "link:x->y", "#", Action.READ), rule("s", "client:sub", "#", Action.READ)
    a = Node("a", node_link("x", "y"))
    b = Node("b", node_link("y", "x"), policies=policies(entering, reader), ingest=("t",))
    b.site.journal = journal = Written(b.site)
    cable = Cable(a, b, "x->y")
    subscriber, publisher = b.peer("sub"), a.peer("pub")
    subscriber.subscribe("#", 2)
    for qos in range(3):
        say(publisher, "t", b"%d" % qos, qos=qos)
    publisher.send(Pubrel(packet_id=7))
    cable.run()
    assert journal.rows == [b"0", b"1", b"2"]
    assert got(subscriber) == [("t", b"0"), ("t", b"1"), ("t", b"2")]


def test_what_is_remembered_of_the_boots_of_other_nodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.scope.imports.STATICS", 4)
    a = Node("a", node_link("x", "y"))
    b = Node("b", node_link("y", "x"), node_link("y", "z"))
    c = Node("c", node_link("z", "y"))
    left, right = Cable(a, b, "x->y"), Cable(b, c, "y->z")
    subscriber = c.peer("sub")
    subscriber.subscribe("#")
    node = a.site.origin.node
    static = Static(
        origin=node, publisher={"kind": "client", "client": "c", "domain": DOMAIN}, topic="t", floor="plain"
    )
    for boot in range(10):
        payload = seal(
            encode_static(static), bytes.fromhex(node) + boot.to_bytes(6), 1, 0, 1.0, None, 1, False, b"", None
        )
        left.theirs.connection.reader.receive(encode(Publish(topic="t", payload=payload, qos=1, packet_id=9), V5))
        left.run()
    right.run()
    assert len(subscriber.messages()) == 10
    assert 0 < len(b.realm.node_links.ends["y->x"].plans._origins) <= 4
