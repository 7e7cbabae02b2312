"""Several addresses of a broker: a default and backups on demand, as links between nodes have them (link.failover).

The default is tried `attempts` times, from one to the next `interval` seconds; then each backup. While a backup is
used, the default is looked for every `restore` seconds, and used again when it answers.

A refusal is an answer: no other address is tried then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from tidegate.client.exceptions import Refused, Unreachable
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.client.mqtt_connection import MqttConnection

Place = tuple[str, int]
Open = Callable[[Place], Awaitable["MqttConnection"]]

LEAVES: Final = frozenset((0x88, 0x89, 0x8B, 0x9C, 0x9D))
"""Reasons for which a broker ends a connection that another address may take: it is not there for anybody now."""


def place(text: str, port: int) -> Place:
    """`HOST`, `HOST:PORT` or `[IPv6]:PORT`."""
    host, colon, number = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        return text[1:-1], port
    if not colon or (":" in host and not host.startswith("[")):
        return text, port
    if not number.isdecimal() or not 0 < int(number) < 65536 or not host:
        raise ValueError(f"`{text}` is no address: write HOST or HOST:PORT")
    return host.strip("[]"), int(number)


class Failover:
    """Which address a client is connected to."""

    def __init__(self, places: Sequence[Place], *, attempts: int, interval: float, restore: float | None) -> None:
        if attempts < 1 or interval < 0 or (restore is not None and restore <= 0):
            raise ValueError("`attempts` is at least 1, `interval` and `restore` are seconds")
        self.places = tuple(places)
        self.used: Place | None = None
        self._attempts = attempts
        self._interval = interval
        self._restore = restore

    @property
    def several(self) -> bool:
        return len(self.places) > 1

    def takes(self, why: TidegateError) -> bool:
        """Whether the end of a connection leads to another address."""
        return self.several and (isinstance(why, Unreachable) or (isinstance(why, Refused) and why.code in LEAVES))

    async def connect(self, open_one: Open) -> MqttConnection:
        """A connection to the first address that answers. Refused or Unreachable: of the last one."""
        default, *backups = self.places
        if not backups:
            return await self._tried(default, open_one)
        clock = asyncio.get_running_loop().time
        for number in range(self._attempts):
            begun = clock()
            with contextlib.suppress(Unreachable):
                return await self._tried(default, open_one)
            if number < self._attempts - 1:
                await asyncio.sleep(max(0.0, begun + self._interval - clock()))
        for backup in backups[:-1]:
            with contextlib.suppress(Unreachable):
                return await self._tried(backup, open_one)
        return await self._tried(backups[-1], open_one)

    async def _tried(self, one: Place, open_one: Open) -> MqttConnection:
        connection = await open_one(one)
        self.used = one
        return connection

    async def connect_somehow(self, open_one: Open) -> MqttConnection:
        """The same again and again, until one answers."""
        while True:
            with contextlib.suppress(Unreachable):
                return await self.connect(open_one)
            await asyncio.sleep(self._interval)

    async def default_is_back(self) -> None:
        """Returns when the default answers while a backup is used."""
        default = self.places[0]
        if self._restore is None or self.used == default:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(self._restore or 0.0)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._restore):
                    _, writer = await asyncio.open_connection(*default)
                writer.close()
                return
