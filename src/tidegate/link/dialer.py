"""The end of a link that connects: it keeps one connection, and makes another when that has ended.

The addresses of a link are tried in order. When none of them answers, the next round waits: 0.2 s at first, twice as
long after each failure, 30 s at most, with some chance in it, so that nodes that lost the same peer do not come back at
the same moment. A connection that has lasted counts as a success, and the waiting begins anew. So does one that has
ended because the rules of one of the two nodes have changed.

Certificates are read anew for each connection. A reason is logged when it changes, not with each attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Final

import structlog

from tidegate.config.address import Address, parse_address
from tidegate.errors import ConfigError
from tidegate.link.attempt import Attempt, FindPeer, OnBug
from tidegate.scope.node_links import LinkEnd
from tidegate.session import Bucket, Site
from tidegate.wire import Reason

FIRST: Final = 0.2  # seconds before the second round
LONGEST: Final = 30.0
STEADY: Final = 5.0  # seconds that a connection has to last to count as a success
KEEP_ALIVE: Final = 30.0
CHANGES: Final = 20.0  # that the other node says in a row, one more every `STEADY`: its word ends no waiting for ever

log = structlog.get_logger("tidegate.link")


class State(StrEnum):
    """How far the connection of a link has come."""

    CONNECTED = "connected"
    CONNECTING = "connecting"
    WAITING = "waiting"
    """Until it connects again, or until the other end connects."""


class Dialer:
    """Keeps the connection of one link."""

    def __init__(
        self,
        end: LinkEnd,
        *,
        site: Site,
        loop: asyncio.AbstractEventLoop,
        context: Callable[[], ssl.SSLContext],
        peer: FindPeer,
        on_bug: OnBug,
        max_packet: int,
        keep_alive: float = KEEP_ALIVE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`context` reads the node's certificates, and may block. `peer` says who is at the other end."""
        self.end = end
        self.via = end.link.via  # as it was when this one was made
        self.broker = end.link.broker  # the same
        self.strategy = None  # see `Failover`
        self.state = State.CONNECTING
        self.address: Address | None = None
        """The one that is connected, or was tried last."""
        self.error = ""
        """Why there is no connection, or why the last one has ended."""
        self._site = site
        self._loop = loop
        self._context = context
        self._peer = peer
        self._on_bug = on_bug
        self._max_packet = max_packet
        self._keep_alive = keep_alive
        self._sleep = sleep
        self._told: dict[str, str] = {}  # what the log says of each address
        self._attempt: Attempt | None = None  # the connection that there is
        self._pause = FIRST
        self._dropped = False  # by this node
        self._changes = Bucket(1 / STEADY, CHANGES, loop.time())
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        """Takes leave of the other node, and leaves nothing running."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._attempt is not None:
            await self._attempt.close()
            self._attempt = None
        self.state = State.WAITING

    def status(self) -> dict[str, Any]:
        attempt = self._attempt
        return {
            "state": self.state.value,
            "address": None if self.address is None else str(self.address),
            "round_trip": None if attempt is None else attempt.round_trip,
            "error": self.error or None,
        }

    def drop(self, reason: Reason, text: str) -> None:
        """Ends the connection that there is; another one is made."""
        if self._attempt is not None:
            self._dropped = True
            self._attempt.error = text
            self._attempt.end_with(reason, text)

    # -- one connection after the other ------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                lasted = await self._round()
            except Exception:
                log.exception("bug", link=self.end.link.name)
                lasted = 0.0
            if lasted >= STEADY or self._changed():
                self._pause = FIRST
            self.state = State.WAITING
            await self._sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - nobody is to guess anything
            self._pause = min(LONGEST, self._pause * 2)

    def _changed(self) -> bool:
        """Whether the connection has ended because of other rules, here or there."""
        dropped, self._dropped = self._dropped, False
        there, self.end.ended_with = self.end.ended_with == Reason.ADMINISTRATIVE_ACTION, None
        return dropped or (there and self._changes.afford(self._loop.time()))

    async def _round(self) -> float:
        """Tries the addresses in order; how long the first connection that could be made has lasted."""
        for url in self.via:
            self.state = State.CONNECTING
            self.address = address = parse_address(url)
            attempt = await self._opened(address)
            if attempt is None:
                continue
            began = self._loop.time()
            self._attempt, self.state, self.error = attempt, State.CONNECTED, ""
            self._told = {}
            log.info("link is up", link=self.end.link.name, address=url)
            await attempt.hold()
            self._attempt = None
            self._failed(attempt.error, "link is down")
            return self._loop.time() - began
        return 0.0

    async def _opened(self, address: Address) -> Attempt | None:
        """A connection to this address that the link's session has; None: `error` says why not."""
        try:
            context = await self._loop.run_in_executor(None, self._context) if address.tls else None
        except ConfigError as error:
            self._failed(str(error), "link does not open")
            return None
        attempt = Attempt(
            self.end,
            address,
            site=self._site,
            loop=self._loop,
            peer=self._peer,
            on_bug=self._on_bug,
            max_packet=self._max_packet,
            keep_alive=self._keep_alive,
        )
        if await attempt.open(context):
            return attempt
        self._failed(attempt.error, "link does not open")
        return None

    def _failed(self, why: str, event: str) -> None:
        address = str(self.address)
        if self._told.get(address) != why:
            log.warning(event, link=self.end.link.name, address=address, reason=why)
        self._told[address] = self.error = why
