"""What is asked over the control sockets shares a part of the loop: turns, rests between them, and who is next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest

from tidegate.errors import TidegateError
from tidegate.net.control_socket import Control, ask, follow
from tidegate.net.loop_share import LONGEST, MANY, REST, SAMPLE, Flow, LoopShare, Sharing


class Counting(LoopShare):
    """Writes down when a turn was over."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.open = 0

    def turn(self) -> asyncio.Future[None] | None:
        self.open += 1
        return super().turn()

    def spent(self, seconds: float) -> None:
        self.turns += 1
        super().spent(seconds)


async def test_a_step_in_a_round_of_the_loop() -> None:
    share, rounds, seen = LoopShare(), [0], list[int]()
    loop = asyncio.get_running_loop()

    def count() -> None:
        rounds[0] += 1
        loop.call_soon(count)

    async def work() -> str:
        for _ in range(3):
            seen.append(rounds[0])
            await asyncio.sleep(0)
        return "done"

    async def shared() -> str:
        return await Sharing(share, work())

    loop.call_soon(count)
    assert await asyncio.gather(*(shared() for _ in range(4))) == ["done"] * 4
    assert len(seen) == 12
    assert len(set(seen)) == 12, "two steps ran in one round"


async def test_rests_are_as_long_as_the_messages_ask_for() -> None:
    share = LoopShare(lambda: 1.0)
    begun = monotonic()
    for _ in range(3):
        turn = share.turn()
        if turn is not None:
            await turn
        share.spent(0.004)
    assert monotonic() - begun >= 2 * 0.004 * REST * 0.9


async def test_a_long_step_does_not_close_the_sockets_for_long() -> None:
    share = LoopShare(lambda: 1.0)
    assert share.turn() is None
    share.spent(3600.0)
    turn = share.turn()
    assert turn is not None
    async with asyncio.timeout(100 * LONGEST):
        await turn


async def test_nobody_overtakes() -> None:
    share, order = LoopShare(), list[int]()

    async def work(number: int) -> None:
        for _ in range(3):
            order.append(number)
            await asyncio.sleep(0)

    async def shared(number: int) -> None:
        await Sharing(share, work(number))

    await asyncio.gather(*(shared(number) for number in range(3)))
    assert order == [0, 1, 2] * 3


async def test_who_goes_away_while_waiting_costs_nobody_a_turn() -> None:
    share, cleaned = LoopShare(), list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    async def shared() -> None:
        await Sharing(share, work())

    tasks = [asyncio.create_task(shared()) for _ in range(5)]
    await asyncio.sleep(0)
    for task in tasks[1:]:  # they wait for their first turn, and have not begun
        task.cancel()
    await asyncio.wait(tasks[1:])
    for _ in range(3):
        await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert cleaned == ["up"]
    async with asyncio.timeout(5):
        turn = share.turn()
        if turn is not None:
            await turn


async def test_errors_and_timeouts_come_through() -> None:
    share = LoopShare()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise TidegateError("no")

    async def late() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return "never"

    with pytest.raises(TidegateError, match="no"):
        await Sharing(share, fails())
    assert await Sharing(share, late()) == "late"


async def test_every_command_takes_turns(tmp_path: Path) -> None:
    async def slow() -> int:
        await asyncio.sleep(0)
        return 3

    async def many() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    share = Counting()
    node = Control(tmp_path / "sock" / "s", {"plain": lambda: 1, "slow": slow, "many": many}, share=share)
    await node.start()
    try:
        before = 0
        for name in ("plain", "slow"):
            assert await asyncio.to_thread(ask, node.path, name) == {"plain": 1, "slow": 3}[name]
            assert share.turns > before
            before = share.turns
        assert await asyncio.to_thread(lambda: list(follow(node.path, "many"))) == [0, 1, 2]
        assert share.turns > before + 3
    finally:
        await node.close()
    assert share.open >= share.turns


def test_flow() -> None:
    now, messages = [0.0], [0]
    flow = Flow(lambda: messages[0], lambda: now[0])
    assert flow() == 0.0
    now[0], messages[0] = SAMPLE, int(SAMPLE * MANY / 2)
    assert flow() == pytest.approx(0.5)
    messages[0] += 10_000
    assert flow() == pytest.approx(0.5), "looked at once in a while"
    now[0] += SAMPLE
    assert flow() == 1.0
    now[0] += SAMPLE
    assert flow() == 0.0
