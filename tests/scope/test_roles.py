"""Members of roles, scopes that go and come back, and flows that nobody may open by connecting."""

from __future__ import annotations

import pytest

from pure import Anybody, End, World
from scope.spaces import both, got, say
from scope.written import Roles, rules
from tidegate import wire
from tidegate.flow.assertions import Assertion, Expect
from tidegate.gate import RuleSet
from tidegate.policy.scopes import Role, ScopeGraph

PLANT = """
scopes: {a: {}}
brokering:
  preset: rbac
  bus: a
  roles:
    operator: {pub: ["command/#"], sub: ["state/#", "alarm"]}
    machine: {pub: ["state/#"], sub: ["command/#"]}
"""
KEEP = wire.Properties(session_expiry_interval=1000)


def plant(**roles: str) -> World:
    return World(rules=rules(PLANT), authenticator=Roles(**roles))


def answer(end: End) -> wire.Connack:
    (found,) = [packet for packet in end.take() if isinstance(packet, wire.Connack)]
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_members_publish_into_one_scope_and_receive_from_the_other(version: int, qos: int) -> None:
    here = plant(olga="operator", max="machine")
    olga = here.peer("panel", scope="a", username="olga", version=version)
    press = here.peer("press", scope="a", username="max", version=version)
    for end in (olga, press):
        end.subscribe("#", qos=1)
    assert here.realm.scopes["operator.sub"].sessions.keys() == {("olga", "panel")}
    assert not here.realm.scopes["operator.pub"].sessions
    assert not here.scope.sessions

    def tell(end: End, topic: str) -> None:
        say(end, topic, qos=qos)
        if qos == 2:
            end.send(wire.Pubrel(packet_id=7))

    for _ in range(2):
        tell(olga, "command/stop")
        assert (got(press), got(olga)) == ([("command/stop", b"x")], [])
        tell(press, "state/1")
        assert (got(press), got(olga)) == ([], [("state/1", b"x")])
        tell(press, "command/stop")  # what its role may not publish, and what no role may receive
        tell(olga, "other")
        assert (got(press), got(olga)) == ([], [])


def test_who_has_no_role_or_several_is_refused() -> None:
    here = plant(both="operator machine", guest="visitor")
    for user, said in (("both", "several roles (operator, machine)"), ("guest", "none of the roles"), (None, "none")):
        end = here.peer("c", scope="a", username=user)
        refused = answer(end)
        assert refused.reason == wire.Reason.NOT_AUTHORIZED
        assert said in (refused.properties.reason_string or "")
        assert end.closed
    assert not any(scope.sessions for scope in here.realm.scopes.values())


def test_who_gets_another_role_has_to_connect_again() -> None:
    people = Roles(olga="operator", max="machine")
    here = World(rules=rules(PLANT), authenticator=people)
    olga = here.peer("panel", scope="a", username="olga", properties=KEEP)
    press = here.peer("press", scope="a", username="max")
    press.subscribe("#")
    people.roles["olga"] = "machine"
    here.realm.change(rules(PLANT))
    say(olga, "command/1")
    here.turn()
    assert olga.closed
    assert got(press) == []
    assert not press.closed
    again = here.peer("panel", scope="a", username="olga", clean_start=False, properties=KEEP)
    assert not answer(again).session_present  # another role is another place
    again.subscribe("command/#")
    assert here.realm.scopes["machine.sub"].sessions.keys() == {("max", "press"), ("olga", "panel")}


def test_a_members_will_is_published_where_it_publishes() -> None:
    here = plant(olga="operator", max="machine")
    olga = here.peer("panel", scope="a", username="olga")
    olga.subscribe("#", qos=1)
    for topic in ("state/gone", "command/stop"):
        will = wire.Will(topic=topic, payload=b"bye", qos=1, retain=False)
        here.peer("press", scope="a", username="max", will=will).lose()
    assert got(olga) == [("state/gone", b"bye")]


