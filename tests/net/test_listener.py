"""Listeners on real sockets: TLS, client certificates and their replacement, and every limit a listener has."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
import warnings
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from harness import PATIENCE, Client, free_port, live
from processes import STARTING, File, Process, Served, from_file, on_uvloop, until
from tidegate import wire
from tidegate.cli import certificates
from tidegate.errors import ConfigError

TLS = """
version: 1
node: {name: test}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true}
  - {url: "mqtts://127.0.0.1:TLS_PORT", cert: node.pem, key: node.key, OPTIONS}
directory:
  users: {mary: {password: "plain:wonder"}, bob: {}}
policies: open
sys: {interval: 0s}
"""
USUAL = 9.0  # a second less than connect_timeout if nobody sets it
WITH_CA = "client_ca: ca.pem, client_cert: "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certificates.make_ca(tmp_path, "Test CA", days=2)
    certificates.issue(tmp_path, "node", ["127.0.0.1", "localhost", "::1"], client=False, days=2)
    return tmp_path


def trust(folder: Path, name: str | None = None, *, authority: str = "ca.pem") -> ssl.SSLContext:
    """A client that trusts our CA and, with a name, has that certificate."""
    context = ssl.create_default_context(cafile=folder / authority)
    if name is not None:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


def issue(folder: Path, name: str) -> None:
    certificates.issue(folder, name, [], client=True, days=2)


def issue_expired(folder: Path, name: str) -> None:
    """A client certificate of our CA whose time is over; `tidegate cert` makes none."""
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=3))
        .not_valid_after(now - timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


@contextlib.asynccontextmanager
async def secure(folder: Path, options: str) -> AsyncIterator[Served]:
    async with from_file(folder, TLS.replace("OPTIONS", options)) as served:
        yield served


async def over_tls(
    served: Served, context: ssl.SSLContext, name: str = "c", *, expect: int = 0, **fields: object
) -> Client:
    client = await served.dial(served.ports["TLS_PORT"], context)
    await client.send(wire.Connect(version=wire.V5, client_id=name, clean_start=True, keep_alive=0, **fields))
    client.connack = await client.expect(wire.Connack)
    assert client.connack.reason == expect, client.connack
    return client


async def refused_by_tls(served: Served, context: ssl.SSLContext) -> None:
    """The server ends the connection before it answers CONNECT.

    With TLS 1.3 a client learns only after its own part of the handshake that its certificate is not good.
    """
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        client = await served.dial(served.ports["TLS_PORT"], context)
        await client.send(wire.Connect(version=wire.V5, client_id="never", clean_start=True, keep_alive=0))
        async with asyncio.timeout(PATIENCE):
            assert await client.reader.read(1) == b""


def hello(context: ssl.SSLContext) -> bytes:
    """The ClientHello that this side would send."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


async def answer(served: Served, said: bytes) -> bytes:
    """The kind of TLS record that a hello is answered with: 0x16 goes on, 0x15 is an alert, b"" the end."""
    client = await served.dial(served.ports["TLS_PORT"])
    await client.raw(said)
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ConnectionError):
            return await client.reader.read(1)
    return b""


async def round_trip(one: Client, topic: str = "t") -> None:
    await one.subscribe(topic, qos=1)
    await one.send(wire.Publish(topic=topic, payload=b"round", qos=0))
    assert (await one.expect(wire.Publish)).payload == b"round"
    await one.unsubscribe(topic)


def level(served: Served, name: str) -> tuple[str, str]:
    """Principal and level of the session of a client."""
    (found,) = [one for one in served.node.scopes["main"].sessions.values() if one.client == name]
    return found.principal, found.subject.level


# -- TLS ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_uvloop
async def test_tls_1_2_and_1_3(folder: Path, version: ssl.TLSVersion) -> None:
    context = trust(folder)
    context.minimum_version = context.maximum_version = version
    async with secure(folder, "anonymous: true") as served:
        client = await over_tls(served, context)
        assert client.writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        await round_trip(client)
        assert level(served, "c") == ("anonymous", "tls")


