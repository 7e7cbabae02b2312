"""Enhanced authentication and AUTH: 3.15 and 4.12."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from conformance.acts import dismissed, lasting, leave, lose, properties, will
from harness import Client, Live, live
from tidegate import wire
from tidegate.wire import Reason

METHODS = (
    'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]\n'
    'authentication: {methods: {RIDDLE: "conformance.methods:Riddle", TOKEN: "conformance.methods:Token"}}\n'
)


@pytest.fixture
async def oracle() -> AsyncIterator[Live]:
    async with live(METHODS) as running:
        yield running


async def asks(oracle: Live, method: str = "RIDDLE", data: bytes | None = None, **fields: Any) -> Client:
    """A client whose CONNECT names a method; nothing of the answer has been read."""
    client = await oracle.socket()
    given = properties(authentication_method=method, authentication_data=data, **fields.pop("given", {}))
    fields = {"client_id": "c", "clean_start": True, "keep_alive": 0} | fields
    await client.send(wire.Connect(version=5, properties=given, **fields))
    return client


async def says(client: Client, data: bytes | None, reason: int = 0x18, method: str = "RIDDLE") -> None:
    given = properties(authentication_method=method, authentication_data=data)
    await client.send(wire.Auth(reason=reason, properties=given))


async def let_in(oracle: Live, **fields: Any) -> Client:
    client = await asks(oracle, **fields)
    await client.expect(wire.Auth)
    await says(client, b"man")
    client.connack = await client.expect(wire.Connack)
    assert client.connack.reason == 0
    return client


# -- while connecting


async def test_exchange(oracle: Live) -> None:
    """[MQTT-4.12.0-2] [MQTT-4.12.0-3] [MQTT-4.12.0-5]: AUTH 0x18 back and forth, then CONNACK with the method."""
    client = await asks(oracle)
    question = await client.expect(wire.Auth)
    assert question.reason == Reason.CONTINUE_AUTHENTICATION
    assert question.properties == properties(
        authentication_method="RIDDLE", authentication_data=b"what walks on four legs?"
    )
    await says(client, b"again")
    assert (await client.expect(wire.Auth)).properties.authentication_method == "RIDDLE"
    await says(client, b"man")
    connack = await client.expect(wire.Connack)
    assert connack.reason == 0
    assert connack.properties.authentication_method == "RIDDLE"
    assert connack.properties.authentication_data == b"welcome"
    await client.silent()


async def test_data_in_connect(oracle: Live) -> None:
    """3.1.2.11.10 [MQTT-4.12.0-5]: the first data is in CONNECT; a method of one step needs no AUTH."""
    client = await asks(oracle, "TOKEN", b"valid")
    connack = await client.expect(wire.Connack)
    assert (connack.reason, connack.properties.authentication_method) == (0, "TOKEN")
    client = await asks(oracle, data=b"me")
    assert (await client.expect(wire.Auth)).properties.authentication_data == b"riddle for me"


async def test_refused_at_once(oracle: Live) -> None:
    """[MQTT-4.12.0-4]: CONNACK with the reason, and the end."""
    client = await asks(oracle, "TOKEN", b"forged")
    assert (await client.expect(wire.Connack)).reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert await client.closed() == b""


async def test_refused_later(oracle: Live) -> None:
    """[MQTT-4.12.0-4]: the exchange fails."""
    client = await asks(oracle)
    await client.expect(wire.Auth)
    await says(client, b"fail")
    assert (await client.expect(wire.Connack)).reason == Reason.NOT_AUTHORIZED
    assert await client.closed() == b""


async def test_unknown_method(oracle: Live) -> None:
    """[MQTT-4.12.0-1]: 0x8C (or 0x87), and the end."""
    client = await asks(oracle, "NOBODY KNOWS")
    assert (await client.expect(wire.Connack)).reason in (Reason.BAD_AUTHENTICATION_METHOD, Reason.NOT_AUTHORIZED)
    assert await client.closed() == b""


async def test_another_method_on_the_way(oracle: Live) -> None:
    """[MQTT-4.12.0-5]: the method stays the same; another is an error that ends it."""
    client = await asks(oracle)
    await client.expect(wire.Auth)
    await says(client, b"man", method="TOKEN")
    assert (await client.expect(wire.Connack)).reason >= 0x80
    assert await client.closed() == b""


@pytest.mark.parametrize("reason", [Reason.SUCCESS, Reason.RE_AUTHENTICATE])
async def test_client_only_continues(oracle: Live, reason: int) -> None:
    """[MQTT-4.12.0-3], 3.15.2.1: during CONNECT the client sends 0x18; success is the server's to say."""
    client = await asks(oracle)
    await client.expect(wire.Auth)
    await says(client, b"man", reason=reason)
    assert (await client.expect(wire.Connack)).reason == Reason.PROTOCOL_ERROR
    assert await client.closed() == b""


async def test_nothing_else_during_the_exchange(oracle: Live) -> None:
    """[MQTT-3.1.2-30]: only AUTH and DISCONNECT until CONNACK; anything else is a protocol error."""
    client = await asks(oracle)
    await client.expect(wire.Auth)
    await client.send(wire.Pingreq())
    answer = await client.closed()
    assert answer == b"" or answer[:1] == b"\x20"


async def test_disconnect_during_the_exchange(oracle: Live) -> None:
    """[MQTT-3.1.2-30]: a client may give up; its will was never accepted."""
    watcher = await oracle.connect("w")
    await watcher.subscribe("#")
    client = await asks(oracle, will=will())
    await client.expect(wire.Auth)
    await client.send(wire.Disconnect(reason=Reason.DISCONNECT_WITH_WILL_MESSAGE))
    assert await client.closed() == b""
    await watcher.silent()


