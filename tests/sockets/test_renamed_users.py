"""Users who are called otherwise, and keep their id: what is theirs stays theirs."""

from __future__ import annotations

from pathlib import Path

from harness import Client
from processes import Served, from_file, on_uvloop
from tidegate.wire import Properties

FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
sys: {interval: 0s}
directory:
  users:
    ann: {password: "plain:secret", id: ANN}
    bob: {password: "plain:secret", id: BOB}
    pub: {password: "plain:secret"}
policies: open
"""


def file(ann: str, bob: str) -> str:
    return FILE.replace("ANN", ann).replace("BOB", bob)


async def phone(node: Served, user: str) -> Client:
    return await node.connect(
        "phone", username=user, password=b"secret", clean_start=False, properties=Properties(session_expiry_interval=99)
    )


async def owed(node: Served, *users: str) -> None:
    """Each has a session on a device that is called the same, and is owed a message of its own."""
    for user in users:
        client = await phone(node, user)
        await client.subscribe(f"for/{user}", qos=1)
        await client.disconnect()
    publisher = await node.connect("pub", username="pub", password=b"secret")
    for user in users:
        await publisher.publish(f"for/{user}", user.encode(), qos=1)


async def received(node: Served, user: str) -> tuple[bool, bytes]:
    client = await phone(node, user)
    return client.connack.session_present, (await client.message()).payload


@on_uvloop
async def test_two_who_change_names_keep_what_they_are_owed(tmp_path: Path) -> None:
    async with from_file(tmp_path, file("id-one", "id-two")) as node:
        await owed(node, "ann", "bob")
        await node.reload(file("id-two", "id-one"))
        assert await received(node, "ann") == (True, b"bob")
        assert await received(node, "bob") == (True, b"ann")


@on_uvloop
async def test_who_was_renamed_while_the_node_was_down_is_owed_the_same(tmp_path: Path) -> None:
    async with from_file(tmp_path, file("id-one", "id-two")) as node:
        await owed(node, "ann", "bob")
    async with from_file(tmp_path, file("id-two", "id-three").replace("bob:", "eve:")) as node:
        assert await received(node, "ann") == (True, b"bob")
