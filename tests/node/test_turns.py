"""The loop's side of a site."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from processes import on_uvloop
from tidegate.node.turns import SLICE, Turns
from tidegate.session import Limits, Origin, Site, Volatile
from tidegate.session.packet_costs import Payer


@on_uvloop
async def test_a_timer_that_is_set_for_now_again_and_again_does_not_hold_the_loop() -> None:
    """A wait that is too short to be added to the clock is one for now."""
    turns = Turns(asyncio.get_running_loop())
    site = Site(
        store=Volatile(), origin=Origin("00" * 8, 1), limits=Limits(), on_open=turns.opened, random_id=lambda: "id"
    )
    ran: list[str] = []

    def again() -> None:
        ran.append("again")
        site.timers.at(site.now, again)

    turns.drive(site)
    site.open()
    site.timers.at(site.now, again)
    site.timers.at(site.now, ran.append, "other")
    for tick in range(1, 4):
        turns._ticked()  # here, so that no clock says how many there were
        assert tick <= ran.count("again") <= 2 * tick
    turns.stop()
    assert "other" in ran


@on_uvloop
async def test_a_stretch_of_heavy_clients_ends_when_its_time_is_over_whatever_its_work_is_said_to_cost() -> None:
    """Prices are rough: work may take three times its price, and stretches would be as much longer."""
    turns = Turns(asyncio.get_running_loop())
    site = Site(
        store=Volatile(), origin=Origin("00" * 8, 1), limits=Limits(), on_open=turns.opened, random_id=lambda: "id"
    )
    ran: list[int] = []

    def work(number: int) -> None:
        ran.append(number)
        until = time.monotonic() + 2 * SLICE
        while time.monotonic() < until:
            pass

    turns.drive(site)
    site.open()
    for number in range(3):
        site.resting.add(Payer(), partial(work, number))
    for served in range(1, 4):
        turns._serve()  # here, so that nothing else runs in between
        assert ran == list(range(served))
    turns.stop()
