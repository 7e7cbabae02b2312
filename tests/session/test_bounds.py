"""What one client can make the node keep or do is bounded, and what is bounded drops the right things."""

from __future__ import annotations

from typing import Any

import pytest

from pure import End, World
from tidegate import wire
from tidegate.gate import plan_cache
from tidegate.session import Delivery, Limits, Message, Session
from tidegate.session.message import State
from tidegate.session.runtime import Full

KEEP = wire.Properties(session_expiry_interval=1000)


def publish(end: End, topic: str = "a", payload: bytes = b"x", qos: int = 1, pid: int = 7, **fields: Any) -> None:
    end.send(wire.Publish(topic=topic, payload=payload, qos=qos, packet_id=pid if qos else 0, **fields))


def subscriber(world: World, *, qos: int = 1, filter: str = "a", **fields: Any) -> End:
    end = world.peer("sub", **fields)
    end.subscribe(filter, qos)
    end.take()
    return end


def test_in_flight_bytes_are_bounded_like_the_queue() -> None:
    """A client that reads and never acknowledges holds the bytes of its queue twice, and no more."""
    world = World(limits=Limits(queue_bytes=10_000))
    sub, pub = subscriber(world), world.peer("pub")
    for _ in range(40):
        publish(pub, payload=b"y" * 1000)
    got = sub.messages()
    assert len(got) == 10
    assert sub.connection.session.queued < 10
    assert world.site.counters.dropped > 20
    for message in got:
        sub.send(wire.Puback(packet_id=message.packet_id))
    assert sub.messages()  # and it goes on
    assert sub.connection.session.flying <= 11_000


def test_unreleased_qos_2_is_bounded_in_bytes() -> None:
    world = World(limits=Limits(queue_bytes=5000))
    pub = world.peer("pub")
    pub.take()
    for pid in range(1, 8):
        publish(pub, payload=b"y" * 1000, qos=2, pid=pid)
    reasons = [ack.reason for ack in pub.take() if isinstance(ack, wire.Pubrec)]
    assert reasons == [0, 0, 0, 0, 0x97, 0x97, 0x97]
    pub.send(wire.Pubrel(packet_id=1))
    publish(pub, payload=b"y" * 1000, qos=2, pid=9)
    assert [ack.reason for ack in pub.take() if isinstance(ack, wire.Pubrec)] == [0]


def test_the_quota_begins_anew_with_each_connection() -> None:
    world = World(limits=Limits(receive_maximum=3))
    pub = world.peer("pub", properties=KEEP)
    for pid in (1, 2, 3):
        publish(pub, qos=2, pid=pid)
    pub.lose()
    again = world.peer("pub", clean_start=False, properties=KEEP)
    again.take()
    for pid in (11, 12, 13):
        publish(again, qos=2, pid=pid)
    assert not again.closed
    publish(again, qos=2, pid=14)
    assert again.closed


def test_expired_messages_make_room_for_live_ones() -> None:
    world = World(limits=Limits(queue_messages=5))
    sub, pub = subscriber(world, properties=KEEP), world.peer("pub")
    sub.lose()
    for _ in range(5):
        publish(pub, payload=b"old", properties=wire.Properties(message_expiry_interval=2))
    world.turn(5)
    for _ in range(5):
        publish(pub, payload=b"new")
    back = world.peer("sub", clean_start=False, properties=KEEP)
    assert [message.payload for message in back.messages()] == [b"new"] * 5


def test_a_message_larger_than_the_queue_does_not_push_out_the_others() -> None:
    world = World(limits=Limits(queue_bytes=2000, full=Full.DROP_OLDEST))
    sub, pub = subscriber(world, properties=KEEP), world.peer("pub")
    sub.lose()
    publish(pub, payload=b"small")
    publish(pub, payload=b"z" * 3000)
    back = world.peer("sub", clean_start=False, properties=KEEP)
    assert [message.payload for message in back.messages()] == [b"small"]


def test_properties_count_against_the_queue() -> None:
    world = World(limits=Limits(queue_bytes=5000))
    sub, pub = subscriber(world, properties=KEEP), world.peer("pub")
    sub.lose()
    large = wire.Properties(user_properties=(("k", "v" * 2000),))
    for _ in range(10):
        publish(pub, properties=large)
    assert world.scope.sessions["anonymous", "sub"].queued == 2


def test_retained_messages_are_bounded_in_number_and_bytes_and_expired_ones_do_not_count() -> None:
    world = World(limits=Limits(retained=3, retained_bytes=100_000))
    pub = world.peer("pub")
    pub.take()
    soon = wire.Properties(message_expiry_interval=2)
    for number in range(3):
        publish(pub, f"t/{number}", retain=True, properties=soon)
    publish(pub, "t/3", retain=True)
    assert [ack.reason for ack in pub.take() if isinstance(ack, wire.Puback)] == [0x10, 0x10, 0x10, 0x97]
    world.turn(3)
    publish(pub, "t/3", retain=True)
    publish(pub, "t/4", payload=b"y" * 200_000, retain=True)
    publish(pub, "t/3", payload=b"", retain=True)
    assert [ack.reason for ack in pub.take() if isinstance(ack, wire.Puback)] == [0x10, 0x97, 0x10]
    assert len(world.scope.retained) == 0
    assert world.scope.retained.bytes == 0


