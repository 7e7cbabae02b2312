"""The HTTP process, as the node sees it: started, started again when it ends, stopped with the node.

The node makes the socket. So it is known at once whether the address can be had, and who connects while the process
starts again waits instead of being refused. What the process needs to know it reads as one line of JSON from its
standard input, which stays open as long as the node lives. Of the environment it is given only what Python needs: what
else is there may be secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import orjson
import structlog

from tidegate.config import Config
from tidegate.config.administration import Http
from tidegate.config.section import listed
from tidegate.config.sources import Registration, Unregistered
from tidegate.net import Tls, bound

BACKLOG: Final = 128
FIRST, LONGEST = 0.2, 30.0  # seconds before it is started again, twice as long each time
SETTLED: Final = 30.0  # seconds after which it counts as having run well
LEAVING: Final = 5.0  # seconds for it to end by itself
_COMMAND: Final = (sys.executable, "-c", "from tidegate.cli.app import main; main()", "api")
_ENVIRONMENT: Final = ("HOME", "LANG", "LANGUAGE", "PATH", "TMPDIR", "TZ")
_PREFIXES: Final = ("LC_", "PYTHON", "VIRTUAL_ENV", "LD_LIBRARY_PATH")

log = structlog.get_logger("tidegate.http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What the process needs to know."""

    descriptor: int = -1
    """Of the socket that it listens on."""
    metrics: int = -1
    """Of the socket for metrics alone, if there is one."""
    hosts: tuple[str, ...] = ()
    """By which it is reached, besides addresses."""
    max_connections: int = 512
    address_connections: int = 128
    control: Path
    data: Path | None
    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    crl: Path | None = None
    revoked: tuple[str, ...] = ()
    """Certificates that `trust` lists as revoked."""
    rate: float
    address_rate: float
    max_body: int
    timeout: float
    log_format: str = "console"
    log_level: str = "info"
    sources: dict[str, Any] = field(default_factory=dict)
    """What it is to know of `sources`."""
    pipeline: bool = False
    """Whether there is one."""
    rules: Path | None = None
    """The file with its rules."""
    lake: Path | None = None
    """The folder with its tables."""
    issuers: tuple[str, ...] = ()
    """OpenID Connect issuers at which people may sign in."""

    def line(self) -> bytes:
        return orjson.dumps(asdict(self), default=str, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def of(cls, line: bytes) -> Self:
        """From the line that the node wrote."""
        said: dict[str, Any] = orjson.loads(line)
        for name in ("control", "data", "cert", "key", "client_ca", "crl", "rules", "lake"):
            said[name] = None if said[name] is None else Path(said[name])
        return cls(**said)


def tls_context(http: Http | Serving | None) -> ssl.SSLContext | None:
    """The certificates as they are now, if there are any; ConfigError if they cannot be loaded."""
    if http is None or http.cert is None:
        return None
    needed = "none" if http.client_ca is None else "required"
    return Tls(
        cert=http.cert, key=http.key or http.cert, client_ca=http.client_ca, client_cert=needed, minimum="1.2"
    ).context()


class HttpProcess:
    """Runs the process that a configuration asks for."""

    def __init__(self, config: Config) -> None:
        assert config.http is not None
        self._http = config.http
        self._serving = _serving(config)
        self._stamps = _stamps(config.http)
        self._socket: socket.socket | None = None
        self._metrics: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._changing: asyncio.Task[None] | None = None
        self.restarts = 0
        self.serving = False
        """Whether the process that runs now has said that it answers."""
        self.on_end: Callable[[], object] = lambda: None
        """Called when it has ended."""

    @property
    def port(self) -> int:
        return 0 if self._socket is None else int(self._socket.getsockname()[1])

    @property
    def metrics_port(self) -> int | None:
        """Of the listener for metrics alone, if there is one."""
        return None if self._metrics is None else int(self._metrics.getsockname()[1])

    def bind(self) -> None:
        """Takes the addresses; ConfigError if one cannot be had."""
        url, metrics = self._http.url, self._http.metrics
        self._socket = bound(url, url.host, url.port, BACKLOG)
        if metrics is not None:
            self._metrics = bound(metrics, metrics.host, metrics.port, BACKLOG)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep_running())

    def change(self, config: Config) -> None:
        """The configuration was read again. Other settings or certificates: the process is started again.

        Nobody waits for that: it may be answering the very request that asked for the change.
        """
        assert config.http is not None
        wanted, stamps = _serving(config), _stamps(config.http)
        if (wanted, stamps) != (self._serving, self._stamps):
            self._serving, self._stamps = wanted, stamps
            self._changing = asyncio.get_running_loop().create_task(self._again(self._changing))

    async def _again(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        await self._end()
        self.start()

    async def close(self) -> None:
        if self._changing is not None:
            await self._changing
        await self._end()
        for listener in (self._socket, self._metrics):
            if listener is not None:
                listener.close()
        self._socket = self._metrics = None

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def status(self) -> dict[str, Any]:
        """For `tidegate status`."""
        return {
            "url": str(self._http.url),
            "port": self.port,
            "metrics_port": self.metrics_port,
            "pid": self.pid,
            "restarts": self.restarts,
        }

    async def _keep_running(self) -> None:
        wait = FIRST
        while True:
            started = time.monotonic()
            code = await self._run()
            if time.monotonic() - started > SETTLED:
                wait = FIRST
            self.restarts += 1
            log.warning("the HTTP process ended and is started again", code=code, seconds=wait)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST)

    async def _run(self) -> int | str:
        """Until it ends; its exit code, or why it did not even start."""
        assert self._socket is not None
        descriptor = self._socket.fileno()
        metrics = -1 if self._metrics is None else self._metrics.fileno()
        line = replace(self._serving, descriptor=descriptor, metrics=metrics).line()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                stdin=asyncio.subprocess.PIPE,
                pass_fds=tuple(one for one in (descriptor, metrics) if one >= 0),
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the node, which stops it in its own time
            )
        except OSError as error:
            return str(error)
        assert self._process.stdin is not None
        try:
            with contextlib.suppress(ConnectionError):
                self._process.stdin.write(line)
                await self._process.stdin.drain()
            return await self._process.wait()
        finally:
            self.serving = False
            self.on_end()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(LEAVING):
                await process.wait()
        except TimeoutError:
            log.warning("the HTTP process did not end and is killed")
            process.kill()
            await process.wait()


