"""A name is not an identity: whoever gets a name later gets nothing of who had it before, and the other way round.

Seen from the attacker: somebody who was removed from the file, and tries what he still has; and somebody who takes the
name of another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import Client
from processes import Served, from_file, on_uvloop, until
from sockets.acts import PEOPLE, asking, come, dismissed, go, inbox, payloads, policy, secure, setting, user
from tidegate import wire
from tidegate.errors import TidegateError
from tidegate.node.node import Node
from tidegate.session import Session

WITHOUT_BOB = {name: entry for name, entry in PEOPLE.items() if name != "bob"}
WILL = wire.Will(topic="wills", payload=b'"I was bob"', qos=1, retain=False)


def people(users: dict[str, Any], **sections: Any) -> str:
    return setting(directory={"users": users}, **sections)


async def reload(node: Served, text: str) -> None:
    node.file.write(text)
    await node.node.reload()


def sessions(node: Node) -> list[Session]:
    return list(node.scopes["main"].sessions.values())


async def queued_for_bob(node: Served) -> None:
    """Bob has subscribed, is away, and one message waits for him."""
    bob = await come(node, "bob", stays=True)
    await bob.subscribe("for/bob", qos=1)
    await go(node, bob)
    mary = await come(node, "mary")
    await mary.publish("for/bob", b'"for the first bob"', qos=1)
    await mary.disconnect()


# -- sessions, queues and wills ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [False, True])
@on_uvloop
async def test_the_next_bob_finds_no_session_of_the_last(tmp_path: Path, data: bool) -> None:
    async with from_file(tmp_path, people(PEOPLE, data=data)) as node:
        await queued_for_bob(node)
        await reload(node, people(WITHOUT_BOB, data=data))
        await until(lambda: not sessions(node.node))
        await reload(node, people(PEOPLE, data=data))
        bob = await come(node, "bob", stays=True)
        assert not bob.connack.session_present
        assert await payloads(bob) == []


@on_uvloop
async def test_who_has_the_same_client_identifier_is_another_publisher(tmp_path: Path, certificates: Path) -> None:
    """A session belongs to a principal and a client identifier: No Local is about one's own messages only."""
    users = {"mary": PEOPLE["mary"]}
    async with from_file(tmp_path, setting(certificates=certificates, directory={"users": users})) as node:
        sensor = await come(node, None, client="c", tls=secure(certificates, "sensor"))
        bob = await come(node, None, client="c", tls=secure(certificates, "bob"))
        nobody = await come(node, None, client="c")
        await sensor.publish("t", b'"kept"', qos=1, retain=True)
        for other in (bob, nobody):
            await other.subscribe("t", no_local=True)
            assert await payloads(other) == [b'"kept"']
        await sensor.subscribe("t", no_local=True)
        assert await payloads(sensor) == []


@on_uvloop
async def test_nor_if_both_changes_come_before_anybody_looks(tmp_path: Path) -> None:
    async with from_file(tmp_path, people(PEOPLE)) as node:
        await queued_for_bob(node)
        await reload(node, people({**WITHOUT_BOB, "bob": {**user(), "id": "another-bob"}}))
        bob = await come(node, "bob", stays=True)
        assert not bob.connack.session_present
        assert await payloads(bob) == []


@on_uvloop
async def test_nor_if_the_file_changed_while_the_node_was_down(tmp_path: Path) -> None:
    async with from_file(tmp_path, people(PEOPLE, data=True)) as node:
        await queued_for_bob(node)
    async with from_file(tmp_path, people(WITHOUT_BOB, data=True)) as node:
        assert not sessions(node.node)
    async with from_file(tmp_path, people(PEOPLE, data=True)) as node:
        bob = await come(node, "bob", stays=True)
        assert not bob.connack.session_present
        assert await payloads(bob) == []


