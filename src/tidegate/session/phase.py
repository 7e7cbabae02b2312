"""How far a connection has come, and why nothing is read from it for now."""

from __future__ import annotations

from enum import Enum, IntFlag
from typing import Final


class Phase(Enum):
    NEW = "before CONNECT"
    WAITING = "CONNECT received, not answered"
    OPEN = "connected"
    CLOSED = "closed"


class Hold(IntFlag):
    """Why nothing is read from a connection for now."""

    HANDSHAKE = 1
    RATE = 2
    WRITING = 4
    STORE = 8
    WORK = 16  # what it has sent makes too much work for one turn
    JOURNAL = 32  # what it publishes is written down, and the disk is behind


GOES_ON = Hold.WORK | Hold.RATE  # what was received before is read all the same

OPEN: Final = Phase.OPEN  # hot: to look up the member of an enumeration takes as long as a call
CLOSED: Final = Phase.CLOSED
