"""`tidegate backup` asks the running node for a copy of its store, which nobody else can read while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tidegate.errors import TidegateError
from tidegate.net.control_socket import Command
from tidegate.store import SqliteStore


def commands(store: SqliteStore | None) -> dict[str, Command]:
    async def copy(path: str) -> dict[str, Any]:
        if store is None:
            raise TidegateError("nothing survives a restart of this node, so there is nothing to back up")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell(error: Exception | None) -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(TidegateError(f"the store cannot be copied: {error}"))

        store.copy(Path(path), tell)
        await done
        return {"path": path}

    return {"backup": copy}
