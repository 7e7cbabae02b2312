"""Fields of a message that were not recorded.

Reading such a field raises `FieldNotRecorded`, which passes through every evaluator: the decision counts as undecided.
So does a condition that could have been decided without the field, had its parts been read in another order.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, SupportsIndex

from tidegate.session import Message, Origin

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


def _not_recorded(field: str) -> property:
    """A field that cannot be read; what is written to it is not kept."""

    def read(_: object) -> NoReturn:
        raise FieldNotRecorded(field)

    return property(read, lambda _, value: None)


class RefusedMessage(Message):
    """A message of which only topic and publisher were written down: it was refused."""

    __slots__ = ()

    def __init__(self, topic: str, published: float, context: bytes, link: str) -> None:
        super().__init__(topic, PAYLOAD, 0, False, published, NOWHERE, 0, context, link)

    qos: Any = _not_recorded("the QoS")
    retain: Any = _not_recorded("the retain flag")
    properties: Any = _not_recorded("the user properties")
