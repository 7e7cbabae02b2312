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

from tidegate.pipeline.replay.replay_engine import Pairs, RecordedSubscription, ReplayEngine
from tidegate.policy.subject import BUILT_IN
from tidegate.session import Session, Subject

Key = tuple[str | None, str]  # a user, and a client identifier
_NO_ADDED: Final[Mapping[str, Any]] = {}


@dataclass(slots=True, eq=False, kw_only=True)
class RecordedSession:
    """One session, on both sides. A seat stands for itself: it is compared by identity."""

    subject: Subject
    said: str  # its attributes as they were recorded
    properties: Pairs
    connected: bool
    seen: int  # the offset at which it was last said to exist
    sessions: tuple[Session | None, ...]  # on each side; None where its scope does not exist
    subscriptions: dict[str, RecordedSubscription] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return named(self.subject)


def named(subject: Subject) -> str:
    """Somebody as on the command line: `user:mary/client:tr1`."""
    return subject.name if subject.user is None else f"user:{subject.user}/{subject.name}"


class RecordedSessions:
    def __init__(self, engines: Iterable[ReplayEngine]) -> None:
        self.engines = tuple(engines)
        self.at = 0.0  # the time of the row
        self.unknown = 0  # rows about sessions that nobody has spoken of before
        self.confused = 0  # rows that say that a session has moved to another scope
        self.by_key: dict[Key, RecordedSession] = {}
        self._by_session: dict[Session, RecordedSession] = {}
        self._run = ""
        self._until = -1  # offset up to which rows are surely of that run

    def of(self, session: Session) -> RecordedSession:
        return self._by_session[session]

    def named(self, client: str) -> Iterator[RecordedSession]:
        return (recorded for (_, name), recorded in self.by_key.items() if name == client)

    # -- rows ----------------------------------------------------------------------------------------------------

    def connected(
        self, key: Key, kind: str, level: str | None, attributes: str, properties: Pairs, offset: int
    ) -> None:
        """There is a connection, or it has other attributes."""
        recorded = self.by_key.get(key)
        description = f"{level} {attributes}"
        if recorded is not None:
            recorded.seen = offset
            if recorded.connected and recorded.said == description and recorded.properties == properties:
                return
        if recorded is None or recorded.said != description:
            subject = _subject(key, kind, level, orjson.loads(attributes))
            if recorded is not None and recorded.subject.scope != subject.scope:
                self.confused += 1
                self.ended(key)
                recorded = None
            if recorded is None:
                sessions = tuple(engine.recorded(subject) for engine in self.engines)
                recorded = self.by_key[key] = RecordedSession(
                    subject=subject,
                    said=description,
                    properties=properties,
                    connected=True,
                    seen=offset,
                    sessions=sessions,
                )
                self._by_session |= {session: recorded for session in sessions if session is not None}
            recorded.subject, recorded.said = subject, description
        recorded.properties, recorded.connected = properties, True
        self._identify(recorded)

    def disconnected(self, key: Key) -> None:
        recorded = self._known(key)
        if recorded is not None and recorded.connected:
            recorded.connected = False
            self._identify(recorded)

    def subscribed(self, key: Key, subscription: RecordedSubscription) -> None:
        recorded = self._known(key)
        if recorded is None or recorded.subscriptions.get(subscription.filter) == subscription:
            return
        recorded.subscriptions[subscription.filter] = subscription
        for engine, session in self._sides(recorded):
            engine.subscribe(session, subscription)

    def unsubscribed(self, key: Key, filter: str) -> None:
        recorded = self._known(key)
        if recorded is not None and recorded.subscriptions.pop(filter, None) is not None:
            self._leave(recorded, filter)

    def ended(self, key: Key) -> None:
        recorded = self.by_key.pop(key, None)
        if recorded is None:
            self.unknown += 1
            return
        for filter in recorded.subscriptions:
            self._leave(recorded, filter)
        for _, session in self._sides(recorded):
            del self._by_session[session]

    def running(self, run: str, last: int) -> None:
        """The batch that ends with this offset was written by this run of the node."""
        if self._run and run != self._run:
            for key in [key for key, recorded in self.by_key.items() if recorded.seen <= self._until]:
                self.ended(key)
        self._run, self._until = run, last

    def _known(self, key: Key) -> RecordedSession | None:
        recorded = self.by_key.get(key)
        self.unknown += recorded is None
        return recorded

    def _sides(self, recorded: RecordedSession) -> Iterator[tuple[ReplayEngine, Session]]:
        """Where there is such a session."""
        for engine, session in zip(self.engines, recorded.sessions, strict=True):
            if session is not None:
                yield engine, session

    def _identify(self, recorded: RecordedSession) -> None:
        for engine, session in self._sides(recorded):
            engine.identify(session, recorded.subject, recorded.properties, recorded.connected)

    def _leave(self, recorded: RecordedSession, filter: str) -> None:
        for engine, session in self._sides(recorded):
            engine.unsubscribe(session, filter)


def _subject(key: Key, kind: str, level: str | None, attributes: dict[str, Any]) -> Subject:
    """The subject whose attributes were recorded: `policy.subject.attributes_of` turned round."""
    user, client = key
    return Subject(
        kind=kind,
        client=client,
        user=user,
        scope=attributes["scope"],
        node=attributes["node"],
        domain=attributes["domain"],
        level=level or attributes["level"],
        facts=tuple(attributes.get("facts", ())),
        address=attributes["address"],
        listener=attributes["listener"],
        roles=tuple(attributes["roles"]),
        groups=tuple(attributes["groups"]),
        tls=attributes.get("tls", _NO_ADDED),
        impostor="client" not in attributes,
        attributes={name: value for name, value in attributes.items() if name not in BUILT_IN},
    )
