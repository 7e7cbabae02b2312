"""A publisher is acknowledged when its message is safe: committed, or owed to nobody any more. Not a moment earlier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pure import End, World
from tidegate import wire
from tidegate.store.batch import Batch, Notes

KEEP = wire.Properties(session_expiry_interval=1000)


class Disk(Notes):
    """The store's notes with a disk that commits when it is told to."""

    refusing = False
    backlog = 0

    def _wake(self) -> None:
        self._woken = True

    def _hurry(self) -> None:
        self._woken = self._urgent = True

    def _later(self, function: Callable[[], None]) -> None:
        function()

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        if self._woken:
            self._batch.callbacks.append((callback, args))
        else:
            callback(*args)

    def commit(self) -> None:
        batch, self._batch = self._batch, Batch()
        self.sequence += 1
        self._woken = self._urgent = False
        for callback, args in batch.callbacks:
            callback(*args)


class Room:
    """A publisher and persistent subscribers on such a disk."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.world = World(store=self.disk)
        self.pub = self.world.peer("pub")
        self.pub.take()

    def subscriber(self, name: str, filter: str = "a", qos: int = 1) -> End:
        end = self.world.peer(name, properties=KEEP)
        end.subscribe(filter, qos)
        self.commit()
        end.take()
        return end

    def commit(self) -> None:
        self.disk.commit()
        self.world.turn()

    def publish(self, payload: bytes = b"x", pid: int = 1, qos: int = 1, **fields: Any) -> None:
        self.pub.send(wire.Publish(topic="a", payload=payload, qos=qos, packet_id=pid, **fields))

    def acknowledged(self) -> list[int]:
        acks = (wire.Puback, wire.Pubcomp)
        return [packet.packet_id for packet in self.pub.take() if isinstance(packet, acks)]


@pytest.fixture
def room() -> Room:
    return Room()


def test_with_somebody_away_it_waits_for_the_commit(room: Room) -> None:
    room.subscriber("away").lose()
    room.commit()
    room.publish()
    assert room.acknowledged() == []
    room.commit()
    assert room.acknowledged() == [1]


def test_with_everybody_served_it_need_not(room: Room) -> None:
    subs = [room.subscriber(name) for name in ("one", "two")]
    room.publish()
    for end in subs:
        assert room.acknowledged() == []
        (message,) = end.messages()
        end.send(wire.Puback(packet_id=message.packet_id))
    assert room.acknowledged() == [1]
    assert room.disk._batch.void


def test_acknowledgements_keep_their_order(room: Room) -> None:
    sub = room.subscriber("here")
    room.publish(pid=1)
    room.publish(pid=2)
    first, second = sub.messages()
    sub.send(wire.Puback(packet_id=second.packet_id))
    assert room.acknowledged() == []
    sub.send(wire.Puback(packet_id=first.packet_id))
    assert room.acknowledged() == [1, 2]


def test_a_retained_message_waits_even_if_the_next_one_replaces_it(room: Room) -> None:
    room.publish(b"1", pid=1, retain=True)
    room.publish(b"2", pid=2, retain=True)
    assert room.acknowledged() == []
    room.commit()
    assert room.acknowledged() == [1, 2]


def test_clearing_a_retained_message_waits(room: Room) -> None:
    room.publish(b"1", pid=1, retain=True)
    room.commit()
    room.acknowledged()
    room.publish(b"", pid=2, retain=True)
    assert room.acknowledged() == []
    room.commit()
    assert room.acknowledged() == [2]


def test_what_is_handed_to_another_member_stays_unsafe(room: Room) -> None:
    one = room.subscriber("one", "$share/g/a")
    room.publish()
    assert len(one.messages()) == 1
    two = room.subscriber("two", "$share/g/a")
    room.publish(pid=2)
    room.world.scope.lifetime.end(one.connection.session)  # it leaves without having acknowledged
    room.world.turn()
    assert room.acknowledged() == [1]  # committed with the second member's subscription
    got = [message.packet_id for message in two.messages()]
    assert len(got) == 2
    for pid in got:
        assert room.acknowledged() == []
        two.send(wire.Puback(packet_id=pid))
    assert room.acknowledged() == [2]


def test_qos_2_is_sent_after_its_identifier_is_committed_and_released_after_that_is(room: Room) -> None:
    sub = room.subscriber("here", qos=2)
    room.publish(qos=2)
    room.pub.send(wire.Pubrel(packet_id=1))
    assert sub.messages() == []
    assert room.acknowledged() == []
    room.commit()
    assert room.acknowledged() == [1]
    (message,) = sub.messages()
    sub.send(wire.Pubrec(packet_id=message.packet_id))
    assert sub.take() == []
    room.commit()
    (released,) = sub.take()
    assert isinstance(released, wire.Pubrel)


def test_a_release_that_is_sent_again_waits_for_the_commit_as_well(room: Room) -> None:
    """Or a crash would have the next PUBLISH under an identifier that the client has let go of."""
    sub = room.subscriber("here", qos=2)
    room.publish(qos=2)
    room.pub.send(wire.Pubrel(packet_id=1))
    room.commit()
    (message,) = sub.messages()
    sub.send(wire.Pubrec(packet_id=message.packet_id))
    sub.lose()  # before that is committed
    back = room.world.peer("here", properties=KEEP, clean_start=False)
    assert [each for each in back.take() if isinstance(each, (wire.Pubrel, wire.Publish))] == []
    room.commit()
    assert [each.packet_id for each in back.take() if isinstance(each, wire.Pubrel)] == [message.packet_id]
