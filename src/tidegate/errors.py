"""The whole exception hierarchy on one screen.

Bytes from outside raise only `MalformedPacket` and `ProtocolError`; any other exception while reading
them is a bug. A denial is a value (`gate.Deny`), never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class TidegateError(Exception):
    """Everything that Tidegate raises on purpose."""


class PacketError(TidegateError):
    """A peer sent bytes that the specification forbids; `reason` is the MQTT 5 reason code to answer with."""

    def __init__(self, message: str, reason: int) -> None:
        super().__init__(message)
        self.reason = reason


class MalformedPacket(PacketError):
    """The bytes cannot be parsed as the packet they claim to be (MQTT 5, 1.2: Malformed Packet)."""

    def __init__(self, message: str, reason: int = 0x81) -> None:
        super().__init__(message, reason)


class ProtocolError(PacketError):
    """The packet parses, but is not allowed by the protocol or in this state (MQTT 5, 1.2: Protocol Error)."""

    def __init__(self, message: str, reason: int = 0x82) -> None:
        super().__init__(message, reason)


class ConfigError(TidegateError):
    """The configuration is wrong: where, what, and how to mend it."""

    def __init__(self, message: str, *, file: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.file = file
        self.line = line

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return place + super().__str__()


class StoreError(TidegateError):
    """The store cannot be opened, read or written."""


class Uncertain(StoreError):
    """The connection to the store broke during a commit: whether the change `id` was made can be asked for later."""

    def __init__(self, message: str, *, id: str) -> None:
        super().__init__(message)
        self.id = id


class PipelineError(TidegateError):
    """The pipeline cannot go on: what is wrong, and how to mend it."""


class KeysError(TidegateError):
    """A key, or what was sealed or wrapped with one, is not what it should be; nothing of it may be used."""

    def __init__(self, message: str, *, missing: str | None = None) -> None:
        super().__init__(message)
        self.missing = missing
        """The id of the key that has to be asked for, if that is all that is wrong."""


class Problem(TidegateError):
    """What was asked cannot be done; `problem` is one word for programs, `details` say where and why."""

    def __init__(self, message: str, *, problem: str, details: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.problem = problem
        """`conflict`, `denied`, `forbidden`, `full`, `invalid`, `unknown`, `readonly`, `too-large`, `too-many`,
        `unauthenticated`, `unavailable` or `uncertain`."""
        self.details = tuple(details)
