"""What the quick way for QoS 0 messages needs of a plan whose residuals have to see each message.

`Asked` is made when the plan is compiled, if nothing but residuals keeps the plan off the fast lane. It has one message
that stands in for each that comes: residuals look at it, and nothing may keep it. How frames are encoded for whom is
known beforehand, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from tidegate.gate.decision import PartialDecision, part_properties
from tidegate.gate.payload_fields import PAYLOAD, Decode, decoder
from tidegate.gate.verdict import Residual
from tidegate.session import Grant, LinkSession, Message, Origin, Session
from tidegate.wire import NONE, V5, Properties, encode_properties, encode_varint

MOST: Final = 16
"""Receivers that are asked for one by one: more may take so long that some have to wait."""
SAME: Final = 0  # the frame as it came
OLDER: Final = 1  # without properties, as 3.1.1 has it
NEWER: Final = 2  # with the properties that subscribers are told
_NOBODY: Final = Origin("", 0)


@lru_cache(4096)
def _begun(length: int) -> bytes:
    """How a QoS 0 publish of this length begins."""
    return b"\x30" + encode_varint(length)


class Receiver:
    """Somebody who is asked for with each message."""

    __slots__ = ("cut", "form", "session", "way")

    def __init__(self, way: PartialDecision, form: int) -> None:
        self.way = way
        self.session = way.session
        self.form = form
        self.cut = NEWER if self.session.version == V5 else OLDER  # of a part of the message


class Asked:
    """See the module."""

    __slots__ = ("always", "block", "cut_block", "decode", "facts", "glances", "message", "name", "reads", "receivers")

    def __init__(self, topic: str, receivers: tuple[Receiver, ...], always: tuple[tuple[int, Session], ...]) -> None:
        self.receivers = receivers
        self.always = always  # who gets what is admitted, and in which form
        name = topic.encode()
        self.name = len(name).to_bytes(2, "big") + name
        self.block = self.cut_block = b"\0"  # the property field of MQTT 5, and that of a part of the message
        self.message = Message(topic, b"", 0, False, 0.0, _NOBODY, 0, b"", "")
        self.facts: Any = None  # what conditions read of that
        self.decode: Decode  # its content, as far as they do
        self.reads = False  # whether they do
        self.glances: tuple[tuple[int, Any, bool], ...] = ()
        """Monitors of the publisher's link by their position there: what tells whether a message passes, and whether
        it does so in every state."""

    def encoded(self, payload: bytes, form: int, *, cut: bool = False) -> bytes:
        """A frame for those who do not get it as it came. `cut`: the payload is what a view leaves."""
        block = b"" if form == OLDER else self.cut_block if cut else self.block
        return b"%b%b%b%b" % (_begun(len(self.name) + len(block) + len(payload)), self.name, block, payload)


def asked(
    topic: str,
    admission: Iterable[Residual],
    targets: Iterable[Grant],
    conditional: Iterable[tuple[PartialDecision, ...]],
    *,
    protocol: int,
    floor_properties: Properties,
) -> Asked | None:
    """For a plan with these receivers; None if one of them needs more than a frame."""
    receivers: list[Receiver] = []
    always: list[tuple[int, Session]] = []
    for grant in targets:
        form = _form(grant, protocol, floor_properties)
        if form is None:
            return None
        always.append((form, grant.session))
    for ways in conditional:
        way = ways[0]
        if len(ways) > 1 or way.grant is None or len(receivers) == MOST:
            return None
        form = _form(way.grant, protocol, floor_properties)
        if form is None:
            return None
        receivers.append(Receiver(way, form))
    made = Asked(topic, tuple(receivers), tuple(always))
    residuals = [*admission, *(each for one in receivers for each in (*one.way.residuals, *one.way.wants))]
    reads = frozenset(path for each in residuals for path in each.reads)
    made.decode = decoder(reads)
    made.reads = any(path.startswith(PAYLOAD) for path in reads)
    made.message.properties = floor_properties
    if floor_properties is not NONE:
        made.block = encode_properties(floor_properties)
        made.cut_block = encode_properties(part_properties(floor_properties))
    return made


def _form(grant: Grant, protocol: int, floor_properties: Properties) -> int | None:
    session = grant.session
    if isinstance(session, LinkSession) or grant.ids or grant.no_local or grant.own or not session.plain:
        return None
    if session.version == protocol and (session.version != V5 or floor_properties is NONE):
        return SAME
    return NEWER if session.version == V5 else OLDER