@on_uvloop
async def test_tls_1_1_is_refused(folder: Path) -> None:
    old = trust(folder)
    old.set_ciphers("DEFAULT@SECLEVEL=0")  # or this side would not even try
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with secure(folder, "anonymous: true") as served:
        assert await answer(served, hello(old)) in (b"", b"\x15")
        assert await answer(served, hello(trust(folder))) == b"\x16"


@on_uvloop
async def test_tls_min(folder: Path) -> None:
    old = trust(folder)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with secure(folder, "anonymous: true, tls_min: 1.3") as served:
        assert await answer(served, hello(old)) in (b"", b"\x15")
        await round_trip(await over_tls(served, trust(folder)))


@on_uvloop
async def test_level_is_plain_without_tls(folder: Path) -> None:
    async with secure(folder, "anonymous: true") as served:
        await served.connect("p")
        assert level(served, "p") == ("anonymous", "plain")


@on_uvloop
async def test_client_certificate_required(folder: Path) -> None:
    issue(folder, "device")
    issue(folder, "bob")
    async with secure(folder, WITH_CA + "required") as served:
        await round_trip(await over_tls(served, trust(folder, "device"), "d"))
        assert level(served, "d") == ("certificate:device", "mtls")
        await over_tls(served, trust(folder, "bob"), "b")  # a user of the directory
        assert level(served, "b") == ("user:bob", "mtls")
        await refused_by_tls(served, trust(folder))
        assert len(served.node.scopes["main"].sessions) == 2


@on_uvloop
async def test_client_certificate_optional(folder: Path) -> None:
    issue(folder, "device")
    async with secure(folder, WITH_CA + "optional") as served:
        await over_tls(served, trust(folder, "device"), "d")
        assert level(served, "d") == ("certificate:device", "mtls")
        await over_tls(served, trust(folder), "m", username="mary", password=b"wonder")
        assert level(served, "m") == ("user:mary", "tls")
        await over_tls(served, trust(folder), "nobody", expect=wire.Reason.NOT_AUTHORIZED)
        # whoever says a name is judged by its password, whatever certificate there is
        await over_tls(
            served,
            trust(folder, "device"),
            "d2",
            username="mary",
            password=b"wrong",
            expect=wire.Reason.BAD_USER_NAME_OR_PASSWORD,
        )


@on_uvloop
async def test_client_certificate_not_asked_for(folder: Path) -> None:
    issue(folder, "device")
    async with secure(folder, "anonymous: true") as served:
        await over_tls(served, trust(folder, "device"), "d")
        assert level(served, "d") == ("anonymous", "tls")


@pytest.mark.parametrize("mode", ["optional", "required"])
@on_uvloop
async def test_bad_client_certificates(folder: Path, mode: str) -> None:
    issue_expired(folder, "expired")
    other = folder / "other"
    certificates.make_ca(other, "Another CA", days=2)
    certificates.issue(other, "stranger", [], client=True, days=2, out=folder)
    certificates.issue(folder, "server", ["127.0.0.1"], client=False, days=2)  # not for clients
    async with secure(folder, f"anonymous: true, {WITH_CA}{mode}") as served:
        for name in ("expired", "stranger", "server"):
            await refused_by_tls(served, trust(folder, name))
        assert not served.node.scopes["main"].sessions
        issue(folder, "device")
        await over_tls(served, trust(folder, "device"))


@on_uvloop
async def test_plain_client_on_a_tls_port(folder: Path) -> None:
    async with secure(folder, "anonymous: true") as served:
        client = await served.dial(served.ports["TLS_PORT"])
        await client.send(wire.Connect(version=wire.V5, client_id="plain", clean_start=True, keep_alive=0))
        answer = await client.closed()
        assert answer == b"" or answer[0] == 0x15  # a TLS alert at most, never a CONNACK
        await round_trip(await over_tls(served, trust(folder)))


@on_uvloop
async def test_tls_client_on_a_plain_port(folder: Path) -> None:
    async with secure(folder, "anonymous: true") as served:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await served.dial(served.ports["PORT"], trust(folder))
        await round_trip(await served.connect("p"))


