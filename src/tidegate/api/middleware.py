"""What every request passes before anything looks at it, and every answer on its way out.

- An address that asks too often, or that has too many connections, is told so before its request is read. Health
  checks and administrators are heard all the same.
- A body has at most so many bytes and arrives within `http.timeout`; each piece of an answer is taken within that
  time, or the connection is closed.
- Paths are compared as they were sent, so that an id may hold a `/` if it is written `%2F`.
- Answers are never cached or sniffed. There are no CORS headers: pages of other origins get nothing.
- A failure that nobody foresaw is logged with a reference, and the reference is all that the answer tells of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.api.limits import Rates
from tidegate.api.problems import Kind, Problem, failed

LINGER: Final = 4 << 20  # bytes of a body that is too large that are still let in
LINGERING: Final = 1.0  # seconds
KEPT: Final = "tidegate.kept"
"""In the scope of a connection that is in a kept place (see `places`)."""
_UNLIMITED: Final = ("/health/live", "/health/ready")
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
Observe = Callable[[str, str, int, float], None]
Administers = Callable[[Scope], Awaitable[bool]]

log = structlog.get_logger("tidegate.api")


class _Slow(Exception):
    """The other side does not take its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsMiddleware:
    """Wraps the application. `observe` is told method, route, status and seconds of every request; `administers` says
    whether a request has the token of an administrator."""

    app: ASGIApp
    rates: Rates
    max_body: int
    timeout: float
    observe: Observe
    administers: Administers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("ascii", "replace")
        started = time.perf_counter()
        answer = _Answer(send, self.timeout, last=KEPT in scope)
        body = _Body(receive, self.max_body, self.timeout)
        try:
            try:
                if scope["path"] not in _UNLIMITED:
                    await self._admit(scope)
                if _declared(scope["headers"]) > self.max_body:
                    await body.refuse()
                await self.app(scope, body.receive, answer.send)
            except Problem as problem:
                await self._say(problem, scope, answer)
            except (_Slow, ClientDisconnect):
                raise
            except Exception:  # noqa: BLE001 - `failed` logs it
                await self._say(failed(scope["method"]), scope, answer)
        except (_Slow, ClientDisconnect):
            log.debug("the other side went away", method=scope["method"])
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "") or "none"
            self.observe(scope["method"], path, answer.status, time.perf_counter() - started)

    async def _admit(self, scope: Scope) -> None:
        """Problem if there is no room for it; there is for administrators."""
        try:
            if KEPT in scope:
                raise Problem(
                    Kind.UNAVAILABLE,
                    "too many connections are open, here or from your address",
                    "close some of them, or come again later",
                    headers={"Retry-After": "1", **_CLOSE},
                )
            self.rates.address(scope["client"][0] if scope.get("client") else "")
        except Problem:
            if not await self.administers(scope):
                raise

    async def _say(self, problem: Problem, scope: Scope, answer: _Answer) -> None:
        if answer.status:
            raise _Slow from problem  # too late to say anything else: the connection is closed
        await problem.response()(scope, _nothing, answer.send)


class _Body:
    def __init__(self, receive: Receive, most: int, timeout: float) -> None:
        self._receive = receive
        self._left = most
        self._most = most
        self._timeout = timeout
        self._until = time.monotonic() + timeout
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()  # only that the other side has gone comes now
        try:
            async with asyncio.timeout(self._until - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise Problem(
                Kind.TIMEOUT, f"the body did not arrive within {self._timeout:g} s", "send it at once", headers=_CLOSE
            ) from None
        self._left -= len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._left < 0:
            await self.refuse()
        return message

    async def refuse(self) -> None:
        """It is too large. What is still coming is let in for a moment: who is cut off does not see the answer."""
        left = LINGER
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGERING):
                while not self._complete and left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self._complete = not message.get("more_body", False)
        raise Problem(
            Kind.TOO_LARGE, f"a body has at most {self._most:,} bytes here", "send less at a time", headers=_CLOSE
        )


class _Answer:
    def __init__(self, send: Send, timeout: float, *, last: bool = False) -> None:
        """`last`: the connection is closed after it."""
        self._headers = (*_HEADERS, (b"connection", b"close")) if last else _HEADERS
        self._send: Callable[[Message], Awaitable[None]] = send
        self._timeout = timeout
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = {name.lower() for name, _ in message.get("headers", ())}
            more = [header for header in self._headers if header[0] not in given]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        try:
            async with asyncio.timeout(self._timeout):
                await self._send(message)
        except TimeoutError:
            raise _Slow from None


_CLOSE: Final = {"Connection": "close"}


def _declared(headers: Iterable[tuple[bytes, bytes]]) -> int:
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            return int(value) if len(value) < 19 else sys.maxsize
    return 0


async def _nothing() -> dict[str, Any]:
    return {"type": "http.disconnect"}
