"""The end of a link that connects, with several connections to the other node (SEC-REDS, 3.2).

One address is the default, the others are backups. Each connection opens as a standby (scope.standby_connections), is
tested with heartbeats, and carries the link once the other end has confirmed that.

- `active`: all addresses are connected. When the connection that carries is lost, another takes over at once.
- `on_demand`: one address is connected. When the default is lost it is tried `attempts` times, then a backup is opened;
  while a backup carries, the default is tried every `restore` seconds. The new connection carries before the old ends.
- A default that is overloaded is left as one that is lost. It carries again after `restore`, when the queue has become
  short; and later each time that it is overloaded again soon.

It decides only which connection carries. What a connection may carry is decided where it is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import Callable
from typing import Any, Final

import structlog

from tidegate.config.address import parse_address
from tidegate.errors import ConfigError
from tidegate.link.attempt import Attempt, FindPeer, OnBug
from tidegate.link.dialer import LONGEST, State
from tidegate.link.overload import Overload
from tidegate.policy.failover import Mode
from tidegate.scope.node_links import LinkEnd
from tidegate.scope.standby_connections import StandbyEnd
from tidegate.session import Site
from tidegate.wire import Reason

SILENCE: Final = 3.0  # heartbeats without a byte
ANSWER: Final = 5.0  # seconds for the other end to confirm a default connection
LOOK: Final = 0.25  # seconds between two looks at the queue

log = structlog.get_logger("tidegate.link")


class Interface:
    """One address of the other node, and the connection to it that there is."""

    def __init__(self, end: LinkEnd, number: int, url: str) -> None:
        self.number = number
        self.url = url
        self.address = parse_address(url)
        self.standby = StandbyEnd(end, str(number))
        self.attempt: Attempt | None = None
        self.task: asyncio.Task[None] | None = None  # holds it, or keeps it
        self.connecting = False
        self.since = 0.0  # of the loop: when it was opened
        self.error = ""
        self.told = ""  # of its errors, the one that was logged


class Failover:
    """Keeps the connections of one link."""

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
        on_switch: Callable[[str, str], None] = lambda link, what: None,
    ) -> None:
        """`on_switch` is told which link is carried by another address, and why."""
        assert end.link.failover is not None
        self.end = end
        self.via = end.link.via  # as it was when this one was made
        self.strategy = end.link.failover
        self.broker = end.link.broker  # none: see `config.links`
        self.switches = 0
        self._interfaces = [Interface(end, number, url) for number, url in enumerate(end.link.via)]
        self._default = self._interfaces[0]
        self._carrier: Interface | None = None
        self._last: Interface | None = None  # that carried
        self._next: Interface | None = None  # that is asked to
        self._reason = ""  # why the last one stopped carrying, or the present one carries
        self._wanted: tuple[Interface, asyncio.Future[str]] | None = None  # by an operator
        self._wanted_until = 0.0  # how long its connection may take to come back
        self._site = site
        self._loop = loop
        self._context = context
        self._peer = peer
        self._on_bug = on_bug
        self._max_packet = max_packet
        self._on_switch = on_switch
        self._begun = loop.time()
        self._overload = Overload(self.strategy, self._begun)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- what is asked of it ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = self._loop.create_task(self._guarded())

    async def close(self) -> None:
        """Takes leave of the other node, and leaves nothing running."""
        tasks = [self._task, *(each.task for each in self._interfaces)]
        self._task = None
        attempts = [each.attempt for each in self._interfaces if each.attempt is not None]
        for task in tasks:
            if task is not None:
                task.cancel()
        for task in tasks:
            if task is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        for attempt in attempts:
            await attempt.close()
        self._answer("the link is closed")

    def drop(self, reason: Reason, text: str) -> None:
        """Ends all connections that there are; others are made."""
        for each in self._interfaces:
            if each.attempt is not None:
                each.attempt.error = text
                each.attempt.end_with(reason, text)

    def use(self, address: str) -> asyncio.Future[str]:
        """Makes an address the default. Answers why not, or nothing when the other end has confirmed it."""
        answer: asyncio.Future[str] = self._loop.create_future()
        found = [each for each in self._interfaces if address in (each.url, str(each.number))]
        if not found:
            answer.set_result(f"it is none of {', '.join(self.via)}")
            return answer
        self._answer("another one was asked for")
        self._wanted = found[0], answer
        self._wanted_until = self._loop.time() + min(ANSWER, self.strategy.attempts * self.strategy.interval)
        self._wake.set()
        return answer

    def status(self) -> dict[str, Any]:
        shown = self._carrier or next((each for each in self._interfaces if each.connecting), self._default)
        attempt = shown.attempt
        state = State.WAITING
        if self._carrier is not None:
            state = State.CONNECTED
        elif any(each.connecting or each.attempt is not None for each in self._interfaces):
            state = State.CONNECTING
        return {
            "state": state.value,
            "address": shown.url,
            "round_trip": None if attempt is None else attempt.round_trip,
            "error": shown.error or None,
            "failover": {
                "mode": self.strategy.mode.value,
                "default": self._default.url,
                "switches": self.switches,
                "reason": self._reason or None,
                "connections": [self._row(each) for each in self._interfaces],
            },
        }

    def _row(self, interface: Interface) -> dict[str, Any]:
        attempt = interface.attempt
        peer = None if attempt is None else attempt.peer
        state = "closed"
        if interface is self._carrier:
            state = "carries"
        elif attempt is not None:
            state = "standby"
        elif interface.connecting:
            state = "connecting"
        return {
            "address": interface.url,
            "state": state,
            "level": None if peer is None else peer.level,
            "round_trip": None if attempt is None else attempt.round_trip,
            "error": interface.error or None,
        }

    # -- which one carries -----------------------------------------------------------------------------------------

    async def _guarded(self) -> None:
        while True:
            try:
                await (self._active() if self.strategy.mode is Mode.ACTIVE else self._on_demand())
            except Exception:
                log.exception("bug", link=self.end.link.name)
                await asyncio.sleep(self.strategy.interval)

    async def _active(self) -> None:
        for each in self._interfaces:
            if each.task is None:
                each.task = self._loop.create_task(self._keep(each))
        while True:
            await self._pause(LOOK)
            chosen, why = self._choice()
            if chosen is not None:
                await self._carry(chosen, why)

    def _choice(self) -> tuple[Interface | None, str]:
        """Which connection is to carry instead of the present one, and why; of those that are open."""
        open_ones = [each for each in self._interfaces if each.attempt is not None]
        if self._wanted is not None:
            wanted, _ = self._wanted
            if wanted is self._carrier:
                self._default = wanted
                self._answer("")
            elif wanted.attempt is None:
                if self._loop.time() >= self._wanted_until:  # one that carried just now is being opened again
                    self._answer(wanted.error or "it is not connected")
            else:
                return wanted, "set as default"
        if not open_ones:
            return None, ""
        carrier, default, now = self._carrier, self._default, self._loop.time()
        overloaded = self._overload.look(now, self._queue(), carrier is default)
        if carrier is None:
            patience = self.strategy.attempts * self.strategy.interval
            if self._last is None and default not in open_ones and not default.error and now < self._begun + patience:
                return None, ""  # the link opens, and the default has not had its chance
            chosen = default if default in open_ones else open_ones[0]
            return chosen, self._reason or "the link opens"
        if carrier is default:
            others = [each for each in open_ones if each is not default]
            return (others[0], "overload") if overloaded and others else (None, "")
        restore = self.strategy.restore
        if default in open_ones and restore is not None and now - default.since >= restore:
            if self._overload.over(now, self._queue()):
                return default, "the default is back"
        return None, ""

    async def _keep(self, interface: Interface) -> None:
        """`active`: connects one address again and again."""
        failures = 0
        while True:
            if await self._open(interface, LONGEST):
                failures = 0
                self._wake.set()
                await self._hold(interface)
            else:
                failures += 1
            pause = self.strategy.interval * min(8, 2 ** max(0, failures - self.strategy.attempts))
            # with some chance in it: nodes that lost the same peer do not come back at the same moment
            await asyncio.sleep(min(pause, LONGEST) * random.uniform(0.5, 1.0))  # noqa: S311 - nobody is to guess it

    async def _on_demand(self) -> None:
        looked = self._loop.time()  # for the default
        while True:
            if self._carrier is None:
                await self._connect()
                looked = self._loop.time()
                continue
            now, restore = self._loop.time(), self.strategy.restore
            due = LOOK if restore is None or self._carrier is self._default else max(0.0, looked + restore - now)
            await self._pause(min(LOOK, due))
            if self._carrier is None:
                continue
            now = self._loop.time()
            overloaded = self._overload.look(now, self._queue(), self._carrier is self._default)
            if self._wanted is not None:
                await self._change_default(*self._wanted)
            elif overloaded:
                for each in self._interfaces:
                    if each is not self._default and await self._try(each, "overload"):
                        break
                looked = self._loop.time()
            elif self._carrier is not self._default and restore is not None and now - looked >= restore:
                if self._overload.over(now, self._queue()):
                    await self._try(self._default, "the default is back")
                looked = self._loop.time()

    async def _change_default(self, wanted: Interface, _answer: asyncio.Future[str]) -> None:
        if wanted is self._carrier:
            self._default = wanted
            self._answer("")
        elif not await self._try(wanted, "set as default"):
            self._answer(wanted.error or "it does not open")

    async def _connect(self) -> None:
        """`on_demand`: the default, as often as is written; then each backup."""
        interval, lost = self.strategy.interval, self._reason or "the link opens"
        for number in range(self.strategy.attempts):
            begun = self._loop.time()
            if await self._try(self._default, lost, interval):
                return
            last = number == self.strategy.attempts - 1
            if not last and await self._sleep(begun + interval - self._loop.time()):
                break  # an operator wants another one
        wanted = None if self._wanted is None else self._wanted[0]
        others = [each for each in self._interfaces if each is not self._default]
        for each in sorted(others, key=lambda one: one is not wanted):
            if await self._try(each, "set as default" if each is wanted else lost):
                return
        if self._wanted is not None:
            self._answer(self._wanted[0].error or "it does not open")
        await self._sleep(interval * random.uniform(0.5, 1.0))  # noqa: S311 - nobody is to guess anything

    async def _sleep(self, seconds: float) -> bool:
        """Whether an operator wants something meanwhile."""
        deadline = self._loop.time() + seconds
        while self._wanted is None and (left := deadline - self._loop.time()) > 0:
            await self._pause(left)
        return self._wanted is not None

    async def _try(self, interface: Interface, why: str, patience: float | None = None) -> bool:
        """`on_demand`: opens a connection, has it carry, and ends the one that did."""
        if interface.attempt is None:
            before = interface.task
            if before is not None:  # the end of the last connection
                await before
            if not await self._open(interface, patience):
                return False
            interface.task = self._loop.create_task(self._hold(interface))
        if await self._carry(interface, why):
            for each in self._interfaces:
                if each is not interface and each.attempt is not None:
                    each.attempt.end_with(Reason.NORMAL_DISCONNECTION)
            return True
        if interface.attempt is not None:
            interface.attempt.end_with(Reason.NORMAL_DISCONNECTION)
        return False

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    def _queue(self) -> int:
        return self.end.session.queued + self.end.session.inflight

    def _answer(self, why: str) -> None:
        """What an operator is told of the default that was asked for."""
        if self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            if not wanted[1].done():
                wanted[1].set_result(why)

    # -- connections -----------------------------------------------------------------------------------------------

    async def _open(self, interface: Interface, patience: float | None) -> bool:
        """Whether there is a connection to this address now; if not, `error` says why."""
        interface.connecting = True
        try:
            context = None
            if interface.address.tls:
                context = await self._loop.run_in_executor(None, self._context)
            attempt = Attempt(
                interface.standby,
                interface.address,
                site=self._site,
                loop=self._loop,
                peer=self._peer,
                on_bug=self._on_bug,
                max_packet=self._max_packet,
                keep_alive=self.strategy.heartbeat,
                silence=SILENCE,
                patience=patience,
            )
            if not await attempt.open(context):
                self._failed(interface, attempt.error, "link does not open")
                return False
        except ConfigError as error:
            self._failed(interface, str(error), "link does not open")
            return False
        finally:
            interface.connecting = False
        interface.attempt, interface.error, interface.told = attempt, "", ""
        interface.since = self._loop.time()
        return True

    async def _hold(self, interface: Interface) -> None:
        """Until the connection has ended."""
        attempt = interface.attempt
        assert attempt is not None
        await attempt.hold()
        interface.attempt = None
        carried = interface is self._carrier
        if carried and self._next not in (None, interface):
            interface.told = attempt.error  # the other end has confirmed the next one already
        self._failed(interface, attempt.error, "link is down" if carried else "connection of a link is down")
        if carried:
            self._carrier = None
            self._reason = f"{interface.url} was lost: {attempt.error}"
        self._wake.set()

    async def _carry(self, interface: Interface, why: str) -> bool:
        """Has the other end confirm that a connection carries from now on."""
        attempt = interface.attempt
        if attempt is None:
            return False
        answer: asyncio.Future[str] = self._loop.create_future()

        def answered(text: str) -> None:
            if not answer.done():
                answer.set_result(text)
            if not text:
                self._carries(interface, why)

        interface.standby.answered = answered
        self._next = interface
        self._site.open()
        interface.standby.ask()
        try:
            await asyncio.wait((answer,), timeout=ANSWER)
        finally:
            self._next = None
        if answer.done() and not answer.result():
            return True
        interface.error = answer.result() if answer.done() else f"no answer in {ANSWER:g} s"
        if interface.attempt is attempt:  # it is of no use
            attempt.error = interface.error
            attempt.abort()
        if self._wanted is not None and self._wanted[0] is interface:
            if self.strategy.mode is not Mode.ACTIVE or self._loop.time() >= self._wanted_until:
                self._answer(interface.error)
        return False

    def _carries(self, interface: Interface, why: str) -> None:
        """The session of the link has this connection."""
        before, self._carrier = self._last, interface
        if before is not None and before is not interface and before.attempt is not None:
            before.attempt.error = before.told = f"{interface.url} carries the link"
        self._last, self._reason = interface, why
        if self._wanted is not None and self._wanted[0] is interface:
            self._default = interface
            self._answer("")
        log.info("link is up", link=self.end.link.name, address=interface.url, reason=why)
        self._overload.carries(self._loop.time(), interface is self._default, why == "overload")
        if before is not None and before is not interface:
            self.switches += 1
            self._on_switch(self.end.link.name, f"{before.url} -> {interface.url}: {why}")

    def _failed(self, interface: Interface, why: str, event: str) -> None:
        if why and interface.told != why:
            log.warning(event, link=self.end.link.name, address=interface.url, reason=why)
            interface.told = why
        interface.error = why
