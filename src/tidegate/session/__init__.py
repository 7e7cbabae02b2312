"""One peer's protocol state: QoS flows, in-flight windows, queues, will, keep-alive."""

from __future__ import annotations

from tidegate.policy import Subject
from tidegate.session.connection import Connection, Shell
from tidegate.session.context import NO_OPTIONS, NO_TERMS, Context, MessageOptions, SourceContext, Terms
from tidegate.session.decider import Later
from tidegate.session.grant import Grant
from tidegate.session.host import Host, Refusal, Route
from tidegate.session.journal import Journal
from tidegate.session.link import BackendEnd, BrokerLinkEnd, DegradedLinkEnd, Link, NodeLinkEnd, ScopeLinkEnd
from tidegate.session.link_session import LinkSession
from tidegate.session.message import Delivery, Message, Origin
from tidegate.session.phase import Hold, Phase
from tidegate.session.publishing import forwarded, with_floor_properties
from tidegate.session.runtime import Full, Limits, Site
from tidegate.session.session import NEVER, Session
from tidegate.session.store import Store, StoredSession, Volatile
from tidegate.session.timers import Timer
from tidegate.session.token_bucket import Bucket
from tidegate.session.usage import Bounds

__all__ = [
    "NEVER",
    "NO_OPTIONS",
    "NO_TERMS",
    "BackendEnd",
    "Bounds",
    "BrokerLinkEnd",
    "Bucket",
    "Connection",
    "Context",
    "DegradedLinkEnd",
    "Delivery",
    "Full",
    "Grant",
    "Hold",
    "Host",
    "Journal",
    "Later",
    "Limits",
    "Link",
    "LinkSession",
    "Message",
    "MessageOptions",
    "NodeLinkEnd",
    "Origin",
    "Phase",
    "Refusal",
    "Route",
    "ScopeLinkEnd",
    "Session",
    "Shell",
    "Site",
    "SourceContext",
    "Store",
    "StoredSession",
    "Subject",
    "Terms",
    "Timer",
    "Volatile",
    "forwarded",
    "with_floor_properties",
]
