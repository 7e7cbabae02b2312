"""Who was there at each moment, with which subscriptions: what rows of the journal `traffic` say about sessions.

A session is known by user and client identifier: rows say no more. Rows that repeat what is known change nothing, and
cost next to nothing: every segment begins with all of them.

After a crash of the node sessions that did not outlive it are never said to have ended. They are found out by the
messages: the id of one tells in which run of the node it was published, and whoever was not named again since the last
batch of the run before is gone. (A batch is written by one run.)

Two sessions of one user and client identifier in different scopes cannot be told apart; `confused` counts the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tidegate.pipeline.replay.side import Pairs, Side, Subscribed
from tidegate.policy.actor import BUILT_IN
from tidegate.session import Session, Subject

Key = tuple[str | None, str]
"""A user, and a client identifier."""
_NO_ADDED: Final[Mapping[str, Any]] = {}


@dataclass(slots=True, eq=False, kw_only=True)
class Seat:
    """One session, on both sides. A seat stands for itself: it is compared by identity."""

    subject: Subject
    said: str
    """Its attributes as they were recorded."""
    properties: Pairs
    connected: bool
    seen: int
    """The offset at which it was last said to exist."""
    sessions: tuple[Session | None, ...]
    """On each side; None where its scope does not exist."""
    subscriptions: dict[str, Subscribed] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As on the command line."""
        return named(self.subject)


def named(subject: Subject) -> str:
    """Somebody as on the command line: `user:mary/client:tr1`."""
    return subject.name if subject.user is None else f"user:{subject.user}/{subject.name}"


class Audience:
    """All sessions of one moment."""

    def __init__(self, sides: Iterable[Side]) -> None:
        self.sides = tuple(sides)
        self.unknown = 0  # rows about sessions that nobody has spoken of before
        self.confused = 0  # rows that say that a session has moved to another scope
        self.seats: dict[Key, Seat] = {}
        self._by_session: dict[Session, Seat] = {}
        self._run = ""
        self._until = -1  # offset up to which rows are surely of that run

    def of(self, session: Session) -> Seat:
        return self._by_session[session]

    def named(self, client: str) -> Iterator[Seat]:
        """Those with a client identifier."""
        return (seat for (_, name), seat in self.seats.items() if name == client)

    # -- rows ----------------------------------------------------------------------------------------------------

    def connected(
        self, key: Key, kind: str, level: str | None, attributes: str, properties: Pairs, offset: int
    ) -> None:
        """There is a connection, or it has other attributes."""
        seat = self.seats.get(key)
        said = f"{level} {attributes}"
        if seat is not None:
            seat.seen = offset
            if seat.connected and seat.said == said and seat.properties == properties:
                return
        if seat is None or seat.said != said:
            subject = _subject(key, kind, level, orjson.loads(attributes))
            if seat is not None and seat.subject.scope != subject.scope:
                self.confused += 1
                self.ended(key)
                seat = None
            if seat is None:
                sessions = tuple(side.seat(subject) for side in self.sides)
                seat = self.seats[key] = Seat(
                    subject=subject,
                    said=said,
                    properties=properties,
                    connected=True,
                    seen=offset,
                    sessions=sessions,
                )
                self._by_session |= {session: seat for session in sessions if session is not None}
            seat.subject, seat.said = subject, said
        seat.properties, seat.connected = properties, True
        self._identify(seat)

    def disconnected(self, key: Key) -> None:
        seat = self._known(key)
        if seat is not None and seat.connected:
            seat.connected = False
            self._identify(seat)

    def subscribed(self, key: Key, said: Subscribed) -> None:
        seat = self._known(key)
        if seat is None or seat.subscriptions.get(said.filter) == said:
            return
        seat.subscriptions[said.filter] = said
        for side, session in zip(self.sides, seat.sessions, strict=True):
            if session is not None:
                side.subscribe(session, said)

    def unsubscribed(self, key: Key, filter: str) -> None:
        seat = self._known(key)
        if seat is not None and seat.subscriptions.pop(filter, None) is not None:
            self._leave(seat, filter)

    def ended(self, key: Key) -> None:
        """A session is over."""
        seat = self.seats.pop(key, None)
        if seat is None:
            self.unknown += 1
            return
        for filter in seat.subscriptions:
            self._leave(seat, filter)
        for session in seat.sessions:
            if session is not None:
                del self._by_session[session]

    def running(self, run: str, last: int) -> None:
        """The batch that ends with this offset was written by this run of the node."""
        if self._run and run != self._run:
            for key in [key for key, seat in self.seats.items() if seat.seen <= self._until]:
                self.ended(key)
        self._run, self._until = run, last

    def _known(self, key: Key) -> Seat | None:
        seat = self.seats.get(key)
        self.unknown += seat is None
        return seat

    def _identify(self, seat: Seat) -> None:
        for side, session in zip(self.sides, seat.sessions, strict=True):
            if session is not None:
                side.identify(session, seat.subject, seat.properties, seat.connected)

    def _leave(self, seat: Seat, filter: str) -> None:
        for side, session in zip(self.sides, seat.sessions, strict=True):
            if session is not None:
                side.unsubscribe(session, filter)


def _subject(key: Key, kind: str, level: str | None, said: dict[str, Any]) -> Subject:
    """The subject whose attributes were recorded: `policy.actor.attributes_of` turned round."""
    user, client = key
    return Subject(
        kind=kind,
        client=client,
        user=user,
        scope=said["scope"],
        node=said["node"],
        domain=said["domain"],
        level=level or said["level"],
        address=said["address"],
        listener=said["listener"],
        roles=tuple(said["roles"]),
        groups=tuple(said["groups"]),
        tls=said.get("tls", _NO_ADDED),
        impostor="client" not in said,
        attributes={name: value for name, value in said.items() if name not in BUILT_IN},
    )
