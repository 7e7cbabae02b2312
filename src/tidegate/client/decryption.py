"""Messages as an application gets them: opened, in order, and none of them lost.

A message whose key is not here waits for it, and the later ones of its topic wait behind it. Those of other topics do
not. Nobody waits longer than `patience` from when a message came: then it is delivered as it is, with the reason.

What is sealed may hold something sealed (a client's own seal inside the node's), so opening goes on until there is
nothing left to open. If it stops before, because a key is not given or something was changed, the message has `error`,
and `payload` is what opening had come to.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiomqtt
import orjson
from paho.mqtt.properties import Properties

from tidegate.bounded import Newest
from tidegate.client.keyring import Keyring
from tidegate.errors import KeysError
from tidegate.keys import key_id

DEPTH: Final = 4  # seals inside each other; nobody has more than two


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    topic: str
    payload: bytes
    """Opened, if it was sealed and there is no `error`."""
    sealed_by: str | None
    """The id of the key that it was sealed with on the way; None if it was not."""
    error: KeysError | None
    """Why it could not be opened: `Denied`, with the rule, if a key is not given."""
    raw: aiomqtt.Message
    """As it came."""

    @property
    def qos(self) -> int:
        return self.raw.qos

    @property
    def retain(self) -> bool:
        return self.raw.retain

    @property
    def properties(self) -> Properties | None:
        """Those of MQTT 5, as paho-mqtt has them."""
        return self.raw.properties

    @property
    def floor(self) -> str | None:
        """The lowest level on its way, as the node tells it (MQTT 5)."""
        return self._said("floor")

    @property
    def scores(self) -> dict[str, float] | None:
        """What the data pipeline says of its quality, by dimension; None if it is none of the pipeline (MQTT 5)."""
        text = self._said("scores")
        try:
            scores = None if text is None else orjson.loads(text)
        except orjson.JSONDecodeError:
            return None  # of a broker that lets everybody say so
        return scores if isinstance(scores, dict) else None

    @property
    def id(self) -> str | None:
        """Of a message of the data pipeline, the same however often it is published; None of any other (MQTT 5)."""
        return None if self.scores is None else self._said("id")

    def _said(self, wanted: str) -> str | None:
        pairs = getattr(self.raw.properties, "UserProperty", None) or ()
        return next((value for name, value in pairs if name == wanted), None)


@dataclass(slots=True)
class _Waiting:
    raw: aiomqtt.Message
    payload: bytes
    id: str | None
    """Of the key that it needs next; None if there is nothing left to open."""
    sealed_by: str | None
    until: float
    layers: int = 0


class Decrypter:
    """Takes messages as they come and hands them on with `deliver`. Without keys it opens none."""

    def __init__(self, keys: Keyring | None, deliver: Callable[[Message], None], *, patience: float) -> None:
        self._keys = keys
        self._deliver = deliver
        self._patience = patience
        self._queues: dict[str, deque[_Waiting]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def take(self, raw: aiomqtt.Message) -> None:
        topic = str(raw.topic)
        payload = bytes(raw.payload)
        id = _key_id(payload)
        message = _Waiting(raw, payload, id, id, time.monotonic() + self._patience)
        queue = self._queues.get(topic)
        if queue is not None:
            queue.append(message)
            if id is not None and self._keys is not None:
                self._keys.prepare(id)  # while it waits for its turn
            return
        error = self._open(message, topic)
        if error is not None and error.missing is not None and self._keys is not None:
            self._queues[topic] = deque([message])
            task = asyncio.get_running_loop().create_task(self._work(topic, self._keys))
            self._tasks[topic] = task
            task.add_done_callback(lambda done: self._worked(topic, done))
        else:
            self._hand_on(message, topic, error)

    def give_up(self, why: KeysError) -> None:
        """Whatever waits is delivered as it is: no key will come any more."""
        tasks, queues = list(self._tasks.values()), dict(self._queues)
        self._tasks.clear()
        self._queues.clear()
        for task in tasks:
            task.cancel()
        for topic, queue in queues.items():
            for message in queue:
                error = self._open(message, topic)
                self._hand_on(message, topic, why if error is not None and error.missing is not None else error)

    async def _work(self, topic: str, keys: Keyring) -> None:
        queue = self._queues[topic]
        while queue:
            error = await self._opened(queue[0], topic, keys)
            self._hand_on(queue.popleft(), topic, error)
        del self._queues[topic]

    def _worked(self, topic: str, done: asyncio.Task[None]) -> None:
        if self._tasks.get(topic) is done:
            del self._tasks[topic]
        if not done.cancelled() and (bug := done.exception()) is not None:
            raise bug  # the loop says so

    async def _opened(self, message: _Waiting, topic: str, keys: Keyring) -> KeysError | None:
        """Once it is open, or cannot be."""
        while True:
            error = self._open(message, topic)
            if error is None or error.missing is None:
                return error
            left = message.until - time.monotonic()
            if left <= 0:
                return KeysError(
                    f"the key {error.missing} did not come within {self._patience:g} s", missing=error.missing
                )
            try:
                asked = keys.wanted(error.missing)
                await asyncio.wait({asked}, timeout=left)
                if asked.done():
                    asked.result()
            except KeysError as no:
                return no

    def _open(self, message: _Waiting, topic: str) -> KeysError | None:
        """As far as the keys that are here go; why it goes no further, if it does not."""
        while message.id is not None:
            if self._keys is None:
                return KeysError(f"it is sealed with the key {message.id}, and this client has no private key")
            if message.layers == DEPTH:
                return KeysError(f"there are more than {DEPTH} seals inside each other")
            try:
                message.payload = self._keys.open(message.payload, topic)
            except KeysError as no:
                return no
            message.layers += 1
            message.id = _key_id(message.payload)
        return None

    def _hand_on(self, message: _Waiting, topic: str, error: KeysError | None) -> None:
        self._deliver(
            Message(topic=topic, payload=message.payload, sealed_by=message.sealed_by, error=error, raw=message.raw)
        )


def _key_id(payload: bytes) -> str | None:
    # most messages are not sealed: they are not parsed to find that out
    return key_id(payload) if b'"keyId"' in payload else None


class Deduplicator:
    """Remembers the last `most` messages of the data pipeline, so that what it publishes again is delivered once.

    Each of its messages has an id, in the user property `id`, that is the same whenever it is published. That it is one
    of the pipeline is told by the user property `scores`, which nobody else can send through a Tidegate node: an
    application's own `id` means nothing here.

    - The same id counts by topic, and by subscription where these have identifiers: a monitor may send one message to
      several topics, and overlapping subscriptions may each be meant.
    - A retained message is always delivered: who subscribes again wants to know what is there now.
    - One that could not be opened is delivered and not remembered, for the next copy may be.
    - What was delivered before the last so many ids is forgotten, and nothing survives the process.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: Newest[tuple[str, str, tuple[int, ...]], None] = Newest(most)

    def again(self, message: Message) -> bool:
        """Whether it was delivered already; from now on it was."""
        id = message.id
        if id is None or message.error is not None or not self._most:
            return False
        subscriptions = tuple(getattr(message.properties, "SubscriptionIdentifier", None) or ())
        key = (message.topic, id, subscriptions)
        known = key in self._keys
        if not known:
            self._keys[key] = None
        return known and not message.retain
