"""The players of the weather station: sensors over MQTT and over HTTP, readers that open what is sealed, and the web.

Nothing here is special to the example: `Sealed` shows all that a device needs to send sealed data, `Reader` all that an
MQTT client needs to read protected topics.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from playing import PATIENCE, Player, Received, Trouble

from tidegate.client import Keychain, KeysError, PrivateKey, key_id, open_message, read_key
from tidegate.keys.source import seal_body

ANSWER = "$tidegate/keys/answer"
GET = "$tidegate/keys/get"


class Web:
    """Somebody with a token, at the HTTP address of the node. Connects for each question: pauses may be long."""

    def __init__(self, url: str, token: str) -> None:
        self._place = urlsplit(url).netloc
        self._token = token

    def ask(
        self, method: str, path: str, body: object = None, *, kind: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        """Status and answer. A body that is bytes is sent as it is."""
        said = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, **headers}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        with closing(http.client.HTTPConnection(self._place, timeout=PATIENCE)) as connection:
            connection.request(method, path, data, said)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def made(self, path: str, body: object) -> Any:
        """What was made there."""
        status, answer = self.ask("POST", path, body)
        if status != 201:
            raise Trouble(f"POST {path}: {status} {answer}")
        return answer


def admin_token(config: Path) -> str:
    """A token of an administrator, which the user that runs the node can make: `tidegate token make --socket`."""
    command = [str(Path(sys.executable).with_name("tidegate")), "token", "make", "--socket", "-c", str(config)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


# -- sensors -----------------------------------------------------------------------------------------------------------


class Sensor(Protocol):
    """Something that measures."""

    name: str
    topic: str
    over: str

    def send(self, record: Mapping[str, Any]) -> str:
        """What the node answers."""
        ...


class OverMqtt:
    """A sensor with an MQTT client."""

    over = "MQTT"

    def __init__(self, name: str, kind: str, player: Player) -> None:
        self.name = name
        self.topic = f"campodenno/{name}/{kind}"
        self.player = player

    def send(self, record: Mapping[str, Any]) -> str:
        code = self.player.publish(self.topic, json.dumps(record).encode())
        return f"0x{code:02X}" if code >= 0x80 else "ok"


class OverHttp:
    """A sensor that posts its data, with the token of its registration."""

    over = "HTTP"

    def __init__(self, name: str, kind: str, url: str, registered: Mapping[str, Any]) -> None:
        self.name = name
        self.topic = f"campodenno/{name}/{kind}"
        self._web = Web(url, registered["token"])

    def send(self, record: Mapping[str, Any]) -> str:
        return self.post(json.dumps(record).encode())

    def post(self, body: bytes, kind: str = "application/json") -> str:
        status, answer = self._web.ask("POST", "/data", body, kind=kind)
        return str(status) if status == 202 else f"{status}: {answer['detail']}"


class Sealed(OverHttp):
    """The same, with the encryption scheme that it agreed on: nobody between it and the node can read or repeat it."""

    over = "HTTP, sealed"

    def __init__(self, name: str, kind: str, url: str, registered: Mapping[str, Any]) -> None:
        super().__init__(name, kind, url, registered)
        self._key, self._audience = b64decode(registered["key"]), registered["audience"]
        self._counter = 0
        self.sent = b""  # the last body

    def send(self, record: Mapping[str, Any]) -> str:
        self._counter += 1
        self.sent = seal_body(
            self._key,
            json.dumps(record).encode(),
            source=self.name,
            audience=self._audience,
            time=int(time.time() * 1000),
            counter=self._counter,
            nonce=os.urandom(12),
        )
        return self.again()

    def again(self) -> str:
        """The last body once more, as somebody on the wire could."""
        return self.post(self.sent, "application/tidegate+sealed")


# -- readers -----------------------------------------------------------------------------------------------------------


class Reader(Player):
    """A user who subscribes, and asks for the keys of what comes. Keeps what was sealed in `taken`."""

    def __init__(self, name: str, *, port: int, password: str, private: PrivateKey, client: str | None = None) -> None:
        super().__init__(name, port=port, password=password, client=client)
        self.keys = Keychain()
        self.taken: dict[str, bytes] = {}  # topic -> the last sealed message
        self.answer = b""  # the last one to a request for a key
        self.mark = ""
        self.private = private
        self._reader = f"user:{name}"
        self._aside: list[Received] = []  # came while a key was asked for
        if self.subscribe(ANSWER) >= 0x80:
            raise Trouble(f"{name} cannot subscribe to answers")

    def received(self) -> list[Received]:
        """What came since the last time, opened; what cannot be opened, with the reason instead of the content."""
        found = [self.opened(message) for message in super().received()]
        while self._aside:
            found.append(self.opened(self._aside.pop(0)))
        return found

    def opened(self, message: Received) -> Received:
        self.taken[message.topic] = message.payload
        try:
            try:
                payload = open_message(message.payload, message.topic, self.keys, now=time.monotonic())
            except KeysError as error:
                if error.missing is None:
                    raise
                refused = self.asks(error.missing)
                if refused:
                    return replace(message, payload=refused.encode())
                payload = open_message(message.payload, message.topic, self.keys, now=time.monotonic())
        except KeysError as error:
            return replace(message, payload=str(error).encode())
        return replace(message, payload=payload)

    def asks(self, id: str) -> str:
        """Asks for a key over MQTT. Empty: it is in the keychain; otherwise why it is not given."""
        self.mark = secrets.token_urlsafe(16)  # a new one for each question
        self.publish(GET, json.dumps({"keyId": id, "request": self.mark}).encode())
        while (answer := self.next()).topic != ANSWER:
            self._aside.append(answer)
        return self.reads(answer.payload)

    def reads(self, answer: bytes) -> str:
        """The same for an answer, also one that came over HTTP."""
        said = json.loads(answer)
        if "error" in said:
            return str(said["error"])
        self.answer = answer
        self.keys.put(read_key(answer, self.private, reader=self._reader, request=self.mark), now=time.monotonic())
        return ""

    def asks_web(self, web: Web, id: str) -> str:
        """Asks for a key over HTTP."""
        self.mark = secrets.token_urlsafe(16)
        status, answer = web.ask("GET", f"/keys/{quote(id)}?request={self.mark}")
        if status != 200:
            return f"{status}: {answer['detail']}"
        return self.reads(json.dumps(answer).encode())


def id_of(message: bytes) -> str:
    """The id of the key that a message was sealed with."""
    found = key_id(message)
    if found is None:
        raise Trouble(f"it is not sealed: {message!r}")
    return found
