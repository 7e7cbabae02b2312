"""Many receivers of one message whose rules take long: some are decided later, and nobody is told anything else."""

from __future__ import annotations

import pytest

from pure import End, World
from scope.spaces import got, say
from tidegate.gate import RuleSet
from tidegate.policy import Preference, Preferences
from tidegate.predicate import compile
from tidegate.scope import large_fanout
from tidegate.session import Session
from tidegate.wire import Pingreq, Pingresp, Properties, Puback, Publish, Pubrel, Unsuback, Unsubscribe, encode

RECEIVERS = 20


class Slow(World):
    """A node on which each look at the stopwatch takes a tenth of a piece of work."""

    def __init__(self, when: str) -> None:
        self.shown = 0.0
        preference = Preference(id="p", user="mary", topic="#", when=compile(when))
        super().__init__(rules=RuleSet(preferences=Preferences([preference])), stopwatch=self._look)

    def _look(self) -> float:
        self.shown += large_fanout.PIECE / 10
        return self.shown


def receivers(world: World, qos: int) -> list[End]:
    ends = [world.peer(f"c{number}", username=f"user{number}") for number in range(RECEIVERS)]
    for end in ends:
        end.subscribe("#", qos)
    return ends


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_get_it_in_order_and_those_who_may_not_do_not(qos: int) -> None:
    world = Slow("o.payload.level > 1 && s.user != 'user7' && s.user != 'user17'")
    ends = receivers(world, min(qos, 1))
    mary = world.peer("m", username="mary")
    for number in range(1, 5):
        say(mary, "t", b'{"level": %d}' % number, qos=qos)
        if qos == 2:
            mary.send(Pubrel(packet_id=7))
    for _ in range(50):
        world.turn()
    for number, end in enumerate(ends):
        wanted = [] if number in (7, 17) else [("t", b'{"level": %d}' % level) for level in (2, 3, 4)]
        assert got(end) == wanted, number


def test_one_turn_decides_only_for_some() -> None:
    world = Slow("o.payload.level > 1")
    ends = receivers(world, 0)
    mary = world.peer("m", username="mary")
    mary.feed(encode(Publish(topic="t", payload=b'{"level": 2}', qos=0), mary.version))
    reached = sum(bool(end.connection.session.out) for end in ends)
    assert 0 < reached <= RECEIVERS // 2
    for _ in range(50):
        world.turn()
    assert all(got(end) == [("t", b'{"level": 2}')] for end in ends)


def test_a_change_of_rules_counts_for_whom_is_decided_later() -> None:
    world = Slow("o.payload.level > 1")
    ends = receivers(world, 1)
    mary = world.peer("m", username="mary")
    mary.feed(encode(Publish(topic="t", payload=b'{"level": 2}', qos=1, packet_id=1), mary.version))
    nobody = Preference(id="p", user="mary", topic="#", when=compile("false"))
    world.realm.change(RuleSet(preferences=Preferences([nobody])))
    for _ in range(50):
        world.turn()
    assert 0 < sum(len(got(end)) for end in ends) <= RECEIVERS // 2


def test_qos_0_does_not_wait_for_acknowledgements() -> None:
    world = Slow("o.payload.level > 1")
    receivers(world, 1)
    end = world.peer("z", username="z", properties=Properties(receive_maximum=1))
    end.subscribe("#", 1)
    mary = world.peer("m", username="mary")
    for number in range(1, 5):
        mary.feed(encode(Publish(topic="t", payload=b'{"level": 2}', qos=1, packet_id=number), mary.version))
    for _ in range(50):
        world.turn()
    assert [each.qos for each in end.messages()] == [1]
    for number in range(2, 22):
        mary.feed(encode(Publish(topic="t", payload=b'{"level": %d}' % number, qos=0), mary.version))
    for _ in range(50):
        world.turn()
    assert [(each.qos, each.payload) for each in end.messages()] == [
        (0, b'{"level": %d}' % number) for number in range(2, 22)
    ]
    assert end.connection.session.queued == 3
    for number in range(1, 5):
        end.send(Puback(packet_id=number))
    assert [each.qos for each in end.messages()] == [1, 1, 1]


