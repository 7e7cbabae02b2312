"""What every conformance test starts from: an open node on real sockets, and its clock in the test's hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from conformance.clock import Clock
from harness import Live, live


@pytest.fixture
async def broker() -> AsyncIterator[Live]:
    async with live() as running:
        yield running


@pytest.fixture
def clock(broker: Live) -> Clock:
    return Clock(broker)
