"""An administrator's own Python in these tests: functions that conditions call, one well, others that fail; and a
method of authentication that lets everybody in."""

from __future__ import annotations

from tidegate.predicate import function
from tidegate.scope import Accepted, Identity
from tidegate.session import Connection
from tidegate.wire import Connect


@function()
def even(number: int) -> bool:
    return number % 2 == 0


@function()
def explodes(value: object) -> bool:
    raise RuntimeError(f"no answer for {value}")


@function(volatile=True)
def explodes_now() -> bool:
    raise Unexpected("nor here")


@function()
def lies(value: object) -> bool:
    return "certainly"  # type: ignore[return-value]


class Welcome:
    """One step: it is who it says."""

    def __init__(self, connection: Connection, packet: Connect) -> None:
        self._name = packet.client_id

    def step(self, data: bytes | None) -> Accepted:
        return Accepted(identity=Identity(principal=f"method:{self._name}", user=self._name))


class Unexpected(Exception):
    """An exception that nobody expects."""


FUNCTIONS = [f"sockets.wild:{name}" for name in ("even", "explodes", "explodes_now", "lies")]
