"""Issuers' keys from an address: fetched with a configuration, which a failure refuses, and refreshed while it runs."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from harness import PATIENCE, free_port
from processes import Served, from_file, on_uvloop, until
from sockets.acts import dismissed, setting
from sockets.holding import ISSUER, Holder
from tidegate.authentication import jwks
from tidegate.authentication.outgoing_request import OutgoingRequest
from tidegate.config import load
from tidegate.errors import ConfigError
from tidegate.policy.capability import PrivateKey
from tidegate.policy.capability.jwk import jwk_of


class Keys:
    """A server that answers with whatever a test wants."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/keys?of=ward"
        self.status = 200
        self.body = b""
        self.asked: list[str] = []
        self.hold(ISSUER)

    def hold(self, *keys: PrivateKey) -> None:
        self.body = json.dumps({"keys": [jwk_of(key.public_key()) for key in keys]}).encode()

    def setting(self, **more: Any) -> str:
        return setting(capabilities={"issuers": [{"name": "ward", "jwks": self.address}]}, **more)


@pytest.fixture
def keys() -> Iterator[Keys]:
    port = free_port()
    served = Keys(port)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            self.send_response(served.status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(served.body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@on_uvloop
async def _rotated(folder: Path, keys: Keys) -> None:
    async with from_file(folder, keys.setting()) as node:
        mary = await Holder().come(node)
        newer = Ed25519PrivateKey.generate()
        keys.hold(ISSUER, newer)
        await Holder(issuer=newer).come(node, "2", expect=0x87)  # nobody has asked again yet
        await node.reload()
        await Holder(issuer=newer).come(node, "2")
        await mary.silent()
        keys.status = 503
        with pytest.raises(ConfigError, match="503"):
            await node.reload(keys.setting(explain=True))
        assert not node.node.config.explain  # the last good one stays
        await mary.silent()
        keys.status = 200
        keys.hold(newer)
        await node.reload()
        await dismissed(mary, 0x87)
    assert set(keys.asked) == {"/keys?of=ward"}


def test_keys_are_taken_up_with_the_configuration(tmp_path: Path, keys: Keys) -> None:
    _rotated(tmp_path, keys)


@on_uvloop
async def test_a_new_key_is_fetched_when_a_token_shows_it(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "PAUSE", 0.05)
    async with from_file(tmp_path, keys.setting()) as node:
        mary = await Holder().come(node)
        newer = Ed25519PrivateKey.generate()
        keys.hold(ISSUER, newer)
        before = len(keys.asked)
        await Holder(issuer=newer).come(node, "2", expect=0x87)
        await until(lambda: len(_signers(node)) == 2)
        assert len(keys.asked) == before + 1
        await Holder(issuer=newer).come(node, "2")
        await mary.silent()
        for status, body in ((503, keys.body), (200, b"no keys")):  # what cannot be had or read keeps the old ones
            keys.status, keys.body = status, body
            asked = len(keys.asked)
            await Holder(issuer=Ed25519PrivateKey.generate()).come(node, "3", expect=0x87)
            await until(lambda asked=asked: len(keys.asked) > asked)
            await Holder(issuer=newer).come(node, "4")
        await mary.silent()


@on_uvloop
async def test_old_keys_are_refreshed(tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds what only a withdrawn key has signed has to go."""
    monkeypatch.setattr(jwks, "PAUSE", 0.01)
    monkeypatch.setattr(jwks, "REFRESH", 0.05)
    async with from_file(tmp_path, keys.setting()) as node:
        mary = await Holder().come(node)
        keys.hold(newer := Ed25519PrivateKey.generate())
        await dismissed(mary, 0x87)
        await Holder(issuer=newer).come(node, "2")


@on_uvloop
async def test_tokens_cannot_make_a_node_fetch_more_often(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "PAUSE", 0.3)
    async with from_file(tmp_path, keys.setting()) as node:
        begun, before = time.monotonic(), len(keys.asked)
        for number in range(20):
            await Holder(issuer=Ed25519PrivateKey.generate()).come(node, str(number), expect=0x87)
        assert len(keys.asked) - before <= (time.monotonic() - begun) / 0.3


def _signers(node: Served) -> frozenset[tuple[str, str]]:
    accepts = node.node.authentication.accepts
    assert accepts is not None
    return accepts.issuers.signers


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, b"", "404"),
        (302, b"", "302"),
        (200, b"", "no JSON"),
        (200, b'{"keys": []}', "no key"),
        (200, b"x" * (2 << 20), "larger"),
        (200, json.dumps({"keys": [jwk_of(ISSUER.public_key())] * 9}).encode(), "at most"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, keys: Keys, status: int, body: bytes, said: str) -> None:
    keys.status, keys.body = status, body
    (tmp_path / "tidegate.yaml").write_text(keys.setting().replace("PORT", "1883"))
    config = load(tmp_path / "tidegate.yaml")  # asks nobody
    assert keys.asked == []
    with pytest.raises(ConfigError, match=said):
        jwks.accepted(config)


def test_nobody_is_there() -> None:
    with pytest.raises(ConfigError, match="refused"):
        jwks.fetch(f"http://127.0.0.1:{free_port()}/keys")


@pytest.fixture
def drip() -> Iterator[str]:
    """The address of a server whose answer never comes to an end, and is never silent."""
    over = threading.Event()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(b"HTTP/1.0 200 OK\r\nX: ")
            with contextlib.suppress(OSError):  # nobody listens any more
                while not over.wait(0.02):
                    self.request.sendall(b"x")

    server = ThreadingTCPServer(("127.0.0.1", free_port()), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/keys"
    over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_answer_that_never_ends(tmp_path: Path, drip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is waited for nobody can change anything, so it is not waited for long; and nothing is left of it."""
    monkeypatch.setattr(jwks, "ALTOGETHER", 0.3)

    @on_uvloop
    async def reloaded() -> None:
        async with from_file(tmp_path, setting()) as node:
            with pytest.raises(ConfigError, match=r"takes more than 0\.3 s"):
                await node.reload(setting(capabilities={"issuers": [{"name": "ward", "jwks": drip}]}))
            await node.reload(setting(explain=True))
            assert node.node.config.explain

    reloaded()
    for thread in threading.enumerate():
        if thread.name == "request":
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_a_failure_that_nobody_foresaw(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported as any bug in a thread, and nobody waits for an answer that cannot come."""
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    monkeypatch.setattr(OutgoingRequest, "_answer", lambda *_: 1 // 0)
    with pytest.raises(ConfigError, match="see the log"):
        jwks.fetch("http://127.0.0.1:1/keys")
    assert [each.exc_type for each in seen] == [ZeroDivisionError]


@on_uvloop
async def test_a_node_does_not_start_without_them(tmp_path: Path) -> None:
    said = {"issuers": [{"name": "ward", "jwks": f"http://127.0.0.1:{free_port()}/keys"}]}
    with pytest.raises(ConfigError, match="cannot be had"):
        async with from_file(tmp_path, setting(capabilities=said)):
            pass


def test_keys_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk_of(ISSUER.public_key())]}))
    text = setting(capabilities={"issuers": [{"name": "ward", "jwks": "keys.json"}]}).replace("PORT", "1883")
    (tmp_path / "tidegate.yaml").write_text(text)
    config = load(tmp_path / "tidegate.yaml")
    accepts = jwks.accepted(config)
    assert accepts is not None
    assert len(accepts.issuers.keys["ward"]) == 1
    before = config.built.policy_version
    other = Ed25519PrivateKey.generate()
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk_of(other.public_key())]}))
    assert load(tmp_path / "tidegate.yaml").built.policy_version != before
