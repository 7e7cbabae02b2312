"""Keys and registration over HTTP: a real node, its HTTP process, and users that are registered there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from client.test_keys import got
from harness import PATIENCE, free_port
from keys.making import entropy
from processes import STARTING, Process, process
from tidegate.client import Client, Denied, KeysError, PrivateKey
from tidegate.client.http_service import HttpService
from tidegate.keys import new_master

MARY = PrivateKey.generate(entropy("mary"))
BOB = PrivateKey.generate(entropy("bob"))
VANE = PrivateKey.generate(entropy("vane"))
CONFIGURATION = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
http: {url: "http://127.0.0.1:HTTP_PORT"}
log: {format: json}
master_key: {file: master.key}
keys: {protect: ["campodenno/#"]}
directory: {users: {station: {password: "plain:s"}}}
policies:
  - {id: send, subject: ["user:station", "role:device"], topic: "#", action: write}
  - {id: farmers, subject: "role:farmer", topic: "#", action: read}
  - {id: everybody, subject: "*", topic: "open/#", action: [read, write]}
  - {id: not-bob, subject: "user:bob", topic: "campodenno/#", action: [read, write], effect: deny}
"""


class Town:
    def __init__(self, node: Process) -> None:
        self.port = node.ports["PORT"]
        self.url = f"http://127.0.0.1:{node.ports['HTTP_PORT']}"
        token = node.admin_token()
        headers = {"Authorization": f"Bearer {token}"}
        self.given: dict[str, dict[str, Any]] = {}
        with httpx.Client(base_url=self.url, headers=headers, timeout=STARTING) as api:
            for name, roles in (("mary", ["farmer"]), ("bob", []), ("vane", ["device"])):
                answer = api.post("/users", json={"name": name, "roles": roles})
                assert answer.status_code == 201, answer.text
                self.given[name] = answer.json()

    def client(self, user: str, private: PrivateKey | None = None, **options: Any) -> Client:
        given = self.given.get(user, {"password": user[0], "token": ""})
        return Client(
            "127.0.0.1",
            port=self.port,
            user=user,
            password=given["password"],
            private_key=private,
            **{"keys": self.url, "token": given["token"], "patience": PATIENCE} | options,
        )


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder: Path = tmp_path_factory.mktemp("town")
    (folder / "master.key").write_text(new_master(entropy("master")))
    (folder / "master.key").chmod(0o600)
    with process(folder, CONFIGURATION) as node:
        yield Town(node)


async def test_register_and_read(town: Town) -> None:
    mary, bob = town.client("mary", MARY), town.client("bob", BOB)
    async with mary, bob, town.client("station", keys=None) as station:
        await mary.subscribe("campodenno/#")
        await bob.subscribe("open/#")
        await station.publish("campodenno/soil", b"too early")
        early = await got(mary)
        assert isinstance(early.error, Denied)
        assert early.error.problem == "conflict", "no key is registered yet"

        for each, user in ((mary, "mary"), (bob, "bob")):
            await each.register_key(town.url, town.given[user]["token"])
        async with asyncio.timeout(PATIENCE):
            while True:  # what was refused is asked for again after a moment
                await station.publish("campodenno/soil", b"wet")
                message = await got(mary)
                if message.error is None:
                    break
        assert message.payload == b"wet"

        await station.publish("open/leak", message.raw.payload)
        leaked = await got(bob)
        assert isinstance(leaked.error, Denied)
        assert (leaked.error.rule, leaked.error.problem) == ("not-bob", "denied")
        with pytest.raises(Denied, match="not-bob"):
            await bob.publish("campodenno/soil", b"forged", encrypt=True)


async def test_sealing_over_http(town: Town) -> None:
    mary, vane = town.client("mary", MARY), town.client("vane", VANE)
    async with mary, vane:
        await mary.register_key(town.url, town.given["mary"]["token"])
        await vane.register_key(town.url, town.given["vane"]["token"])
        await mary.subscribe("campodenno/wind")
        await vane.publish("campodenno/wind", b"north", encrypt=True)
        message = await got(mary)
        assert (message.payload, message.error) == (b"north", None)
        with pytest.raises(Denied) as no:
            await mary.publish("campodenno/wind", b"no right to write", encrypt=True)
        assert no.value.problem == "denied"


async def test_a_wrong_token_and_nobody_there(town: Town) -> None:
    with pytest.raises(KeysError, match="token"):
        await town.client("mary", MARY).register_key(town.url, "tg_wrong")
    with pytest.raises(KeysError, match="cannot be reached"):
        await town.client("mary", MARY).register_key(f"http://127.0.0.1:{free_port()}", "tg_wrong")


async def test_something_else_is_there() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops")
        await writer.drain()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(serve, "127.0.0.1", port):
        with pytest.raises(KeysError, match="502: this is not a Tidegate node"):
            await HttpService(url=f"http://127.0.0.1:{port}", token="t").request("PUT", "/me/key", {})


def test_places_that_are_none() -> None:
    for url in ("", "127.0.0.1:80", "ftp://host"):
        with pytest.raises(ValueError, match="not an HTTP address"):
            Client("127.0.0.1", private_key=MARY, keys=url, token="t")
    with pytest.raises(ValueError, match="token"):
        Client("127.0.0.1", private_key=MARY, keys="https://host")
