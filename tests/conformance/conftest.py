"""What every conformance test starts from: an open node on real sockets, and its clock in the test's hand."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from conformance.clock import Clock
from harness import Live, live


@pytest.fixture(autouse=True, scope="session")
def runtime_folder() -> Iterator[None]:
    """Control sockets in a folder of this run's own, so that runs side by side do not meet."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture
async def broker() -> AsyncIterator[Live]:
    async with live() as running:
        yield running
        for client in running.clients:
            client.writer.close()
        # a node that has no connections left does not wait for them when it stops
        while any(listener.connections for listener in running.node.listeners.bound.values()):
            await asyncio.sleep(0)


@pytest.fixture
def clock(broker: Live) -> Clock:
    return Clock(broker)