def _serving(config: Config) -> Serving:
    """Without the socket, which is known when the process is started."""
    http = config.http
    assert http is not None
    return Serving(
        descriptor=-1,
        control=config.http_socket,
        data=config.node.data,
        cert=http.cert,
        key=http.key,
        client_ca=http.client_ca,
        crl=http.crl,
        hosts=(http.url.host, *http.hosts),
        revoked=() if http.client_ca is None else config.built.revoked,
        max_connections=http.max_connections,
        address_connections=http.address_connections,
        rate=http.rate,
        address_rate=http.address_rate,
        max_body=http.max_body,
        timeout=http.timeout,
        log_format=config.log.format.value,
        log_level=config.log.level.value,
        sources={
            "registration_open": config.sources.registration is Registration.OPEN,
            "unregistered": config.sources.unregistered is Unregistered.ACCEPT,
            "max_records": config.sources.max_records,
            "max_expanded": config.sources.max_expanded,
        },
        pipeline=config.pipeline is not None,
        rules=None if config.pipeline is None else config.pipeline.rules,
        lake=None if config.pipeline is None else config.pipeline.lake,
        issuers=tuple(issuer.name for _, issuer in listed(http.oidc)),
    )


def _stamps(http: Http) -> tuple[int, ...]:
    """When the certificates were written."""
    found = []
    for path in (http.cert, http.key, http.client_ca):
        with contextlib.suppress(OSError):
            found.append(0 if path is None else path.stat().st_mtime_ns)
    return tuple(found)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in _ENVIRONMENT or name.startswith(_PREFIXES)}
