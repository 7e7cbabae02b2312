"""One peer's protocol state: QoS flows, in-flight windows, queues, will, keep-alive."""

from __future__ import annotations

from tidegate.session.connection import Hold, Line, Listening, Phase, Shell
from tidegate.session.context import NO_OPTIONS, NO_TERMS, Context, MessageOptions, Terms
from tidegate.session.grant import Grant, Shut
from tidegate.session.host import Host, Refusal, Route
from tidegate.session.journal import Journal, Unwritten
from tidegate.session.link import Link, ScopeLinkEnd, Subject
from tidegate.session.message import Delivery, Message, Origin, State
from tidegate.session.peer import Peer
from tidegate.session.publishing import forwarded, with_floor_properties
from tidegate.session.runtime import Counters, Full, Limits, Site
from tidegate.session.session import NEVER, Session
from tidegate.session.store import Store, StoredSession, Volatile
from tidegate.session.timers import Timer, Timers
from tidegate.session.token_bucket import Bucket

__all__ = [
    "NEVER",
    "NO_OPTIONS",
    "NO_TERMS",
    "Bucket",
    "Context",
    "Counters",
    "Delivery",
    "Full",
    "Grant",
    "Hold",
    "Host",
    "Journal",
    "Limits",
    "Line",
    "Link",
    "Listening",
    "Message",
    "MessageOptions",
    "Origin",
    "Peer",
    "Phase",
    "Refusal",
    "Route",
    "ScopeLinkEnd",
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
    "forwarded",
    "with_floor_properties",
]
