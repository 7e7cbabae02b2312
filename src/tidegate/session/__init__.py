"""One peer's protocol state: QoS flows, in-flight windows, queues, will, keep-alive."""

from __future__ import annotations

from tidegate.session.connection import Hold, Line, Listening, Phase, Shell
from tidegate.session.context import NO_TERMS, NO_WISH, Context, Terms, Wish
from tidegate.session.grant import Grant, Shut
from tidegate.session.host import Host, Refusal, Route
from tidegate.session.journal import Journal, Unwritten
from tidegate.session.link import Joint, Link, Subject
from tidegate.session.message import Delivery, Message, Origin, State
from tidegate.session.peer import Peer
from tidegate.session.publishing import forwarded, with_told
from tidegate.session.runtime import Counters, Full, Limits, Site
from tidegate.session.session import NEVER, Session
from tidegate.session.store import Store, StoredSession, Volatile
from tidegate.session.timers import Timer, Timers
from tidegate.session.token_bucket import Bucket

__all__ = [
    "NEVER",
    "NO_TERMS",
    "NO_WISH",
    "Bucket",
    "Context",
    "Counters",
    "Delivery",
    "Full",
    "Grant",
    "Hold",
    "Host",
    "Joint",
    "Journal",
    "Limits",
    "Line",
    "Link",
    "Listening",
    "Message",
    "Origin",
    "Peer",
    "Phase",
    "Refusal",
    "Route",
    "Session",
    "Shell",
    "Shut",
    "Site",
    "State",
    "Store",
    "StoredSession",
    "Subject",
    "Terms",
    "Timer",
    "Timers",
    "Unwritten",
    "Volatile",
    "Wish",
    "forwarded",
    "with_told",
]
