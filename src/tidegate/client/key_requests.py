"""Questions for topic keys, and how they go over the client's MQTT connection.

A question is `{"keyId": …}` (to decrypt a received message) or `{"topic": …}` (to encrypt for it), with a unique mark,
`request`. Over HTTP it is the body of a request. The requester accepts one answer with that mark. Answers with another
mark, an old one or none are ignored and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidegate.client.capability_holder import CapabilityHolder
from tidegate.client.exceptions import Denied, Refused, Unreachable
from tidegate.client.http_service import HttpService
from tidegate.client.mqtt_connection import MqttConnection
from tidegate.errors import KeysError
from tidegate.policy.capability.proof import KEY
from tidegate.policy.control_topics import ANSWER, GET_KEY, PUBLISH_KEY

_MAX: Final = 8192  # bytes of an answer; the longest there is has some 2,000


Question = dict[str, str]
AskKey = Callable[[Question], Awaitable[bytes]]
"""Asks the key service: the answer to this question, for `read_key`. Denied or KeysError if no key is given."""


class MqttKeyRequester:
    """Over one connection; questions that are open when it ends fail."""

    def __init__(self, connection: MqttConnection) -> None:
        self._connection = connection
        self._open: dict[str, asyncio.Future[bytes | Denied]] = {}
        self._listening: asyncio.Task[object] | None = None
        self.ignored = 0
        """Answers that nobody waits for."""

    async def ask(self, question: Question) -> bytes:
        """The answer, however long it takes: limit the time outside."""
        mark = question["request"]
        answer: asyncio.Future[bytes | Denied] = asyncio.get_running_loop().create_future()
        self._open[mark] = answer
        try:
            await self._listen()
            where = GET_KEY if "keyId" in question else PUBLISH_KEY
            await self._connection.send(where, orjson.dumps(question), qos=1, retain=False, properties=None)
            ends: set[asyncio.Future[Any]] = {answer, self._connection.lost}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise self._connection.lost.result()
            result = answer.result()
            if isinstance(result, Denied):
                raise result
            return result
        except (Refused, Unreachable) as no:
            raise KeysError(f"the key cannot be requested: {no}") from no
        finally:
            self._open.pop(mark, None)

    def take(self, payload: bytes) -> None:
        """What came to the topic of answers."""
        content = _answer(payload)
        waiting = None if content is None else self._open.pop(str(content.get("request")), None)
        if content is None or waiting is None or waiting.done():
            self.ignored += 1
        elif "error" in content:
            waiting.set_result(_denied(content))
        else:
            waiting.set_result(payload)

    async def _listen(self) -> None:
        """Once for the connection, however many ask at once."""
        if self._listening is None or (self._listening.done() and self._listening.exception() is not None):
            subscribing = self._connection.listen([ANSWER], options=SubscribeOptions(qos=1), properties=None)
            self._listening = asyncio.get_running_loop().create_task(subscribing)
        await asyncio.shield(self._listening)


class HttpKeyRequester:
    """Over HTTP, with a token of role user, and the capability if there is one."""

    def __init__(
        self, service: HttpService, capability: str | None = None, holder: CapabilityHolder | None = None
    ) -> None:
        self._service = service
        self._capability = capability
        self._holder = holder

    async def ask(self, question: Question) -> bytes:
        headers = {} if self._capability is None else {"Tidegate-Capability": self._capability}
        if self._holder is not None:
            headers["Tidegate-Proof"] = self._holder.proof(KEY, question["request"])
        return await self._service.request("POST", "/keys/request", question, headers)


def _answer(payload: bytes) -> dict[str, Any] | None:
    if len(payload) > _MAX:
        return None
    try:
        content = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return content if isinstance(content, dict) else None


def _denied(content: dict[str, Any]) -> Denied:
    rule, problem = content.get("rule"), content.get("problem")
    return Denied(
        str(content["error"]),
        rule=rule if isinstance(rule, str) else None,
        problem=problem if isinstance(problem, str) else "denied",
    )
