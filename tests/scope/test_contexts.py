"""Two publishers with different labels, demands and owners drive the same automata: who gets what, and what that tells.

The engine is compared with the walk from link to link, which says of every message whose events it comes from. And by
itself: whoever may read nothing of one publisher gets nothing that it would not have got without that publisher.

Documented exceptions (docs/monitors/working.md): that something is suppressed may be seen, how fast `rate` lets pass
may be, and what happened before an automaton was back at its start is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import cbor2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from generated import examples
from scope.settings import HIDDEN, LEVELS, PAYLOADS, TOPICS, USERS, automaton, hiding, shared
from scope.sidebyside import VERSIONS, Both, Engine
from scope.walk import Sent, Session, Setting, Walk
from scope.written import written
from tidegate import wire
from tidegate.monitor import Event
from tidegate.session import Context, Subject

SEEDS = st.integers(0, 2**63)
Publish = tuple[str, str, bytes, int]  # a client, a topic, a payload, a QoS


def usual(count: int, long: int) -> settings:
    return settings(
        max_examples=examples(count, long),
        derandomize=examples(1, 0) == 1,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


@usual(60, 5000)
@given(SEEDS)
def test_everybody_gets_what_the_model_allows(seed: int) -> None:
    rng = Random(seed)
    both = Both(rng.choice, shared)
    acts = [both.publish] * 14 + [both.subscribe, both.come, both.go, both.change]
    for _ in range(40):
        rng.choice(acts)(rng.choice)


@usual(100, 2000)
@given(SEEDS)
def test_what_passes_is_known_exactly_without_conditions(seed: int) -> None:
    """An event carries more if and only if some state would have suppressed or changed it."""
    machine = automaton(Random(seed).choice)
    for topic in TOPICS:
        came = Event(topic, b"x")
        outputs = [machine.step(state, came)[1] for state in machine.states]
        assert machine.passes(topic) is all(len(each) == 1 and each[0] is came for each in outputs)


# -- without the other ---------------------------------------------------------------------------------------------


def received(setting: Setting, history: Iterable[Publish], how: str) -> list[Sent]:
    """What c3 gets of a history."""
    engine = Engine(setting, None)
    for client in USERS:
        engine.connect(("a", client), persistent=False)
    reader = engine.ends["a", "c3"]
    reader.send(wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="#", qos=2),)))
    engine.taken(("a", "c3"))
    got: list[Sent] = []
    for number, (client, topic, payload, qos) in enumerate(history, 1):
        asked = wire.NONE
        if how == "demand" and client == "c1":
            asked = wire.Properties(user_properties=(("require", "tls"),))
        end, pid = engine.ends["a", client], number if qos else 0
        end.send(wire.Publish(topic=topic, payload=payload, qos=qos, packet_id=pid, properties=asked))
        if qos == 2:
            end.send(wire.Pubrel(packet_id=pid))
        got += [sent for _, sent in engine.taken(("a", "c3"))]
    assert not engine.world.bugs
    return got


def stretches(setting: Setting, history: list[Publish]) -> list[list[Publish]]:
    """A history, cut wherever all automata are at their start."""
    walk = Walk(setting)
    for client, user in USERS.items():
        walk.sessions["a", client] = Session(scope="a", client=client, user=user, level=LEVELS[user])
    found: list[list[Publish]] = [[]]
    for client, topic, payload, qos in history:
        found[-1].append((client, topic, payload, qos))
        walk.enter(("a", client), walk.publish(("a", client), topic, payload, qos, retain=False))
        machines = {each.id: each.machine for each in setting.monitors}
        if all(state == machines[where[1]].start() for where, state in walk.states.items()):
            found.append([])
    return found


def within(some: list[Sent], more: list[Sent]) -> bool:
    """Whether all of some are among more, in the same order."""
    rest = iter(more)
    return all(each in rest for each in some)


@pytest.mark.parametrize("how", HIDDEN)
@usual(40, 4000)
@given(SEEDS)
def test_who_may_read_nothing_of_somebody_gets_nothing_because_of_them(how: str, seed: int) -> None:
    rng = Random(seed)
    setting = hiding(rng.choice, how)
    publishers = [client for client in USERS if VERSIONS[client] == wire.V5]
    history = [
        (rng.choice(publishers), rng.choice(TOPICS), rng.choice(PAYLOADS), rng.choice((0, 0, 1, 2))) for _ in range(30)
    ]
    for stretch in stretches(setting, history):
        without = [each for each in stretch if each[0] != "c1"]
        assert within(received(setting, stretch, how), received(setting, without, how)), stretch
    # and what a whole history shows is what its stretches show, one after the other
    together = [sent for stretch in stretches(setting, history) for sent in received(setting, stretch, how)]
    assert received(setting, history, how) == together


# -- out of the store ----------------------------------------------------------------------------------------------


def test_states_of_the_version_before_are_read() -> None:
    """They remember nobody, or, in Python, contexts without the links they came over."""
    here = written(
        """
        scopes: {a: {}}
        brokering: {preset: blp, labels: [low, high], assign: [{client: "user:mary", in: high, out: high}],
          default: {in: low, out: low}}
        monitors:
          - {id: gate, scope: a, direction: im_pub, each: scope, only: door, after: key}
        """
    )
    states = here.realm.scopes["a"].path.monitoring.states
    mary = Context(subject=Subject(kind="client", client="c1", user="mary", scope="a", node="n", domain="n"))
    for sources in ([], [mary.encode()]):
        stored = {"state": "seen key", "cause": None, "sources": sources}
        states.restore({"gate\nscope:a": b"\x01" + cbor2.dumps(stored)})
        instance = states.instances["gate", "scope:a"]
        assert instance.state == "seen key"
        assert [source.context.subject.user for source in instance.sources] == ["mary"] * len(sources)
        assert [source.link for source in instance.sources] == ["high"] * len(sources)
        assert instance.laden is bool(sources)
