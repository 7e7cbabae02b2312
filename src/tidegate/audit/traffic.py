"""The stream `traffic`: what a replay needs to know who would have received what (see `store.journal.rows`).

Every session is written down when recording or a segment begins, so that a replay can start at any segment; that is
done a few sessions at a time, and may repeat what is known.

What is not in it, because nobody reports it: deliveries of retained and queued messages that were allowed, and the very
moment at which a session that was away ends (it is found out at the next look).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from tidegate.policy import Demand
from tidegate.policy.actor import attributes_of
from tidegate.scope import Scope
from tidegate.session import Grant, Link, Message, Session, Subject
from tidegate.store.journal import Writer
from tidegate.store.journal.rows import Happening, traffic_row

STATE = 200  # sessions and subscriptions written down at a time
LOOK = 1000  # sessions looked at at a time

Key = tuple[str, str, str]


class Traffic:
    """Writes what it is told to one journal. `time` is the wall clock of this turn."""

    def __init__(self, journal: Writer, scopes: Mapping[str, Scope], *, time: Callable[[], float]) -> None:
        self.journal = journal
        self.payloads = False
        self.version = ""
        self._scopes = scopes
        self._time = time
        self._sessions: dict[Key, Session] = {}  # those that a reader of the journal believes to exist

    # -- messages ------------------------------------------------------------------------------------------------

    def published(self, message: Message, subject: Subject) -> None:
        """Written before it is known who gets it."""
        properties = message.properties
        self.journal.append(
            traffic_row(
                self._time(),
                message.id,
                message.topic,
                message.payload if self.payloads else None,
                message.qos,
                message.retain,
                properties.content_type,
                properties.user_properties or None,
                subject.name,
                subject.kind,
                None,
                None,
                subject.client,
                subject.user,
                subject.level,
                subject.level,  # it has crossed one link
                message.context,
                self.version,
            )
        )

    def refused(self, link: Link, topic: str) -> None:
        """A publish that was denied. Other rules might let it pass; its content is not known here."""
        subject = link.subject
        self.journal.append(
            traffic_row(
                self._time(),
                topic=topic,
                source=subject.name,
                source_kind=subject.kind,
                client=subject.client,
                user=subject.user,
                level=subject.level,
                floor=subject.level,
                policy_version=self.version,
            )
        )

    # -- sessions ------------------------------------------------------------------------------------------------

    def connected(self, session: Session) -> None:
        key = _key(session)
        known = self._sessions.get(key)
        if known is not None and known is not session:
            self._ended(known)  # it was replaced by a new one
        self._sessions[key] = session
        subject = session.subject
        attributes = attributes_of(subject, subject.domain)
        said = orjson.dumps(attributes, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()
        self._happened(session, Happening.CONNECT, attributes=said, properties=_demanded(session.inward.demand))

    def disconnected(self, session: Session) -> None:
        self._happened(session, Happening.DISCONNECT)

    def subscribed(self, session: Session, grant: Grant) -> None:
        options = grant.qos | grant.no_local << 2 | grant.retain_as_published << 3 | grant.retain_handling << 4
        terms = grant.terms
        properties = _demanded(terms.demand)
        if terms.where is not None:
            properties.append(("where", terms.where))
        self._happened(session, Happening.SUBSCRIBE, filter=grant.filter, options=options, properties=properties)

    def unsubscribed(self, session: Session, filter: str) -> None:
        self._happened(session, Happening.UNSUBSCRIBE, filter=filter)

    def look(self) -> Iterator[None]:
        """Finds out which sessions are over, in pieces."""
        for number, session in enumerate(list(self._sessions.values()), 1):
            self.look_at(session)
            if number % LOOK == 0:
                yield

    def look_at(self, session: Session) -> None:
        """The same for one."""
        key = _key(session)
        if self._sessions.get(key) is session and not self._lives(session):
            del self._sessions[key]
            self._ended(session)

    def state(self) -> Iterator[None]:
        """Every session with its subscriptions, in pieces."""
        number = 0
        for scope in self._scopes.values():
            for session in list(scope.sessions.values()):
                if not self._lives(session):
                    continue
                self.connected(session)
                if session.peer is None:
                    self.disconnected(session)
                for grant in list((session.subscriptions or {}).values()):
                    if (session.subscriptions or {}).get(grant.filter) is grant:  # still
                        self.subscribed(session, grant)
                    number += 1
                    if number >= STATE:
                        number = 0
                        yield
                number += 1
                if number >= STATE:
                    number = 0
                    yield

    def _lives(self, session: Session) -> bool:
        scope = self._scopes.get(session.subject.scope)
        return scope is not None and scope.sessions.get((session.principal, session.client)) is session

    def _ended(self, session: Session) -> None:
        self._happened(session, Happening.UNSUBSCRIBE)

    def _happened(
        self,
        session: Session,
        event: Happening,
        *,
        filter: str | None = None,
        options: int | None = None,
        attributes: str | None = None,
        properties: Iterable[tuple[str, str]] = (),
    ) -> None:
        subject = session.subject
        self.journal.append(
            traffic_row(
                self._time(),
                properties=tuple(properties) or None,
                source=subject.name,
                source_kind=subject.kind,
                client=subject.client,
                user=subject.user,
                level=subject.level,
                policy_version=self.version,
                event=event.value,
                filter=filter,
                options=options,
                attributes=attributes,
            )
        )


def _key(session: Session) -> Key:
    return session.subject.scope, session.principal, session.client


def _demanded(demand: Demand | None) -> list[tuple[str, str]]:
    return [] if demand is None else [("require", demand.level or "none")]


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)
