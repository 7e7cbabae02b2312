"""Sessions are the broker's: who owns them, whether they are there, wills, retained messages."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from backends import Mosquitto
from guard.guarded import around, broker, gathered, guarded, password_file
from harness import Client
from processes import Served, on_uvloop, until
from sockets.acts import BOTH, PASSWORD, come, policy
from tidegate import wire
from tidegate.guard import GuardedScope, name_proof

PASSWORDS = "allow_anonymous false\npersistence false\npassword_file {passwords}\n"
WRONG: dict[str, Any] = {"username": "bob", "password": b"wrong"}
BOB, MARY = {"username": "bob", "password": b"secret"}, {"username": "mary", "password": b"word"}
WILL = wire.Will(topic="open/will", payload=b"gone", qos=1, retain=False)


async def back(node: Served, name: str, version: int = wire.V5, **fields: object) -> Client:
    """Comes with a session that lasts."""
    properties = wire.Properties(session_expiry_interval=600) if version == wire.V5 else wire.NONE
    return await node.connect(
        name, version=version, clean_start=False, username=name, password=PASSWORD, properties=properties, **fields
    )


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_queued_messages_are_decided_when_the_client_is_back(tmp_path: Path, version: int) -> None:
    with broker() as port:
        rules = (policy("all", "open/#"), policy("no", "open/#", "read", effect="deny", when="o.payload == 0"))
        async with guarded(tmp_path, port, *rules) as node:
            mary, bob = await back(node, "mary", version), await come(node, "bob")
            assert not mary.connack.session_present
            await mary.subscribe("open/#", qos=2)
            await mary.disconnect()
            for qos in (1, 2):
                await bob.publish("open/a", b"0", qos=qos)
                await bob.publish("open/a", b"1", qos=qos)
            mary = await back(node, "mary", version)
            assert mary.connack.session_present
            for qos in (1, 2):
                message = await mary.message()
                assert (message.payload, message.qos) == (b"1", qos)
            await mary.silent()


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_what_was_not_acknowledged_comes_again_under_its_identifier(tmp_path: Path, version: int) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            mary, bob = await back(node, "mary", version), await come(node, "bob")
            await mary.subscribe("open/#", qos=2)
            await bob.publish("open/a", b"1", qos=1)
            await bob.publish("open/a", b"2", qos=2)
            one, two = await mary.expect(wire.Publish), await mary.expect(wire.Publish)
            await mary.send(wire.Pubrec(packet_id=two.packet_id))
            assert (await mary.expect(wire.Pubrel)).packet_id == two.packet_id
            mary.abort()
            mary = await back(node, "mary", version)
            again = await mary.expect(wire.Publish)
            assert (again.payload, again.packet_id, again.dup) == (b"1", one.packet_id, True)
            assert (await mary.expect(wire.Pubrel)).packet_id == two.packet_id
            await mary.send(wire.Puback(packet_id=one.packet_id))
            await mary.send(wire.Pubcomp(packet_id=two.packet_id))
            await mary.silent()


@on_uvloop
async def test_a_client_identifier_belongs_to_one_principal(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            mary = await back(node, "mary")
            await node.connect("mary", expect=0x85, username="bob", password=PASSWORD)
            await mary.silent()
            await mary.disconnect()
            await node.connect("mary", expect=0x85, username="bob", password=PASSWORD)
            mary = await back(node, "mary")
            assert mary.connack.session_present
            await mary.disconnect(properties=wire.Properties(session_expiry_interval=0))
            assert not await mary.closed()
            await node.connect("mary", username="bob", password=PASSWORD)


@on_uvloop
async def test_a_second_connection_takes_over_the_first(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            first = await back(node, "mary")
            await first.subscribe("open/#", qos=1)
            second = await back(node, "mary")
            assert second.connack.session_present
            said = await first.expect(wire.Disconnect)
            assert said.reason == 0x8E
            bob = await come(node, "bob")
            await bob.publish("open/a", qos=1)
            await second.message()


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_wills_are_the_guards(tmp_path: Path, version: int) -> None:
    with broker() as port:
        rules = (policy("all", "open/#"), policy("no", "shut/#", "read"))
        async with guarded(tmp_path, port, *rules) as node:
            mary, bob = await come(node, "mary"), await come(node, "bob", version=version, will=WILL)
            await mary.subscribe("open/#", qos=2)
            bob.abort()
            message = await mary.message()
            assert (message.topic, message.payload, message.qos) == ("open/will", b"gone", 1)
            bob = await come(node, "bob", version=version, will=WILL)
            await bob.disconnect()
            denied = wire.Will(topic="shut/will", payload=b"", qos=0, retain=False)
            await node.connect("x", expect=0x87, will=denied)
            await mary.silent()


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_retained_messages_are_kept_and_cleared_in_the_broker(tmp_path: Path, version: int) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            bob, mary = await come(node, "bob", version=version), await come(node, "mary", version=version)
            await bob.publish("open/a", b"kept", qos=1, retain=True)
            await mary.subscribe("open/#", qos=1)
            message = await mary.message()
            assert (message.payload, message.retain) == (b"kept", True)
            outside = await around(node, port)
            await outside.subscribe("open/#")
            assert (await outside.message()).payload.endswith(b"kept")
            await bob.publish("open/a", b"", qos=1, retain=True)
            message = await mary.message()
            assert (message.payload, message.retain) == (b"", False)
            await mary.silent()
            late = await come(node, "carol", version=version)
            await late.subscribe("open/#", qos=1)
            await late.silent()


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_each_subscribe_brings_what_is_retained(tmp_path: Path, version: int) -> None:
    """Also the second of two that come together."""
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            bob, mary = await come(node, "bob", version=version), await come(node, "mary", version=version)
            await bob.publish("open/a", b"kept", qos=1, retain=True)
            subscription = wire.Subscription(filter="open/#", qos=1)
            for pid in (1, 2):
                await mary.send(wire.Subscribe(packet_id=pid, subscriptions=(subscription,)))
            assert len(await gathered(2, mary)) == 2


@on_uvloop
async def test_a_client_may_use_the_identifiers_that_the_guard_uses(tmp_path: Path) -> None:
    """The guard has asked the broker for something itself, and the broker has not answered."""
    mosquitto = Mosquitto(tmp_path / "mosquitto")
    mosquitto.start()
    try:
        async with guarded(tmp_path, mosquitto.port) as node:
            mary = await come(node, "mary", client="mary")
            await mary.subscribe("open/a", qos=1)
            scope = node.node.scopes["legacy"]
            assert isinstance(scope, GuardedScope)
            session = scope.owners["mary"]
            assert mosquitto.process is not None
            mosquitto.process.send_signal(signal.SIGSTOP)
            scope.subscribing.ask_again(session, present=False)
            subscription = wire.Subscription(filter="open/b", qos=2)
            await mary.send(wire.Subscribe(packet_id=65535, subscriptions=(subscription,)))
            await until(lambda: len(session.asked or ()) == 2)
            mosquitto.process.send_signal(signal.SIGCONT)
            suback = await mary.expect(wire.Suback)
            assert (suback.packet_id, suback.reasons) == (65535, (2,))
    finally:
        if mosquitto.process is not None:
            mosquitto.process.send_signal(signal.SIGCONT)
        mosquitto.stop()


@on_uvloop
async def test_an_attribute_is_not_taken_for_what_the_guard_says(tmp_path: Path) -> None:
    people = {"bob": {"password": "plain:pw", "attributes": {"called": "open/elsewhere"}}}
    with broker() as port:
        async with guarded(tmp_path, port, directory={"users": people}) as node:
            bob = await come(node, "bob")
            await bob.subscribe("open/#")
            await bob.publish("open/a", b"x")
            assert (await bob.message()).payload == b"x"


async def takes(port: int, node: Served, **fields: Any) -> bool:
    """Whether the broker itself lets somebody in."""
    client = await node.dial(port)
    client.version = wire.V5
    await client.send(wire.Connect(version=wire.V5, client_id="e", clean_start=True, keep_alive=0, **fields))
    answer = await client.expect(wire.Connack)
    client.abort()
    return answer.reason == 0


@on_uvloop
async def test_a_broker_that_proves_names_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has been given another configuration while it runs, and takes any password from then on."""
    monkeypatch.setattr(name_proof, "LASTS", 0.0)
    (tmp_path / "passwords").write_text(password_file(tmp_path, bob="secret"))
    (tmp_path / "passwords").chmod(0o600)
    mosquitto = Mosquitto(tmp_path / "mosquitto", f"allow_anonymous false\npassword_file {tmp_path}/passwords\n")
    mosquitto.start()
    try:
        scope = {"authenticate": "backend", "username": "bob", "password": "secret"}
        known = [{"url": "mqtt://127.0.0.1:PORT"}]
        async with guarded(tmp_path, mosquitto.port, scope=scope, listeners=known) as node:
            await node.connect("b", **BOB)
            await node.connect("c", expect=0x87, **WRONG)
            file = mosquitto.folder / "mosquitto.conf"
            lines = file.read_text().replace("allow_anonymous false", "allow_anonymous true")
            file.write_text("\n".join(line for line in lines.split("\n") if not line.startswith("password_file")))
            assert mosquitto.process is not None
            mosquitto.process.send_signal(signal.SIGHUP)
            while not await takes(mosquitto.port, node, **WRONG):
                pass
            await node.connect("d", expect=0x87, **WRONG)  # the listener wants to know who it is
    finally:
        mosquitto.stop()


@on_uvloop
async def test_the_broker_proves_names(tmp_path: Path) -> None:
    passwords = password_file(tmp_path, bob="secret", mary="word")
    with broker(PASSWORDS, passwords=passwords) as port:
        rules = (policy("all", "open/#", subject="user:bob"), policy("hers", "her/#", subject="user:mary"))
        scope = {"authenticate": "backend", "username": "bob", "password": "secret"}
        async with guarded(tmp_path, port, *rules, scope=scope) as node:
            bob = await node.connect("b", **BOB)
            await bob.subscribe("open/#", "her/#")
            await bob.publish("open/a", b"x")
            await bob.message()
            await node.connect("m", expect=0x87, username="mary", password=b"secret")
            await node.connect("m", version=4, expect=5, username="mary", password=b"secret")
            await node.connect("n", expect=0x87)
            await node.connect("b", expect=0x85, **MARY)
            mary = await node.connect("m", **MARY)
            assert (await mary.subscribe("open/#", "her/#")).reasons == (0x87, 0)
            await bob.silent()
