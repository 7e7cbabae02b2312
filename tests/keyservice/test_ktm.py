"""The key service as it runs: a process with mutual TLS, nodes that share keys over it, and those it must not hear."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from harness import PATIENCE, free_port
from processes import TIDEGATE, File, Process, on_uvloop, until
from tidegate.cli import certificates
from tidegate.config.address import Address, Scheme
from tidegate.config.keys import Ktm
from tidegate.config.ktm import load_ktm
from tidegate.errors import KeysError, StoreError
from tidegate.keys import Group, Kem, MasterKeySet, PrivateKey, TopicKey, new_master, read_key
from tidegate.keyservice.ktm import KtmExchange, frames, service
from tidegate.keyservice.ktm.frames import Op
from tidegate.keyservice.ktm.key_store import OWN, KeyStore
from tidegate.keyservice.ktm.service import Service

GROUP = Group.of(filter="key_set/#", conditions=["c"], topic="key_set/1", context=b"witness")
REQUEST = "request-0123456789"
MARY = PrivateKey.generate(os.urandom)
TEXT = """
ktm:
  listen: "tls://127.0.0.1:PORT"
  cert: certs/ktm.pem
  key: certs/ktm.key
  client_ca: certs/ca.pem
  accept: ["CN=node-a", "CN=node-b"]
data: keys
log: {format: json, level: info}
"""


def make(id: str, *, lasts: float = 60.0) -> TopicKey:
    now = time.time()
    return TopicKey(
        id=id, group=GROUP, secret=os.urandom(32), made=now, valid_until=now + lasts / 2, readable_until=now + lasts
    )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a service, of nodes, and of those who are none."""
    folder = tmp_path_factory.mktemp("certs")
    certificates.make_ca(folder, "CA", 10)
    certificates.issue(folder, "ktm", ["127.0.0.1"], client=False, days=5)
    for name in ("node-a", "node-b", "eve"):
        certificates.issue(folder, name, [], client=True, days=5)
    expired(folder, "node-a", folder / "late.pem", folder / "late.key")
    return folder


def expired(folder: Path, name: str, cert: Path, key: Path) -> None:
    """A certificate of the authority that ended yesterday."""
    ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    own = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(ca.subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=9))
        .not_valid_after(now - timedelta(days=1))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


