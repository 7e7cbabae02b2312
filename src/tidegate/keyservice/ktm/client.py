"""A node's side of the key service: one connection, made again whenever it breaks.

Invariants
- Nothing waits for a service that is away: what is to be stored or revoked is kept, within a limit, and sent until it
  is acknowledged, again after every reconnect; questions get StoreError at once.
- Each connection begins with all keys and revocations that the service knows, so nothing is missed while it was away.
- Certificates are read anew for each connection.

The secrets of keys that the service makes (`grant`, `wrap`) never come here: answers are for their readers.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import asdict
from itertools import count
from typing import Any, Final

import structlog

from tidegate.config.keys import Ktm
from tidegate.errors import ConfigError, KeysError, ProtocolError, StoreError
from tidegate.keys import Group, PublicKey, TopicKey
from tidegate.keys.key import valid_id
from tidegate.keyservice.exchange import BATCH, KeyExchange, OnKeys
from tidegate.keyservice.ktm import frames
from tidegate.keyservice.ktm.frames import Answer, Failure, Op, Told, Wrong
from tidegate.net import client_context

CONNECTING: Final = 10.0
ANSWERING: Final = 10.0  # seconds for an answer; then the connection counts as broken
PING: Final = 15.0
PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds before the next attempt to connect
ASKING: Final = 1024  # questions at a time
IDLE: Final = 3 * PING
WHOLE: Final = 10.0

_BROKE: Final = "the connection to the key service broke; ask again"

log = structlog.get_logger("tidegate.keys")


def context(ktm: Ktm) -> ssl.SSLContext:
    """From the files as they are now; ConfigError if they cannot be loaded."""
    return client_context(cert=ktm.cert, key=ktm.key or ktm.cert, ca=ktm.ca, minimum="1.3")


class _Line:
    """One connection: what was asked over it and not answered yet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._numbers = count(1)
        self._open: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, op: Op, **said: Any) -> Any:
        """StoreError if no answer comes, and then the connection is over; KeysError if it is refused."""
        if len(self._open) >= ASKING:
            raise StoreError(f"{ASKING} questions wait for the key service already; ask again")
        if self.writer.transport.is_closing():
            raise StoreError(_BROKE)
        number = next(self._numbers)
        frame = frames.request(number, op, said)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            self.writer.write(frame)
            async with asyncio.timeout(ANSWERING):
                return await answer
        except TimeoutError:
            self.writer.transport.abort()
            raise StoreError("the key service does not answer") from None
        finally:
            del self._open[number]

    def answered(self, said: Answer | Failure) -> None:
        asked = self._open.get(said.number)
        if asked is None or asked.done():
            return  # whoever asked has given up
        match said:
            case Answer(value=value):
                asked.set_result(value)
            case Failure(problem=Wrong.INVALID, text=text):
                asked.set_exception(KeysError(text))
            case Failure(text=text):
                asked.set_exception(StoreError(text))

    def broken(self) -> None:
        """Nobody will be answered any more."""
        self.writer.transport.abort()
        for asked in self._open.values():
            if not asked.done():
                asked.set_exception(StoreError(_BROKE))


