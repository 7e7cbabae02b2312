"""A node in memory with people in it: a configuration, clients that speak packets, and a clock that tests set.

`Town(text)` reads the text as a configuration file would be read. People are who their user name says; what the
directory knows of them counts, as on a real node. Real sockets, passwords and TLS are in `tests/examples` and in
`real.py`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from pure import End, World
from tidegate import wire
from tidegate.config import Config, parse
from tidegate.scope import Exchange, Identity, Refused
from tidegate.scope.authenticator import Answer
from tidegate.session import Connection, Session

P = TypeVar("P")
OK: Final = 0x00
GRANTED: Final = 0x01
NOBODY: Final = 0x10  # no matching subscribers
DENIED: Final = 0x87
MONDAY: Final = datetime(2026, 3, 2, tzinfo=UTC)
_HEAD: Final = 'version: 1\nnode: {name: mygym}\nlisteners: [{url: "mqtt://127.0.0.1:1883", anonymous: true}]\n'


class Town:
    """The node."""

    def __init__(self, text: str) -> None:
        self.config = self._read(text)
        self.world = World(rules=self.config.built.rules, authenticator=self)
        self.at("09:00")

    def _read(self, text: str) -> Config:
        return parse(_HEAD + text, "town.yaml", variables={})

    def change(self, text: str) -> None:
        """Another configuration, from the next message on."""
        self.config = self._read(text)
        self.world.scope.change(self.config.built.rules)
        self.world.turn()

    def at(self, time: str, day: int = 0) -> None:
        """Monday, 2 March 2026, or a number of days later."""
        hour, minute = map(int, time.split(":"))
        self.world.wall = (MONDAY + timedelta(days=day, hours=hour, minutes=minute)).timestamp()

    def pass_time(self, seconds: float) -> None:
        self.world.turn(seconds)

    def come(self, user: str | None = None, client: str | None = None, *, version: int = wire.V5) -> Person:
        return Person(self.world.peer(client or f"{user}'s client", version=version, username=user))

    # scope.Authenticator

    def authenticate(self, connection: Connection, packet: wire.Connect, answer: Answer) -> None:
        answer(self._identity(packet.username, packet.client_id))

    def exchange(self, connection: Connection, packet: wire.Connect, method: str) -> Exchange | None:
        return None

    def reauthorize(self, session: Session) -> Identity | Refused:
        return self._identity(session.subject.user, session.client)

    def _identity(self, user: str | None, client: str) -> Identity | Refused:
        if user is not None and user not in self.config.directory.users:
            return Refused(text="no such user")
        known = self.config.built.directory.known(user=user, client=client)
        return Identity(
            principal=f"user:{user}" if user else "anonymous",
            user=known.user,
            roles=known.roles,
            groups=known.groups,
            attributes=known.attributes,
        )


class Person:
    """Somebody who is connected."""

    def __init__(self, end: End) -> None:
        self.end = end
        self._inbox: list[wire.Publish] = []
        self.connack = self._answer(wire.Connack)

    def subscribe(self, filter: str, **says: str) -> int:
        """The reason code of the answer."""
        properties = wire.Properties(user_properties=tuple(says.items()))
        subscription = wire.Subscription(filter=filter, qos=1)
        self.end.send(wire.Subscribe(packet_id=1, subscriptions=(subscription,), properties=properties))
        return self._answer(wire.Suback).reasons[0]

    def publish(self, topic: str, content: Any = 1, **says: str) -> int:
        """The reason code of the answer; texts are sent as they are, everything else as JSON."""
        payload = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        properties = wire.Properties(user_properties=tuple(says.items()))
        self.end.send(wire.Publish(topic=topic, payload=payload, qos=1, packet_id=1, properties=properties))
        return self._answer(wire.Puback).reason

    def got(self) -> list[wire.Publish]:
        """The messages that came since the last time."""
        assert not self._take()
        found, self._inbox = self._inbox, []
        return found

    def topics(self) -> list[str]:
        return [message.topic for message in self.got()]

    def contents(self) -> list[Any]:
        return [content(message) for message in self.got()]

    def _answer(self, kind: type[P]) -> P:
        (answer,) = self._take()
        assert isinstance(answer, kind), answer
        return answer

    def _take(self) -> list[wire.Packet]:
        """Everything but messages; those are acknowledged and kept."""
        others: list[wire.Packet] = []
        for packet in self.end.take():
            if not isinstance(packet, wire.Publish):
                others.append(packet)
                continue
            self._inbox.append(packet)
            if packet.qos:
                self.end.send(wire.Puback(packet_id=packet.packet_id))
        return others


def content(message: wire.Publish) -> Any:
    """JSON where it is JSON, else text."""
    try:
        return json.loads(message.payload)
    except ValueError:
        return message.payload.decode()
