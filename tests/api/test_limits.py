"""Rates, on a clock of the test."""

from __future__ import annotations

import asyncio

import pytest

from tidegate.api.limits import CHANGING, GUESSED, KEPT, Rates, Turns
from tidegate.api.problems import Problem


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    rates = Rates(2.0, 100.0, clock)
    for _ in range(4):
        rates.token("a")
    with pytest.raises(Problem) as refused:
        rates.token("a")
    assert refused.value.headers["Retry-After"] == "1"
    rates.token("b")
    clock.now = 0.5
    rates.token("a")
    with pytest.raises(Problem):
        rates.token("a")


def test_who_is_refused_does_not_pay() -> None:
    clock = Clock()
    rates = Rates(1.0, 1.0, clock)
    for _ in range(2):
        rates.token("a")
    for _ in range(100):
        with pytest.raises(Problem):
            rates.token("a")
    clock.now = 1.0
    rates.token("a")


def test_addresses_of_one_network_count_as_one() -> None:
    rates = Rates(1.0, 1.0, Clock())
    rates.address("2001:db8::1")
    rates.address("2001:db8::2")
    with pytest.raises(Problem):
        rates.address("2001:db8::3")
    rates.address("2001:db8:0:1::1")
    rates.address("127.0.0.1")


def test_right_tokens_cost_nothing() -> None:
    rates = Rates(1.0, 1.0, Clock())
    for _ in range(100):
        rates.guess("a")
        rates.guess.give_back("a")
    for _ in range(int(GUESSED)):
        rates.guess("a")
    with pytest.raises(Problem):
        rates.guess("a")


def test_memory_is_bounded() -> None:
    rates = Rates(1.0, 1.0, Clock())
    for number in range(KEPT + 100):
        rates.token(str(number))
    assert len(rates.token.buckets) == KEPT


async def test_changes_of_one_do_not_keep_others_waiting() -> None:
    turns = Turns()
    go = asyncio.Event()
    entered: list[str] = []

    async def change(who: str, most: int) -> None:
        async with turns.turn(who, most):
            entered.append(who)
            await go.wait()

    mary = [asyncio.create_task(change("user:mary", CHANGING)) for _ in range(CHANGING + 5)]
    admin = asyncio.create_task(change("admin", 10))
    done, _ = await asyncio.wait(mary, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    refused = [task.exception() for task in done]
    assert len(refused) == 5
    assert all(isinstance(each, Problem) and each.headers["Retry-After"] == "1" for each in refused)
    assert entered == ["user:mary"] * CHANGING
    go.set()
    await asyncio.wait_for(admin, 5)
    await asyncio.gather(*mary, return_exceptions=True)
    await change("user:mary", 1)  # those that ended do not count any more