@on_uvloop
async def test_a_restart_takes_nothing_from_those_who_stay(tmp_path: Path) -> None:
    async with from_file(tmp_path, people(PEOPLE, data=True)) as node:
        await queued_for_bob(node)
        before = node.node.identities.table.id("user", "bob")
    async with from_file(tmp_path, people(PEOPLE, data=True)) as node:
        assert node.node.identities.table.id("user", "bob") == before
        bob = await come(node, "bob", stays=True)
        assert bob.connack.session_present
        assert (await bob.expect(wire.Publish)).payload == b'"for the first bob"'


@on_uvloop
async def test_the_will_of_the_last_bob_is_never_published(tmp_path: Path) -> None:
    """Neither when he is removed, nor when his delay is over, nor when the next bob comes or goes."""
    async with from_file(tmp_path, people(PEOPLE)) as node:
        mary = await come(node, "mary")
        await mary.subscribe("wills", qos=1)
        late = wire.Will(**{**_fields(WILL), "properties": asking(will_delay_interval=1)})
        gone = await come(node, "bob", client="gone", stays=True, will=late)
        await go(node, gone)
        bob = await come(node, "bob", stays=True, will=WILL)
        await reload(node, people(WITHOUT_BOB))
        await dismissed(bob, 0x87)
        await until(lambda: [each.client for each in sessions(node.node)] == ["mary"])
        await reload(node, people(PEOPLE))
        for client in ("bob", "gone"):
            await go(node, await come(node, "bob", client=client, stays=True))
        assert await inbox(mary) == []


def _fields(will: wire.Will) -> dict[str, Any]:
    return {name: getattr(will, name) for name in will.__dataclass_fields__}


# -- renaming ----------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_an_id_keeps_the_session_across_a_rename(tmp_path: Path) -> None:
    bob = {**user(), "id": "b1"}
    async with from_file(tmp_path, people({**WITHOUT_BOB, "bob": bob}, data=True)) as node:
        await queued_for_bob(node)
        await reload(node, people({**WITHOUT_BOB, "robert": bob}, data=True))
        robert = await come(node, "robert", client="bob", stays=True)
        assert robert.connack.session_present
        assert (await robert.expect(wire.Publish)).payload == b'"for the first bob"'
        await come(node, "bob", expect=0x86)
    async with from_file(tmp_path, people({**WITHOUT_BOB, "robert": bob}, data=True)) as node:
        robert = await come(node, "robert", client="bob", stays=True)
        assert robert.connack.session_present


@on_uvloop
async def test_an_id_is_never_used_twice(tmp_path: Path) -> None:
    bob, carol = {**user(), "id": "b1"}, {**user(), "id": "b1"}
    others = {name: entry for name, entry in WITHOUT_BOB.items() if name != "carol"}
    text = people({**others, "bob": bob}, data=True)
    async with from_file(tmp_path, text) as node:
        await reload(node, people(others, data=True))
        for again in (people({**others, "carol": carol}, data=True), text):
            with pytest.raises(TidegateError, match="no id is used twice"):
                await reload(node, again)
        await come(node, "bob", expect=0x86)
    with pytest.raises(TidegateError, match="no id is used twice"):
        async with from_file(tmp_path, text):
            pass


@on_uvloop
async def test_two_in_one_file_cannot_have_the_same_id(tmp_path: Path) -> None:
    same = {**user(), "id": "b1"}
    with pytest.raises(TidegateError, match="`b1`"):
        async with from_file(tmp_path, people({"mary": same, "bob": same})):
            pass


# -- certificates ------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_the_certificate_of_who_was_removed_is_good_for_nothing(tmp_path: Path, certificates: Path) -> None:
    """It does not come back as somebody whom nobody knows, with the rights of `*`; nor as the next bob."""
    both = {"certificates": certificates, "data": True}
    async with from_file(tmp_path, people(PEOPLE, **both)) as node:
        bob = await come(node, None, client="b", tls=secure(certificates, "bob"))
        await reload(node, people(WITHOUT_BOB, **both))
        await dismissed(bob, 0x87)
        await come(node, None, client="b", tls=secure(certificates, "bob"), expect=0x87)
        # who was never in the directory still comes as a certificate
        await come(node, None, client="s", tls=secure(certificates, "sensor"))
    async with from_file(tmp_path, people(WITHOUT_BOB, **both)) as node:
        await come(node, None, client="b", tls=secure(certificates, "bob"), expect=0x87)
        await reload(node, people(PEOPLE, **both))
        await come(node, None, client="b", tls=secure(certificates, "bob"), expect=0x87)
        await come(node, "bob", client="b")  # the next bob has a password


