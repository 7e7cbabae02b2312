"""Topic keys over HTTP, from a real node: whoever may read a message is given its key, and nobody else."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from pathlib import Path
from typing import Any

import httpx
import orjson

from api.real import Administrator, administering
from harness import PATIENCE
from sockets.holding import Holder, issuing
from tidegate import wire
from tidegate.client import Client
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


async def asked(
    admin: Administrator, token: str, id: str, holder: Holder | None = None, *, proven: bool = True
) -> tuple[str, httpx.Response]:
    mark = secrets.token_urlsafe(16)
    headers = showing(holder, mark if proven else None)
    return mark, await admin.ask("GET", f"/keys/{id}", token, params={"request": mark}, headers=headers)


def showing(holder: Holder | None, mark: str | None) -> dict[str, str]:
    """The headers of a request; with a mark also the proof for it."""
    if holder is None:
        return {}
    proof = {} if mark is None else {"Tidegate-Proof": holder.proof("key", mark)[1]}
    return {"Tidegate-Capability": holder.token, **proof}


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


# -- capabilities ------------------------------------------------------------------------------------------------------


def needing(folder: Path, **more: Any) -> str:
    """Policies allow everything to readers; a capability is needed besides."""
    return json.dumps(
        {
            "version": 1,
            "node": {"name": "test", "data": "data"},
            "listeners": [{"url": "mqtt://127.0.0.1:PORT", "anonymous": True}],
            "store": "sqlite",
            "sys": {"interval": "0s"},
            "keys": {"protect": ["secret/#"]},
            "capabilities": issuing(folder, required=True, **more),
            "policies": [{"id": "all", "subject": "role:reader", "topic": "#", "action": ["read", "write"]}],
        }
    )


async def sealed_key(admin: Administrator, holder: Holder) -> str:
    """The id of the key of a message that its holder has published."""
    end = await holder.come(admin.served)
    await end.subscribe("secret/#")
    await end.send(wire.Publish(topic="secret/a", payload=b"forty-two"))
    id = str(orjson.loads((await end.message()).payload)["keyId"])
    await end.disconnect()
    return id


async def test_a_key_is_given_by_capability_and_policies(tmp_path: Path) -> None:
    """Over HTTP as over MQTT: the policies let both read everything."""
    reader = {"roles": ["reader"], "public_key": str(PAIR.public)}
    async with administering(tmp_path, needing(tmp_path)) as admin:
        mary = await admin.make("/users", {"name": "mary", **reader})
        bob = await admin.make("/users", {"name": "bob", **reader})
        full, few = Holder(subject="user:mary"), Holder("read,write:other/#", subject="user:bob")
        id = await sealed_key(admin, full)

        async def refused(token: str, holder: Holder | None, rule: str, why: str = "", *, proven: bool = True) -> None:
            _, answer = await asked(admin, token, id, holder, proven=proven)
            assert answer.status_code == 403, answer.text
            assert (answer.json()["rule"], why in answer.json()["detail"]) == (rule, True), answer.text

        await refused(bob["token"], None, "capability", "every client needs a capability")
        await refused(bob["token"], few, few.rule)
        await refused(bob["token"], full, full.rule, "another user")
        await refused(mary["token"], full, full.rule, "over TLS only", proven=False)
        mark, answer = await asked(admin, mary["token"], id, full)
        assert answer.status_code == 200, answer.text
        read_key(answer.content, PAIR, reader="user:mary", request=mark)

        for token, holder, status in ((mary["token"], full, 200), (bob["token"], few, 403), (bob["token"], None, 403)):
            mark = secrets.token_urlsafe(16)
            body = {"topic": "secret/b", "request": mark}
            made = await admin.ask("POST", "/keys/request", token, json=body, headers=showing(holder, mark))
            assert made.status_code == status, made.text
        rows = (await admin.ask("GET", "/audit", params={"kind": "deny"})).json()["items"]
        assert {each["rule"] for each in rows if each["action"] == "key"} == {"capability", few.rule, full.rule}


async def test_a_proof_counts_once_and_for_its_request(tmp_path: Path) -> None:
    async with administering(tmp_path, needing(tmp_path)) as admin:
        mary = await admin.make("/users", {"name": "mary", "roles": ["reader"], "public_key": str(PAIR.public)})
        full = Holder(subject="user:mary")
        id = await sealed_key(admin, full)
        mark = secrets.token_urlsafe(16)
        headers = showing(full, mark)
        for request, status in ((secrets.token_urlsafe(16), 403), (mark, 200), (mark, 403)):
            answer = await admin.ask("GET", f"/keys/{id}", mary["token"], params={"request": request}, headers=headers)
            assert answer.status_code == status, answer.text
        narrow = Holder(subject="user:mary/client:phone")
        assert (await asked(admin, mary["token"], id, narrow))[1].status_code == 200
        revoked = Holder(subject="user:mary")
        admin.served.node.register.revoke(revoked.id)
        assert (await asked(admin, mary["token"], id, revoked))[1].status_code == 403
        late = Holder(subject="user:mary", lasts=-1.0)
        assert (await asked(admin, mary["token"], id, late))[1].status_code == 403


async def test_the_client_shows_its_capability(tmp_path: Path) -> None:
    async with administering(tmp_path, needing(tmp_path, proof="per-message")) as admin:
        mary = await admin.make("/users", {"name": "mary", "roles": ["reader"], "public_key": str(PAIR.public)})
        holder = Holder(subject="user:mary")
        async with Client(
            "127.0.0.1",
            port=admin.served.ports["PORT"],
            user="mary",
            password=mary["password"],
            capability=holder.token,
            proof_key=holder.key,
            private_key=PAIR,
            keys=str(admin.base_url),
            token=mary["token"],
        ) as client:
            await client.subscribe("secret/#")
            await client.publish("secret/a", b"forty-two")
            async with asyncio.timeout(PATIENCE):
                async for message in client.messages:
                    assert message.payload == b"forty-two"
                    break