@on_uvloop
async def test_handshakes_that_never_end_disturb_nobody(folder: Path) -> None:
    async with secure(folder, "anonymous: true") as served:
        silent = [await served.dial(served.ports["TLS_PORT"]) for _ in range(30)]
        for half in silent[::2]:
            await half.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # the first bytes of a ClientHello
        for number in range(5):
            await round_trip(await over_tls(served, trust(folder), f"c{number}"))
        (admission,) = [each.admission for url, each in served.node.listeners.bound.items() if url.startswith("mqtts:")]
        assert admission.handshakes >= 30  # nobody had to wait until one of them gave up


# -- certificates are replaced -----------------------------------------------------------------------------------


def serial(client: Client) -> int:
    der = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(der).serial_number


@on_uvloop
async def test_certificate_is_reloaded_without_dropping_anybody(folder: Path) -> None:
    async with secure(folder, "anonymous: true") as served:
        old = await over_tls(served, trust(folder), "old")
        await old.subscribe("t", qos=1)
        certificates.issue(folder, "node", ["127.0.0.1"], client=False, days=2, force=True)
        unchanged = await over_tls(served, trust(folder), "unchanged")
        assert serial(unchanged) == serial(old)  # not before it is told
        await served.reload()
        new = await over_tls(served, trust(folder), "new")
        assert serial(new) != serial(old)
        await new.publish("t", b"over the new one", qos=1)
        assert (await old.message()).payload == b"over the new one"
        assert len(served.node.scopes["main"].sessions) == 3


@on_uvloop
async def test_authority_of_clients_is_reloaded(folder: Path) -> None:
    issue(folder, "device")
    other = folder / "other"
    certificates.make_ca(other, "Another CA", days=2)
    certificates.issue(other, "newcomer", [], client=True, days=2, out=folder)
    (folder / "clients.pem").write_bytes((folder / "ca.pem").read_bytes())
    async with secure(folder, "client_ca: clients.pem, client_cert: required") as served:
        device = await over_tls(served, trust(folder, "device"), "device")
        await refused_by_tls(served, trust(folder, "newcomer"))
        (folder / "clients.pem").write_bytes((other / "ca.pem").read_bytes())
        await served.reload()
        newcomer = await over_tls(served, trust(folder, "newcomer"), "newcomer")
        await refused_by_tls(served, trust(folder, "device"))
        assert (await device.expect(wire.Disconnect)).reason == 0x87  # its authority counts no more
        await round_trip(newcomer)


@on_uvloop
async def test_broken_certificate_refuses_the_reload(folder: Path) -> None:
    async with secure(folder, "anonymous: true") as served:
        client = await over_tls(served, trust(folder), "c")
        good = (folder / "node.pem").read_bytes()
        (folder / "node.pem").write_text("this is no certificate")
        with pytest.raises(ConfigError, match=r"node\.pem"):
            await served.reload()
        await round_trip(client)
        assert serial(await over_tls(served, trust(folder), "d")) == serial(client)
        (folder / "node.pem").write_bytes(good)
        await served.reload()


@on_uvloop
async def test_clients_that_come_during_a_reload_are_served(folder: Path) -> None:
    async with secure(folder, "anonymous: true") as served:
        context = trust(folder)

        async def come(number: int) -> None:
            client = await over_tls(served, context, f"c{number}")
            client.writer.close()

        async def reload() -> None:
            for _ in range(5):
                await served.reload()

        await asyncio.gather(reload(), *(come(number) for number in range(40)))


# -- limits ------------------------------------------------------------------------------------------------------


def listener(options: str) -> str:
    return f'listeners: [{{url: "mqtt://127.0.0.1:PORT", anonymous: true, {options}}}]\n'


@on_uvloop
async def test_max_connections() -> None:
    async with live(listener("max_connections: 2")) as node:
        first = await node.connect("a")
        silent = await node.socket()  # counts before it has said anything
        await until(lambda: len(node.node.listeners.bound[node.node.status()["listeners"][0]["url"]].connections) == 2)
        third = await node.socket()
        assert await third.closed() == b""
        assert node.node.status()["listeners"][0]["turned_away"] == 1
        await first.silent()
        silent.writer.close()
        await until(lambda: node.node.status()["listeners"][0]["connections"] == 1)
        await node.connect("c")


