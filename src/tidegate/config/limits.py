"""Bounds of every session, of every user, and of the node (`limits`)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from tidegate.config.section import Section
from tidegate.config.units import Count, Duration, Size, Switch


class QueueFull(StrEnum):
    """What happens to a message for a session whose queue is full."""

    DROP_NEWEST = "drop-newest"
    DROP_OLDEST = "drop-oldest"
    DISCONNECT = "disconnect"


class Queue(Section):
    """What waits for one session."""

    messages: Count = Field(default=10_000, ge=1)
    """Messages that wait for a session that is slow or away."""
    bytes: Size = Field(default=16 << 20, ge=1)
    """Bytes that wait for it."""
    full: QueueFull = QueueFull.DROP_NEWEST
    """What happens when either is reached."""


class UserLimits(Section):
    """What one user may hold: somebody with a name or a certificate, with all their clients. Anonymous clients together
    are one user."""

    sessions: Count = Field(default=100_000, ge=1)
    """Sessions, connected or kept; one more is refused with 0x97. A client identifier counts once more for each 256
    characters."""
    queued_messages: Count = Field(default=1_000_000, ge=1)
    """Messages that wait for these sessions; what happens to one more, `limits.queue.full` says."""
    queued_bytes: Size = Field(default=1 << 30, ge=1)
    """Bytes of messages that wait for them or are under way to them, and of their wills over 1 KiB."""
    unreleased: Count = Field(default=100_000, ge=1)
    """QoS 2 messages that they have sent and not released; one more is refused with 0x97."""
    unreleased_bytes: Size = Field(default=256 << 20, ge=1)
    """Bytes of these."""
    retained: Count = Field(default=500_000, ge=0)
    """Retained messages that they published last; one more is delivered, but not kept."""
    retained_bytes: Size = Field(default=512 << 20, ge=1)
    """Bytes of these."""
    subscriptions: Count = Field(default=1_000_000, ge=1)
    """Subscriptions of their sessions; one more is refused with 0x97. A filter counts once more for each 256
    characters, twenty times more for each `+` beyond the third, and with a `+` once more for each four levels beyond
    17."""
    conditions: Count = Field(default=250, ge=0)
    """Subscriptions among these with a `where`, each of which is asked of every message that matches."""


class NodeLimits(Section):
    """What all users together may hold."""

    sessions: Count = Field(default=200_000, ge=1)
    """Sessions, connected or kept."""
    queued_messages: Count = Field(default=4_000_000, ge=1)
    """Messages that wait for sessions."""
    queued_bytes: Size = Field(default=4 << 30, ge=1)
    """Bytes of messages that wait for sessions or are under way to them; one for many counts for each of them."""
    unreleased: Count = Field(default=400_000, ge=1)
    """QoS 2 messages that were sent and not released."""
    unreleased_bytes: Size = Field(default=1 << 30, ge=1)
    """Bytes of these."""
    retained: Count = Field(default=1_000_000, ge=0)
    """Retained messages in all scopes."""
    retained_bytes: Size = Field(default=1 << 30, ge=1)
    """Bytes of these."""
    subscriptions: Count = Field(default=2_000_000, ge=1)
    """Subscriptions of all sessions."""
    conditions: Count = Field(default=25_000, ge=0)
    """Those with a `where`."""


class Limits(Section):
    """Bounds of every session, of every user, and of the node."""

    user: UserLimits = Field(default_factory=UserLimits)
    """What one user may hold."""
    node: NodeLimits = Field(default_factory=NodeLimits)
    """What all users together may hold."""

    max_keep_alive: Duration | None = Field(default=None, ge=1, le=65535)
    """Longest keep-alive; MQTT 5 clients that ask for more (or none) are told to use this. Default: as they
    ask."""
    session_expiry: Duration | None = Field(default=30 * 86400.0, ge=0, le=4_294_967_294)
    """Longest time a session is kept after its client left, also for MQTT 3.1.1. `null`: as long as clients ask."""
    clock_skew: Duration = Field(default=60.0, ge=0, le=86400)
    """How far the clock of another node may be ahead of this one's. A message that says it was published later than
    that counts as published when it arrives, which the audit records."""
    unreleased_time: Duration = Field(default=300.0, gt=0, le=86400)
    """Time that a client, while it is connected, has to release a QoS 2 message; then it is disconnected."""
    inflight: Count = Field(default=1000, ge=1, le=65535)
    """QoS 1 and 2 messages under way to a client; fewer if its receive maximum says so."""
    receive_maximum: Count = Field(default=1000, ge=1, le=65535)
    """QoS 1 and 2 messages under way from a client."""
    queue: Queue = Field(default_factory=Queue)
    """What waits for one session."""
    topic_aliases: Count = Field(default=64, ge=0, le=65535)
    """Topic aliases a client may use towards the node; 0: none."""
    retained: Count = Field(default=1_000_000, ge=0)
    """Retained messages in a scope."""
    retained_bytes: Size = Field(default=1 << 30, ge=1)
    """Bytes of retained messages in a scope."""
    subscriptions: Count = Field(default=10_000, ge=1)
    """Subscriptions of one session."""
    shares: Count = Field(default=100, ge=0)
    """Shared subscriptions among them."""
    patterns: Count = Field(default=100, ge=1)
    """Patterns of wildcards among them: where `+` and `#` stand. Filters that differ in names alone are one."""
    held: Count = Field(default=100, ge=0)
    """Subscriptions that one client may have held, with `subscribe: hold`; more are refused."""
    topic_levels: Count = Field(default=65_536, ge=1, le=65_536)
    """Levels a topic or filter may have; more are refused as invalid."""
    topic_length: Count = Field(default=65_535, ge=1, le=65_535)
    """Bytes a topic or filter may have; longer ones are refused as invalid."""
    handshake_bytes: Size = Field(default=16 << 20, ge=1 << 10)
    """Bytes kept for all clients that have not logged in yet, together; whoever sends more is refused."""
    max_qos: Count = Field(default=2, ge=0, le=2)
    """Highest QoS that clients may publish with."""
    retain: Switch = True
    """Whether clients may publish retained messages."""
    wildcard_subscriptions: Switch = True
    """Whether filters may contain `+` and `#`."""
    shared_subscriptions: Switch = True
    """Whether `$share/…` subscriptions are allowed."""
