"""What was not recorded of a message, and what comes of asking for it.

Whoever asks for something that is not there gets no made-up answer: `Unrecorded` is raised through everything, and the
decision counts as one that could not be made. A condition that would have been settled without it, had its parts been
asked in another order, counts so too.
"""

from __future__ import annotations

from typing import Final, SupportsIndex

from tidegate.session import Message, Origin
from tidegate.wire import NONE, Properties

NOWHERE: Final = Origin("0" * 16, 0)


class Unrecorded(BaseException):
    """Not an Exception: an evaluator takes those for failures of a condition, which deny."""


class Payload(bytes):
    """Content that nobody wrote down."""

    def __len__(self) -> int:
        raise Unrecorded("the payload")

    def __getitem__(self, at: SupportsIndex | slice) -> int | bytes:  # type: ignore[override]
        raise Unrecorded("the payload")


PAYLOAD: Final = Payload()


class Bare(Message):
    """A message of which only topic and publisher were written down: it was refused."""

    __slots__ = ()

    def __init__(self, topic: str, published: float, context: bytes, link: str) -> None:
        super().__init__(topic, PAYLOAD, 0, False, published, NOWHERE, 0, context, link)

    @property
    def qos(self) -> int:
        raise Unrecorded("the QoS")

    @qos.setter
    def qos(self, value: int) -> None:
        """Nothing is kept."""

    @property
    def retain(self) -> bool:
        raise Unrecorded("the retain flag")

    @retain.setter
    def retain(self, value: bool) -> None:
        """Nothing is kept."""

    @property
    def properties(self) -> Properties:
        raise Unrecorded("the user properties")

    @properties.setter
    def properties(self, value: Properties) -> None:
        """Nothing is kept."""


def message(
    topic: str,
    payload: bytes | None,
    qos: int,
    retain: bool,
    at: float,
    context: bytes,
    link: str,
    properties: Properties = NONE,
) -> Message:
    """A message as it was recorded."""
    return Message(
        topic, PAYLOAD if payload is None else payload, qos, retain, at, NOWHERE, 0, context, link, properties
    )
