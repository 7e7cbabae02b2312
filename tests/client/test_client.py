"""The client against real nodes: levels, conditions, views, capabilities, TLS, refusals, connecting again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiomqtt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from client.peer import MARY
from client.test_keys import got, received
from harness import PATIENCE, free_port, live
from keys.making import entropy
from processes import from_file
from tidegate.cli import certificates
from tidegate.client import V311, Client, Kem, KeysError, PrivateKey, Refused, Unreachable
from tidegate.policy.capability import sign
from tidegate.policy.capability.jwk import jwk_of


@pytest.mark.parametrize("version", [5, V311])
async def test_publish_and_subscribe(version: int) -> None:
    async with live() as node, Client("127.0.0.1", port=node.port, version=version, identifier="c1") as client:
        assert client.identifier == "c1"
        assert await client.subscribe("a/+", "b", qos=2) == []
        for qos in (0, 1, 2):
            await client.publish("a/1", "grüße", qos=qos, retain=qos == 1)
            message = await got(client)
            assert (message.topic, message.payload, message.qos, message.error) == ("a/1", "grüße".encode(), qos, None)
        await client.publish("b")
        assert (await got(client)).payload == b""
        await client.unsubscribe("a/+")
        await client.publish("a/1", b"unheard")
        await client.publish("b", b"heard")
        assert (await got(client)).payload == b"heard"


async def test_many_publishes_at_once_get_their_own_answers() -> None:
    rules = '[{id: r, subject: "*", topic: "yes/#", action: [read, write]}]'
    async with live("explain: true", policies=rules) as node, Client("127.0.0.1", port=node.port) as client:
        assert client.identifier
        await client.subscribe("yes/#")
        wanted = [f"{'yes' if n % 3 else 'no'}/{n}" for n in range(60)]
        answers = await asyncio.gather(*(client.publish(each, b"x") for each in wanted), return_exceptions=True)
        assert [isinstance(each, Refused) for each in answers] == [each.startswith("no") for each in wanted]
        assert len(await received(client, 40)) == 40
        with pytest.raises(Refused, match="no/#") as refused:
            await client.subscribe("yes/1", "no/#")
        assert refused.value.code == 0x87


async def test_levels_conditions_and_views() -> None:
    async with (
        live() as node,
        Client("127.0.0.1", port=node.port) as one,
        Client("127.0.0.1", port=node.port, require="tls") as strict,
        Client("127.0.0.1", port=node.port) as two,
    ):
        await two.subscribe("data", where="o.payload.a > 1")
        await two.subscribe("strict", require="tls")
        about = Properties(PacketTypes.PUBLISH)
        about.UserProperty = ("unit", "m")
        await one.publish("data", b'{"a": 1}')
        await one.publish("data", b'{"a": 2}', require="tls")
        await strict.publish("data", b'{"a": 3}')
        await one.publish("strict", b"floor too low")
        await one.publish("data", b'{"a": 4, "b": 5}', view={"*": ["/a"]})
        await one.publish("data", b'{"a": 6}', properties=about)
        await strict.publish("data", b'{"a": 7}', require="none")
        assert [each.payload for each in await received(two, 3)] == [b'{"a":4}', b'{"a": 6}', b'{"a": 7}']
        assert about.UserProperty == [("unit", "m")], "what was given is not changed"


@pytest.mark.filterwarnings("ignore:.*ssl.SSLSocket")  # paho-mqtt leaves the socket of a failed handshake to Python
async def test_tls_and_an_authority_of_our_own(tmp_path: Path) -> None:
    certificates.make_ca(tmp_path, "Test CA", days=2)
    certificates.issue(tmp_path, "node", ["127.0.0.1"], client=False, days=2)
    text = """
version: 1
node: {name: test}
listeners: [{url: "mqtts://127.0.0.1:PORT", cert: node.pem, key: node.key, anonymous: true}]
levels: {implied: false}
policies: open
"""
    async with from_file(tmp_path, text) as node:
        async with Client("127.0.0.1", port=node.port, ca=tmp_path / "ca.pem", require="tls") as client:
            await client.subscribe("a", require="tls")
            await client.publish("a", b"x", require="tls")
            assert (await got(client)).floor == "tls"
        with pytest.raises(Unreachable, match="certificate"):
            await Client("127.0.0.1", port=node.port, tls=True).__aenter__()
    with pytest.raises(Unreachable, match="authorities"):
        Client("127.0.0.1", ca=tmp_path / "nothing.pem")


async def test_a_capability_with_proofs(tmp_path: Path) -> None:
    issuer, holder = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public = issuer.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "issuer.pub").write_bytes(public)
    (tmp_path / "holder.key").write_bytes(holder.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    reader = PrivateKey.generate(entropy("reader"))
    text = f"""
