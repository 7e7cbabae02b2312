"""Tokens of an OpenID Connect issuer over MQTT, as a password and by OAUTHBEARER: what they permit, and until when."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import Client
from issuers import Pretended, SigningKey, claims, pretended
from processes import Served, from_file
from tidegate import wire
from tidegate.authentication import openid_provider
from tidegate.authentication.bearer_tokens import METHOD, token_of
from tidegate.scope import credential_expiry
from tidegate.wire import Properties, Reason

KEY, OTHER = SigningKey(algorithm="ES256"), SigningKey("two", "ES256")
FILE = """
version: 1
node: {name: n, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
sys: {interval: 0s}
explain: true
http:
  url: "http://127.0.0.1:HTTP_PORT"
  oidc:
    {name: gym, issuer: "URL", client: tidegate, mqtt: true, roles: {trainer: coach}, groups: {ops: operators},
     claims: {attributes: {shift: shift}}}
directory: {users: {ana: {password: "plain:local", roles: [trainer]}, mary: {password: "plain:m"}}}
policies:
  - {id: p1, subject: "role:coach", topic: "coach/#", action: [read, write]}
  - {id: p2, subject: "group:operators", topic: "ops/#", action: [read, write], when: "s.shift == '08:00-14:00'"}
  - {id: p3, subject: "user:ana@gym", topic: "hers/#", action: [read, write]}
  - {id: p4, subject: "user:ana", topic: "local/#", action: [read, write]}
  - {id: p5, subject: "role:trainer", topic: "local/#", action: [read, write]}
  - {id: p6, subject: "user:mary", topic: "#", action: [read, write]}
"""


@pytest.fixture(scope="module")
def issuer() -> Iterator[Pretended]:
    with pretended(KEY) as issuer:
        yield issuer


@pytest.fixture
async def node(tmp_path: Path, issuer: Pretended, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    from tidegate.node.http import HttpProcess

    monkeypatch.setattr(HttpProcess, "start", lambda _: None)
    issuer.discovers(KEY)
    async with from_file(tmp_path, FILE.replace("URL", issuer.url)) as served:
        yield served


def token(issuer: Pretended, **more: Any) -> str:
    return KEY.sign(claims(issuer.url, **more))


async def connect(node: Served, password: str, expect: int = 0, **fields: Any) -> Client:
    client = await node.connect("c", password=password.encode(), expect=expect, **fields)
    return client


async def granted(client: Client, *filters: str) -> list[bool]:
    suback = await client.subscribe(*filters)
    return [reason < 0x80 for reason in suback.reasons]


async def test_a_token_is_a_password(node: Served, issuer: Pretended) -> None:
    """It permits what the mapping of roles and groups permits, and nothing of who is called the same here."""
    client = await connect(node, token(issuer))
    assert await granted(client, "coach/a", "ops/a", "hers/a", "local/a") == [True, True, True, False]
    [session] = node.node.scopes["main"].sessions.values()
    assert (session.subject.user, session.subject.domain) == ("ana", "gym")
    for username in ("ana", "ana@gym", "gym"):
        await connect(node, token(issuer), username=username, version=wire.V311)
    await connect(node, token(issuer), Reason.BAD_USER_NAME_OR_PASSWORD, username="mary")
    local = await node.connect("c", username="ana", password=b"local")
    assert await granted(local, "coach/a", "hers/a", "local/a") == [False, False, True]


@pytest.mark.parametrize(
    "wrong",
    [{"aud": "other"}, {"iss": "http://127.0.0.1:1"}, {"exp": 1}, {"sub": None}, {"nbf": time.time() + 86_400}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_what_does_not_count(node: Served, issuer: Pretended, wrong: dict[str, Any]) -> None:
    await connect(node, token(issuer, **wrong), Reason.BAD_USER_NAME_OR_PASSWORD)
    await connect(node, OTHER.sign(claims(issuer.url)), Reason.BAD_USER_NAME_OR_PASSWORD)
    refused = [row for row in node.node.audit.sink.recent() if row.rule == "token"]
    assert len(refused) == 2


async def test_an_issuer_whose_tokens_are_for_signing_in_only(node: Served, issuer: Pretended) -> None:
    await connect(node, token(issuer))
    text = node.file.path.read_text()
    connected = await connect(node, token(issuer))
    await node.reload(text.replace("mqtt: true", "mqtt: false"))
    await connected.expect(wire.Disconnect)
    await connect(node, token(issuer), Reason.NOT_AUTHORIZED)
    await node.reload(text.replace("roles: {trainer: coach}", "roles: {trainer: boss}"))
    client = await connect(node, token(issuer))
    assert await granted(client, "coach/a", "hers/a") == [False, True]


async def test_expiry_disconnects(node: Served, issuer: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is put forward: the connection ends, and so does its will."""
    monkeypatch.setattr(credential_expiry, "LOOK", 0.01)
    watching = await node.connect("w", username="mary", password=b"m")
    await watching.subscribe("hers/will")
    will = wire.Will(topic="hers/will", payload=b"gone", qos=0, retain=False)
    client = await connect(node, token(issuer), will=will)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 700)
    ended = await client.expect(wire.Disconnect)
    assert ended.reason == Reason.NOT_AUTHORIZED
    assert "token has expired" in (ended.properties.reason_string or "")
    await watching.publish("hers/will", b"no will came before")
    assert (await watching.expect(wire.Publish)).payload == b"no will came before"
    monkeypatch.undo()


