"""Whether the broker proves names at all: one that lets anybody in takes any name with any password.

Mosquitto with `allow_anonymous true` and no password file is such a one. So it is asked for a name that nobody can
have, before the first client's name is believed, and again when the guard's own connection to it was interrupted, or
when the answer is some seconds old: the broker may have been given another configuration without being restarted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidegate.config.scopes import Gone
from tidegate.guard.dialing import RETRY
from tidegate.guard.upstream import Upstream
from tidegate.scope import Refused
from tidegate.session import Connection, Hold, Phase
from tidegate.wire import V5, V311, Connect, Reason

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope

LASTS: Final = 30.0  # seconds that an answer counts
UNKNOWN: Final = (Reason.SERVER_UNAVAILABLE, Reason.SERVER_BUSY)


class NameProof:
    """What is known of one guarded broker."""

    def __init__(self, scope: GuardedScope) -> None:
        self.scope = scope
        self.proves: bool | None = None
        """None: it has not been found out."""
        self.known_at = 0.0  # when it was
        self.error = ""
        """Why not."""
        self._waiting: list[Callable[[], None]] = []  # at most one for each connection without CONNACK
        self._asking: Upstream | None = None

    def forget(self) -> None:
        """It may be another broker the next time, or the same with another configuration."""
        self.proves = None

    @property
    def _known(self) -> bool:
        return self.proves is not None and self.scope.site.now < self.known_at + LASTS

    def ask(self, connection: Connection, known: Callable[[bool], None], refuse: Callable[[Refused], None]) -> None:
        """Calls one of them, now or later, unless the client has gone meanwhile."""

        def found() -> None:
            if connection.phase is not Phase.WAITING:
                return
            if self.proves is not None:
                known(self.proves)
            elif self.scope.settings.gone is Gone.WAIT:
                self.scope.site.timers.at(self.scope.site.now + RETRY, again)
            else:
                refuse(Refused(reason=Reason.SERVER_UNAVAILABLE, text=self.error, rule="backend"))

        def again() -> None:
            if self._known or connection.phase is not Phase.WAITING:
                found()
                return
            self._waiting.append(found)
            if self._asking is None:
                self._dial(self.scope.service.version)

        if not self._known:
            connection.hold_reading(Hold.HANDSHAKE)
        again()

    def _dial(self, version: int) -> None:
        random_id = self.scope.site.random_id
        packet = Connect(
            version=version,
            client_id=random_id(),
            clean_start=True,
            keep_alive=0,
            username=random_id(),
            password=random_id().encode(),
        )
        self._asking = upstream = Upstream(self.scope, packet, self._answered)
        self.scope.dial(upstream)

    def _answered(self, upstream: Upstream) -> None:
        if upstream is not self._asking:
            return
        refusal = upstream.refusal
        if upstream.version == V5 and upstream.outdated:
            self._dial(V311)
            return
        self._asking = None
        self.error = upstream.error
        self.proves, self.known_at = None, self.scope.site.now
        if refusal is None:
            self.proves = False
            upstream.close()
        elif upstream.connack is not None and refusal not in UNKNOWN:
            self.proves = True
        waiting, self._waiting = self._waiting, []
        for found in waiting:
            found()