@on_uvloop
async def test_connect_rate() -> None:
    async with live(listener("connect_rate: 5")) as node:
        started = node.node.site.now  # which the node has read some time ago if the machine is busy
        clients = [await node.connect(f"c{number}") for number in range(5)]
        later = [await node.socket() for _ in range(5)]
        for number, one in enumerate(later):
            await one.send(wire.Connect(version=wire.V5, client_id=f"l{number}", clean_start=True, keep_alive=0))
        for number, one in enumerate(later, 1):  # five at once, and then each waits for another fifth of a second
            assert (await one.expect(wire.Connack)).reason == 0
            assert time.monotonic() - started > number / 5 - 0.01
        assert node.node.status()["listeners"][0]["turned_away"] == 0
        for one in clients:
            await one.silent()


@pytest.mark.parametrize("said", [b"", b"\x10", b"\x10\x20\x00\x04MQTT\x05", b"\x10\xff"])
@on_uvloop
async def test_connect_timeout(said: bytes) -> None:
    async with live(listener("connect_timeout: 200ms")) as node:
        patient = await node.connect("patient")
        late = await node.socket()
        started = time.monotonic()
        await late.raw(said)
        assert await late.closed() == b""
        assert 0.15 < time.monotonic() - started < USUAL
        await patient.silent()  # the limit is for CONNECT only


@on_uvloop
async def test_connect_timeout_counts_the_tls_handshake(folder: Path) -> None:
    async with secure(folder, "anonymous: true, connect_timeout: 300ms") as served:
        silent = await served.dial(served.ports["TLS_PORT"])
        started = time.monotonic()
        await silent.closed()
        assert time.monotonic() - started < USUAL
        await round_trip(await over_tls(served, trust(folder)))


@on_uvloop
async def test_connect_timeout_counts_the_upgrade() -> None:
    text = 'listeners: [{url: "ws://127.0.0.1:PORT/mqtt", anonymous: true, connect_timeout: 200ms}]\n'
    async with live(text) as node:
        silent = await node.socket()
        await silent.raw(b"GET /mqtt HTTP/1.1\r\n")
        assert await silent.closed() == b""


def header(first: int, length: int) -> bytes:
    """Of a packet whose body is `length` bytes long."""
    return bytes((first,)) + wire.encode_varint(length)


@pytest.mark.parametrize("length", [998, 1_000, 20_000, 2_000_000, 268_435_455])
@pytest.mark.parametrize("version", [wire.V311, wire.V5])
@on_uvloop
async def test_max_packet_is_refused_from_the_header(length: int, version: int) -> None:
    async with live(listener("max_packet: 1000")) as node:
        client = await node.connect("c", version=version)
        await client.raw(header(0x30, length))  # and nothing of the body
        if version == wire.V5:
            assert client.connack.properties.maximum_packet_size == 1000
            assert (await client.expect(wire.Disconnect)).reason == wire.Reason.PACKET_TOO_LARGE
        assert await client.closed() == b""


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
@on_uvloop
async def test_packet_of_just_the_maximum_passes(version: int) -> None:
    async with live(listener("max_packet: 1000")) as node:
        client = await node.connect("c", version=version)
        await client.subscribe("t")
        overhead = len(wire.encode(wire.Publish(topic="t", payload=bytes(200)), version)) - 200
        await client.publish("t", bytes(1000 - overhead))
        assert len((await client.message()).payload) == 1000 - overhead
        await client.send(wire.Publish(topic="t", payload=bytes(1001 - overhead)))
        if version == wire.V5:
            assert (await client.expect(wire.Disconnect)).reason == wire.Reason.PACKET_TOO_LARGE
        await client.closed()


@on_uvloop
async def test_connect_that_is_too_large_is_refused_from_the_header() -> None:
    async with live(listener("max_packet: 1000")) as node:
        client = await node.socket()
        await client.raw(header(0x10, 2_000))
        assert await client.closed() == b""