def shown(token: str) -> bytes:
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"


def offering(data: bytes) -> Properties:
    return Properties(authentication_method=METHOD, authentication_data=data)


async def test_a_newer_token_by_the_method(node: Served, issuer: Pretended) -> None:
    """The connection goes on, for the same person alone, with what the newer token says."""
    await connect(node, token(issuer))  # the keys are known then: the method does not wait for them
    client = await node.connect("m", properties=offering(shown(token(issuer, groups=[]))))
    assert await granted(client, "coach/a", "ops/a") == [True, False]
    newer = shown(token(issuer, exp=int(time.time()) + 6000))
    await client.send(wire.Auth(reason=Reason.RE_AUTHENTICATE, properties=offering(newer)))
    assert (await client.expect(wire.Auth)).reason == Reason.SUCCESS
    assert await granted(client, "ops/a") == [True]
    [session] = [each for each in node.node.scopes["main"].sessions.values() if each.client == "m"]
    assert session.subject.person is not None
    assert session.subject.person.expires > time.time() + 5000
    other = shown(token(issuer, sub="bob"))
    await client.send(wire.Auth(reason=Reason.RE_AUTHENTICATE, properties=offering(other)))
    assert (await client.expect(wire.Disconnect)).reason == Reason.NOT_AUTHORIZED
    for data in (b"", b"n,,\x01\x01", shown("x.y.z"), shown(token(issuer, aud="other"))):
        refused = await node.socket()
        await refused.send(
            wire.Connect(version=wire.V5, client_id="x", clean_start=True, keep_alive=0, properties=offering(data))
        )
        assert (await refused.expect(wire.Connack)).reason >= 0x80


async def test_a_session_is_of_a_person_of_one_issuer(node: Served, issuer: Pretended) -> None:
    """Nobody who is called the same takes it over, and it waits for its person."""
    keep = Properties(session_expiry_interval=600)
    client = await connect(node, token(issuer), properties=keep, clean_start=False)
    await client.subscribe("hers/#", qos=1)
    client.writer.close()
    local = await node.connect("c", username="ana", password=b"local", clean_start=False)
    assert not local.connack.session_present
    sender = await node.connect("s", username="mary", password=b"m")
    await sender.publish("hers/a", b"kept", qos=1)
    again = await connect(node, token(issuer), properties=keep, clean_start=False)
    assert again.connack.session_present
    assert (await again.expect(wire.Publish)).payload == b"kept"


async def test_keys_that_change(node: Served, issuer: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    await connect(node, token(issuer))
    issuer.discovers(OTHER)
    monkeypatch.setattr(openid_provider, "PAUSE", 0.0)
    await connect(node, OTHER.sign(claims(issuer.url)))
    await connect(node, token(issuer), Reason.BAD_USER_NAME_OR_PASSWORD)


async def test_an_issuer_that_is_away(node: Served, issuer: Pretended) -> None:
    issuer.pages.clear()
    await connect(node, token(issuer), Reason.SERVER_BUSY)
    await node.connect("m", username="mary", password=b"m")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", "a.b.c"),
        (b"n,a=ana,\x01host=h\x01port=1883\x01auth=bearer a.b.c\x01\x01", "a.b.c"),
        (b"y,,\x01auth=Bearer a.b.c\x01\x01", None),
        (b"n,,\x01auth=Bearer a.b.c\x01", None),
        (b"n,,\x01auth=Basic a.b.c\x01\x01", None),
        (b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", None),
        (b"n,,\x01auth=Bearer \xff\x01\x01", None),
        (b"n", None),
        (b"", None),
    ],
)
def test_the_data_of_the_method(data: bytes, found: str | None) -> None:
    assert token_of(data) == found


@pytest.mark.parametrize("preferences", ["", 'preferences: [{id: own, user: mary, topic: "hers/#", when: "false"}]\n'])
async def test_what_they_publish_is_received(node: Served, issuer: Pretended, preferences: str) -> None:
    """Their home is here: nobody else could say what they want of it."""
    await node.reload(node.file.path.read_text() + preferences)
    mary = await node.connect("mary", username="mary", password=b"m")
    await mary.subscribe("#", qos=1)
    for qos in (0, 1):
        ana = await connect(node, token(issuer))
        await ana.publish("hers/a", b"%d" % qos, qos=qos, retain=True)
        assert (await mary.message()).payload == b"%d" % qos
    late = await node.connect("late", username="mary", password=b"m")
    await late.subscribe("hers/#", qos=1)
    assert (await late.message()).payload == b"1"