def test_encoded_forms_of_a_retained_message_do_not_pile_up() -> None:
    world = World()
    publish(world.peer("pub"), retain=True, payload=b"y" * 1000)
    sub = world.peer("sub")
    for number in range(1, 50):
        subscription = wire.Subscription(filter="a")
        properties = wire.Properties(subscription_identifiers=(number,))
        sub.send(wire.Subscribe(packet_id=1, subscriptions=(subscription,), properties=properties))
    assert len(sub.messages()) == 49
    kept = world.scope.retained.get("a")
    assert kept is not None
    assert len(kept.frames or ()) <= 8


def test_many_retained_messages_come_in_pieces_and_completely() -> None:
    world = World()
    pub = world.peer("pub")
    for number in range(1000):
        pub.feed(wire.encode(wire.Publish(topic=f"t/{number}", payload=b"x", retain=True), wire.V5))
        world.turn()
    sub = world.peer("sub")
    sub.take()
    sub.feed(wire.encode(wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="t/#"),)), wire.V5))
    assert len(world.site.unfinished) == 1
    seen: list[str] = []
    for _ in range(10):
        seen += [message.topic for message in sub.messages()]
    assert sorted(seen) == sorted(f"t/{number}" for number in range(1000))
    assert not world.site.unfinished


def test_a_session_has_so_many_shared_subscriptions() -> None:
    world = World(limits=Limits(shares=2))
    sub = world.peer("sub")
    sub.take()
    for number in range(3):
        sub.subscribe(f"$share/g{number}/a")
    assert [ack.reasons for ack in sub.take() if isinstance(ack, wire.Suback)] == [(0,), (0,), (0x97,)]
    sub.send(wire.Unsubscribe(packet_id=2, filters=("$share/g0/a",)))
    sub.subscribe("$share/g2/a")
    assert [ack.reasons for ack in sub.take() if isinstance(ack, wire.Suback)] == [(0,)]


def test_repeats_in_one_subscribe_are_bounded() -> None:
    world = World(limits=Limits(subscriptions=10))
    sub = world.peer("sub")
    sub.take()
    same = tuple(wire.Subscription(filter="a") for _ in range(30))
    sub.send(wire.Subscribe(packet_id=1, subscriptions=same))
    (ack,) = sub.take()
    assert isinstance(ack, wire.Suback)
    assert ack.reasons == (0,) * 10 + (0x97,) * 20


def test_a_group_prefers_members_with_room() -> None:
    world = World(limits=Limits(queue_messages=5))
    members = [world.peer(f"m{number}", properties=KEEP) for number in range(2)]
    for end in members:
        end.subscribe("$share/g/a", 1)
        end.lose()
    pub = world.peer("pub")
    for _ in range(10):
        publish(pub)
    assert [world.scope.sessions["anonymous", f"m{number}"].queued for number in range(2)] == [5, 5]
    assert world.site.counters.dropped == 0


def test_a_subscription_that_reaches_many_plans_forgets_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "WHOLESALE", 10)
    world = World()
    pub = world.peer("pub")
    for number in range(20):
        publish(pub, f"t/{number}", qos=0)
    sub = world.peer("sub")
    sub.subscribe("t/+")
    assert len(world.scope.gate.cache) == 0
    publish(pub, "t/3", qos=0)
    assert [message.topic for message in sub.messages()] == ["t/3"]


def test_long_topics_cost_more() -> None:
    world = World()
    world.scope.gate.cache.bound = 1000
    pub = world.peer("pub")
    for number in range(50):
        publish(pub, f"{number}" + "x" * 60_000, qos=0)
    assert len(world.scope.gate.cache) <= 3


def test_what_was_sent_directly_does_not_overtake_what_was_queued_before_it() -> None:
    """After a crash: the store knows that 3 was sent, not that 1 and 2, which came from the queue, were."""
    world = World()
    sub = world.peer("sub", properties=KEEP)
    session: Session = sub.connection.session

    def delivery(payload: bytes, pid: int) -> Delivery:
        message = Message("a", payload, 1, False, 0.0, world.site.origin, 1, b"", "in")
        made = Delivery(message, 1)
        made.pid = pid
        made.state = State.SENT if pid else State.QUEUED
        return made

    sub.lose()
    session.restore([delivery(b"0", 4), delivery(b"1", 0), delivery(b"2", 0), delivery(b"3", 9)])
    back = world.peer("sub", clean_start=False, properties=KEEP)
    assert [(message.payload, message.dup) for message in back.messages()] == [
        (b"0", True),
        (b"1", False),
        (b"2", False),
        (b"3", False),
    ]


def test_over_two_crashes_no_two_messages_have_one_identifier() -> None:
    """What was sent directly waits after the first one, and its identifier in the store is free for others: the QoS 2
    message in front of it has it by the time of the second."""
    world = World()
    sub = world.peer("sub", properties=KEEP)
    session: Session = sub.connection.session

    def delivery(payload: bytes, qos: int, pid: int, state: State) -> Delivery:
        message = Message("a", payload, qos, False, 0.0, world.site.origin, 1, b"", "in")
        made = Delivery(message, qos)
        made.pid, made.state = pid, state
        return made

    sub.lose()
    session.restore([delivery(b"1", 2, 0, State.QUEUED), delivery(b"2", 1, 9, State.SENT)])
    assert session.pid == 9  # nothing else gets that identifier

    session = world.peer("other", properties=KEEP).connection.session
    store = [delivery(b"1", 2, 9, State.RELEASED), delivery(b"2", 1, 9, State.SENT)]  # of a node that did not see to it
    session.restore(store)
    assert [(one.message.payload, one.pid) for one in store] == [(b"1", 9), (b"2", 0)]
    assert (session.inflight, session.queued) == (1, 1)