def test_what_follows_does_not_overtake_it_when_the_rules_change() -> None:
    """From then on nothing has to be decided for a message, and it could take the fast lane."""
    world = Slow("o.payload.level > 1")
    ends = receivers(world, 0)
    mary = world.peer("m", username="mary")
    mary.feed(encode(Publish(topic="t", payload=b'{"level": 2}', qos=0), mary.version))
    world.realm.change(RuleSet())
    for level in (3, 4, 5):
        mary.feed(encode(Publish(topic="t", payload=b'{"level": %d}' % level, qos=0), mary.version))
    for _ in range(50):
        world.turn()
    assert all(got(end) == [("t", b'{"level": %d}' % level) for level in (2, 3, 4, 5)] for end in ends)
    plan = mary.connection.reader.lane.plans[b"t"]
    mary.feed(encode(Publish(topic="t", payload=b'{"level": 6}', qos=0), mary.version))
    assert plan.fast is not None
    assert plan.calm(mary.connection.session)  # the fast lane is open again


@pytest.mark.parametrize("qos", [0, 1])
def test_the_answer_to_a_ping_comes_behind_it(qos: int) -> None:
    """Or it would say that nothing is on its way. How soon somebody is decided depends on how busy the machine is."""
    world = Slow("o.payload.level > 1")
    ends = receivers(world, qos)
    mary = world.peer("m", username="mary")
    mary.feed(encode(Publish(topic="t", payload=b'{"level": 2}', qos=qos, packet_id=qos), mary.version))
    later = next(end for end in ends if end.connection.session.queued)
    later.send(Pingreq())
    assert [type(packet) for packet in later.take()[-2:]] == [Publish, Pingresp]


def test_qos_0_is_not_kept_for_who_does_not_read() -> None:
    world = Slow("o.payload.level > 1")
    end = receivers(world, 1)[-1]
    session = end.connection.session
    mary = world.peer("m", username="mary")
    mary.feed(encode(Publish(topic="t", payload=b'{"level": 2}', qos=0), mary.version))
    assert session.postponed
    session.pause()
    for _ in range(20):
        mary.feed(encode(Publish(topic="t", payload=b'{"level": 3}', qos=0), mary.version))
    for _ in range(50):
        world.turn()
    assert session.queued == 1
    session.unpause()
    for _ in range(50):
        world.turn()
    assert got(end) == [("t", b'{"level": 2}')]


@pytest.mark.pure
def test_what_fails_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Slow("o.payload.level > 1")
    ends = receivers(world, 0)
    mary = world.peer("m", username="mary")
    mary.feed(encode(Publish(topic="t", payload=b'{"level": 2}', qos=0), mary.version))
    broken = next(end.connection.session for end in ends if end.connection.session.postponed)
    pump = Session.pump

    def fail(session: Session) -> None:
        if session is broken:
            raise RuntimeError("a bug")
        pump(session)

    monkeypatch.setattr(Session, "pump", fail)
    with pytest.raises(RuntimeError):
        world.turn()
    for _ in range(50):
        world.turn()
    assert sum(bool(got(end)) for end in ends) == RECEIVERS - 1


def test_a_session_that_has_ended_is_not_looked_at_again() -> None:
    world = Slow("o.payload.level > 1")
    ends = receivers(world, 1)
    mary = world.peer("m", username="mary")
    mary.feed(encode(Publish(topic="t", payload=b'{"level": 2}', qos=1, packet_id=1), mary.version))
    end = next(end for end in ends if end.connection.session.queued)
    session = end.connection.session
    end.closed = True
    end.connection.lost()
    world.realm.change(RuleSet())
    for _ in range(50):
        world.turn()
    assert session.generation < world.site.generation
    assert not session.queued


@pytest.mark.parametrize("qos", [0, 1])
def test_who_unsubscribes_gets_first_what_was_published_before(qos: int) -> None:
    world = Slow("o.payload.level > 1")
    ends = receivers(world, 1)
    mary = world.peer("m", username="mary")
    mary.feed(encode(Publish(topic="t", payload=b'{"level": 2}', qos=qos, packet_id=qos), mary.version))
    late = [end for end in ends if end.connection.session.queued]
    assert late
    for end in late:
        end.send(Unsubscribe(packet_id=9, filters=("#",)))
        *_, message, answer = end.take()
        assert isinstance(message, Publish)
        assert isinstance(answer, Unsuback)
