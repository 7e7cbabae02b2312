"""How far a connection has come, and why nothing is read from it for now."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


class Phase(Enum):
    NEW = "before CONNECT"
    WAITING = "CONNECT received, not answered"
    OPEN = "connected"
    CLOSED = "closed"


class Hold(IntEnum):
    """Why nothing is read from a connection for now: one bit each. Sums of them are plain numbers, which are quick."""

    HANDSHAKE = 1
    RATE = 2
    WRITING = 4
    STORE = 8
    WORK = 16  # what it has sent makes too much work for one turn
    JOURNAL = 32  # what it publishes is written down, and the disk is behind
    BACKEND = 64  # the broker behind the guard does not take it fast enough, or is gone


GOES_ON: Final = Hold.WORK | Hold.RATE  # what was received before is read all the same

OPEN: Final = Phase.OPEN  # hot: to look up the member of an enumeration takes as long as a call
CLOSED: Final = Phase.CLOSED
