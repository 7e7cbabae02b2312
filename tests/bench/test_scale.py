"""What is said of very many clients follows from the measured costs: the sum, the simulation, and the page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.scale.simulation import PAGE, SHARE, SOURCE_PORTS, Costs, Demand, busy, demands, lose_one, needed, page

COSTS = Costs(message=10e-6, connect=500e-6, change=10e-3, transaction=3e-3, idle=8.0)


@pytest.mark.parametrize("demand", demands(), ids=lambda demand: demand.name)
def test_so_many_guards_are_enough_when_one_is_lost(demand: Demand) -> None:
    costs = Costs.measured()
    found = needed(costs, demand)
    lost = lose_one(costs, demand, found.guards)
    assert 0 < lost.seconds < 60
    assert lost.waited < 1.0
    assert busy(costs, demand, found.guards - 1) <= SHARE


def test_fewer_are_not() -> None:
    """The sum says how many; with a third of them messages pile up, and nobody who is lost comes back."""
    demand = Demand(name="", clients=100_000, messages=1e6, connects=10, changes=0.1)
    found = needed(COSTS, demand)
    assert found.why == "CPU"
    lost = lose_one(COSTS, demand, found.guards // 3)
    assert (lost.seconds, lost.most) == (0, pytest.approx(1.0))
    assert lost.waited > 60


def test_what_decides_how_many() -> None:
    quiet = Demand(name="", clients=10 * SOURCE_PORTS, messages=1.0, connects=0.0, changes=0.0)
    assert (needed(COSTS, quiet).guards, needed(COSTS, quiet).why) == (11, "source ports")
    assert needed(COSTS, quiet, addresses=5).guards == 3
    with pytest.raises(ValueError, match="more guards do not help"):
        needed(COSTS, replace(quiet, changes=60.0))


def test_the_page_is_made_of_them() -> None:
    assert PAGE.read_text() == page(), "python -m bench.scale.simulation --update"