version: 1
node: {{name: test}}
listeners: [{{url: "mqtt://127.0.0.1:PORT"}}]
capabilities: {{issuers: [{{name: ward, keys: issuer.pub}}]}}
directory: {{users: {{mary: {{public_key: "{reader.public}"}}}}}}
keys: {{protect: ["angina/#"]}}
policies: open
"""
    claims = {
        "iss": "ward",
        "sub": "user:mary",
        "jti": "c1",
        "iat": int(time.time()),
        "exp": int(time.time()) + 600,
        "cnf": {"jwk": jwk_of(holder.public_key())},
        "rights": [
            {"action": ["read", "write"], "topic": "angina/#"},
            {"action": ["read", "write"], "topic": "$tidegate/keys/+"},
        ],
        "proof": "per-message",
    }
    token = sign(claims, issuer)
    will = aiomqtt.Will("angina/will", b"gone")
    async with from_file(tmp_path, text) as node:
        client = Client(
            "127.0.0.1",
            port=node.port,
            capability=token,
            proof_key=tmp_path / "holder.key",
            private_key=reader,
            will=will,
            patience=PATIENCE,
        )
        for _ in range(2):  # proofs are new each time
            async with client:
                await client.subscribe("angina/#")
                await client.publish("angina/1", b"x")
                message = await got(client)
                assert (message.payload, message.error) == (b"x", None), "sealed, and the question was proven, too"
                with pytest.raises(Refused):
                    await client.publish("other", b"x")
    assert will.properties is None


async def test_refused_and_unreachable() -> None:
    port = free_port()
    with pytest.raises(Unreachable, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"):
        await Client("127.0.0.1", port=port).__aenter__()
    listener = 'listeners: [{url: "mqtt://127.0.0.1:PORT"}]\ndirectory: {users: {mary: {password: "plain:m"}}}'
    async with live(listener) as node:
        client = Client("127.0.0.1", port=node.port, user="mary", password="wrong")
        for _ in range(2):
            with pytest.raises(Refused, match="refused the connection") as refused:
                await client.__aenter__()
            assert refused.value.code == 0x86
        with pytest.raises(Unreachable, match="not connected"):
            await anext(client.messages)
        # another one with the same identifier: the first is told why
        options = {"port": node.port, "user": "mary", "password": "m", "identifier": "same"}
        async with Client("127.0.0.1", **options) as first:  # type: ignore[arg-type]
            waiting = asyncio.create_task(got(first))
            async with Client("127.0.0.1", **options) as second:  # type: ignore[arg-type]
                with pytest.raises(Refused, match="same identifier") as taken:
                    await waiting
                assert taken.value.code == 0x8E
                await second.publish("a", b"b")


async def test_a_silent_broker_is_left() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        gone.set()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(serve, "127.0.0.1", port):
        with pytest.raises(Unreachable, match="does not answer"):
            await Client("127.0.0.1", port=port, timeout=0.2).__aenter__()
        async with asyncio.timeout(PATIENCE):
            await gone.wait()


async def test_a_broker_that_hangs_up_is_not_waited_for() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.close()

    port = free_port()
    async with await asyncio.start_server(serve, "127.0.0.1", port), asyncio.timeout(PATIENCE):
        with pytest.raises(Unreachable, match="closed the connection before it answered"):
            await Client("127.0.0.1", port=port, timeout=10 * PATIENCE).__aenter__()


async def test_a_session_is_resumed() -> None:
    async with live() as node, Client("127.0.0.1", port=node.port) as other:
        options = {"identifier": "sleeper", "clean": False, "session_expiry": 60}
        client = Client("127.0.0.1", port=node.port, **options)  # type: ignore[arg-type]
        async with client:
            await client.subscribe("a")
        await other.publish("a", b"while away")
        async with client:
            assert (await got(client)).payload == b"while away"


def test_private_keys_come_in_three_forms(tmp_path: Path) -> None:
    (tmp_path / "mary.key").write_text(MARY.text() + "\n")
    (tmp_path / "mary.pem").write_text(MARY.pem())
    forms = (MARY, MARY.text(), MARY.pem(), tmp_path / "mary.key", str(tmp_path / "mary.pem"))
    assert {Client("h", private_key=each).public_key for each in forms} == {str(MARY.public)}
    hybrid = PrivateKey.generate(entropy("h"), Kem.HYBRID)
    assert Client("h", private_key=hybrid.text()).public_key == str(hybrid.public)
    (tmp_path / "bad").write_text("x25519-private:AAAA")
    for wrong in (tmp_path / "bad", tmp_path / "nothing", "x25519-private:AAAA"):
        with pytest.raises(KeysError) as error:
            Client("h", private_key=wrong)
        assert "AAAA" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"version": 4}, "no MQTT version 4"),
        ({"version": V311, "require": "tls"}, "need MQTT 5"),
        ({"version": V311, "session_expiry": 1}, "need MQTT 5"),
        ({"proof_key": "x"}, "give that, too"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Client("127.0.0.1", **options)  # type: ignore[arg-type]


async def test_what_needs_mqtt_5() -> None:
    async with live() as node, Client("127.0.0.1", port=node.port, version=V311) as client:
        with pytest.raises(ValueError, match="need MQTT 5"):
            await client.publish("a", b"x", require="tls")
        with pytest.raises(ValueError, match="need MQTT 5"):
            await client.subscribe("a", where="true")
