"""Asking the node over its control socket, without ever asking more than it can bear.

At most `PLACES` questions are with the node at a time and `WAITING` wait for their turn; who comes then is told to come
again. Health checks, checks of tokens and administrators (`URGENT`) have `KEPT` places for when the others are taken.
Streams have places of their own. Every question has an end: the node answers in time, or the caller is told that
it did not. A connection on which anything went wrong is not used again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import orjson

from tidegate.api.problems import Kind, Problem
from tidegate.net.control_command import ControlCommand
from tidegate.net.control_socket import LINE, address_of

PLACES: Final = 6  # with those kept, 8 of the 64 that the node has for everybody
STREAMS: Final = 16
WAITING: Final = 64
KEPT: Final = 2
ANSWER: Final = 64 << 20  # bytes of the longest answer
IDLE: Final = 60.0  # seconds after which a connection is not used again; the node waits for five minutes
PATIENCE: Final = 10.0
_LATER: Final = {"Retry-After": "1"}
_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}

URGENT: Final[ContextVar[bool]] = ContextVar("urgent", default=False)
"""Whether what this task asks is for a health check or an administrator."""

CREDENTIAL: Final[ContextVar[str | None]] = ContextVar("credential", default=None)
"""What the caller of this request has shown. The node decides by it, whatever is asked."""

_KINDS: Final = {"busy": Kind.UNAVAILABLE, **{kind.word: kind for kind in Kind}}
"""By the word that the node has for a problem."""


class _Line:
    __slots__ = ("reader", "used", "writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.used = time.monotonic()

    @property
    def usable(self) -> bool:
        return not self.reader.at_eof() and time.monotonic() - self.used < IDLE

    async def send(self, command: str, arguments: dict[str, Any]) -> None:
        request = {"command": command, **arguments}
        if (credential := CREDENTIAL.get()) is not None:
            request["caller"] = credential
        line = orjson.dumps(request, default=bytes.decode, option=orjson.OPT_APPEND_NEWLINE)
        if len(line) > LINE:
            raise Problem(Kind.TOO_LARGE, f"a request to the node has at most {LINE} bytes", "send less at a time")
        self.writer.write(line)
        await self.writer.drain()

    async def answer(self) -> dict[str, Any]:
        line = await self.reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the node went away")
        answer = orjson.loads(line)
        if not isinstance(answer, dict):
            raise ConnectionResetError("not an answer")
        return answer


class Channel:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[_Line] = []
        self._places = asyncio.Semaphore(PLACES)
        self._kept = asyncio.Semaphore(KEPT)
        self._waiting = 0
        self._streams = 0

    async def ask(
        self, command: ControlCommand | str, /, *, alters: bool = False, patience: float = PATIENCE, **arguments: Any
    ) -> Any:
        """The answer of the node. A Problem says why there is none; if it `alters` something, whether that is known."""
        if isinstance(command, ControlCommand):
            arguments, command = command.arguments(), command.COMMAND
        async with self._place():
            sent = False
            try:
                async with asyncio.timeout(patience):
                    line = await self._connect()
                    try:
                        await line.send(command, arguments)
                        sent = True
                        answer = await line.answer()
                    except BaseException:
                        line.writer.close()
                        raise
            except (OSError, TimeoutError, ValueError) as error:
                if alters and sent:
                    raise Problem(
                        Kind.UNCERTAIN,
                        "the node did not say whether it was done",
                        "look whether it was, then try again",
                    ) from error
                raise _away(error) from error
            line.used = time.monotonic()
            self._idle.append(line)
        return _result(answer, command)

    async def follow(self, command: str, /, **arguments: Any) -> AsyncGenerator[Any, None]:
        """The items of a command that goes on, or that has much to say."""
        self.check_streams()
        self._streams += 1
        line: _Line | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                line = await self._open()
                await line.send(command, arguments)
            while "item" in (answer := await line.answer()):
                yield answer["item"]
            _result(answer, command)
        except (OSError, TimeoutError, ValueError) as error:
            raise _away(error) from error
        finally:
            self._streams -= 1
            if line is not None:
                line.writer.close()

    def check_streams(self) -> None:
        """Problem if there is no place for one more."""
        if self._streams >= STREAMS:
            raise Problem(Kind.UNAVAILABLE, "too many are listening", "come again later", headers={"Retry-After": "10"})

    def close(self) -> None:
        for line in self._idle:
            line.writer.close()
        self._idle.clear()

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """What is asked meanwhile may take a kept place."""
        before = URGENT.set(True)
        try:
            yield
        finally:
            URGENT.reset(before)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        if URGENT.get() and self._places.locked():
            async with self._kept:
                yield
            return
        if self._waiting >= WAITING:
            raise Problem(Kind.UNAVAILABLE, "too much is being asked of the node", "come again later", headers=_LATER)
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._places.release()

    async def _connect(self) -> _Line:
        while self._idle:
            line = self._idle.pop()
            if line.usable:
                return line
            line.writer.close()
        return await self._open()

    async def _open(self) -> _Line:
        with address_of(self.path) as address:
            return _Line(*await asyncio.open_unix_connection(address, limit=ANSWER))


def _away(error: Exception) -> Problem:
    if isinstance(error, TimeoutError):
        return Problem(Kind.UNAVAILABLE, "the node did not answer in time", "come again later", headers=_LATER)
    return Problem(Kind.UNAVAILABLE, "the node cannot be reached", "see whether it runs", headers=_LATER)


def _result(answer: dict[str, Any], command: str) -> Any:
    if answer.get("ok"):
        return answer.get("result")
    text = str(answer.get("error", "the node refused"))
    kind = _KINDS.get(str(answer.get("problem", "")))
    if kind is None:
        kind = Kind.INVALID
        if text.startswith(f"no command {command!r}"):
            raise Problem(Kind.UNSUPPORTED, "this node does not know how", "use a node of the same release")
        if text.startswith("too many connections"):
            kind = Kind.UNAVAILABLE
        elif text.startswith((f"{command} failed in the node", "failed in the node", f"{command}: ")):
            kind = Kind.FAILED
    details = answer.get("details")
    headers = _LATER if kind is Kind.UNAVAILABLE else _CHALLENGE if kind is Kind.UNAUTHENTICATED else {}
    detail, _, remedy = text.partition(". Remedy: ")
    if kind is Kind.DENIED and details:
        raise Problem(kind, detail, remedy, members={name: details[0].get(name) for name in ("rule", "stage")})
    raise Problem(kind, detail, remedy, errors=details if isinstance(details, list) else (), headers=headers)
