"""Certificates and policies (Mosquitto: 08-ssl-connect-*, 09-acl-*, as far as there is something like it here)."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
import trustme

from conformance.mosquitto.steps import BOTH
from harness import Client, Live, live
from tidegate import wire


class Papers:
    """An authority, a server's certificate, a client's, and one by somebody else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.other = trustme.CA()
        self.ca.cert_pem.write_to_path(folder / "ca.pem")
        server = self.ca.issue_cert("localhost", "127.0.0.1")
        server.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")

    def listener(self, client_cert: str, anonymous: bool) -> str:
        ca = f", client_ca: {self.folder / 'ca.pem'}" if client_cert != "none" else ""
        return (
            f'listeners: [{{url: "mqtts://127.0.0.1:PORT", cert: {self.folder / "server.pem"}, '
            f"client_cert: {client_cert}, anonymous: {str(anonymous).lower()}{ca}}}]\n"
        )

    def context(self, own: trustme.CA | None, *, trusts: trustme.CA | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        (trusts or self.ca).configure_trust(context)
        if own is not None:
            own.issue_cert("client.example", common_name="mary").configure_cert(context)
        return context


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


async def _tls(node: Live, context: ssl.SSLContext) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port, ssl=context, server_hostname="localhost")
    client = Client(reader, writer)
    node.clients.append(client)
    return client


async def _connect(client: Client, version: int) -> wire.Connack | None:
    """The CONNACK; None if the server hung up instead."""
    client.version = version
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
        await client.send(wire.Connect(version=version, client_id="client", clean_start=True, keep_alive=0))
        return await client.expect(wire.Connack)
    return None


# the listener asks for a certificate, takes nameless clients; the client's is by: reason, or None: no connection
TLS = [
    ("none", True, None, 0),
    ("none", False, None, 0x87),
    ("optional", True, None, 0),
    ("optional", False, None, 0x87),
    ("optional", False, "ca", 0),
    ("required", False, "ca", 0),
    ("required", True, None, None),
    ("required", True, "other", None),
    ("optional", True, "other", None),
]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(("asks", "anonymous", "own", "reason"), TLS)
async def test_tls(
    papers: Papers, asks: str, anonymous: bool, own: str | None, reason: int | None, version: int
) -> None:
    async with live(papers.listener(asks, anonymous)) as node:
        authority = None if own is None else papers.ca if own == "ca" else papers.other
        try:
            client = await _tls(node, papers.context(authority))
        except (ssl.SSLError, ConnectionError):
            assert reason is None
            return
        connack = await _connect(client, version)
        if reason is None:
            assert connack is None
        else:
            assert connack is not None
            assert connack.reason == (reason if version == wire.V5 else {0: 0, 0x87: 5}[reason])


async def test_server_of_another_authority_is_not_trusted(papers: Papers) -> None:
    async with live(papers.listener("none", True)) as node:
        with pytest.raises(ssl.SSLCertVerificationError):
            await _tls(node, papers.context(None, trusts=papers.other))
        await _connect(await _tls(node, papers.context(None)), wire.V5)


async def test_plain_client_at_a_tls_listener(papers: Papers) -> None:
    async with live(papers.listener("none", True)) as node:
        client = await node.socket()
        await client.send(wire.Connect(version=5, client_id="client", clean_start=True, keep_alive=0))
        answer = await client.closed()
        assert answer[:1] in (b"", b"\x15")  # at most a TLS alert


async def test_session_belongs_to_the_certificate(papers: Papers) -> None:
    """The same client id under another name is another session: it takes over nothing."""
    text = papers.listener("optional", True)
    async with live(text) as node:
        named = await _tls(node, papers.context(papers.ca))
        nameless = await _tls(node, papers.context(None))
        for client in (named, nameless):
            assert await _connect(client, wire.V5) is not None
        await named.silent()
        await nameless.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_nothing_passes_without_policies(version: int) -> None:
    """Default deny; Mosquitto does so with an empty access file."""
    async with live(policies="") as node:
        client = await node.connect("client", version=version)
        v5 = version == wire.V5
        assert (await client.subscribe("a", "b/#", "$SYS/#")).reasons == ((0x87,) * 3 if v5 else (0x80,) * 3)
        acknowledged = await client.publish("a", qos=1)
        assert isinstance(acknowledged, wire.Puback)
        assert acknowledged.reason == (0x87 if v5 else 0)
        await client.send(wire.Publish(topic="a", payload=b"x", qos=2, packet_id=9))
        received = await client.expect(wire.Pubrec)
        assert received.reason == (0x87 if v5 else 0)
        if not v5:  # 3.1.1 goes on as if it had been accepted
            await client.send(wire.Pubrel(packet_id=9))
            await client.expect(wire.Pubcomp)
        await client.publish("a")
        await client.silent()


async def test_denied_qos_2_publish_leaves_its_id_free() -> None:
    """[MQTT-4.3.3-4] a PUBREC with an error ends the exchange: the id may be used again at once."""
    async with live(policies="") as node:
        client = await node.connect("client")
        for _ in range(2):
            await client.send(wire.Publish(topic="a", payload=b"x", qos=2, packet_id=9))
            assert (await client.expect(wire.Pubrec)).reason == 0x87


async def test_denied_publish_of_an_older_client_may_close() -> None:
    async with live("denied_publish_311: disconnect\n", policies="") as node:
        client = await node.connect("client", version=wire.V311)
        await client.send(wire.Publish(topic="a", payload=b"x", qos=1, packet_id=9))
        assert await client.closed() == b""


async def test_denied_retained_publish_neither_sets_nor_clears() -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.publish("$SYS/kept", b"x", qos=1, retain=True)
        await client.subscribe("$SYS/kept")
        await client.silent()


@pytest.mark.parametrize("qos", [1, 2])
async def test_nothing_is_read_after_a_publish_that_closed(qos: int) -> None:
    """Also when both came in one read, and however often the topic was seen before."""
    async with live("denied_publish_311: disconnect\n") as node:
        watcher = await node.connect("watcher")
        await watcher.subscribe("after", qos=1)
        frames = [
            wire.encode(wire.Publish(topic=topic, payload=b"x", qos=q, packet_id=pid), wire.V311)
            for pid, (topic, q) in enumerate((("$SYS/denied", qos), ("after", 1)), 1)
        ]
        helper = await node.connect("helper", version=wire.V311)
        await helper.publish("after", b"known", qos=1)
        assert (await watcher.message()).payload == b"known"
        for name in ("first", "second"):
            client = await node.connect(name, version=wire.V311)
            await client.raw(b"".join(frames))
            assert await client.closed() == b""
        await watcher.silent()
