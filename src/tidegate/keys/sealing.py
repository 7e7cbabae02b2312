"""Messages under a topic key: `{"keyId": …, "data": …}` (AUPS, equation 2).

`data` is the base64 (RFC 4648, with padding) of nonce (12 bytes), ciphertext and tag (16 bytes) of AES-256-GCM. The
associated data is `tidegate/seal/1`, a zero byte, the id of the key, a zero byte, and the topic under which the message
was sealed: a message that is moved to another topic, or named after another key, cannot be read.

Invariants
- Each message has one spelling of its data: other bytes for the same content are refused, as is everything else in it.
- Whatever is wrong with a message raises KeysError and nothing else.

A nonce must not be used twice with a key: take it from the system's randomness.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import a2b_base64
from typing import Final

import orjson

from tidegate.errors import KeysError
from tidegate.keys.key import SECRET, TopicKey, valid_id
from tidegate.lazy import aead, exceptions

NONCE: Final = 12
TAG: Final = 16
MAX: Final = 268_435_455
"""Bytes of a sealed message: no MQTT packet holds more. [MQTT 5, 1.5.5]"""

_PURPOSE: Final = b"tidegate/seal/1\0"
_NO_TOPIC: Final = "the topic is no UTF-8"


def seal(key: TopicKey, payload: bytes, *, topic: str, nonce: bytes) -> bytes:
    """The message that carries the payload for those who have the key."""
    if len(nonce) != NONCE:
        raise KeysError(f"a nonce has {NONCE} bytes, this one has {len(nonce)}")
    if len(payload) > MAX // 4 * 3 - 256:
        raise KeysError(f"a payload of {len(payload)} bytes fits into no packet once it is sealed")
    data = b64encode(nonce + key.cipher.encrypt(nonce, payload, _bound(key.id, topic)))
    return b'{"keyId":"%b","data":"%b"}' % (key.id.encode(), data)


def unseal(secret: bytes, message: bytes, *, topic: str) -> bytes:
    """The payload; `topic` is the one under which it was sealed. KeysError if anything was changed."""
    id, data = parts(message)
    return opened(secret, id, data, topic=topic)


def opened(secret: bytes, id: str, text: str, *, topic: str) -> bytes:
    """The same from the parts of a message."""
    if len(secret) != SECRET:
        raise KeysError(f"a topic key has {SECRET} secret bytes, this one has {len(secret)}")
    data = decoded(text)
    if data is None or len(data) < NONCE + TAG:
        raise KeysError("the data of the sealed message is no base64 of nonce, ciphertext and tag")
    try:
        return aead.AESGCM(secret).decrypt(data[:NONCE], data[NONCE:], _bound(id, topic))
    except exceptions.InvalidTag:
        raise KeysError(
            f"it was not sealed with this key {id} under this topic, or was changed since: drop it"
        ) from None


def key_id(message: bytes) -> str | None:
    """The id of the key that a message was sealed with; None if it is no sealed message. Nothing is decrypted."""
    try:
        return parts(message)[0]
    except KeysError:
        return None


def decoded(text: str) -> bytes | None:
    """From base64; None unless it is just how the same bytes would be written."""
    try:
        data = a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    return data if b64encode(data) == text.encode() else None  # the last character has bits that count for nothing


def parts(message: bytes) -> tuple[str, str]:
    """The id of the key, and the data as it is written."""
    if len(message) > MAX:
        raise KeysError(f"a message of {len(message)} bytes is more than a packet holds")
    try:
        content = orjson.loads(message)
    except orjson.JSONDecodeError:
        raise KeysError("it is no sealed message: that is JSON") from None
    if isinstance(content, dict) and len(content) == 2:
        id, data = content.get("keyId"), content.get("data")
        if isinstance(id, str) and isinstance(data, str) and valid_id(id):
            return id, data
    raise KeysError('it is no sealed message: that is {"keyId": …, "data": …}')


def _bound(id: str, topic: str) -> bytes:
    try:
        return b"%b%b\0%b" % (_PURPOSE, id.encode(), topic.encode())
    except UnicodeEncodeError:
        raise KeysError(_NO_TOPIC) from None
