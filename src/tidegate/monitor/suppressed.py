"""What the publisher of an event is told that a monitor suppresses (semantics, *Monitors*).

Its QoS handshake completes as always. MQTT 5 acknowledges with 0x10 or 0x87, as configured; 3.1.1 cannot tell.
"""

from __future__ import annotations

from enum import StrEnum

from tidegate.wire import Reason


class Suppressed(StrEnum):
    """What an MQTT 5 publisher is told of a suppressed publish: 0x10, or 0x87."""

    ACCEPT = "accept"
    REFUSE = "refuse"

    @property
    def reason(self) -> Reason:
        return Reason.NOT_AUTHORIZED if self is Suppressed.REFUSE else Reason.NO_MATCHING_SUBSCRIBERS
