"""Bodies that a source has sealed with the key it agreed on when it registered.

    {"NodeId": "s1", "time": 1760000000000, "counter": 7, "data": "…"}

`data` is the base64 (RFC 4648, with padding) of nonce (12 bytes), ciphertext and tag (16 bytes) of AES-256-GCM. What is
inside is a body as it could be sent in clear: JSON, unless `"content"` names another media type, compressed if there is
`"encoding": "gzip"`. The associated data is `tidegate/source/1`, and then, each after a zero byte: NodeId, audience
(the name of the node that it is for), time (milliseconds since 1970), counter, content and encoding (empty: none). So
nothing of it can be changed, sent to another node, or passed off as that of another source.

Each body has a counter of its own, greater than all before it under the same key; whoever takes them refuses the rest,
and those whose time is not about now. A body that was not acknowledged is sealed again, under the next counter.

Invariants
- Each body has one spelling of its data.
- Whatever is wrong with a body raises KeysError and nothing else.

A nonce must not be used twice with a key: take it from the system's randomness. Time is not read here.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tidegate.errors import KeysError
from tidegate.keys.sealing import NONCE, TAG, decoded
from tidegate.lazy import aead, exceptions

SCHEME: Final = "AES-256-GCM"
"""The only one there is."""
SECRET: Final = 32
LARGEST: Final = 2**53 - 1
"""Counters and times: JSON numbers that everybody reads alike."""
JSON: Final = "application/json"

_PURPOSE: Final = "tidegate/source/1"
_NEEDED: Final = frozenset(("NodeId", "time", "counter", "data"))
_KNOWN: Final = _NEEDED | {"content", "encoding"}
_SHAPE: Final = 'it is no sealed body: that is {"NodeId": …, "time": …, "counter": …, "data": …}'


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedBody:
    """What is said of a body before anything of it is believed."""

    source: str
    time: int
    """Milliseconds since 1970."""
    counter: int
    content: str = JSON
    encoding: str = ""
    data: bytes

    @classmethod
    def parse(cls, text: bytes) -> SealedBody:
        try:
            body = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise KeysError(_SHAPE) from None
        if not isinstance(body, dict) or not _NEEDED <= body.keys() <= _KNOWN:
            raise KeysError(_SHAPE)
        data = decoded(body["data"]) if isinstance(body["data"], str) and body["data"].isascii() else None
        if data is None or len(data) < NONCE + TAG:
            raise KeysError("the `data` of the sealed body is no base64 of nonce, ciphertext and tag")
        return cls(
            source=_text(body, "NodeId"),
            time=_number(body, "time"),
            counter=_number(body, "counter"),
            content=_text(body, "content") if "content" in body else JSON,
            encoding=_text(body, "encoding") if "encoding" in body else "",
            data=data,
        )

    def opened(self, secret: bytes, *, audience: str) -> bytes:
        """The body that is inside, if it was sealed with this key for this audience."""
        bound = _bound(self.source, audience, self.time, self.counter, self.content, self.encoding)
        try:
            return _cipher(secret).decrypt(self.data[:NONCE], self.data[NONCE:], bound)
        except exceptions.InvalidTag:
            raise KeysError(
                "it was not sealed with the key of this source for this node, or was changed since: use the key and "
                "the audience of the last registration"
            ) from None


def seal_body(
    secret: bytes,
    body: bytes,
    *,
    source: str,
    audience: str,
    time: int,
    counter: int,
    nonce: bytes,
    content: str = JSON,
    encoding: str = "",
) -> bytes:
    """What a source sends for a body; `time` is now, in milliseconds."""
    if len(nonce) != NONCE:
        raise KeysError(f"a nonce has {NONCE} bytes, this one has {len(nonce)}")
    if not (0 <= time <= LARGEST and 0 <= counter <= LARGEST):
        raise KeysError(f"time and counter are between 0 and {LARGEST}")
    sealed = nonce + _cipher(secret).encrypt(nonce, body, _bound(source, audience, time, counter, content, encoding))
    fields: dict[str, Any] = {"NodeId": source, "time": time, "counter": counter, "data": b64encode(sealed).decode()}
    if content != JSON:
        fields["content"] = content
    if encoding:
        fields["encoding"] = encoding
    return orjson.dumps(fields)


def _cipher(secret: bytes) -> aead.AESGCM:
    if len(secret) != SECRET:
        raise KeysError(f"the key of a source has {SECRET} bytes, this one has {len(secret)}")
    return aead.AESGCM(secret)


def _bound(source: str, audience: str, time: int, counter: int, content: str, encoding: str) -> bytes:
    parts = (_PURPOSE, source, audience, str(time), str(counter), content, encoding)
    if any("\0" in part for part in parts):
        raise KeysError("no name in a sealed body has a zero byte")
    try:
        return "\0".join(parts).encode()
    except UnicodeEncodeError:
        raise KeysError("a name in a sealed body is no UTF-8") from None


def _text(body: dict[str, Any], name: str) -> str:
    value = body[name]
    if not isinstance(value, str) or not value:
        raise KeysError(f"`{name}` of a sealed body is a text")
    return value


def _number(body: dict[str, Any], name: str) -> int:
    value = body[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        raise KeysError(f"`{name}` of a sealed body is a whole number from 0 to {LARGEST}")
    return value