class Running(Process):
    """`tidegate ktm -c FILE`."""

    def __init__(self, file: File) -> None:
        self._begin(file)

    def _begin(self, file: File) -> None:
        self.file, self.ports = file, file.ports
        number = len(list(file.folder.glob("stderr-*.log"))) + 1
        self.stderr = file.folder / f"stderr-{number}.log"
        self._stream = self.stderr.open("wb")
        self.popen = subprocess.Popen(
            [TIDEGATE, "ktm", "-c", str(file.path)],
            stdin=subprocess.DEVNULL,
            stdout=self._stream,
            stderr=self._stream,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    @property
    def port(self) -> int:
        return self.ports["PORT"]

    def again(self) -> None:
        """After it was killed."""
        self._stream.close()
        self._begin(self.file)
        self.wait_for("ready", seconds=30)

    def reasons(self) -> list[str]:
        return [line["reason"] for line in self.events("refused")]


@contextlib.contextmanager
def ktm(tmp_path: Path, authority: Path, text: str = TEXT) -> Iterator[Running]:
    (tmp_path / "certs").mkdir()
    for path in authority.iterdir():
        (tmp_path / "certs" / path.name).write_bytes(path.read_bytes())
    running = Running(File(tmp_path, text))
    try:
        running.wait_for("ready", seconds=30)
        yield running
    except BaseException:
        running.kill()
        raise
    assert running.stop() == 0, running.stderr.read_text()
    running.check()
    assert running.events("stopped")


def reach(port: int, folder: Path, name: str = "node-a", ca: Path | None = None) -> Ktm:
    return Ktm(
        url=Address(scheme=Scheme.TLS, host="127.0.0.1", port=port),
        cert=folder / f"{name}.pem",
        key=folder / f"{name}.key",
        ca=ca or folder / "ca.pem",
    )


class Side:
    """A node: its exchange, and what it was told."""

    def __init__(self, where: Ktm) -> None:
        self.exchange = KtmExchange(where)
        self.keys: dict[str, TopicKey] = {}
        self.revoked: list[str] = []

    def took(self, keys: Sequence[TopicKey], revoked: Collection[str]) -> None:
        self.keys |= {key.id: key for key in keys}
        self.revoked += revoked

    async def has(self, *ids: str) -> None:
        await until(lambda: set(ids) <= self.keys.keys(), 20)

    async def connected(self) -> None:
        await until(lambda: self.exchange.trouble is None, 20)

    async def stored(self) -> None:
        """Until everything is acknowledged."""
        await until(lambda: not self.exchange._waiting, 20)


@contextlib.asynccontextmanager
async def side(port: int, folder: Path, name: str = "node-a", *, wait: bool = True) -> AsyncIterator[Side]:
    made = Side(reach(port, folder, name))
    made.exchange.start(made.took)
    try:
        if wait:
            await made.connected()
        yield made
    finally:
        await made.exchange.close()


@on_uvloop
async def test_a_node_whose_certificate_is_revoked(tmp_path: Path, authority: Path) -> None:
    certificates.revoke(authority, [], days=2)
    text = TEXT.replace("client_ca: certs/ca.pem", "client_ca: certs/ca.pem\n  crl: certs/ca.crl")
    with ktm(tmp_path, authority, text) as running:
        certs = tmp_path / "certs"
        async with side(running.port, authority) as a, side(running.port, authority, "node-b") as b:
            certificates.revoke(certs, [certs / "node-a.pem"], days=2)  # the file is watched
            await until(lambda: any("revoked" in reason for reason in running.reasons()), 20)
            await until(lambda: a.exchange.trouble is not None, 20)
            with pytest.raises(StoreError):
                await a.exchange.find("k")
            b.exchange.put(make("k"))
            await b.stored()
            assert await b.exchange.find("k") is not None
        before = len(running.reasons())
        async with side(running.port, authority, wait=False) as a:
            await until(lambda: len(running.reasons()) > before, 20)
            assert a.exchange.trouble is not None


# -- sharing -------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_nodes_share_keys_and_revocations(tmp_path: Path, authority: Path) -> None:
    with ktm(tmp_path, authority) as running:
        port = running.port
        async with side(port, authority) as a, side(port, authority, "node-b") as b:
            key = make("k1")
            a.exchange.put(key)
            await b.has("k1")
            assert b.keys["k1"] == key
            assert b.keys["k1"].group.context == b"witness"
            assert a.keys == {}
            assert await b.exchange.find("k1") == key
            assert await b.exchange.find("k2") is None
            assert await b.exchange.find("not an id/") is None
            for number in range(200):
                b.exchange.put(make(f"b{number}"))
            await a.has(*(f"b{number}" for number in range(200)))
            b.exchange.revoke(["k1"])
            await until(lambda: a.revoked == ["k1"])
            assert await a.exchange.find("k1") is None
            async with side(port, authority) as c:
                await c.has(*(f"b{number}" for number in range(200)))
                assert "k1" not in c.keys
                await until(lambda: c.revoked == ["k1"])
        assert {line["node"] for line in running.events("a node is connected")} == {"CN=node-a", "CN=node-b"}


@on_uvloop
async def test_a_service_that_is_killed_loses_nothing(tmp_path: Path, authority: Path) -> None:
    with ktm(tmp_path, authority) as running:
        async with side(running.port, authority) as a, side(running.port, authority, "node-b") as b:
            a.exchange.put(make("before"))
            a.exchange.put(make("gone"))
            await b.has("before", "gone")
            granted, own = await a.exchange.grant(GROUP, MARY.public, reader="user:mary", request=REQUEST)
            running.popen.kill()  # in the middle of whatever it does
            running.popen.wait()
            await until(lambda: a.exchange.trouble is not None)
            began = time.monotonic()
            for number in range(100):
                a.exchange.put(make(f"k{number}"))
            a.exchange.revoke(["gone"])
            with pytest.raises(StoreError, match="key service"):
                await a.exchange.find("k1")
            assert time.monotonic() - began < PATIENCE
            running.again()
            await a.connected()
            await b.has(*(f"k{number}" for number in range(100)))
            await until(lambda: "gone" in b.revoked)
            assert await b.exchange.find("before") is not None
            assert await b.exchange.find("gone") is None
            read = read_key(granted, MARY, reader="user:mary", request=REQUEST)
            answer = await b.exchange.wrap(own, MARY.public, reader="user:mary", request=REQUEST)
            assert answer is not None
            assert read_key(answer, MARY, reader="user:mary", request=REQUEST).secret == read.secret


@on_uvloop
async def test_killed_while_keys_come_everything_acknowledged_is_there(tmp_path: Path, authority: Path) -> None:
    with ktm(tmp_path, authority) as running:
        async with side(running.port, authority) as a:
            for round in range(3):
                for number in range(60):
                    a.exchange.put(make(f"r{round}-{number}"))
                await until(lambda: len(a.exchange._waiting.puts) < 40)
                running.popen.kill()
                running.popen.wait()
                running.again()
            await a.connected()
            await a.stored()
            async with side(running.port, authority, "node-b") as b:
                await b.has(*(f"r{round}-{number}" for round in range(3) for number in range(60)))


@on_uvloop
async def test_a_node_that_starts_before_the_service_waits_for_it(tmp_path: Path, authority: Path) -> None:
    port = free_port()
    async with side(port, authority, wait=False) as a:
        a.exchange.put(make("k1"))
        with pytest.raises(StoreError):
            await a.exchange.find("k1")
        with ktm(tmp_path, authority, TEXT.replace("PORT", str(port))):
            await a.stored()
            assert await a.exchange.find("k1") is not None


# -- those who are refused -------------------------------------------------------------------------------------------


def client(folder: Path, name: str | None, ca: Path, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = version
    context.load_verify_locations(ca)
    if name is not None:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


async def knock(port: int, data: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """What a stranger is answered until it is sent away."""
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            try:
                writer.write(data)
                return await reader.read(-1)
            finally:
                writer.transport.abort()
    except OSError:
        return b""


@on_uvloop
async def test_strangers_are_refused_with_a_line_and_disturb_nobody(tmp_path: Path, authority: Path) -> None:
    other = tmp_path / "other"
    certificates.make_ca(other, "Other CA", 10)
    certificates.issue(other, "node-a", [], client=True, days=5)
    ca = authority / "ca.pem"
    with ktm(tmp_path, authority) as running:
        port = running.port
        async with side(port, authority) as a, side(port, authority, "node-b") as b:
            cases: list[tuple[bytes, ssl.SSLContext | None, str]] = [
                (b"GET / HTTP/1.1\r\n\r\n", None, "it speaks HTTP"),
                (os.urandom(64), None, "TLS"),
                (frames.hello(), client(other, "node-a", ca), "unable to get local issuer certificate"),
                (frames.hello(), client(authority, None, ca), "it showed no certificate"),
                (frames.hello(), client(authority, "late", ca), "certificate has expired"),
                (frames.hello(), client(authority, "node-a", ca, ssl.TLSVersion.TLSv1_2), "TLS 1.3"),
                (frames.hello(), client(authority, "eve", ca), "CN=eve is not listed in `accept`"),
                (b"\xff" * 100, client(authority, "node-a", ca), "a frame of 4294967295 bytes"),
                (frames.frame(["mqtt", 5]), client(authority, "node-a", ca), "does not speak the protocol"),
                (frames.frame(["tidegate-ktm", [9]]), client(authority, "node-a", ca), "version 1"),
            ]
            for number, (data, context, reason) in enumerate(cases, 1):
                await knock(port, data, context)
                await until(lambda count=number: len(running.reasons()) == count)  # type: ignore[misc]
                assert reason in running.reasons()[-1], (reason, running.reasons()[-1])
            welcome = await knock(port, frames.hello(), client(authority, "eve", ca))
            assert b"CN=eve is not listed" in welcome
            hostile = frames.hello() + frames.frame([1, "put", {"key": [b"\x01\xa0", b"short"]}])
            await knock(port, hostile, client(authority, "node-a", ca))
            await until(lambda: len(running.events("a node was sent away")) == 1)
            a.exchange.put(make("k1"))
            await b.has("k1")
            assert a.exchange.trouble is b.exchange.trouble is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("eve", "CN=eve is not listed"),
        ("late", "does not accept the certificate"),
        ("missing", "cannot load the certificate"),
    ],
)
@on_uvloop
async def test_a_node_that_is_refused_says_why(tmp_path: Path, authority: Path, name: str, reason: str) -> None:
    with ktm(tmp_path, authority) as running:
        async with side(running.port, authority, name, wait=False) as a:
            await until(lambda: reason in (a.exchange.trouble or ""))


@on_uvloop
async def test_a_node_speaks_to_no_other_service(tmp_path: Path, authority: Path) -> None:
    other = tmp_path / "other"
    certificates.make_ca(other, "Other CA", 10)
    with ktm(tmp_path, authority) as running:
        a = Side(reach(running.port, authority, ca=other / "ca.pem"))
        a.exchange.start(a.took)
        try:
            await until(lambda: "its certificate is not accepted" in (a.exchange.trouble or ""))
        finally:
            await a.exchange.close()


# -- signals -------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_sighup_takes_up_certificates_and_whom_to_accept(tmp_path: Path, authority: Path) -> None:
    with ktm(tmp_path, authority) as running:
        port, certs = running.port, tmp_path / "certs"
        async with side(port, authority) as a, side(port, authority, "node-b") as b:
            certificates.make_ca(certs, "New CA", 10, force=True)
            certificates.issue(certs, "ktm", ["127.0.0.1"], client=False, days=5, force=True)
            certificates.issue(certs, "node-a", [], client=True, days=5, force=True)
            running.file.write(TEXT.replace(', "CN=node-b"', ""))
            running.popen.send_signal(signal.SIGHUP)
            running.wait_for("reloaded")
            await until(lambda: b.exchange.trouble is not None)
            assert a.exchange.trouble is None  # it stays, and shows its certificate the next time
            async with side(port, certs) as c:
                a.exchange.put(make("k1"))
                await c.has("k1")


@on_uvloop
async def test_a_broken_file_changes_nothing(tmp_path: Path, authority: Path) -> None:
    with ktm(tmp_path, authority) as running:
        async with side(running.port, authority) as a:
            running.file.write("ktm: {listen: 5}")
            running.popen.send_signal(signal.SIGHUP)
            line = running.wait_for("reload refused, everything stays as it is")
            assert "`ktm.listen` must be a URL" in line["reason"]
            running.file.write(TEXT.replace("data: keys", "data: elsewhere"))
            running.popen.send_signal(signal.SIGHUP)
            line = running.wait_for("reload refused, everything stays as it is", 2)
            assert "`data` cannot change" in line["reason"]
            a.exchange.put(make("k1"))
            await a.stored()
        running.check = lambda *allowed: None  # type: ignore[method-assign]


@on_uvloop
async def test_the_master_key_of_the_service_changes_while_it_runs(tmp_path: Path, authority: Path) -> None:
    old, new = new_master(os.urandom), new_master(os.urandom)
    master = tmp_path / "m.key"
    master.write_text(old)
    master.chmod(0o600)
    with ktm(tmp_path, authority, TEXT + "master_key: {file: m.key}\n") as running:
        async with side(running.port, authority) as a:
            for number in range(50):
                a.exchange.put(make(f"k{number}"))
            await a.stored()
            _, own = await a.exchange.grant(GROUP, MARY.public, reader="user:mary", request=REQUEST)
            master.write_text(f"{new}\n{old}\n")
            running.popen.send_signal(signal.SIGHUP)
            running.wait_for("reloaded")
            a.exchange.put(make("meanwhile"))
            await until(
                lambda: (
                    [line["renewed"] for line in running.events("all secrets are under the first master key")]
                    == [0, 0, 50, 1]
                )
            )
            await a.stored()
            master.write_text(new)
            running.popen.kill()
            running.popen.wait()
            running.again()
            async with side(running.port, authority, "node-b") as b:
                await b.has("meanwhile", *(f"k{number}" for number in range(50)))
                assert await b.exchange.group(own) is not None


# -- keys that no node sees ----------------------------------------------------------------------------------------


class Raw:
    """A node that speaks frames, and keeps every byte that it receives."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.received = b""
        self._number = 0

    async def frame(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readexactly(4)
            data = await self.reader.readexactly(int.from_bytes(head, "big"))
        self.received += head + data
        return frames.content(data)

    async def ask(self, op: Op, **said: Any) -> Any:
        self._number += 1
        self.writer.write(frames.request(self._number, op, said))
        while (found := await self.frame())[0] == 0:
            pass
        assert found[:2] == [self._number, True], found
        return found[2]


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, authority: Path, text: str = TEXT) -> AsyncIterator[tuple[Service, KeyStore]]:
    """The service on this loop."""
    (tmp_path / "certs").symlink_to(authority)
    config = load_ktm(File(tmp_path, text).path)
    key_store = KeyStore(config)
    await key_store.open(config)
    made = Service(config, key_store)
    made.start()
    try:
        yield made, key_store
    finally:
        await made.close()
        await key_store.close()


@contextlib.asynccontextmanager
async def raw(port: int, authority: Path, name: str = "node-a") -> AsyncIterator[Raw]:
    context = client(authority, name, authority / "ca.pem")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    made = Raw(reader, writer)
    try:
        writer.write(frames.hello())
        frames.read_welcome(await made.frame())
        yield made
    finally:
        writer.transport.abort()


@on_uvloop
async def test_readers_get_keys_whose_secret_no_node_sees(tmp_path: Path, authority: Path) -> None:
    async with serving(tmp_path, authority) as (made, _), side(made.port, authority) as a:
        hybrid = PrivateKey.generate(os.urandom, Kem.HYBRID)
        answer, id = await a.exchange.grant(GROUP, MARY.public, reader="user:mary", request=REQUEST)
        read = read_key(answer, MARY, reader="user:mary", request=REQUEST)
        assert read.id == id
        assert 0 < read.seconds <= 300  # for as long as it may seal
        again, same = await a.exchange.grant(GROUP, hybrid.public, reader="user:john", request=REQUEST)
        assert same == id
        assert read_key(again, hybrid, reader="user:john", request=REQUEST).secret == read.secret
        async with side(made.port, authority, "node-b") as b:
            wrapped = await b.exchange.wrap(id, MARY.public, reader="user:mary", request=REQUEST)
            assert wrapped is not None
            found = read_key(wrapped, MARY, reader="user:mary", request=REQUEST)
            assert found.secret == read.secret
            assert 300 < found.seconds <= 3900  # for as long as it can be read with
            group = await b.exchange.group(id)
            assert group is not None
            assert asdict(group) == asdict(GROUP)
            assert await b.exchange.find(id) is None
            assert await b.exchange.wrap("unknown", MARY.public, reader="user:mary", request=REQUEST) is None
            assert await b.exchange.group("unknown") is None
            with pytest.raises(KeysError, match="16 to 128"):
                await b.exchange.wrap(id, MARY.public, reader="user:mary", request="short")
            b.exchange.revoke([id])
            await until(lambda: a.revoked == [id])
            assert await a.exchange.wrap(id, MARY.public, reader="user:mary", request=REQUEST) is None
            assert await a.exchange.group(id) is None
            _, other = await a.exchange.grant(GROUP, MARY.public, reader="user:mary", request=REQUEST)
            assert other != id
            assert a.keys == b.keys == {}


@on_uvloop
async def test_at_the_level_of_frames_no_secret_crosses(tmp_path: Path, authority: Path) -> None:
    async with serving(tmp_path, authority) as (made, key_store), raw(made.port, authority) as node:
        said = {"public": str(MARY.public), "reader": "user:mary", "request": REQUEST}
        answer, id = await node.ask(Op.GRANT, group=asdict(GROUP), **said)
        secret = read_key(answer, MARY, reader="user:mary", request=REQUEST).secret
        assert await node.ask(Op.WRAP, id=id, **said) is not None
        assert await node.ask(Op.GROUP, id=id) is not None
        assert await node.ask(Op.FIND, id=id) is None
        await node.ask(Op.WATCH)
        async with raw(made.port, authority, "node-b") as other:
            await other.ask(Op.PUT, key=frames.packed(make("k1")))
        told = frames.read_reply(await node.frame())
        assert isinstance(told, frames.Told)
        assert [key.id for key in told.keys] == ["k1"]
        kept = key_store._ring.find(id, time.time())
        assert kept is not None
        assert kept.secret == secret
        assert secret not in node.received
        assert secret not in (tmp_path / "keys" / "ktm.db").read_bytes()


@on_uvloop
async def test_frames_that_are_sent_again_do_no_harm(tmp_path: Path, authority: Path) -> None:
    async with (
        serving(tmp_path, authority) as (made, key_store),
        side(made.port, authority, "node-b") as b,
        raw(made.port, authority) as node,
    ):
        key = make("k1")
        assert await node.ask(Op.PUT, key=frames.packed(key)) is True
        assert await node.ask(Op.PUT, key=frames.packed(key)) is True
        await node.ask(Op.PUT, key=frames.packed(make("k1")))  # another one of the same name
        assert await b.exchange.find("k1") == key
        await node.ask(Op.REVOKE, ids=["k1"])
        await node.ask(Op.REVOKE, ids=["k1"])
        assert await node.ask(Op.PUT, key=frames.packed(key)) is False
        assert await b.exchange.find("k1") is None
        await until(lambda: "k1" in b.revoked)
        assert len(await key_store.shared()) == 0


@on_uvloop
async def test_a_revocation_counts_for_who_puts_the_key_later_and_after_a_restart(
    tmp_path: Path, authority: Path
) -> None:
    key = make("k1")
    async with serving(tmp_path, authority) as (made, _), side(made.port, authority) as a:
        a.exchange.revoke(["k1"])
        await a.stored()
    (tmp_path / "certs").unlink()
    async with serving(tmp_path, authority) as (made, _), side(made.port, authority) as a:
        a.revoked.clear()
        a.exchange.put(key)
        await until(lambda: "k1" in a.revoked)
        assert await a.exchange.find("k1") is None


# -- those who are slow --------------------------------------------------------------------------------------------


@on_uvloop
async def test_slow_peers_are_sent_away_and_others_do_not_wait(
    tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HANDSHAKE", "HELLO", "WHOLE", "SLOW"):
        monkeypatch.setattr(service, name, 0.3)
    async with (
        serving(tmp_path, authority) as (made, _),
        side(made.port, authority) as a,
        side(made.port, authority, "node-b") as b,
    ):
        silent = socket.create_connection(("127.0.0.1", made.port))  # no handshake
        context = client(authority, "node-a", authority / "ca.pem")
        _, mute = await asyncio.open_connection("127.0.0.1", made.port, ssl=context)  # no hello
        async with raw(made.port, authority) as half, raw(made.port, authority) as deaf:
            half.writer.write(frames.request(1, Op.PING, {})[:3])
            await deaf.ask(Op.WATCH)
            deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
            assert len(made.peers) == 4
            context = b"x" * 60_000
            number = 0
            async with asyncio.timeout(30):
                while len(made.peers) > 2:
                    number += 1
                    big = Group.of(filter="t/#", conditions=["c"], context=context)
                    now = time.time()
                    a.exchange.put(
                        TopicKey(
                            id=f"big{number}",
                            group=big,
                            secret=os.urandom(32),
                            made=now,
                            valid_until=now + 60,
                            readable_until=now + 60,
                        )
                    )
                    await b.has(f"big{number}")  # at once, whoever does not read
        silent.close()
        mute.transport.abort()
        assert a.exchange.trouble is b.exchange.trouble is None
        await until(lambda: not made._greeting)


@on_uvloop
async def test_who_only_knocks_takes_no_place_of_a_node(
    tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FROM_ONE", 3)
    async with serving(tmp_path, authority) as (made, _), side(made.port, authority) as a:
        knocking = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(6)]
        try:
            await until(lambda: made._greeting.total() == 3)
            a.exchange.put(make("k1"))
            await a.stored()
        finally:
            for one in knocking:
                one.close()
        await until(lambda: not made._greeting)
        async with side(made.port, authority, "node-b") as b:
            await b.has("k1")


@on_uvloop
async def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path: Path, authority: Path) -> None:
    async with serving(tmp_path, authority) as (made, key_store), side(made.port, authority) as a:
        secrets = key_store._registry.secrets
        put = secrets.put

        def full(*args: Any, **kwargs: Any) -> Any:
            raise StoreError("the disk is full. Remedy: make room.")

        secrets.put = full  # type: ignore[method-assign]
        a.exchange.put(make("k1"))
        await until(lambda: "the disk is full" in (a.exchange.trouble or ""))
        secrets.put = put  # type: ignore[method-assign]
        await a.stored()
        assert await a.exchange.find("k1") is not None


@on_uvloop
async def test_rows_on_the_disk_are_sealed(tmp_path: Path, authority: Path) -> None:
    async with serving(tmp_path, authority) as (made, key_store), side(made.port, authority) as a:
        key = make("k1")
        a.exchange.put(key)
        await a.stored()
        await a.exchange.grant(GROUP, MARY.public, reader="user:mary", request=REQUEST)
        rows = [row for room in ("keys", OWN) for row in key_store._registry.secrets.all(room, at=time.time())]
        assert len(rows) == 2
        assert {MasterKeySet.master_of(row.value) for row in rows} == {key_store._master_keys.current}
        for path in (tmp_path / "keys").iterdir():
            assert key.secret not in path.read_bytes()
