"""`tidegate ktm`: starts the key service, lets it read its file again, and stops it.

SIGHUP takes up certificates, `crl`, `accept`, master keys, `keys` and `log`; a file that is broken changes nothing.
SIGTERM ends it: what was answered is on the disk.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop

from tidegate.audit.logs import configure_logs
from tidegate.config.ktm import KtmConfig, load_ktm
from tidegate.errors import ConfigError, StoreError, TidegateError
from tidegate.keyservice.ktm.key_store import KeyStore
from tidegate.keyservice.ktm.service import Service, context, revocation

_FIXED: Final = "cannot change while the key service runs; restart it"

log = structlog.get_logger("tidegate.ktm")


def run(config: KtmConfig, path: Path) -> int:
    """Until it is told to stop; the exit code."""
    configure_logs(config.log.format, config.log.level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_main(config, path))


async def _main(config: KtmConfig, path: Path) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_unhandled)
    key_store = KeyStore(config)
    service: Service | None = None
    stop = asyncio.Event()
    try:
        await key_store.open(config)
        service = Service(config, key_store)
        service.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        changing = asyncio.Lock()
        reloads: set[asyncio.Task[None]] = set()

        def reload() -> None:
            task = loop.create_task(_reload(path, service, key_store, changing))
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        loop.add_signal_handler(signal.SIGHUP, reload)
        log.info("listening", url=str(config.ktm.listen), port=service.port)
        if config.ktm.accept is None:
            log.warning("every node with a certificate of `client_ca` is let in: list them in `accept`")
        log.info("ready")
        await stop.wait()
    except (ConfigError, StoreError) as error:
        log.error("cannot start", reason=str(error))
        return 1
    finally:
        if service is not None:
            await service.close()
        await key_store.close()
    log.info("stopped")
    return 0


async def _reload(path: Path, service: Service, key_store: KeyStore, changing: asyncio.Lock) -> None:
    """All of it takes effect, or none."""
    async with changing:
        try:
            config = await asyncio.to_thread(load_ktm, path)
            if config.ktm.listen != service.config.ktm.listen:
                raise ConfigError(f"`ktm.listen` {_FIXED}")
            if config.data != service.config.data:
                raise ConfigError(f"`data` {_FIXED}")
            made = await asyncio.to_thread(context, config.ktm)
            revoked = await asyncio.to_thread(revocation, config.ktm)
            await key_store.reload(config)
        except TidegateError as error:
            log.error("reload refused, everything stays as it is", reason=str(error))
            return
        service.reload(config, made, revoked)
        configure_logs(config.log.format, config.log.level)
        log.info("reloaded", file=str(path))


def _unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Connections that break while they are being closed; anything else is a bug, and is written down."""
    error = context.get("exception")
    if isinstance(error, OSError | TimeoutError) or context.get("message", "").startswith("SSL"):
        log.debug("connection failed", reason=str(error or context.get("message")))
    else:
        log.error("unhandled", message=context.get("message"), exc_info=error)
