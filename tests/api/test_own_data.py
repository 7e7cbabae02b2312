"""What people are told about their own data, over HTTP, by a real node: theirs, all of it, and nobody else's."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.real import Administrator, administering
from harness import Client
from tidegate import wire
from tidegate.admin.control_commands import MakeToken
from tidegate.admin.me.deliveries import Wanted

FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
store: sqlite
sys: {interval: 0s}
record: RECORD
me: {names: NAMES}
directory:
  users:
    mary: {password: "plain:m", roles: [member], attributes: {shoe: 41}}
    bob: {password: "plain:b", roles: [coach]}
    alice: {password: "plain:a", roles: [coach]}
    scale: {password: "plain:s", owner: mary}
  clients: {tr1: {user: mary}}
policies:
  - {id: scales, subject: "user:scale", topic: "gym/scale/#", action: write}
  - {id: own, subject: "user:mary", topic: "gym/mary/#", action: write}
  - {id: coaches, subject: "role:coach", topic: "gym/#", action: read, when: "s.user == 'alice' || o.payload.v > 3"}
  - {id: bobs, subject: "user:bob", topic: "gym/bob/#", action: write}
preferences: [{id: filed, user: mary, topic: "gym/mary/private", when: "s.user == 'alice'"}]
"""


NOBODY = {"mary": ("no", None), "scale": ("no", None)}


