"""Fields of a message that were not recorded.

Reading such a field raises `FieldNotRecorded`, which passes through every evaluator: the decision counts as undecided.
So does a condition that could have been decided without the field, had its parts been read in another order.
"""

from __future__ import annotations

from typing import Final, SupportsIndex

from tidegate.session import Message, Origin
from tidegate.wire import NONE, Properties

NOWHERE: Final = Origin("0" * 16, 0)


class FieldNotRecorded(BaseException):
    """Not an Exception: an evaluator takes those for failures of a condition, which deny."""


class Payload(bytes):
    """Content that nobody wrote down."""

    def __len__(self) -> int:
        raise FieldNotRecorded("the payload")

    def __getitem__(self, at: SupportsIndex | slice) -> int | bytes:  # type: ignore[override]
        raise FieldNotRecorded("the payload")


PAYLOAD: Final = Payload()


class RefusedMessage(Message):
    """A message of which only topic and publisher were written down: it was refused."""

    __slots__ = ()

    def __init__(self, topic: str, published: float, context: bytes, link: str) -> None:
        super().__init__(topic, PAYLOAD, 0, False, published, NOWHERE, 0, context, link)

    @property
    def qos(self) -> int:
        raise FieldNotRecorded("the QoS")

    @qos.setter
    def qos(self, value: int) -> None:
        """Nothing is kept."""

    @property
    def retain(self) -> bool:
        raise FieldNotRecorded("the retain flag")

    @retain.setter
    def retain(self, value: bool) -> None:
        """Nothing is kept."""

    @property
    def properties(self) -> Properties:
        raise FieldNotRecorded("the user properties")

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
