"""Authentication methods for the tests of AUTH, as a plug-in would bring them."""

from __future__ import annotations

from tidegate.scope import Accepted, Continue, Identity, Refused
from tidegate.session import Connection
from tidegate.wire import Connect, Reason


class Riddle:
    """The client is asked a riddle, and asked again if it says `again`."""

    def __init__(self, connection: Connection, packet: Connect) -> None:
        self._asked = False

    def step(self, data: bytes | None) -> Continue | Accepted | Refused:
        if not self._asked or data == b"again":
            self._asked = True
            return Continue(data=b"what walks on four legs?" if data is None else b"riddle for " + data)
        if data == b"fail":
            return Refused(reason=Reason.NOT_AUTHORIZED)
        who = "oedipus" if data in (b"man", b"man!") else "sphinx"
        return Accepted(identity=Identity(principal=f"user:{who}", user=who), data=b"welcome")


class Token:
    """One step: the data is the proof."""

    def __init__(self, connection: Connection, packet: Connect) -> None:
        self._client = packet.client_id

    def step(self, data: bytes | None) -> Continue | Accepted | Refused:
        if data == b"valid":
            return Accepted(identity=Identity(principal="user:token", user="token"))
        return Refused(reason=Reason.BAD_USER_NAME_OR_PASSWORD)
