"""Who is turned away after failed logins, and who never is because of others: each address of loopback is a machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from harness import PATIENCE, Client, Live, live
from tidegate import wire
from tidegate.authentication import passwords
from tidegate.authentication.passwords import Passwords
from tidegate.wire import Reason

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
ATTEMPTS, ADDRESS_ATTEMPTS = 3, 8
HOME, ELSEWHERE, FAR = "127.0.0.1", "127.0.0.2", "127.0.0.3"
NODE = f"""
listeners: [{{url: "mqtt://127.0.0.1:PORT"}}]
authentication: {{attempts: {ATTEMPTS}, address_attempts: {ADDRESS_ATTEMPTS}, cache: 0s}}
directory:
  users:
    mary: {{password: "{CHEAP.hash(b"right")}"}}
    bob: {{password: "{CHEAP.hash(b"right")}"}}
"""
WRONG, UNHEARD = Reason.BAD_USER_NAME_OR_PASSWORD, Reason.CONNECTION_RATE_EXCEEDED


class House(Live):
    async def log_in(
        self, user: str, password: bytes = b"right", *, at: str = HOME, client: str = "", keep: int = 0
    ) -> int:
        """The reason code of CONNACK. `keep`: seconds that the session stays."""
        streams = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(at, 0))
        connection = Client(*streams)
        self.clients.append(connection)
        await connection.send(
            wire.Connect(
                version=wire.V5,
                client_id=client,
                clean_start=True,
                keep_alive=0,
                username=user,
                password=password,
                properties=wire.Properties(session_expiry_interval=keep),
            )
        )
        reason = (await connection.expect(wire.Connack)).reason
        connection.writer.close()
        return reason

    async def guess(self, user: str, times: int, *, at: str = HOME, client: str = "") -> None:
        """So many guesses that are heard, and then one that is not."""
        for number in range(times):
            assert await self.log_in(user, b"guess %d" % number, at=at, client=client) == WRONG, number
        assert await self.log_in(user, b"one more", at=at, client=client) == UNHEARD


class Gate:
    """argon2, which computes when it is let."""

    def __init__(self) -> None:
        self.open = threading.Semaphore(0)

    def verify(self, stored: str, password: bytes) -> bool:
        assert self.open.acquire(timeout=60)
        return CHEAP.verify(stored, password)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def house(data: Path | None = None, attempts: int = ATTEMPTS) -> AsyncIterator[House]:
    text = NODE.replace(f"{{attempts: {ATTEMPTS}", f"{{attempts: {attempts}")
    async with live(text, data=data) as running:
        running.__class__ = House
        assert isinstance(running, House)
        yield running


async def test_guesses_at_a_user_lock_out_neither_the_user_elsewhere_nor_others_at_that_address() -> None:
    async with house() as node:
        await node.guess("mary", ATTEMPTS, at=ELSEWHERE)
        assert await node.log_in("mary", at=HOME) == Reason.SUCCESS  # was never here before
        assert await node.log_in("bob", at=ELSEWHERE) == Reason.SUCCESS
        assert await node.log_in("mary", at=ELSEWHERE) == UNHEARD  # a stranger there, who could be guessing


async def test_an_address_has_a_higher_limit_which_counts_for_strangers_only() -> None:
    async with house() as node:
        assert await node.log_in("bob", at=ELSEWHERE) == Reason.SUCCESS
        for number in range(ADDRESS_ATTEMPTS):
            assert await node.log_in(f"nobody-{number}", at=ELSEWHERE) == WRONG
        assert await node.log_in("nobody-else", at=ELSEWHERE) == UNHEARD
        assert await node.log_in("mary", at=ELSEWHERE) == UNHEARD
        assert await node.log_in("bob", at=ELSEWHERE) == Reason.SUCCESS  # has logged in from there before
        assert await node.log_in("mary", at=HOME) == Reason.SUCCESS


async def test_a_device_that_was_here_before_is_not_locked_out_by_guesses_from_its_own_address() -> None:
    async with house() as node:
        assert await node.log_in("mary", at=HOME, client="watch") == Reason.SUCCESS
        await node.guess("mary", ADDRESS_ATTEMPTS, at=HOME)  # more than strangers have: it may be her other device
        assert await node.log_in("mary", at=HOME, client="watch") == Reason.SUCCESS
        assert await node.log_in("mary", at=FAR, client="watch") == Reason.SUCCESS  # and takes its history along
        assert await node.log_in("mary", b"guess", at=HOME, client="watch") == WRONG
        assert await node.log_in("mary", at=HOME, client="phone") == UNHEARD


async def test_who_knows_the_client_identifier_cannot_guess_on_for_ever() -> None:
    async with house() as node:
        assert await node.log_in("mary", at=HOME, client="watch") == Reason.SUCCESS
        await node.guess("mary", ATTEMPTS, at=ELSEWHERE, client="watch")
        assert await node.log_in("mary", at=HOME, client="watch") == Reason.SUCCESS


async def test_a_session_tells_a_device_also_after_a_restart(tmp_path: Path) -> None:
    async with house(tmp_path) as node:
        assert await node.log_in("mary", at=HOME, client="watch", keep=3600) == Reason.SUCCESS
    async with house(tmp_path) as node:
        for number in range(ATTEMPTS):
            assert await node.log_in("mary", b"guess %d" % number, at=ELSEWHERE) == WRONG
        assert await node.log_in("mary", at=ELSEWHERE, client="phone") == UNHEARD
        assert await node.log_in("mary", at=ELSEWHERE, client="watch") == Reason.SUCCESS


async def test_a_device_that_was_here_before_does_not_wait_behind_another_user_who_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor behind strangers who know its client identifier."""
    gate = Gate()
    monkeypatch.setattr("tidegate.node.node.Passwords", partial(Passwords, waiting=18))  # and 2 are computed
    async with house(attempts=60) as node:
        assert await node.log_in("mary", client="watch") == Reason.SUCCESS
        for number in range(8):
            assert await node.log_in("bob", client=f"b{number}", keep=3600) == Reason.SUCCESS
        monkeypatch.setattr(passwords, "_hasher", lambda: gate)
        answered: list[int] = []

        async def guess(user: str, client: str, at: str) -> None:
            answered.append(await node.log_in(user, b"guess", at=at, client=client))

        guesses = [asyncio.create_task(guess("bob", f"b{number % 8}", HOME)) for number in range(60)]
        guesses += [asyncio.create_task(guess("mary", "watch", f"127.0.0.{10 + number % 4}")) for number in range(40)]
        await until(lambda: len(answered) == 100 - 2 * 20 - 2)
        device = asyncio.create_task(node.log_in("mary", client="watch"))
        await until(lambda: len(answered) == 100 - 2 * 20 - 2 + 1)  # one of the guesses as mary has to go for it
        gate.open.release(16)
        assert await asyncio.wait_for(device, 20) == Reason.SUCCESS
        gate.open.release(100)
        await asyncio.gather(*guesses)
        assert (answered.count(WRONG), answered.count(Reason.SERVER_BUSY)) == (41, 59)


async def test_a_device_has_no_more_attempts_under_way_than_it_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    async with house() as node:
        assert await node.log_in("mary", client="watch") == Reason.SUCCESS
        monkeypatch.setattr(passwords, "_hasher", lambda: gate)
        tries = [asyncio.create_task(node.log_in("mary", b"guess", client="watch")) for _ in range(10)]
        await until(lambda: sum(each.done() for each in tries) == 10 - ATTEMPTS)
        gate.open.release(10)
        answered = await asyncio.gather(*tries)
        assert (answered.count(WRONG), answered.count(Reason.SERVER_BUSY)) == (ATTEMPTS, 10 - ATTEMPTS)
