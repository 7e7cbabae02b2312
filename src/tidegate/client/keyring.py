"""The keys of a client: those it reads with, and those it seals with, asked for once and kept while they last.

Invariants
- Of each key there is one question at a time, however many wait for it; it has a mark of its own, and one answer to it
  is taken.
- A key that was not given is not asked for again for a moment (`PAUSE`), so that a topic which may not be read does not
  cost a question for each message; what changes at the service counts after that.
- At most `AT_ONCE` questions are open: strangers who publish things that look like sealed messages get no more.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from tidegate.bounded import Newest
from tidegate.client.key_requests import AskKey, Question
from tidegate.errors import KeysError
from tidegate.keys import NONCE, Group, Keychain, PrivateKey, ReadKey, TopicKey, open_message, read_key, seal

PAUSE: Final = 1.0
AT_ONCE: Final = 32
TOPICS: Final = 1024
_REFUSALS: Final = 4096
_MARK: Final = 16  # random bytes

T = TypeVar("T")


class Keyring:
    """Keeps keys over connections: `begin` says how to ask from now on, `end` that nobody can be asked."""

    def __init__(self, private: PrivateKey, *, patience: float) -> None:
        self._ask_service: AskKey | None = None
        self._reader = ""
        self._private = private
        self._patience = patience
        self._chain = Keychain()
        self._refused: Newest[str, tuple[KeysError, float]] = Newest(_REFUSALS)
        self._fetches: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._sealing: Newest[str, tuple[TopicKey, float]] = Newest(TOPICS)
        self._grants: dict[str, asyncio.Task[TopicKey]] = {}

    def begin(self, ask: AskKey, reader: str) -> None:
        """There is a connection, and the service knows us by this name."""
        self._ask_service = ask
        self._reader = reader
        self._room = asyncio.Semaphore(AT_ONCE)
        self._refused.clear()  # perhaps it was the connection

    def end(self) -> None:
        """There is none any more: questions that are open fail by themselves, and nobody joins them."""
        self._ask_service = None
        self._fetches.clear()
        self._grants.clear()

    def open(self, payload: bytes, topic: str) -> bytes:
        """The payload, if its key is here; KeysError if not, or if it is no good."""
        return open_message(payload, topic, self._chain, now=time.monotonic())

    def prepare(self, id: str) -> None:
        """Asks for a key that will be needed, if it is not here."""
        if self._chain.get(id, now=time.monotonic()) is None:
            self.wanted(id)

    def wanted(self, id: str) -> asyncio.Task[None]:
        """Is done when the key has come, and fails when it has not."""
        return self._once(self._fetches, id, self._fetch)

    def _once(
        self, tasks: dict[str, asyncio.Task[T]], name: str, work: Callable[[str], Coroutine[Any, Any, T]]
    ) -> asyncio.Task[T]:
        """The task that works for this name, however many ask for it."""

        def over(done: asyncio.Task[T]) -> None:
            if tasks.get(name) is done:
                del tasks[name]
            if not done.cancelled():
                done.exception()  # those who wait for it are told; nobody has to

        task = tasks.get(name)
        if task is None:
            task = tasks[name] = asyncio.get_running_loop().create_task(work(name))
            task.add_done_callback(over)
        return task

    async def _fetch(self, id: str) -> None:
        if self._chain.get(id, now=time.monotonic()) is not None:
            return
        if (known := self._refused.get(id)) is not None and time.monotonic() < known[1]:
            raise known[0]
        service = self._ask_service
        try:
            key = await self._ask({"keyId": id})
            if key.id != id:
                raise KeysError(f"the key {id} was asked for and the key {key.id} was given: do not trust that service")
        except KeysError as no:
            if self._ask_service is service:  # what failed with a connection says nothing of the next one
                self._refused[id] = (no, time.monotonic() + PAUSE)
            raise
        self._refused.pop(id, None)
        self._chain.put(key, now=time.monotonic())

    async def seal(self, payload: bytes, topic: str) -> tuple[bytes, bool]:
        """The sealed message, and whether its key was one that had been used before."""
        known = self._sealing.get(topic)
        if known is not None and time.monotonic() < known[1]:
            return self._sealed(known[0], payload, topic), True
        task = self._once(self._grants, topic, self._grant)
        return self._sealed(await asyncio.shield(task), payload, topic), False

    def forget_sealing(self, topic: str) -> None:
        """The key for a topic is asked for anew next time."""
        self._sealing.pop(topic, None)

    async def _grant(self, topic: str) -> TopicKey:
        asked = time.monotonic()
        given = await self._ask({"topic": topic})
        # only the service knows the group; nothing is sealed by it
        group = Group(id="", filter=topic, topic=topic)
        until = asked + given.seconds  # from the question on: it was not valid for longer than that
        key = TopicKey(
            id=given.id, group=group, secret=given.secret, made=asked, valid_until=until, readable_until=until
        )
        self._sealing[topic] = (key, until)
        return key

    async def _ask(self, question: Question) -> ReadKey:
        mark = secrets.token_urlsafe(_MARK)
        try:
            async with asyncio.timeout(self._patience), self._room:
                if self._ask_service is None:
                    raise KeysError("there is no connection to ask for the key over: connect again")
                answer = await self._ask_service({**question, "request": mark})
        except TimeoutError:
            raise KeysError(
                f"the key service gave no answer within {self._patience:g} s: try again, or have more patience"
            ) from None
        return read_key(answer, self._private, reader=self._reader, request=mark)

    @staticmethod
    def _sealed(key: TopicKey, payload: bytes, topic: str) -> bytes:
        return seal(key, payload, topic=topic, nonce=os.urandom(NONCE))
