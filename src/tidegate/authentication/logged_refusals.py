"""Who was refused, in the log: a few a second at most, because somebody may be guessing."""

from __future__ import annotations

import time

import structlog

from tidegate.authentication.passwords import Outcome
from tidegate.session import Bucket

log = structlog.get_logger("tidegate.node")


class LoggedRefusals:
    """Those of one node."""

    def __init__(self) -> None:
        self._words = Bucket(2.0, 10.0, time.monotonic())
        self._untold = 0

    def login(self, user: str, address: str, outcome: Outcome) -> None:
        """A name and a password that are not accepted."""
        if self._words.afford(time.monotonic()):
            log.warning("login refused", user=user, address=address, why=outcome.value, left_out=self._untold)
            self._untold = 0
        else:
            self._untold += 1

    def taken(self, name: str) -> None:
        """Somebody else has registered a name that others vouch for."""
        if self._words.afford(time.monotonic()):
            remedy = "remove that user, or register it as an administrator"
            log.warning("two have the same name, and one of them registered by itself", user=name, remedy=remedy)
