"""What a cluster sends to the guards in front of it, seen from between the two.

It tells a message that the broker never sent from one that a guard had and did not pass on. Payloads look like
`press/12.`, and clients are known by the end of their identifiers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections import defaultdict
from types import TracebackType

PAYLOAD = re.compile(rb"(?:press|oven)/[0-9]+\.")
SCREEN = re.compile(rb"screen-[0-9]")
LONGEST = 64  # bytes of a payload, and more


class Tap:
    """Listens on one port and passes on to another, in a thread of its own, until the block ends."""

    def __init__(self, port: int, behind: int) -> None:
        self.port = port
        self.behind = behind
        self.sent: dict[str, set[str]] = defaultdict(set)
        """By client: what the broker has sent to it."""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Tap:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", self.port))
        self._ready.set()
        self._loop.run_forever()
        server.close()
        rest = asyncio.all_tasks(self._loop)
        for task in rest:
            task.cancel()
        if rest:
            self._loop.run_until_complete(asyncio.wait(rest))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name, over, there = "", b"", None
        try:
            broker, there = await asyncio.open_connection("127.0.0.1", self.behind)
            first = await reader.read(65536)  # CONNECT
            if found := SCREEN.search(first):
                name = found[0].decode()
            there.write(first)
            up = asyncio.ensure_future(passed(reader, there))
            while data := await broker.read(65536):
                over = over[-LONGEST:] + data
                self.sent[name].update(payload.decode() for payload in PAYLOAD.findall(over))
                writer.write(data)
                await writer.drain()
            up.cancel()
        except OSError:
            pass  # one side is gone, and the other one is closed
        finally:
            for end in (writer, there):
                if end is not None:
                    end.close()


async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything, until one side is gone."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
