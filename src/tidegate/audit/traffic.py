"""The stream `traffic`: what a replay needs to know who would have received what (see `store.journal.rows`).

Every session is written down when recording or a segment begins, so that a replay can start at any segment; that is
done a few sessions at a time, and may repeat what is known.

What is not in it: deliveries of retained and queued messages that were allowed (the audit counts those of retained
ones), and the very moment at which a session that was away ends (it is found out at the next look).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import orjson

from tidegate.policy import Demand
from tidegate.policy.subject import attributes_of
from tidegate.scope import Scope
from tidegate.session import Grant, Link, Message, Session, Site, Subject
from tidegate.session.carried_proof import without_proof
from tidegate.store.journal import Writer
from tidegate.store.journal.rows import Happening, traffic_row

STATE = 200  # sessions and subscriptions written down at a time
LOOK = 1000  # sessions looked at at a time

Key = tuple[str, str, str]


class Traffic:
    """Writes what happens to one journal."""

    def __init__(self, journal: Writer, scopes: Mapping[str, Scope], site: Site) -> None:
        self.journal = journal
        self.payloads = False
        self.version = ""
        self._scopes = scopes
        self._site = site
        self._restatements = 0
        self._sessions: dict[Key, Session] = {}  # those that a reader of the journal believes to exist

    # -- messages ------------------------------------------------------------------------------------------------

    def published(self, message: Message, subject: Subject) -> None:
        """Written before it is known who gets it."""
        properties = without_proof(message.properties)
        self.journal.append(
            traffic_row(
                self._site.wall,
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
        self._append(link.subject, topic=topic, floor=link.subject.level)

    # -- sessions ------------------------------------------------------------------------------------------------

    def connected(self, session: Session) -> None:
        key = _key(session)
        known = self._sessions.get(key)
        if known is not None and known is not session:
            self._ended(known)  # it was replaced by a new one
        self._sessions[key] = session
        subject = session.subject
        attributes = attributes_of(subject, subject.domain)
        attributes |= {"roles": subject.roles, "groups": subject.groups}  # as the subject has them
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

    def restate(self) -> None:
        """Writes down every session with its subscriptions, in pieces, because recording or a segment begins."""
        self._restatements += 1
        self._site.unfinished.append(partial(self._restate_piece, self._restatements, self._state()))

    def _restate_piece(self, number: int, state: Iterator[None]) -> bool:
        return number == self._restatements and next(state, self) is None  # unless another one has begun

    def _state(self) -> Iterator[None]:
        written = 0
        for scope in self._scopes.values():
            for session in list(scope.sessions.values()):
                if not self._lives(session):
                    continue
                self.connected(session)
                if session.connection is None:
                    self.disconnected(session)
                for grant in (None, *(session.subscriptions or {}).values()):
                    if grant is not None and (session.subscriptions or {}).get(grant.filter) is grant:  # still
                        self.subscribed(session, grant)
                    written += 1
                    if written % STATE == 0:
                        yield

    def _lives(self, session: Session) -> bool:
        scope = self._scopes.get(session.subject.scope)
        return scope is not None and scope.sessions.get((session.principal, session.client)) is session

    def _ended(self, session: Session) -> None:
        self._happened(session, Happening.UNSUBSCRIBE)

    def _happened(
        self, session: Session, event: Happening, *, properties: Iterable[tuple[str, str]] = (), **columns: Any
    ) -> None:
        self._append(session.subject, event=event.value, properties=tuple(properties) or None, **columns)

    def _append(self, subject: Subject, **columns: Any) -> None:
        """A row about a subject, with these columns more."""
        row = traffic_row(
            self._site.wall,
            source=subject.name,
            source_kind=subject.kind,
            client=subject.client,
            user=subject.user,
            level=subject.level,
            policy_version=self.version,
            **columns,
        )
        self.journal.append(row)


def _key(session: Session) -> Key:
    return session.subject.scope, session.principal, session.client


def _demanded(demand: Demand | None) -> list[tuple[str, str]]:
    return [] if demand is None else [("require", demand.text or "none")]


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)
