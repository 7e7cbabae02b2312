"""Sealed bodies of sources: what was sealed is opened, and nothing else is."""

from __future__ import annotations

import os
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import KeysError
from tidegate.keys.source import LARGEST, SealedBody, seal_body

SECRET = bytes(range(32))
OTHER = bytes(32)
USUAL: dict[str, Any] = {"source": "s1", "audience": "node-a", "time": 1_760_000_000_000, "counter": 7}
NONCE = b"0123456789ab"


def sealed(body: bytes = b'{"t": 1}', **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(seal_body(SECRET, body, nonce=NONCE, **{**USUAL, **more}))
    return found


def opened(said: dict[str, Any], secret: bytes = SECRET, audience: str = "node-a") -> bytes:
    return SealedBody.parse(orjson.dumps(said)).opened(secret, audience=audience)


@given(
    body=st.binary(max_size=200),
    source=st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text),
    audience=st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True),
    time=st.integers(0, LARGEST),
    counter=st.integers(0, LARGEST),
    encoding=st.sampled_from(("", "gzip")),
)
def test_round_trip(body: bytes, **said: Any) -> None:
    text = seal_body(SECRET, body, nonce=os.urandom(12), content="application/x-ndjson", **said)
    found = SealedBody.parse(text)
    assert (found.source, found.time, found.counter) == (said["source"], said["time"], said["counter"])
    assert (found.content, found.encoding) == ("application/x-ndjson", said["encoding"])
    assert found.opened(SECRET, audience=said["audience"]) == body


def test_as_it_looks() -> None:
    said = sealed()
    assert said.keys() == {"NodeId", "time", "counter", "data"}
    assert said["NodeId"] == "s1"
    assert opened(said) == b'{"t": 1}'
    assert opened(sealed(b"")) == b""


@pytest.mark.parametrize(
    "change",
    [
        {"NodeId": "s2"},
        {"time": 1_760_000_000_001},
        {"counter": 8},
        {"content": "application/x-ndjson"},
        {"encoding": "gzip"},
    ],
)
def test_nothing_can_be_changed(change: dict[str, Any]) -> None:
    with pytest.raises(KeysError, match="was not sealed"):
        opened({**sealed(), **change})


def test_other_keys_and_audiences() -> None:
    with pytest.raises(KeysError, match="was not sealed"):
        opened(sealed(), OTHER)
    with pytest.raises(KeysError, match="was not sealed"):
        opened(sealed(), audience="node-b")
    with pytest.raises(KeysError, match="32 bytes"):
        opened(sealed(), b"short")


def test_names_cannot_run_into_each_other() -> None:
    said = sealed(source="s1", audience="node-a")
    with pytest.raises(KeysError, match="zero byte"):
        opened({**said, "NodeId": "s1\0node-a"}, audience="x")


@given(st.binary(max_size=80))
def test_garbage_raises_one_error(text: bytes) -> None:
    with pytest.raises(KeysError):
        SealedBody.parse(text)


@pytest.mark.parametrize(
    "change",
    [
        {"NodeId": 1},
        {"NodeId": ""},
        {"time": -1},
        {"time": True},
        {"time": 1.5},
        {"counter": "7"},
        {"counter": LARGEST + 1},
        {"data": "AAAA"},
        {"data": 7},
        {"data": "é" * 60},
        {"more": 1},
        {"content": 1},
    ],
)
def test_wrong_fields(change: dict[str, Any]) -> None:
    with pytest.raises(KeysError):
        SealedBody.parse(orjson.dumps({**sealed(), **change}))


@pytest.mark.parametrize("name", ["NodeId", "time", "counter", "data"])
def test_missing_fields(name: str) -> None:
    said = sealed()
    del said[name]
    with pytest.raises(KeysError, match="no sealed body"):
        SealedBody.parse(orjson.dumps(said))


def test_data_has_one_spelling() -> None:
    said = sealed(b"xxx")
    assert said["data"].endswith("=")
    other = said["data"].rstrip("=")
    other = other[:-1] + chr(ord(other[-1]) + 1) + "=" * (len(said["data"]) - len(other))
    with pytest.raises(KeysError):
        opened({**said, "data": other})


def test_what_cannot_be_sealed() -> None:
    with pytest.raises(KeysError, match="12 bytes"):
        seal_body(SECRET, b"", nonce=b"x", **USUAL)
    with pytest.raises(KeysError, match="between"):
        seal_body(SECRET, b"", nonce=NONCE, **{**USUAL, "counter": -1})