@on_uvloop
async def test_the_certificate_of_a_removed_client_is_good_for_nothing(tmp_path: Path, certificates: Path) -> None:
    clients = {"clients": {"sensor": {"attributes": {"place": "hall"}}}}
    hall = policy("hall", when="s.place == 'hall'")
    with_sensor = setting(hall, certificates=certificates, directory={"users": PEOPLE, **clients})
    without = setting(hall, policy("any", "any"), certificates=certificates, directory={"users": PEOPLE})
    async with from_file(tmp_path, with_sensor) as node:
        sensor = await come(node, None, client="sensor", tls=secure(certificates, "sensor"))
        await reload(node, without)
        await dismissed(sensor, 0x87)
        await come(node, None, client="sensor", tls=secure(certificates, "sensor"), expect=0x87)


# -- publisher rules and preferences -----------------------------------------------------------------------------------

RULED = {"rules": {"allow": ["#"]}}


async def send_rules(end: Client, rules: str) -> None:
    answer = await end.publish("$tidegate/rules", rules.encode(), qos=1)
    assert answer is not None
    assert answer.reason < 0x80, answer


@on_uvloop
async def test_rules_are_of_whoever_made_them(tmp_path: Path) -> None:
    """The next bob's messages are not closed by the rules of the last, and his own do not open those of the last."""
    writing = policy("w", "#", ["read", "write"])
    async with from_file(tmp_path, setting(writing, **RULED, data=True)) as node:
        bob, mary = await come(node, "bob"), await come(node, "mary")
        closing = '[{"id": "r", "topic": "of/bob", "subject": "user:mary", "effect": "deny"}]'
        await send_rules(bob, closing)
        await bob.publish("of/bob", b"1", qos=1, retain=True)
        await mary.subscribe("of/bob", qos=1)
        assert await inbox(mary) == []
        await reload(node, setting(writing, **RULED, data=True, directory={"users": WITHOUT_BOB}))
        await reload(node, setting(writing, **RULED, data=True))
        await mary.subscribe("of/bob", qos=1)
        assert await inbox(mary) == []  # what the last bob closed stays closed
        bob = await come(node, "bob")
        await send_rules(bob, '[{"id": "r", "remove": true}]')
        await mary.subscribe("of/bob", qos=1)
        assert await inbox(mary) == []
        await bob.publish("of/bob", b"2", qos=1)
        assert await payloads(mary) == [b"2"]
    async with from_file(tmp_path, setting(writing, **RULED, data=True)) as node:
        mary = await come(node, "mary")
        await mary.subscribe("of/bob", qos=1)
        assert await inbox(mary) == []


@pytest.mark.parametrize("down", [False, True])
@on_uvloop
async def test_two_who_exchange_their_names_keep_what_waits_for_them(tmp_path: Path, down: bool) -> None:
    before = {"bob": {**user(), "id": "one"}, "mary": {**user(), "id": "two"}}
    after = {"bob": {**user(), "id": "two"}, "mary": {**user(), "id": "one"}}
    async with from_file(tmp_path, people({**PEOPLE, **before}, data=True)) as node:
        for name in ("bob", "mary"):
            client = await come(node, name, client="phone", stays=True)
            await client.subscribe(f"for/{name}", qos=1)
            await go(node, client)
        alice = await come(node, "alice")
        await alice.publish("for/bob", b'"one"', qos=1)
        await alice.publish("for/mary", b'"two"', qos=1)
        if not down:
            await reload(node, people({**PEOPLE, **after}, data=True))
            await have_what_waited(node)
    if down:
        async with from_file(tmp_path, people({**PEOPLE, **after}, data=True)) as node:
            await have_what_waited(node)


