"""Topic keys over HTTP, from a real node: whoever may read a message is given its key, and nobody else."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import httpx
import orjson

from api.real import Administrator, administering
from tidegate.keys import Kem, Keychain, PrivateKey, open_message, read_key

FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
store: sqlite
sys: {interval: 0s}
keys: {protect: ["secret/#"]}
policies:
  - {id: readers, subject: "role:reader", topic: "secret/#", action: read}
  - {id: all-write, subject: "*", topic: "secret/#", action: write}
"""
PAIR = PrivateKey(kem=Kem.X25519, seed=bytes(range(32)))
HYBRID = PrivateKey(kem=Kem.HYBRID, seed=bytes(range(32)))


async def asked(admin: Administrator, token: str, id: str) -> tuple[str, httpx.Response]:
    mark = secrets.token_urlsafe(16)
    return mark, await admin.ask("GET", f"/keys/{id}", token, params={"request": mark})


async def test_who_may_read_is_given_the_key(tmp_path: Path) -> None:
    async with administering(tmp_path, FILE) as admin:
        body = {"name": "mary", "roles": ["reader"], "public_key": str(PAIR.public)}
        mary = await admin.make("/users", body)
        bob = await admin.make("/users", {"name": "bob", "public_key": str(PAIR.public)})
        zoe = await admin.make("/users", {"name": "zoe", "roles": ["reader"]})
        reader = await admin.served.connect("r", username="mary", password=mary["password"].encode())
        await reader.subscribe("secret/#")
        writer = await admin.served.connect("w")
        await writer.publish("secret/a", b"forty-two")
        sealed = (await reader.message()).payload
        id = orjson.loads(sealed)["keyId"]
        assert b"forty-two" not in sealed

        mark, answer = await asked(admin, mary["token"], id)
        assert answer.status_code == 200, answer.text
        key = read_key(answer.content, PAIR, reader="user:mary", request=mark)
        chain = Keychain()
        chain.put(key, now=time.monotonic())
        assert open_message(sealed, "secret/a", chain, now=time.monotonic()) == b"forty-two"

        _, denied = await asked(admin, bob["token"], id)
        assert denied.status_code == 403
        assert denied.json()["type"] == "urn:tidegate:problem:denied"
        assert denied.json()["stage"]
        assert "rule" in denied.json()
        _, keyless = await asked(admin, zoe["token"], id)
        assert keyless.status_code == 409
        assert (await admin.ask("PUT", "/me/key", zoe["token"], json={"public_key": str(HYBRID.public)})).is_success
        mark, answer = await asked(admin, zoe["token"], id)
        assert read_key(answer.content, HYBRID, reader="user:zoe", request=mark).secret == key.secret

        listed = (await admin.ask("GET", "/keys")).json()["items"]
        assert [each["id"] for each in listed] == [id]
        only = {"dry_run": "true"}
        for which, groups in (({"user": "mary"}, 1), ({"user": "bob"}, 0), ({"filter": "secret/#"}, 1), ({}, 1)):
            tried = await admin.ask("POST", "/keys/rotate", json=which, params=only)
            assert tried.json() == {"groups": groups, "dry_run": True}
        assert (await admin.ask("POST", "/keys/rotate", json={"user": "nobody"}, params=only)).status_code == 404
        tried = await admin.ask("DELETE", f"/keys/{id}", params=only)
        assert (tried.json()["key"]["id"], tried.json()["key"]["topic"]) == (id, "secret/a")
        assert (await admin.ask("DELETE", "/keys/nothing", params=only)).status_code == 404
        assert (await admin.ask("GET", "/keys")).json()["items"] == listed, "nothing has happened"
        assert (await asked(admin, mary["token"], id))[1].status_code == 200
        why = {"why": "she left"}
        rotated = await admin.ask("POST", "/keys/rotate", json={"user": "mary"}, params=why)
        assert rotated.json() == {"groups": 1, "dry_run": False}
        rows = (await admin.ask("GET", "/audit")).json()["items"]
        assert [each["detail"].rpartition(": ")[2] for each in rows if each["action"] == "key rotate"] == ["she left"]
        assert (await admin.ask("POST", "/keys/rotate", json={"user": "nobody"})).status_code == 404
        assert (await admin.ask("DELETE", f"/keys/{id}?why=stolen")).json()["revoked"] == id
        _, gone = await asked(admin, mary["token"], id)
        assert gone.status_code == 404
        assert (await admin.ask("DELETE", f"/keys/{id}")).status_code == 404


async def test_who_may_write_is_given_a_key_to_seal_with(tmp_path: Path) -> None:
    async with administering(tmp_path, FILE) as admin:
        bob = await admin.make("/users", {"name": "bob", "public_key": str(PAIR.public)})
        mark = secrets.token_urlsafe(16)
        for topic, status in (("secret/a", 200), ("open/a", 403), ("secret/#", 422)):
            body = {"topic": topic, "request": mark}
            answer = await admin.ask("POST", "/keys/request", bob["token"], json=body)
            assert answer.status_code == status, answer.text
            if status == 200:
                assert read_key(answer.content, PAIR, reader="user:bob", request=mark).seconds > 0
