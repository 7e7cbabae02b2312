"""What many scopes and links cost: nothing grows with the number of ways between them."""

from __future__ import annotations

from itertools import pairwise

from scope.spaces import both, chain, got, say, world
from tidegate import wire
from tidegate.gate.plan_cache import PLAN_COST
from tidegate.monitor import Attachment
from tidegate.monitor.library import Mapper, Names
from tidegate.policy.scopes import ScopeGraph


def mesh(count: int) -> ScopeGraph:
    names = tuple(f"s{number}" for number in range(count))
    pairs = [(one, other) for at, other in enumerate(names) for one in names[:at]]
    return ScopeGraph(scopes=names, links=tuple(link for one, other in pairs for link in both(one, other)))


def test_a_change_does_not_follow_every_way_through_a_mesh() -> None:
    here = world(mesh(30))
    here.realm.change(here.realm.rules)
    here.realm.scopes["s0"].gate.cache.clear()  # else neither would come to an end
    assert not any(scope.gate.cache.plans() for scope in here.realm.scopes.values())


def test_a_chain_of_very_many_scopes_changes() -> None:
    here = world(chain(*(f"s{number}" for number in range(1200))))
    here.realm.change(here.realm.rules)
    here.realm.scopes["s0"].gate.cache.clear()


def test_released_messages_that_ask_for_something_share_their_plans() -> None:
    here = world(chain("a", "b", "c"))
    source, reader = here.peer("p", scope="a"), here.peer("r", scope="c")
    reader.subscribe("#")
    asks = wire.Properties(user_properties=(("require", "plain"),))
    for _ in range(20):
        source.send(wire.Publish(topic="x", payload=b"x", qos=2, packet_id=1, properties=asks))
        source.send(wire.Pubrel(packet_id=1))
    assert len(got(reader)) == 20
    assert all(len(scope.gate.cache.plans()) <= 2 for scope in here.realm.scopes.values())


def test_what_many_monitors_made_one_after_the_other_can_be_stored() -> None:
    names = [f"s{number}" for number in range(12)]
    monitors = [
        Attachment(
            id=f"m{at}",
            monitor=Mapper(Names({f"t{at}/#": f"t{at + 1}/#"})),
            link=(f"scope:{one}", f"scope:{other}"),
        )
        for at, (one, other) in enumerate(pairwise(names))
    ]
    here = world(chain(*names), *monitors)
    source, reader = here.peer("p", scope=names[0]), here.peer("r", scope=names[-1])
    reader.subscribe("#", retain_as_published=True)
    say(source, "t0/x", retain=True)
    assert got(reader) == [("t11/x", b"x")]
    kept = here.realm.scopes[names[-1]].retained.get("t11/x")
    assert kept is not None
    assert 0 < kept.output < 1 << 63  # the store has no longer numbers


def test_plans_are_bounded_for_all_scopes_together() -> None:
    names = tuple(f"s{number}" for number in range(40))
    links = tuple(link for name in names[1:] for link in both(names[0], name))
    here = world(ScopeGraph(scopes=names, links=links))
    gates = [scope.gate for scope in here.realm.scopes.values()]
    assert sum(gate.cache.bound for gate in gates) <= PLAN_COST
    for gate in gates:
        gate.cache.bound = 50
    source = here.peer("p", scope="s1")
    for number in range(60):
        say(source, f"t/{number}")
    assert all(gate.cache.cost <= 50 + max(plan.cost for _, plan in gate.cache.plans()) for gate in gates)