class Gym:
    def __init__(self, admin: Administrator) -> None:
        self.admin = admin
        self.tokens: dict[str, str] = {}

    async def ask(self, user: str, path: str, method: str = "GET", status: int = 200, **options: Any) -> Any:
        if user not in self.tokens:
            administration = self.admin.served.node.administration
            assert administration is not None
            made = await administration.tokens.make(MakeToken(role="user", user=user, by="test"))
            self.tokens[user] = made["token"]
        answer = await self.admin.ask(method, path, self.tokens[user], **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def connect(self, user: str, client: str) -> Client:
        connected = await self.admin.served.socket()
        await connected.send(
            wire.Connect(
                version=wire.V5,
                client_id=client,
                clean_start=True,
                keep_alive=0,
                username=user,
                password=user[:1].encode(),
            )
        )
        assert (await connected.expect(wire.Connack)).reason == 0
        return connected


@pytest.fixture
async def gym(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Gym]:
    text = FILE
    for word, value in {"RECORD": "traffic", "NAMES": "users", **getattr(request, "param", {})}.items():
        text = text.replace(word, value)
    async with administering(tmp_path, text) as admin:
        yield Gym(admin)


def by_user(answer: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {user: (each["can"], each["when"]) for each in answer["readers"] for user in each["users"]}


async def test_readers_also_after_changes(gym: Gym) -> None:
    found = by_user(await gym.ask("mary", "/me/readers", params={"topic": "gym/mary/ride"}))
    assert found == {**NOBODY, "bob": ("if", "o.payload.v > 3"), "alice": ("yes", None)}
    private = by_user(await gym.ask("mary", "/me/readers", params={"topic": "gym/mary/private", "client": "tr1"}))
    assert private == {**NOBODY, "bob": ("no", None), "alice": ("yes", None)}
    stop = {"topic": "#", "effect": "deny", "when": "s.user == 'alice'"}
    await gym.ask("mary", "/me/preferences", "POST", 201, json=stop)
    found = by_user(await gym.ask("mary", "/me/readers", params={"topic": "gym/mary/ride"}))
    assert found["alice"] == ("no", None)
    assert by_user(await gym.ask("bob", "/me/readers", params={"topic": "gym/mary/ride"}))["alice"] == ("yes", None)
    for wrong, status in (({"topic": "gym/#"}, 422), ({"topic": "a", "client": "nobody"}, 200), ({}, 422)):
        await gym.ask("mary", "/me/readers", status=status, params=wrong)
    await gym.ask("bob", "/me/readers", status=404, params={"topic": "a", "client": "tr1"})


@pytest.mark.parametrize("gym", [{"NAMES": "roles"}], indirect=True)
async def test_names_are_not_told_where_only_roles_are(gym: Gym) -> None:
    bob, mary = await gym.connect("bob", "phone"), await gym.connect("mary", "tr1")
    await bob.subscribe("gym/#", qos=1)
    await mary.publish("gym/mary/ride", b'{"v": 5}', qos=1)
    await bob.message()
    answer = await gym.ask("mary", "/me/readers", params={"topic": "gym/mary/ride"})
    assert [(each["can"], each["count"], each["roles"], each["users"]) for each in answer["readers"]] == [
        ("no", 2, {"member": 1}, None),
        ("if", 1, {"coach": 1}, None),
        ("yes", 1, {"coach": 1}, None),
    ]
    [delivery] = (await gym.ask("mary", "/me/deliveries"))["items"]
    assert (delivery["user"], delivery["client"], delivery["roles"]) == (None, None, ["coach"])
    assert "bob" not in str((answer, delivery))


async def test_deliveries_are_counted_by_reader_and_topic(gym: Gym) -> None:
    bob, alice, mary = await gym.connect("bob", "b"), await gym.connect("alice", "a"), await gym.connect("mary", "tr1")
    for client in (bob, alice):
        await client.subscribe("gym/#", qos=1)
    for value in (1, 5, 6):
        await mary.publish("gym/mary/ride", b'{"v": %d}' % value, qos=1)
    await mary.publish("gym/mary/private", b'{"v": 9}', qos=1)
    for _ in range(2):
        await bob.message()
    for _ in range(4):
        await alice.message()
    answer = await gym.ask("mary", "/me/deliveries")
    assert (answer["recorded"], answer["complete"]) == (True, True)
    counts = {(each["user"], each["client"], each["topic"]): each["count"] for each in answer["items"]}
    assert counts == {
        ("bob", "b", "gym/mary/ride"): 2,
        ("alice", "a", "gym/mary/ride"): 3,
        ("alice", "a", "gym/mary/private"): 1,
    }
    assert all(each["first"] <= each["last"] for each in answer["items"])
    private = await gym.ask("mary", "/me/deliveries", params={"topic": "gym/+/private"})
    assert [each["user"] for each in private["items"]] == ["alice"]
    await mary.publish("gym/mary/private", b'{"v": 10}', qos=1)
    await alice.message()
    single = (await gym.ask("mary", "/me/deliveries", params={"topic": "gym/+/private", "single": "true"}))["items"]
    assert [(each["user"], each["count"], each["first"] == each["last"]) for each in single] == [("alice", 1, True)] * 2
    assert single[0]["first"] > single[1]["first"]
    assert (await gym.ask("bob", "/me/deliveries"))["items"] == []
    assert (await gym.ask("mary", "/me/deliveries", params={"until": "2020-01-01"}))["items"] == []
    await gym.ask("mary", "/me/deliveries", status=422, params={"topic": "a#"})


async def test_a_client_identifier_makes_no_message_somebody_elses(gym: Gym) -> None:
    """Several publishers stand in one text, and a client chose an identifier that looked like another of them."""
    alice, forger = await gym.connect("alice", "a"), await gym.connect("bob", "x, user:mary/client:tr1")
    await alice.subscribe("gym/#", qos=1)
    await forger.publish("gym/bob/ride", b"{}", qos=1)
    await alice.message()
    assert (await gym.ask("mary", "/me/deliveries"))["items"] == []
    assert [each["topic"] for each in (await gym.ask("bob", "/me/deliveries"))["items"]] == ["gym/bob/ride"]


@pytest.mark.parametrize("gym", [{"RECORD": "off"}], indirect=True)
async def test_a_node_that_records_nothing_says_so(gym: Gym) -> None:
    assert (await gym.ask("mary", "/me/deliveries"))["recorded"] is False


@pytest.mark.parametrize(
    ("publishers", "topic", "at", "takes"),
    [
        ("user:mary/client:tr1", "a", 5.0, True),
        ("user:bob/client:x, user:mary/client:tr1", "a", 5.0, True),
        ("user:mary2/client:tr1", "a", 5.0, False),
        ("user:mary/client:x/client:y", "a", 5.0, False),
        ("client:mary", "a", 5.0, False),
        ("user:mary/client:tr1", "b", 5.0, False),
        ("user:mary/client:tr1", "a", 0.5, False),
        (None, "a", 5.0, False),
    ],
)
def test_whose_a_row_is(publishers: str | None, topic: str, at: float, takes: bool) -> None:
    users = ["mary", "bob", "mary/client:x", "mary2"]
    assert Wanted.of(["mary"], users, since=1.0, until=9.0, topic="a").takes(publishers, topic, at) is takes


async def test_history_shows_what_was_deleted_too(gym: Gym) -> None:
    made = await gym.ask("mary", "/me/preferences", "POST", 201, json={"topic": "gym/mary/#"}, params={"why": "first"})
    path = f"/me/preferences/{made['id']}"
    changed = {"topic": "gym/mary/#", "effect": "deny"}
    second = await gym.ask("mary", path, "PUT", json=changed, headers={"If-Match": f'"{made["version"]}"'})
    await gym.ask("mary", path, "DELETE", headers={"If-Match": f'"{second["version"]}"'})
    await gym.ask("bob", "/me/preferences", "POST", 201, json={"topic": "gym/bob/#"})
    items = (await gym.ask("mary", "/me/history"))["items"]
    assert {each["id"] for each in items} == {made["id"]}
    assert [None if each["body"] is None else each["body"].get("effect") for each in items] == [None, "deny", None]
    assert [each["why"] for each in items] == ["", "", "first"]
    assert len((await gym.ask("bob", "/me/history"))["items"]) == 1


async def test_export_is_all_of_ones_own_and_nothing_of_others(gym: Gym) -> None:
    mary, bob = await gym.connect("mary", "tr1"), await gym.connect("bob", "phone")
    await mary.subscribe("gym/x", qos=0)
    await bob.subscribe("gym/#", qos=1)
    await mary.publish("gym/mary/ride", b'{"v": 5}', qos=1, retain=True)
    await bob.message()
    await gym.ask("mary", "/me/preferences", "POST", 201, json={"topic": "gym/mary/#", "when": "true"})
    found = await gym.ask("mary", "/me/export")
    assert found["person"] == {"roles": ["member"], "attributes": {"shoe": 41}}
    assert list(found["clients"]) == ["tr1"]
    assert found["lake"] == {"rows": {}, "complete": True}, "there is no pipeline"
    assert sorted(each["id"] == "filed" for each in found["preferences"]) == [False, True]
    assert len(found["history"]) == 1
    assert [token["role"] for token in found["tokens"]] == ["user"]
    assert [session["client"] for session in found["sessions"]] == ["tr1"]
    [message] = found["retained"]["items"]
    assert (message["topic"], b64decode(message["payload"])) == ("gym/mary/ride", b'{"v": 5}')
    assert [each["user"] for each in found["deliveries"]["items"]] == ["bob"]
    theirs = await gym.ask("bob", "/me/export")
    assert (theirs["preferences"], theirs["retained"]["items"], theirs["history"]) == ([], [], [])
    assert [session["client"] for session in theirs["sessions"]] == ["phone"]
    assert "plain:" not in str((found, theirs))
    assert "shoe" not in str(theirs)


async def test_what_a_person_says_holds_for_their_devices(gym: Gym) -> None:
    """Preferences, readers, deliveries and export reach what a source of theirs sends; to others it is nobody's."""
    alice, scale = await gym.connect("alice", "a"), await gym.connect("scale", "kitchen")
    await alice.subscribe("gym/#", qos=1)
    await scale.publish("gym/scale/weight", b'{"v": 70}', qos=1, retain=True)
    await alice.message()
    topic = {"topic": "gym/scale/weight", "device": "scale"}
    assert by_user(await gym.ask("mary", "/me/readers", params=topic))["alice"] == ("yes", None)
    await gym.ask("bob", "/me/readers", status=404, params=topic)
    [delivery] = (await gym.ask("mary", "/me/deliveries"))["items"]
    assert (delivery["user"], delivery["topic"]) == ("alice", "gym/scale/weight")
    assert (await gym.ask("bob", "/me/deliveries"))["items"] == []
    exported = await gym.ask("mary", "/me/export")
    assert exported["devices"] == ["scale"]
    assert [(each["user"], each["topic"]) for each in exported["retained"]["items"]] == [("scale", "gym/scale/weight")]
    assert {each["client"] for each in exported["sessions"]} == {"kitchen"}

    stop = {"topic": "gym/scale/#", "effect": "deny", "when": "s.user == 'alice'"}
    await gym.ask("mary", "/me/preferences", "POST", 201, json=stop)
    await scale.publish("gym/scale/weight", b'{"v": 71}', qos=1)
    await alice.silent()
    assert by_user(await gym.ask("mary", "/me/readers", params=topic))["alice"] == ("no", None)


async def test_only_an_administrator_says_whose_a_source_is(gym: Gym) -> None:
    source = {"NodeId": "band", "NodeType": "sensor", "CommunicationMode": "discrete", "Owner": "mary"}
    made = await gym.admin.make("/registration", source)
    assert (await gym.ask("mary", "/me/export"))["devices"] == ["scale", "band"]
    for owner in ("bob", "mary"):
        again = await gym.admin.ask("POST", "/registration", made["token"], json={**source, "Owner": owner})
        assert again.status_code == 403, again.text
    renewed = await gym.admin.ask("POST", "/registration", made["token"], json={**source, "Owner": None})
    assert renewed.status_code == 201, renewed.text
    assert (await gym.ask("mary", "/me/export"))["devices"] == ["scale", "band"]
    nobody = await gym.admin.ask("POST", "/registration", json={**source, "NodeId": "x", "Owner": "nobody"})
    assert nobody.status_code == 422, nobody.text
