"""Links to nodes that are not trusted: what crosses is for everybody, and what the other node says does not count."""

from __future__ import annotations

from typing import Any

import pytest

from policy.written import policy_of, preference_of
from pure import End
from scope.nodes import Cable, Node, node_link
from scope.spaces import got, say
from tidegate import wire
from tidegate.policy import Policies, Preferences
from tidegate.policy.domains import Domain
from tidegate.wire import Properties
from tidegate.wire.envelope import Static, encode_static, seal


def pair(a: dict[str, Any] | None = None, b: dict[str, Any] | None = None) -> tuple[Node, Node, Cable]:
    domains = {"d": Domain(nodes=("a", "b"))}
    first = Node("a", node_link("x", "y", trusted=False), believes=domains, **(a or {}))
    second = Node("b", node_link("y", "x", trusted=False), believes=domains, **(b or {}))
    cable = Cable(first, second, "x->y")
    assert cable.why == ""
    return first, second, cable


def said(end: End, name: str) -> list[str]:
    """This property of what has come."""
    found = [packet for packet in end.take() if isinstance(packet, wire.Publish)]
    return [dict(packet.properties.user_properties).get(name, "") for packet in found]


def properties(*pairs: tuple[str, str]) -> Properties:
    return Properties(user_properties=pairs)


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_cross_once_and_not_back(qos: int) -> None:
    a, b, cable = pair()
    here, there = a.peer("here", username="mary"), b.peer("there")
    here.subscribe("#", qos)
    there.subscribe("#", qos)
    for number in range(3):  # QoS 0: the later ones take the fast lane
        say(here, "t", b"%d" % number, qos=qos)
        cable.run()
    assert [payload for _, payload in got(there)] == [b"0", b"1", b"2"]
    assert [payload for _, payload in got(here)] == [b"0", b"1", b"2"]


def test_what_comes_was_published_by_the_link_over_a_connection_that_is_worth_its_encryption() -> None:
    reading = [
        policy_of(id="r", subject="*", topic="#", action="read", when="p.kind == 'link' && !has(p.user)"),
        policy_of(id="in", subject="link:x->y", topic="#", action="read"),
        policy_of(id="no", subject="*", topic="#", action="read", effect="deny", when="p.floor > 'tls'"),
    ]
    a, b, cable = pair(b={"policies": Policies(reading)})
    mary, there = a.peer("m", username="mary"), b.peer("there")
    there.subscribe("#")
    secure = b.peer("secure")
    subscription = wire.Subscription(filter="#", qos=0)
    terms = properties(("require", "mtls"))
    secure.send(wire.Subscribe(packet_id=1, subscriptions=(subscription,), properties=terms))
    say(mary, "t", b"1")
    cable.run()
    assert [payload for _, payload in got(there)] == [b"1"]
    assert got(secure) == []


def test_what_somebody_has_a_say_in_does_not_leave_unless_the_other_node_may_have_all_of_it() -> None:
    wishes = Preferences(
        [
            preference_of(id="p", user="mary", topic="no/#", when="s.user == 'alice'"),
            preference_of(id="q", user="mary", topic="yes/#", when="s.kind == 'link'"),
        ],
        domain="d",
    )
    a, b, cable = pair(a={"preferences": wishes})
    mary, there = a.peer("m", username="mary"), b.peer("there")
    there.subscribe("#")
    for topic, *pairs in (
        ("no/1",),
        ("yes/1",),
        ("free/1", ("view", '{"user:alice": ["/a"]}')),
        ("free/2", ("require", "trusted")),
        ("free/3", ("require", "tls")),
        ("free/4",),
    ):
        mary.send(wire.Publish(topic=topic, payload=b'{"a": 1}', qos=0, properties=properties(*pairs)))
    cable.run()
    assert [topic for topic, _ in got(there)] == ["yes/1", "free/3", "free/4"]


def test_neither_rules_nor_states_nor_preferences_are_told_or_believed() -> None:
    a, b, _ = pair()
    for node in (a, b):
        [end] = node.realm.node_links.ends.values()
        assert not end.trusted
        assert end.plans.domains == frozenset()
        assert len(node.realm.node_links.neighbourhood.groups[0]) == 1
        assert not end.control.preferences._told


def test_what_it_claims_of_publishers_ids_and_levels_counts_for_nothing() -> None:
    deciding = [
        policy_of(id="r", subject="*", topic="#", action="read", when="!has(p.user) && p.floor == 'tls'"),
        policy_of(id="in", subject="link:x->y", topic="#", action="read"),
    ]
    a, b, cable = pair(b={"policies": Policies(deciding)})
    there = b.peer("there")
    there.subscribe("#")
    node, own = a.site.origin.node, b.site.origin.node
    publisher = {"kind": "client", "client": "c", "user": "mary", "roles": ["coach"], "domain": "d"}
    said = {"publisher": publisher, "topic": "t", "floor": "trusted", "owner": "u-1", "path": (f"x@{node}",)}
    for number, (origin, path) in enumerate(((node, node), (own, node), (node, own)), 1):
        static = encode_static(
            Static(**{**said, "origin": origin, "path": (f"{'x' if path == node else 'y'}@{path}",)})
        )
        data = seal(static, bytes.fromhex(origin) + bytes(6), number, 0, b.wall, None, 0, False, b"%d" % number, None)
        cable.mine.write(wire.encode(wire.Publish(topic="t", payload=data, qos=0), wire.V5))
        cable.run()
    assert got(there) == [("t", b"1")]  # not with an id of this node, and not what has been here