async def have_what_waited(node: Served) -> None:
    for name, payload in (("bob", b'"two"'), ("mary", b'"one"')):
        client = await come(node, name, client="phone", stays=True)
        assert client.connack.session_present
        assert (await client.expect(wire.Publish)).payload == payload


# -- what monitors remember --------------------------------------------------------------------------------------------

DOOR = {"id": "door", "scope": "main", "direction": "im_pub", "only": "unlock", "after": ["badge", "pin"]}


def with_door(users: dict[str, Any]) -> str:
    return people(users, monitors=[DOOR], data=True)


async def shown_badge_and_pin(node: Served) -> None:
    bob = await come(node, "bob", client="phone")
    await bob.publish("badge", b"1", qos=1)
    await bob.publish("pin", b"1", qos=1)
    await bob.disconnect()


async def unlocked(node: Served, name: str) -> bool:
    """Whether somebody may unlock."""
    alice = await come(node, "alice")
    await alice.subscribe("unlock", qos=1)
    client = await come(node, name, client="phone")
    await client.publish("unlock", b"1", qos=1)
    return await payloads(alice) != []


@pytest.mark.parametrize("down", [False, True])
@on_uvloop
async def test_the_next_bob_finds_no_door_that_the_last_has_prepared(tmp_path: Path, down: bool) -> None:
    bob = {**user(), "id": "b1"}
    async with from_file(tmp_path, with_door({**PEOPLE, "bob": bob})) as node:
        await shown_badge_and_pin(node)
        if not down:
            await reload(node, with_door(WITHOUT_BOB))
            await reload(node, with_door({**PEOPLE, "bob": {**bob, "id": "b2"}}))
            assert not await unlocked(node, "bob")
    async with from_file(tmp_path, with_door({**PEOPLE, "bob": {**bob, "id": "b2"}})) as node:
        assert not await unlocked(node, "bob")


@pytest.mark.parametrize("down", [False, True])
@on_uvloop
async def test_an_id_keeps_what_monitors_remember_across_a_rename(tmp_path: Path, down: bool) -> None:
    bob = {**user(), "id": "b1"}
    async with from_file(tmp_path, with_door({**WITHOUT_BOB, "bob": bob})) as node:
        await shown_badge_and_pin(node)
        if not down:
            await reload(node, with_door({**WITHOUT_BOB, "robert": bob}))
    async with from_file(tmp_path, with_door({**WITHOUT_BOB, "robert": bob})) as node:
        assert await unlocked(node, "robert")


# -- rules of publishers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", [False, True])
@on_uvloop
async def test_an_id_keeps_the_rules_across_a_rename(tmp_path: Path, down: bool) -> None:
    """What bob has closed stays closed when he is called Robert, and Robert can open it again."""
    writing, bob = policy("w", "#", ["read", "write"]), {**user(), "id": "b1"}
    robert = setting(writing, **RULED, data=True, directory={"users": {**WITHOUT_BOB, "robert": bob}})
    async with from_file(
        tmp_path, setting(writing, **RULED, data=True, directory={"users": {**WITHOUT_BOB, "bob": bob}})
    ) as node:
        client = await come(node, "bob")
        await send_rules(client, '[{"id": "r", "topic": "of/bob", "subject": "user:mary", "effect": "deny"}]')
        if not down:
            await reload(node, robert)
            await closed_then_opened(node)
    if down:
        async with from_file(tmp_path, robert) as node:
            await closed_then_opened(node)


async def closed_then_opened(node: Served) -> None:
    robert, mary = await come(node, "robert"), await come(node, "mary")
    await mary.subscribe("of/bob", qos=1)
    await robert.publish("of/bob", b"1", qos=1)
    assert await payloads(mary) == []
    await send_rules(robert, '[{"id": "r", "remove": true}]')
    await robert.publish("of/bob", b"2", qos=1)
    assert await payloads(mary) == [b"2"]
