"""Rows of the live view: what is told of a connection, a session, a subscription and a retained message.

The content of messages is not told: who may read a message is decided by the gate alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from typing import Any, Final

from tidegate.scope import Scope
from tidegate.session import NEVER, Grant, Message, Session
from tidegate.topics import share
from tidegate.wire import V5

Row = dict[str, Any]
PIECE: Final = 100  # subscriptions put in order at a time
_PROTOCOLS: Final = {True: "5.0", False: "3.1.1"}


def client_row(session: Session) -> Row:
    """Of somebody who is connected."""
    subject, connection = session.subject, session.connection
    assert connection is not None
    protocol = "3.1" if connection.old else _PROTOCOLS[session.version == V5]
    return {
        "client": session.client,
        "user": subject.user,
        "scope": session.home,
        "level": subject.level,
        "address": subject.address or None,
        "listener": subject.listener or None,
        "protocol": protocol,
        "since": connection.since,
        "subscriptions": _subscriptions(session),
        "queue": _queue(session),
    }


def session_row(session: Session) -> Row:
    connection, ended = session.connection, session.ended
    expires = None
    if connection is None and ended is not None and session.expiry != NEVER:
        expires = ended + session.expiry
    return {
        "client": session.client,
        "user": session.subject.user,
        "scope": session.home,
        "kind": session.subject.kind,
        "connected": connection is not None,
        "since": ended if connection is None else connection.since,
        "persistent": bool(session.row),
        "expires": expires,
        "will": session.will is not None,
        "subscriptions": _subscriptions(session),
        "queue": _queue(session),
    }


def _subscriptions(session: Session) -> Row:
    granted = len(session.subscriptions or ())
    return {"granted": granted - session.held, "held": session.held, "refused": session.refused}


def _queue(session: Session) -> Row:
    deferred = session.deferred
    return {
        "messages": session.queued,
        "bytes": session.queued_bytes,
        "in_flight": session.inflight,
        "waiting_for_level": 0 if deferred is None else len(deferred),
    }


def subscription_rows(session: Session, after: str | None) -> Iterator[tuple[str, Row]]:
    """Those of a session by filter, behind that filter."""
    while True:
        subscriptions = session.subscriptions or {}
        there = (each for each in list(subscriptions) if after is None or each > after)
        filters = nsmallest(PIECE, there)
        for filter in filters:
            yield filter, subscription_row(session, filter, subscriptions[filter])
        if len(filters) < PIECE:
            return
        after = filters[-1]


def subscription_row(session: Session, filter: str, grant: Grant) -> Row:
    row: Row = {
        "filter": filter,
        "client": session.client,
        "user": session.subject.user,
        "scope": session.home,
        "qos": grant.qos,
        "held": grant.held,
        "group": share(filter)[0],
        "where": grant.terms.where,
    }
    return row


def retained_row(scope: Scope, message: Message) -> Row:
    """A retained message without its content."""
    context = scope.gate.attributes.context(message)
    left = None if message.expires is None else max(0.0, message.expires - scope.site.now)
    return {
        "topic": message.topic,
        "scope": scope.name,
        "bytes": len(message.payload),
        "qos": message.qos,
        "published": message.published,
        "publisher": context.publishers or None,
        "expires_in": left,
    }