def test_a_link_that_is_trusted_from_now_on_opens_anew_and_keeps_what_it_owes() -> None:
    a, _, cable = pair()
    here = a.peer("here", username="mary")
    cable.cut()
    say(here, "t", b"1", qos=1)
    (end,) = a.realm.node_links.ends.values()
    assert end.owed == 1
    cable.plug()
    a.made["space"] = type(a.realm.rules.space)(scopes=("x",), remote=(node_link("x", "y"),))
    a.change()
    assert [*a.realm.node_links.ends.values()] == [end]
    assert cable.mine.closed
    assert not end.untrusted


# -- over one connection of a link to a trusted node ---------------------------------------------------------------


def degraded(a: dict[str, Any] | None = None, b: dict[str, Any] | None = None) -> tuple[Node, Node, Cable]:
    """Two nodes, of which `b` finds the certificate of `a` not on its list, until that is `level=trusted`."""
    domains = {"d": Domain(nodes=("a", "b"))}
    first = Node("a", node_link("x", "y"), believes=domains, **(a or {}))
    second = Node("b", node_link("y", "x"), believes=domains, **(b or {}))
    cable = Cable(first, second, "x->y", degraded="not on the list")
    assert cable.why == ""
    return first, second, cable


def test_what_has_preferences_views_or_a_demand_waits_for_a_trusted_connection() -> None:
    wishes = Preferences(
        [
            preference_of(id="p", user="mary", topic="no/#", when="s.user == 'alice'"),
            preference_of(id="q", user="mary", topic="yes/#", when="s.kind == 'link'"),
            preference_of(id="s", user="mary", topic="some/#", when="s.kind == 'link' && o.payload.a == 1"),
        ],
        domain="d",
    )
    a, b, cable = degraded({"preferences": wishes})
    assert [end.degraded != "" for node in (a, b) for end in node.realm.node_links.ends.values()] == [True, True]
    mary, alice = a.peer("m", username="mary"), b.peer("there", username="alice")
    alice.subscribe("#", 1)
    for number, (topic, *pairs) in enumerate(
        (
            ("no/1",),
            ("yes/1",),
            ("free/1", ("view", '{"user:alice": ["/a"]}')),
            ("free/2", ("require", "trusted")),
            ("free/3", ("require", "tls")),
            ("free/4",),
            ("some/1",),
        ),
        1,
    ):
        said = wire.Publish(topic=topic, payload=b'{"a": 1}', qos=1, packet_id=number, properties=properties(*pairs))
        mary.send(said)
    cable.run()
    assert [topic for topic, _ in got(alice)] == ["yes/1", "free/3", "free/4"]
    (end,) = a.realm.node_links.ends.values()
    assert end.owed == 4
    cable.cut()
    cable.degraded = ""
    cable.plug()
    assert end.trusted
    assert sorted(topic for topic, _ in got(alice)) == ["free/1", "no/1"]  # her own connection is no better than tls
    assert end.owed == 0


def test_a_trusted_connection_is_not_put_out_by_one_that_is_not() -> None:
    _, b, cable = degraded()
    cable.cut()
    cable.degraded = ""
    cable.plug()
    (end,) = b.realm.node_links.ends.values()
    assert end.trusted
    cable.degraded = "nobody"
    first = cable.theirs
    cable.plug()
    assert "a trusted connection carries this link" in str(cable.why)
    assert end.session.connection is first.connection


def test_nothing_that_is_said_over_it_counts_and_what_is_retained_stays_as_it_was() -> None:
    a, b, cable = degraded()
    cable.cut()
    cable.degraded = ""
    cable.plug()
    mary, there = a.peer("m", username="mary"), b.peer("there")
    there.subscribe("#", 1)
    say(mary, "kept", b"1", qos=1, retain=True)
    cable.run()
    assert got(there) == [("kept", b"1")]
    kept = b.realm.scopes["y"].retained.get("kept")
    cable.cut()
    cable.degraded = "nobody"
    cable.plug()
    (end,) = b.realm.node_links.ends.values()
    refused: list[str] = []
    end.refused = refused.append  # type: ignore[method-assign]
    topics = (
        "retained",
        "preferences",
        "rules",
        "wanted",
        "node",
        "known",
        "question",
        "signer",
        "certificate/withdrawal",
    )
    for topic in topics:
        cable.mine.write(wire.encode(wire.Publish(topic=f"$tidegate/link/{topic}", payload=b"", qos=0), wire.V5))
        cable.run()
    assert len(refused) == len(topics)
    assert not cable.theirs.closed
    assert b.realm.scopes["y"].retained.get("kept") is kept
    assert got(there) == []
    cable.cut()
    cable.degraded = ""
    cable.plug()
    assert got(there) == []
    assert not a.realm.node_links.ends["x->y"].degraded