def test_what_waits_for_a_member_is_sent_when_it_is_back() -> None:
    here = plant(olga="operator", max="machine")
    olga = here.peer("panel", scope="a", username="olga", properties=KEEP)
    olga.subscribe("state/#", qos=1)
    olga.lose()
    press = here.peer("press", scope="a", username="max")
    say(press, "state/1", b"late", qos=1)
    olga = here.peer("panel", scope="a", username="olga", clean_start=False, properties=KEEP)
    assert got(olga) == [("state/1", b"late")]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_member_that_does_not_want_its_own_messages_gets_none(qos: int) -> None:
    links = (*both("r.pub", "bus"), *both("r.sub", "bus"))
    roles = {"r": Role(publishing="r.pub", receiving="r.sub")}
    space = ScopeGraph(scopes=("bus", "r.pub", "r.sub"), links=links, roles=roles, bus="bus")
    here = World(rules=RuleSet(space=space), authenticator=Roles(one="r", two="r"))
    one, two = (here.peer("c", scope="bus", username=user) for user in ("one", "two"))
    for end in (one, two):
        end.subscribe("t", qos=1, no_local=True)
    for _ in range(2):
        say(one, "t", qos=qos)
        assert (got(one), got(two)) == ([], [("t", b"x")])


# -- scopes that go ----------------------------------------------------------------------------------------------------

PAIR = """
scopes: {a: {}, b: {}}
links: [{from: a, to: b}]
"""


def test_a_scope_that_is_removed_and_comes_back_has_kept_its_sessions_and_messages() -> None:
    here = World(rules=rules(PAIR))
    staying = here.peer("staying", scope="b", properties=KEEP)
    staying.subscribe("t", qos=1)
    passing = here.peer("passing", scope="b")
    source = here.peer("source", scope="a")
    say(source, "kept", b"kept", retain=True)
    here.realm.change(rules("scopes: {a: {}}"))
    here.turn()
    assert staying.closed
    assert passing.closed
    say(source, "t", b"lost", qos=1)
    here.realm.change(rules(PAIR))
    here.turn()
    say(source, "t", b"later", qos=1)
    staying = here.peer("staying", scope="b", clean_start=False, properties=KEEP)
    assert got(staying) == [("t", b"later")]
    staying.subscribe("kept")
    assert got(staying) == [("kept", b"kept")]
    assert not source.closed


def test_local_messages_flow_on_when_a_link_goes() -> None:
    here = World(rules=rules(PAIR))
    ends = [here.peer("end", scope=name) for name in "ab"]
    for end in ends:
        end.subscribe("t")
    source = here.peer("source", scope="a")
    found = []
    for text in (PAIR, PAIR.replace("{from: a", "{direction: in, from: a"), "scopes: {a: {}, b: {}}", PAIR):
        here.realm.change(rules(text))
        for _ in range(2):
            say(source, "t")
        found.append([len(got(end)) for end in ends])
    assert found == [[2, 2], [2, 0], [2, 0], [2, 2]]


# -- flows -------------------------------------------------------------------------------------------------------------


def test_nobody_opens_a_forbidden_flow_by_connecting() -> None:
    here = World(rules=rules(PAIR))
    forbidden = Assertion.parse("client:secret -> client:leak", Expect.FORBID)
    here.realm.observe([forbidden], ())
    secret = here.peer("secret", scope="a")
    assert answer(secret).reason == 0
    leak = here.peer("leak", scope="b")
    refused = answer(leak)
    assert refused.reason == wire.Reason.NOT_AUTHORIZED
    assert "client:secret" in (refused.properties.reason_string or "")
    assert not here.peer("other", scope="b").closed
    secret.lose()
    leak = here.peer("leak", scope="b")
    assert answer(leak).reason == 0
    assert here.peer("secret", scope="a").closed
    apart = rules("scopes: {a: {}, b: {}}")
    assert here.realm.opened(apart, [forbidden], (), Anybody()) == ""
    here.realm.change(apart)
    here.realm.observe([forbidden], ())
    secret = here.peer("secret", scope="a")
    assert not secret.closed
    assert "client:secret" in here.realm.opened(rules(PAIR), [forbidden], (), Anybody())
