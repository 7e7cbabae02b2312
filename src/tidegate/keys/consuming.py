"""For those who read protected topics with a client of their own: two functions, and a place for keys.

With paho-mqtt, say:

    chain = Keychain()

    def on_message(client, userdata, message):
        try:
            payload = open_message(message.payload, message.topic, chain, now=time.monotonic())
        except KeysError as error:
            if error.missing is None:
                raise  # changed on the way, or not protected at all: see `key_id`
            request = secrets.token_urlsafe(16)  # ask for the key error.missing, and say this
            ...

    def on_answer(answer, request):
        key = read_key(answer, private, reader="user:mary", request=request)
        chain.put(key, now=time.monotonic())

The key is asked for over HTTP or MQTT. Only one answer to a request may be taken: forget the request with it.
"""

from __future__ import annotations

from typing import Final

from tidegate.bounded import Newest
from tidegate.errors import KeysError
from tidegate.keys.pair import PrivateKey
from tidegate.keys.ring import Steady
from tidegate.keys.sealing import opened, parts
from tidegate.keys.wrapping import ReadKey, unwrap

KEYS: Final = 1024


class Keychain:
    """The keys that a reader was given, until they end. Beyond `limit` the one that came first is let go.

    `now` is from one clock, best one that is never set: `time.monotonic()`.
    """

    def __init__(self, limit: int = KEYS) -> None:
        self._clock = Steady()
        self._keys: Newest[str, tuple[bytes, float]] = Newest(limit)

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, key: ReadKey, *, now: float) -> None:
        """Keeps a key for as long as it lasts."""
        time = self._clock(now)
        for id in [id for id, (_, until) in self._keys.items() if until <= time]:
            del self._keys[id]
        self._keys[key.id] = (key.secret, time + key.seconds)

    def get(self, id: str, *, now: float) -> bytes | None:
        """The secret; None if the key has to be asked for."""
        time = self._clock(now)
        entry = self._keys.get(id)
        if entry is None:
            return None
        secret, until = entry
        if until <= time:
            del self._keys[id]
            return None
        return secret


def open_message(payload: bytes, topic: str, keys: Keychain, *, now: float) -> bytes:
    """What was published, from what was received.

    `topic` is the one the message was published under; it is the one received, unless a link or monitor changes topics.
    KeysError if it is not protected or was changed; its `missing` is the id of the key if only that is not there.
    """
    id, data = parts(payload)
    secret = keys.get(id, now=now)
    if secret is None:
        raise KeysError(f"the key {id} is not here: ask for it", missing=id)
    return opened(secret, id, data, topic=topic)


def read_key(answer: bytes | str, private: PrivateKey | str, *, reader: str, request: str) -> ReadKey:
    """The key that an answer of the key service brings.

    `private` is the one whose public key was registered, as text or PEM; `reader` the name it was registered for
    (`user:mary`); `request` the mark of the question. KeysError if the answer is for somebody or something else.
    """
    if isinstance(private, str):
        private = PrivateKey.parse(private)
    if isinstance(answer, str):
        answer = answer.encode("utf-8", "surrogatepass")  # what is no text is no JSON
    return unwrap(private, answer, reader=reader, request=request)
