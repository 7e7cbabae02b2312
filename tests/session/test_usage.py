"""What is counted for users and the node is what they hold, whatever has happened."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pure import End, World
from tidegate import wire
from tidegate.scope import wills
from tidegate.session import Bounds, Limits
from tidegate.session.runtime import Full
from tidegate.session.usage import NAMES, Accounts, Usage

TIGHT = Bounds(
    sessions=4,
    queued_messages=3,
    queued_bytes=500,
    unreleased=4,
    unreleased_bytes=600,
    retained=4,
    retained_bytes=500,
    subscriptions=3,
    conditions=1,
)
WIDE = Bounds(
    sessions=8,
    queued_messages=14,
    queued_bytes=4000,
    unreleased=10,
    unreleased_bytes=1500,
    retained=6,
    retained_bytes=900,
    subscriptions=12,
    conditions=4,
)
TOPICS = ("a", "b", "c", "d/e", "d/f", "g", "h")
FILTERS = (*TOPICS, "#", "d/+", "$share/s/a", "$share/s/#", "$share/t/d/#")


def counted(world: World) -> dict[str, tuple[int, ...]]:
    """Everything that is there, looked at piece by piece; by user, and of all."""
    accounts = Accounts()
    for session in world.scope.sessions.values():
        usage = accounts.of(session.principal)
        accounts.add(usage, "sessions")
        grants = (session.subscriptions or {}).values()
        accounts.add(usage, "subscriptions", len(grants))
        accounts.add(usage, "conditions", sum(grant.where is not None for grant in grants))
        accounts.add(usage, "queued_bytes", wills.size(session.will))
        accounts.add(usage, "queued_messages", len(session._queue or ()))
        waiting = sum(delivery.message.size for delivery in session._queue or ())
        flying = sum(len(delivery.message.payload) for delivery in (session._inflight or {}).values())
        assert (session.queued_bytes, session.flying) == (waiting, flying)
        deferred = list(session.deferred or ())
        accounts.add(usage, "queued_messages", len(deferred))
        accounts.add(usage, "queued_bytes", waiting + flying + sum(delivery.message.size for delivery in deferred))
        accounts.add(usage, "unreleased", len(session.incoming or ()))
        unreleased = sum(message.size for kept in (session.incoming or {}).values() for message in kept.messages)
        accounts.add(usage, "unreleased_bytes", unreleased)
    for _, message in world.scope.retained.matching("#"):
        subject = world.scope.gate.attributes.context(message).subject
        usage = accounts.of(subject.principal or f"user:{subject.user}")
        accounts.add(usage, "retained")
        accounts.add(usage, "retained_bytes", message.size)
    return told(accounts)


def told(accounts: Accounts) -> dict[str, tuple[int, ...]]:
    def row(usage: Usage) -> tuple[int, ...]:
        return tuple(getattr(usage, name) for name in NAMES)

    return {"": row(accounts.node), **{name: row(usage) for name, usage in accounts.users.items()}}


class History:
    """Clients of three users who do what they like."""

    def __init__(self, seed: int, full: Full) -> None:
        self.random = random.Random(seed)
        limits = Limits(user=TIGHT, node=WIDE, full=full, queue_messages=10, inflight=1, unreleased_time=5.0)
        self.world = World(limits=limits)
        self.ends: dict[tuple[str, str], End] = {}

    def step(self) -> None:
        choice = self.random.choice
        act = choice(
            (self.come, self.come, self.go, self.subscribe, self.unsubscribe, self.read, self.release, self.wait)
        )
        if self.random.random() < 0.7:
            act = self.publish
        act()

    def end(self) -> End | None:
        there = [end for end in self.ends.values() if not end.closed]
        return self.random.choice(there) if there else None

    def come(self) -> None:
        choice = self.random.choice
        user, client = choice(("user:x", "user:y", "user:z")), choice("123456")
        stay = wire.Properties(session_expiry_interval=choice((0, 3, 50)))
        version = choice((wire.V5, wire.V311))
        properties: dict[str, Any] = {"properties": stay} if version == wire.V5 else {}
        will = choice((None, None, None, wire.Will(topic="a", payload=b"w" * 1100, qos=0, retain=False)))
        self.ends[user, client] = self.world.peer(
            client, username=user, version=version, clean_start=choice((True, False)), will=will, **properties
        )

    def go(self) -> None:
        if end := self.end():
            end.lose()

    def subscribe(self) -> None:
        if end := self.end():
            asking = self.random.choice(
                (wire.NONE, wire.NONE, wire.Properties(user_properties=(("where", "o.size > 0"),)))
            )
            wanted = wire.Subscription(filter=self.random.choice(FILTERS), qos=self.random.choice((0, 1, 1, 2)))
            properties = {"properties": asking} if end.version == wire.V5 else {}
            end.send(wire.Subscribe(packet_id=2, subscriptions=(wanted,), **properties))

    def unsubscribe(self) -> None:
        if end := self.end():
            end.send(wire.Unsubscribe(packet_id=3, filters=(self.random.choice(FILTERS),)))

    def publish(self) -> None:
        if end := self.end():
            qos, payload = self.random.choice((0, 1, 1, 2)), b"x" * self.random.choice((0, 1, 30, 200))
            retain = self.random.random() < 0.4
            pid = self.random.randrange(1, 9) if qos else 0
            end.send(
                wire.Publish(topic=self.random.choice(TOPICS), payload=payload, qos=qos, packet_id=pid, retain=retain)
            )

    def read(self) -> None:
        if (end := self.end()) is None:
            return
        for packet in end.take():
            if end.closed or self.random.random() < 0.2:
                break
            match packet:
                case wire.Publish(qos=1):
                    end.send(wire.Puback(packet_id=packet.packet_id))
                case wire.Publish(qos=2):
                    end.send(wire.Pubrec(packet_id=packet.packet_id))
                case wire.Pubrel():
                    end.send(wire.Pubcomp(packet_id=packet.packet_id))

    def release(self) -> None:
        if end := self.end():
            end.send(wire.Pubrel(packet_id=self.random.randrange(1, 9)))

    def wait(self) -> None:
        self.world.turn(self.random.choice((0.1, 2.0, 6.0)))


@pytest.mark.parametrize("full", Full)
def test_what_is_counted_is_what_is_there(full: Full) -> None:
    reached: set[str] = set()
    for seed in range(12):
        history = History(seed, full)
        for _ in range(300):
            history.step()
            history.world.turn()
            accounts = history.world.site.accounts
            assert told(accounts) == counted(history.world), seed
        reached |= set(accounts.reached)
        for end in history.ends.values():
            if not end.closed:
                end.lose()
        history.world.turn(100.0)
        for topic in TOPICS:
            history.world.peer("last", username="user:x").send(
                wire.Publish(topic=topic, payload=b"", retain=True), wire.Disconnect()
            )
        if not history.world.scope.sessions:
            assert told(accounts) == {"": (0,) * len(NAMES)}, seed
    assert reached == set(NAMES), "each bound was met"
