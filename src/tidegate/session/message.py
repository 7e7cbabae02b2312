"""A message, and its way to one session.

A `Message` is made once per PUBLISH and shared by everybody it goes to; nothing changes it after it has been
routed, except that the store counts references in it. A `Delivery` is one message owed to one session: it is
queued, sent, and for QoS 2 released. What a later decision needs (publish time, context, type of the source
link) stays with the message through queues, retained messages and the store, because every delivery is decided
again when it is sent.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, Protocol

from tidegate.native import mypyc_attr
from tidegate.policy.capability import Use
from tidegate.session.carried_proof import without_proof
from tidegate.wire import NONE, Properties

OUTPUT_BITS = 12  # of an output's number: an output of an output has both, one above the other
OUTPUTS = (1 << OUTPUT_BITS) - 1


class Origin:
    """Where ids come from: one node and one boot of it."""

    __slots__ = ("_key", "boot", "node")

    def __init__(self, node: str, boot: int) -> None:
        self.node = node
        self.boot = boot
        self._key = b""

    @property
    def key(self) -> bytes:
        """Node and boot as envelopes have them: the first part of an id."""
        if not self._key:
            self._key = bytes.fromhex(self.node) + self.boot.to_bytes(6, "big")
        return self._key


class Waiter(Protocol):
    """Somebody who waits until a message is safe: committed, or owed to nobody any more."""

    def settle(self) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Message:
    """One message as the node keeps it. Slotted and positional: made once per general-path PUBLISH."""

    __slots__ = (
        "context",
        "expires",
        "facts",
        "form",
        "frames",
        "head",
        "journaled",
        "link",
        "noted",
        "number",
        "origin",
        "output",
        "outputs",
        "payload",
        "properties",
        "published",
        "qos",
        "retain",
        "row",
        "rows",
        "tail",
        "topic",
        "use",
        "views",
        "waiter",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        published: float,
        origin: Origin,
        number: int,
        context: bytes,
        link: str,
        properties: Properties = NONE,
        expires: float | None = None,
        output: int = 0,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.published = published  # wall clock, UTC seconds
        self.origin = origin
        self.number = number
        self.context = context  # opaque here; first byte is the version
        self.link = link  # type of the source link
        self.properties = properties  # only what is forwarded; no expiry, no alias, no subscription identifiers
        self.expires = expires  # monotonic deadline
        self.output = output
        self.outputs = 0  # of monitors, that have been numbered after it
        self.form = 0  # how `head` and `tail` are encoded, see frames.py; 0: not at all
        self.head = self.tail = b""
        self.frames: dict[tuple[int, tuple[int, ...]], tuple[bytes, bytes]] | None = None  # see frames.py
        self.facts: Any = None  # what conditions read of it, made by the gate when first asked
        self.journaled = False  # it is in the journal, or on its way: acknowledged when that is safe
        self.noted = False  # something beside its deliveries was noted for it: acknowledged after the commit
        self.use: Use | None = None  # of the proof that it came with
        self.views: dict[Any, Message | None] | None = None  # what is left of it by view; None: nothing
        self.row = 0  # the store's key of the body, 0 while it is not stored
        self.waiter: Waiter | None = None  # told when nobody is owed it any more
        self.rows = 0  # how many stored deliveries, retained entries or incoming QoS 2 entries refer to the body

    @property
    def id(self) -> str:
        """formats.md: node-boot-counter, and .k for a monitor's k-th output. Made only when asked for."""
        text = f"{self.origin.node}-{self.origin.boot:x}-{self.number:x}"
        output, tail = self.output, ""
        while output:
            tail = f".{output & OUTPUTS}{tail}"
            output >>= OUTPUT_BITS
        return text + tail

    def numbered(self, index: int) -> int | None:
        """The number of its output `index`, counted from 1; None if it was made of too many already to be stored."""
        number = self.output << OUTPUT_BITS | index
        return number if number < 1 << 63 else None

    def derived(
        self, number: int, topic: str, payload: bytes, qos: int, retain: bool, context: bytes, link: str
    ) -> Message:
        """What a monitor made of it, under the number that says of what: see `numbered`."""
        properties = self.properties
        return Message(
            topic,
            payload,
            qos,
            retain,
            self.published,
            self.origin,
            self.number,
            context,
            link,
            NONE if properties is NONE else without_proof(properties),  # hot: most have none
            self.expires,
            number,
        )

    def across(self, topic: str, qos: int, context: bytes, link: str, properties: Properties) -> Message:
        """The same message, as it is in another scope."""
        return Message(
            topic,
            self.payload,
            qos,
            self.retain,
            self.published,
            self.origin,
            self.number,
            context,
            link,
            properties,
            self.expires,
            self.output,
        )

    def copied(self) -> Message:
        """The same, for somebody who changes it."""
        return self.across(self.topic, self.qos, self.context, self.link, self.properties)

    @property
    def size(self) -> int:
        """What it counts for against a queue's limit in bytes."""
        size = len(self.payload) + len(self.topic) + 64
        if len(self.context) > SHARED_CONTEXT:
            size += len(self.context)  # a table of visibility is in it
        properties = self.properties
        if properties is not NONE:
            size += sum(len(name) + len(value) + 64 for name, value in properties.user_properties)
            size += len(properties.correlation_data or b"")
            size += len(properties.content_type or "") + len(properties.response_topic or "")
        return size


SHARED_CONTEXT: Final = 1024  # bytes: smaller ones are the same for many messages


class State(IntEnum):
    """How far a delivery has come."""

    QUEUED = 0
    SENT = 1  # PUBLISH sent, waiting for PUBACK or PUBREC
    RELEASED = 2  # QoS 2: PUBREC received, PUBREL owed or sent, waiting for PUBCOMP


# hot: to look up the member of an enumeration takes as long as a call
QUEUED: Final = State.QUEUED
SENT: Final = State.SENT
RELEASED: Final = State.RELEASED


class Delivery:
    """One message owed to one session."""

    __slots__ = ("by", "group", "ids", "message", "overheard", "pid", "qos", "retain", "row", "seen", "state")

    def __init__(
        self,
        message: Message,
        qos: int,
        retain: bool = False,
        ids: tuple[int, ...] = (),
        group: tuple[str, str] | None = None,
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.ids = ids  # subscription identifiers to tell
        self.group = group  # (share name, filter) when it came through a shared subscription
        self.pid = 0
        self.state: State = QUEUED
        self.seen = False  # the monitors of its link have let it pass
        self.by: tuple[str, ...] = ()  # and which those were
        self.overheard = False  # it is for these alone: nobody has subscribed to it
        self.row = 0  # the store's key, 0 while it is not stored