class KtmExchange(KeyExchange):
    """Shares keys over a key service; also for keys whose secrets no node sees."""

    def __init__(self, ktm: Ktm) -> None:
        super().__init__(f"there is no connection to the key service {ktm.url} yet")
        self._ktm = ktm
        self._line: _Line | None = None
        self._said: str | None = None  # the last trouble in the log
        self._rotating = False  # the service has to be told so

    def start(self, took: OnKeys) -> None:
        super().start(took)
        self._tasks.append(asyncio.get_running_loop().create_task(self._run()))

    def rotate(self) -> None:
        """Keys that the service makes itself seal nothing new, as soon as that can be said."""
        self._rotating = True
        self._work()

    async def find(self, id: str) -> TopicKey | None:
        if not self._may_exist(id):
            return None
        answer = await self._ask(Op.FIND, id=id)
        return None if answer is None or id in self._waiting.revoked else self._read(frames.unpacked, answer)

    async def grant(self, group: Group, public: PublicKey, *, reader: str, request: str) -> tuple[bytes, str]:
        """The key that seals messages of the group now, wrapped for a publisher, and its id."""
        said = {"public": str(public), "reader": reader, "request": request}
        if self._rotating and self._line is not None:
            await self._rotate(self._line)  # first: nobody seals with what somebody has who must not read it
        match await self._ask(Op.GRANT, group=asdict(group), **said):
            case [bytes() as answer, str() as id]:
                return answer, id
            case _:
                raise self._strange()

    async def wrap(self, id: str, public: PublicKey, *, reader: str, request: str) -> bytes | None:
        """A key, wrapped for a reader; None if there is none of that id any more."""
        if not self._may_exist(id):
            return None
        match await self._ask(Op.WRAP, id=id, public=str(public), reader=reader, request=request):
            case None | bytes() as answer:
                return answer
            case _:
                raise self._strange()

    async def group(self, id: str) -> Group | None:
        """What a key belongs to; None if there is none of that id any more."""
        if not valid_id(id):
            return None
        answer = await self._ask(Op.GROUP, id=id)
        return None if answer is None else self._read(frames.read_group, answer)

    # -- asking ----------------------------------------------------------------------------------------------------

    async def _ask(self, op: Op, **said: Any) -> Any:
        if self._line is None:
            raise StoreError(self.trouble or "there is no connection to the key service")
        return await self._line.ask(op, **said)

    def _read(self, how: Any, said: object) -> Any:
        try:
            return how(said)
        except ProtocolError:
            raise self._strange() from None

    def _strange(self) -> StoreError:
        if self._line is not None:
            self._line.broken()
        return StoreError(f"what {self._ktm.url} answers cannot be understood; use the same version of Tidegate there")

    # -- the connection --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._session()
            except (ConfigError, KeysError, StoreError, ProtocolError, OSError, EOFError) as error:
                self._away(_why(error))
            except Exception:
                log.exception("keys could not be shared")
                self._away("an unexpected error; see the log")
            failures = 0 if time.monotonic() - began > PAUSES[-1] else failures + 1
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])

    async def _session(self) -> None:
        """One connection, from its beginning to its end, which is an error."""
        tls = await asyncio.to_thread(context, self._ktm)
        async with asyncio.timeout(CONNECTING):
            reader, writer = await asyncio.open_connection(self._ktm.url.host, self._ktm.url.port, ssl=tls)
        line = _Line(reader, writer)
        try:
            writer.write(frames.hello())
            await self._welcomed(reader)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen(line))
                group.create_task(self._begin(line))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the other task was ended because of it
        finally:
            self._line = None
            line.broken()

    async def _welcomed(self, reader: asyncio.StreamReader) -> None:
        try:
            frames.read_welcome(await frames.receive(reader, idle=CONNECTING, whole=WHOLE))
        except (EOFError, ConnectionError):
            # in TLS 1.3 a certificate is refused after the handshake, and often without a word
            raise ProtocolError("it hung up; maybe it does not accept the certificate `cert`: see its log") from None

    async def _begin(self, line: _Line) -> None:
        await line.ask(Op.WATCH)
        self._line = line
        self._back()
        while True:
            await self._send(line)
            self._idle.set()
            try:
                async with asyncio.timeout(PING):
                    await self._wake.wait()
            except TimeoutError:
                await line.ask(Op.PING)
            self._wake.clear()

    async def _send(self, line: _Line) -> None:
        """All that waits, several at a time; what is not acknowledged stays."""
        waiting = self._waiting
        while waiting or self._rotating:
            if self._rotating:
                await self._rotate(line)
                continue
            if ids := waiting.next_revoked():
                await line.ask(Op.REVOKE, ids=ids)
                for id in ids:
                    waiting.revoked.pop(id, None)
                continue
            keys = waiting.next_puts(time.time())
            await asyncio.gather(*(self._store(line, key) for key in keys))

    async def _rotate(self, line: _Line) -> None:
        self._rotating = False
        try:
            await line.ask(Op.ROTATE)
        except StoreError:
            self._rotating = True
            raise

    async def _store(self, line: _Line, key: TopicKey) -> None:
        try:
            kept = await line.ask(Op.PUT, key=frames.packed(key))
        except KeysError as error:
            log.error("a key cannot be shared", id=key.id, reason=str(error))
            kept = True
        self._waiting.stored(key)
        if kept is False:
            self._took((), (key.id,))  # somebody has revoked it already

    async def _listen(self, line: _Line) -> None:
        while True:
            said = frames.read_reply(await frames.receive(line.reader, idle=IDLE, whole=WHOLE))
            if isinstance(said, Told):
                keys = [key for key in said.keys if key.id not in self._waiting.revoked]
                self._took(keys, said.revoked)
            else:
                line.answered(said)

    # -- saying ----------------------------------------------------------------------------------------------------

    def _away(self, reason: str) -> None:
        self.trouble = f"the key service {self._ktm.url} cannot be used: {reason}"
        if self._said != reason:
            log.warning("keys cannot be shared at the moment", service=str(self._ktm.url), reason=reason)
        self._said = reason

    def _back(self) -> None:
        if self._said is not None:
            log.info("keys are shared again", service=str(self._ktm.url))
        self.trouble = self._said = None


assert BATCH < ASKING  # what is stored at a time leaves room for questions


def _why(error: BaseException) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted: {error.verify_message}; check `ca` and the name in the URL"
        case ssl.SSLError():
            return f"TLS failed ({error.reason or error}); check `cert`, `key` and what the service accepts"
        case TimeoutError():
            return "it does not answer"
        case EOFError() | ConnectionResetError():
            return "it closed the connection"
        case _:
            return str(error) or type(error).__name__
