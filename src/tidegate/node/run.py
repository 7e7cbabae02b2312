"""Runs a node in this process until a signal or a command stops it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import structlog
import uvloop

from tidegate.audit.logs import configure_logs
from tidegate.config import Config
from tidegate.errors import ConfigError, StoreError
from tidegate.node.node import Node

log = structlog.get_logger("tidegate.node")


def run(config: Config, path: Path | None) -> int:
    """Runs a node until it is told to stop; the exit code."""
    configure_logs(config.log.format, config.log.level)
    _raise_file_limit()
    sys.setswitchinterval(0.0005)  # the store's writer thread waits this long for a busy loop, not 5 ms
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_main(config, path))


async def _main(config: Config, path: Path | None) -> int:
    loop = asyncio.get_running_loop()
    node = Node(config, path, loop)
    node.control.keep_orphans()
    stop = asyncio.Event()
    node.on_stop = stop.set
    loop.set_exception_handler(_unhandled)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.stop)
    try:
        await node.start()
    except (ConfigError, StoreError) as error:
        log.error("cannot start", reason=str(error))
        told = node.stopping
        await node.close()
        return 0 if told else 1
    if node.stopping:
        await node.close()
        return 0
    loop.add_signal_handler(signal.SIGHUP, node.reload_or_say_why)
    node.announce()
    # what is there now stays; the collector need not look at it again and again, nor stop the loop for it
    gc.freeze()
    gc.enable()
    gc.set_threshold(5_000, 20, 100)
    await stop.wait()
    await node.close()
    return 0


def _unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Nothing should come here; what does is a bug of ours or of the transport, and is written down."""
    error = context.get("exception")
    if isinstance(error, ConnectionError | TimeoutError) or context.get("message", "").startswith("SSL"):
        log.debug("connection failed", reason=str(error or context.get("message")))
    else:
        log.error("unhandled", message=context.get("message"), exc_info=error)


def _raise_file_limit() -> None:
    """Each connection is a file; the soft limit is often far below what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
