"""The loop's side of a site."""

from __future__ import annotations

import asyncio

from processes import on_uvloop
from tidegate.node.turns import Turns
from tidegate.session import Limits, Origin, Site, Volatile


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