@on_uvloop
async def test_why_a_packet_is_too_large_reaches_a_client_that_goes_on_sending() -> None:
    async with live(listener("max_packet: 1000")) as node:
        client = await node.connect("c")
        await client.raw(wire.encode(wire.Publish(topic="t", payload=bytes(100_000)), wire.V5))
        assert (await client.expect(wire.Disconnect)).reason == wire.Reason.PACKET_TOO_LARGE


@pytest.mark.parametrize("qos", [0, 1])
@on_uvloop
async def test_publish_rate_pauses_and_loses_nothing(qos: int) -> None:
    async with live(listener("publish_rate: 500, publish_burst: 100")) as node:
        sub = await node.connect("sub")
        await sub.subscribe("fast", "other", qos=qos)
        fast = await node.connect("fast")
        other = await node.connect("other")
        started = time.monotonic()
        messages = [
            wire.Publish(topic="fast", payload=b"%d" % number, qos=qos, packet_id=number + 1 if qos else 0)
            for number in range(600)
        ]
        await fast.raw(b"".join(wire.encode(message, wire.V5) for message in messages))
        assert [(await sub.message()).payload for _ in messages] == [message.payload for message in messages]
        # 100 at once and 500 at 500 a second: what comes after them waits, what others send does not
        await fast.send(wire.Publish(topic="fast", payload=b"last"))
        await other.send(wire.Publish(topic="other", payload=b"not paused"))
        assert [(await sub.message()).payload for _ in range(2)] == [b"not paused", b"last"]
        assert time.monotonic() - started >= 0.9


# -- addresses ---------------------------------------------------------------------------------------------------


@on_uvloop
async def test_ipv6_loopback(folder: Path) -> None:
    text = """
version: 1
node: {name: test}
listeners:
  - {url: "mqtt://[::1]:PORT", anonymous: true}
  - {url: "mqtts://[::1]:TLS_PORT", anonymous: true, cert: node.pem, key: node.key}
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true}
policies: open
sys: {interval: 0s}
"""
    async with from_file(folder, text) as served:
        for port, context in ((served.ports["PORT"], None), (served.ports["TLS_PORT"], trust(folder))):
            client = await served.dial(port, context, host="::1")
            await client.send(wire.Connect(version=wire.V5, client_id="six", clean_start=True, keep_alive=0))
            await client.expect(wire.Connack)
            await round_trip(client)
            (session,) = [one for one in served.node.scopes["main"].sessions.values() if one.client == "six"]
            assert session.subject.address == "::1"


@pytest.mark.parametrize("path", ["/", "/mqtt", "/any/where"])
@on_uvloop
async def test_websocket_listener_without_a_path_accepts_every_path(path: str) -> None:
    async with live('listeners: [{url: "ws://127.0.0.1:PORT", anonymous: true}]\n') as node:
        client = await node.socket()
        request = (
            f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        await client.raw(request.encode())
        async with asyncio.timeout(PATIENCE):
            assert b"101" in await client.reader.readline()


PLAIN = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
policies: open
sys: {interval: 0s}
"""


@on_uvloop
async def test_port_in_use_is_a_clear_error(tmp_path: Path) -> None:
    async with live() as node:
        text = PLAIN.replace("PORT", str(node.port))
        with pytest.raises(ConfigError, match=rf"mqtt://127\.0\.0\.1:{node.port}: [Aa]ddress already in use"):
            async with from_file(tmp_path, text):
                pass
        await (await node.connect("c")).silent()
    async with from_file(tmp_path, text):  # and nothing of the failed start is in the way of the next
        pass


def test_port_in_use_ends_the_process_with_a_clear_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        text = PLAIN.replace("PORT", str(taken.getsockname()[1]))
        refused = Process(File(tmp_path, text))
        assert refused.popen.wait(STARTING) == 1
        refused.kill()
    (line,) = refused.events("cannot start")
    assert "cannot listen on mqtt://127.0.0.1:" in line["reason"]
    assert "address already in use" in line["reason"].lower()
    refused.check("cannot start")


@on_uvloop
async def test_address_that_is_not_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on mqtt://192\.0\.2\.1:\d+: .*"):
        async with from_file(tmp_path, PLAIN.replace("127.0.0.1", "192.0.2.1")):
            pass