async def test_session_is_touched_only_by_who_is_let_in(oracle: Live) -> None:
    """[MQTT-3.1.4-2] before [MQTT-3.1.4-3]: nobody is taken over by a client that has not shown who it is."""
    first = await let_in(oracle, clean_start=False, given={"session_expiry_interval": 100})
    second = await asks(oracle)
    await second.expect(wire.Auth)
    await first.silent()
    await says(second, b"fail")
    assert (await second.expect(wire.Connack)).reason == Reason.NOT_AUTHORIZED
    await first.silent()
    third = await let_in(oracle, clean_start=False, given={"session_expiry_interval": 100})
    assert third.connack.session_present
    await dismissed(first, Reason.SESSION_TAKEN_OVER)


async def test_connect_without_a_method(oracle: Live) -> None:
    """[MQTT-4.12.0-6]: no AUTH, and no method in CONNACK."""
    client = await oracle.connect("c")
    assert client.connack.properties.authentication_method is None
    await client.silent()


async def test_auth_without_a_method_in_connect(oracle: Live) -> None:
    """[MQTT-4.12.0-7]: a protocol error."""
    client = await oracle.connect("c")
    await says(client, b"man")
    await dismissed(client, Reason.PROTOCOL_ERROR)


async def test_data_without_a_method(oracle: Live) -> None:
    """3.1.2.11.10: authentication data without a method is a protocol error; nobody gets in."""
    client = await oracle.socket()
    await client.raw(bytes.fromhex("10 12 0004 4d515454 05 02 003c 04 16 0001 61 0001 63"))
    answer = await client.closed()
    assert answer == b"" or (answer[:1] == b"\x20" and answer[3] == Reason.PROTOCOL_ERROR)


async def test_lost_during_the_exchange(oracle: Live) -> None:
    """4.12: nothing is left of an exchange that was not finished."""
    client = await asks(oracle, clean_start=False, given={"session_expiry_interval": 100})
    await client.expect(wire.Auth)
    await lose(client)
    client = await let_in(oracle, clean_start=False)
    assert not client.connack.session_present


# -- again


async def test_again(oracle: Live) -> None:
    """[MQTT-4.12.1-1], 4.12.1: AUTH 0x19, the exchange, AUTH 0x00 with the method; the session goes on meanwhile."""
    client = await let_in(oracle)
    await client.subscribe("a")
    other = await oracle.connect("o")
    await says(client, None, reason=Reason.RE_AUTHENTICATE)
    question = await client.expect(wire.Auth)
    assert (question.reason, question.properties.authentication_method) == (0x18, "RIDDLE")
    await other.publish("a", b"meanwhile")
    assert (await client.message()).payload == b"meanwhile"
    await client.silent()
    await says(client, b"man!")
    done = await client.expect(wire.Auth)
    assert (done.reason, done.properties.authentication_method) == (Reason.SUCCESS, "RIDDLE")
    assert done.properties.authentication_data == b"welcome"
    await other.publish("a", b"afterwards")
    assert (await client.message()).payload == b"afterwards"


async def test_again_and_refused(oracle: Live) -> None:
    """[MQTT-4.12.1-2]: DISCONNECT with a reason, and the end."""
    client = await let_in(oracle)
    await says(client, None, reason=Reason.RE_AUTHENTICATE)
    await client.expect(wire.Auth)
    await says(client, b"fail")
    await dismissed(client, Reason.NOT_AUTHORIZED)


async def test_again_with_another_method(oracle: Live) -> None:
    """[MQTT-4.12.1-1]: the method must be that of CONNECT."""
    client = await let_in(oracle)
    await says(client, b"valid", reason=Reason.RE_AUTHENTICATE, method="TOKEN")
    packet = await client.expect(wire.Disconnect)
    assert packet.reason in (Reason.BAD_AUTHENTICATION_METHOD, Reason.PROTOCOL_ERROR)
    assert await client.closed() == b""


async def test_again_as_somebody_else(oracle: Live) -> None:
    """4.12.1: a session cannot change hands."""
    client = await let_in(oracle)
    await says(client, None, reason=Reason.RE_AUTHENTICATE)
    await client.expect(wire.Auth)
    await says(client, b"woman")
    await dismissed(client, Reason.NOT_AUTHORIZED)


async def test_continue_without_an_exchange(oracle: Live) -> None:
    """4.12.1: 0x18 when nothing is under way is a protocol error."""
    client = await let_in(oracle)
    await says(client, b"man")
    await dismissed(client, Reason.PROTOCOL_ERROR)


async def test_refused_re_authentication_fires_the_will(oracle: Live) -> None:
    """[MQTT-3.1.2-8]: the server closed the connection, not the client."""
    watcher = await oracle.connect("w")
    await watcher.subscribe("will")
    client = await let_in(oracle, will=will())
    await says(client, None, reason=Reason.RE_AUTHENTICATE)
    await client.expect(wire.Auth)
    await says(client, b"fail")
    await dismissed(client, Reason.NOT_AUTHORIZED)
    assert (await watcher.message()).payload == b"gone"


async def test_sessions_of_an_authenticated_user(oracle: Live) -> None:
    """5.4.2: who came by a method has sessions of its own."""
    client = await let_in(oracle, clean_start=False, given={"session_expiry_interval": 100})
    await leave(client)
    anonymous = await oracle.connect("c", **lasting())
    assert not anonymous.connack.session_present
    client = await let_in(oracle, clean_start=False, given={"session_expiry_interval": 100})
    assert client.connack.session_present


async def test_auth_in_311(oracle: Live) -> None:
    """3.1.1 table 2.1: packet type 15 is forbidden."""
    client = await oracle.connect("c", version=wire.V311)
    await client.raw(b"\xf0\x00")
    assert await client.closed() == b""
