"""Open registration: a stranger gets a name that is free, and nothing of anybody else's.

Who else may have a name: a client of the directory, somebody with a certificate, and somebody for whom an issuer of
capabilities vouches. None of them is a user of the directory.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.real import Administrator, administering
from harness import Client
from processes import on_uvloop
from sockets.acts import Section, come, payloads, policy, secure, setting, user
from sockets.holding import Holder, issuing
from tidegate import wire
from tidegate.authentication import names

OWN = policy("own", "home/{s.user}/#")
SENSOR = {"NodeType": "sensor", "CommunicationMode": "discrete"}


@contextlib.asynccontextmanager
async def node(folder: Path, *policies: Section, **sections: Any) -> AsyncIterator[Administrator]:
    said = {"store": "sqlite", "sources": {"registration": "open"}, "directory": {"users": {"doc": user()}}, **sections}
    text = setting(*policies, data=True, **said)
    async with administering(folder, text, sources={"registration_open": True}) as admin:
        yield admin


async def register(admin: Administrator, name: str) -> httpx.Response:
    """As a stranger."""
    return await admin.request("POST", "/registration", json={"NodeId": name, **SENSOR})


async def log_in(admin: Administrator, name: str, password: str, client: str, *, expect: int = 0) -> Client:
    end = await admin.served.dial(admin.served.ports["PORT"])
    await end.send(
        wire.Connect(
            version=wire.V5,
            client_id=client,
            clean_start=False,
            keep_alive=0,
            username=name,
            password=password.encode(),
        )
    )
    end.connack = await end.expect(wire.Connack)
    assert end.connack.reason == expect, end.connack
    return end


# -- refused -----------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_the_name_of_a_client(tmp_path: Path) -> None:
    """One that the directory has, and one that a policy or a condition speaks of."""
    rules = [policy("told", "cmd/#", subject="client:dev7"), policy("read", when="s.client == 'dev8'")]
    directory = {"users": {"doc": user()}, "clients": {"dev9": {}}}
    async with node(tmp_path, *rules, directory=directory) as admin:
        for name in ("dev7", "dev8", "dev9"):
            assert (await register(admin, name)).status_code == 403, name
        assert (await register(admin, "dev")).status_code == 201


@on_uvloop
async def test_the_name_in_a_certificate_that_was_here(tmp_path: Path, certificates: Path) -> None:
    async with node(tmp_path, certificates=certificates) as admin:
        sensor = await come(admin.served, None, client="s", tls=secure(certificates, "sensor"))
        await sensor.disconnect()
        assert (await register(admin, "sensor")).status_code == 403
    async with node(tmp_path, certificates=certificates) as admin:
        assert (await register(admin, "sensor")).status_code == 403, "also after a restart"


@on_uvloop
async def test_the_name_that_an_issuer_vouches_for(tmp_path: Path) -> None:
    """Otherwise the stranger would read what alice has retained, and she would have to go."""
    async with node(tmp_path, OWN, capabilities=issuing(tmp_path)) as admin:
        alice = await Holder(subject="user:alice").come(admin.served, "tablet", stays=True)
        assert (await alice.subscribe("home/alice/#", qos=1)).reasons == (1,)
        await alice.publish("home/alice/diary", b"dear diary", retain=True)
        assert (await register(admin, "alice")).status_code == 403
        assert await payloads(alice) == [b"dear diary"], "she is still here"


@on_uvloop
async def test_the_name_of_who_was_removed(tmp_path: Path) -> None:
    """Placeholders would give the next one what the last one has retained."""
    both = {"users": {"doc": user(), "bob": user()}}
    async with node(tmp_path, OWN, directory=both) as admin:
        assert (await admin.ask("POST", "/users", json={"name": "carol"})).status_code == 201
        assert (await admin.ask("DELETE", "/directory/users/carol")).is_success
        assert (await register(admin, "carol")).status_code == 403
    async with node(tmp_path, OWN) as admin:
        assert (await register(admin, "bob")).status_code == 403
        assert (await register(admin, "carol")).status_code == 403


@on_uvloop
async def test_every_name_when_too_many_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MOST", 1)
    async with node(tmp_path, OWN, capabilities=issuing(tmp_path)) as admin:
        assert (await register(admin, "free")).status_code == 201
        await Holder(subject="user:alice").come(admin.served, "tablet")
        assert (await register(admin, "other")).status_code == 403


# -- registered first --------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_certificate_is_not_the_stranger_who_registered_its_name(tmp_path: Path, certificates: Path) -> None:
    async with node(tmp_path, policy("all"), certificates=certificates) as admin:
        password = (await register(admin, "sensor")).json()["password"]
        sensor = await come(admin.served, None, client="dev", tls=secure(certificates, "sensor"), stays=True)
        assert (await sensor.subscribe("to/sensor", qos=1)).reasons == (1,)
        await sensor.disconnect(0x04)
        doc = await come(admin.served, "doc")
        answer = await doc.publish("to/sensor", b"for the device", qos=1)
        assert answer is not None
        assert answer.reason == 0
        stranger = await log_in(admin, "sensor", password, "dev", expect=0x87)
        assert not stranger.connack.session_present
        sensor = await come(admin.served, None, client="dev", tls=secure(certificates, "sensor"), stays=True)
        assert sensor.connack.session_present
        assert (await sensor.message()).payload == b"for the device"


@on_uvloop
async def test_a_capability_is_not_for_the_stranger_who_registered_its_name(tmp_path: Path) -> None:
    async with node(tmp_path, OWN, capabilities=issuing(tmp_path)) as admin:
        password = (await register(admin, "alice")).json()["password"]
        holder = Holder(subject="user:alice")
        await holder.come(admin.served, "tablet", expect=0x87)
        await come(admin.served, None, client="tablet", asks=holder.shows("tablet"), expect=0x87)
        await log_in(admin, "alice", password, "mine")
        # an administrator who registers that source knows whom it is for
        assert (await admin.ask("POST", "/registration", json={"NodeId": "alice", **SENSOR})).status_code == 201
        await holder.come(admin.served, "tablet")


@on_uvloop
async def test_who_is_registered_elsewhere_does_not_log_in_with_a_name_of_others(tmp_path: Path) -> None:
    """Another node on the same registry does not know who was here."""
    async with node(tmp_path, OWN, capabilities=issuing(tmp_path)) as admin:
        made = (await register(admin, "alice")).json()
        await log_in(admin, "alice", made["password"], "mine")
        admin.served.node.authentication.names.note("alice")
        await log_in(admin, "alice", made["password"], "mine", expect=0x87)
        assert (await admin.ask("POST", "/data", made["token"], json={"t": 1})).status_code == 401


@on_uvloop
async def test_the_users_that_an_application_registers_chose_their_names_too(tmp_path: Path) -> None:
    async with node(tmp_path, policy("all"), capabilities=issuing(tmp_path)) as admin:
        app = await admin.make("/applications", {"id": "app"})
        mary = await admin.make("/applications/app/users", {"name": "app.mary"}, app["token"])
        await log_in(admin, "app.mary", mary["password"], "m")
        await Holder(subject="user:app.mary").come(admin.served, "t", expect=0x87)
        renewed = await admin.ask("POST", "/users/app.mary/credentials", app["token"])
        assert renewed.is_success, renewed.text


WRITTEN = ["s.user == 'dora'", 's.user == "dora"', "s.user in [r'dora']", r"s.user == 'd\x6fra'"]


@pytest.mark.parametrize("written", WRITTEN)
@on_uvloop
async def test_the_name_that_a_publisher_s_rule_mentions(tmp_path: Path, written: str) -> None:
    async with node(tmp_path, policy("w", "m/#", "write", subject="user:doc"), rules={"allow": ["m/#"]}) as admin:
        doc = await come(admin.served, "doc")
        rule = {"id": "r", "topic": "m/#", "subject": "*", "effect": "allow", "when": written}
        answer = await doc.publish("$tidegate/rules", json.dumps([rule]).encode(), qos=1)
        assert answer is not None
        assert answer.reason < 0x80, answer
        assert (await register(admin, "dora")).status_code == 403
        assert (await register(admin, "flora")).status_code == 201
