"""The live view of a real node: who is there, what they have, and what becomes of them when somebody ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness import Client
from processes import Served, from_file, until
from tidegate import wire
from tidegate.admin.live import pages
from tidegate.admin.live.pages import Pages
from tidegate.errors import Problem
from tidegate.net.control_socket import ask
from tidegate.scope.sessions import Sessions

FILE = """
version: 1
node: {name: n, data: data}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: gym}
  - {url: "mqtt://127.0.0.1:OTHER_PORT", scope: other}
scopes: {gym: {}, other: {}}
links: [{from: gym, to: other, share: [{topic: "shared/#"}]}]
sys: {interval: 0s}
subscribe: hold
directory:
  users: {mary: {password: "plain:m", roles: [coach]}, bob: {password: "plain:b"}}
policies:
  - {id: own, subject: "*", topic: "of/{s.user}/#", action: [read, write]}
  - {id: shared, subject: ["user:mary", "link:gym->other"], topic: "shared/#", action: [read, write]}
  - {id: never, subject: "*", topic: "never/#", action: read, effect: deny}
"""


class Gym:
    """A node with two scopes, and what its control socket says."""

    def __init__(self, served: Served) -> None:
        self.served = served

    async def ask(self, command: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(ask, self.served.node.config.control_socket, command, **arguments)

    async def connect(self, client: str, user: str = "mary", port: str = "PORT", **fields: Any) -> Client:
        """Connected, with a session that stays."""
        connected = await self.served.dial(self.served.ports[port])
        stays = wire.Properties(session_expiry_interval=1000)
        password = user[:1].encode()
        fields = {"clean_start": True, "keep_alive": 0, "properties": stays, **fields}
        await connected.send(
            wire.Connect(version=wire.V5, client_id=client, username=user, password=password, **fields)
        )
        assert (await connected.expect(wire.Connack)).reason == 0
        return connected

    async def all(self, command: str, limit: int, **arguments: Any) -> list[dict[str, Any]]:
        """All pages."""
        found, after = [], None
        while True:
            page = await self.ask(command, limit=limit, after=after, **arguments)
            assert len(page["items"]) <= limit
            found += page["items"]
            if (after := page["next"]) is None:
                return found

    def changes(self) -> list[tuple[str | None, ...]]:
        """What the audit has of those who ended something."""
        rows = self.served.node.audit.sink.recent()
        return [
            (row.user, row.action, row.client, row.topic, row.detail)
            for row in rows
            if row.action in ("disconnect", "drop", "clear")
        ]


@pytest.fixture
async def gym(tmp_path: Path) -> AsyncIterator[Gym]:
    async with from_file(tmp_path, FILE) as served:
        yield Gym(served)


async def test_clients_and_their_sessions(gym: Gym) -> None:
    first, second = await gym.connect("tr1"), await gym.connect("tr1", "bob")
    await gym.connect("tr0", port="OTHER_PORT")
    assert (await first.subscribe("of/mary/#", "of/bob/x", "never/a")).reasons[0] == 0
    clients = await gym.all("client_list", 1)
    assert [(row["scope"], row["client"], row["user"]) for row in clients] == [
        ("gym", "tr1", "bob"),
        ("gym", "tr1", "mary"),
        ("other", "tr0", "mary"),
    ]
    mary = clients[1]
    assert mary["subscriptions"] == {"granted": 1, "held": 2, "refused": 0}
    assert (mary["protocol"], mary["level"], mary["address"]) == ("5.0", "plain", "127.0.0.1")
    assert await gym.all("client_list", 9, user="bob") == [clients[0]]
    assert await gym.all("client_list", 9, scope="other") == [clients[2]]
    with pytest.raises(Problem, match="no scope 'x'"):
        await gym.ask("client_list", scope="x")
    for after in ("x", "W10", "WzFd", "♥"):
        with pytest.raises(Problem, match="`after`"):
            await gym.ask("client_list", after=after)

    await second.disconnect()
    await until(lambda: gym.served.node.scopes["gym"].connected == 1)
    assert [row["user"] for row in await gym.all("client_list", 5)] == ["mary", "mary"]
    [away] = await gym.all("session_list", 5, away=True)
    assert (away["user"], away["connected"], away["persistent"]) == ("bob", False, True)
    assert away["expires"] == pytest.approx(away["since"] + 1000)
    assert len(await gym.all("session_list", 2)) == 3


async def test_what_is_shown_of_one(gym: Gym) -> None:
    tr1 = await gym.connect("tr1")
    await gym.connect("tr1", "bob")
    await tr1.subscribe("of/mary/b", "of/mary/a", qos=1)
    await tr1.publish("of/bob/x", qos=1)
    with pytest.raises(Problem, match="user bob in scope gym"):
        await gym.ask("client_show", client="tr1")
    shown = await gym.ask("client_show", client="tr1", user="mary")
    assert [(row["filter"], row["qos"]) for row in shown["items"]] == [("of/mary/a", 1), ("of/mary/b", 1)]
    assert shown["roles"] == ["coach"]
    [denial] = shown["denials"]
    assert (denial["action"], denial["topic"], denial["stage"]) == ("write", "of/bob/x", "write")
    with pytest.raises(Problem, match="no client of that identifier"):
        await gym.ask("client_show", client="tr2")


async def test_the_queue_of_somebody_who_is_away(gym: Gym) -> None:
    away = await gym.connect("tr1")
    await away.subscribe("shared/a", qos=1)
    await away.disconnect()
    sender = await gym.connect("tr2")
    for _ in range(3):
        await sender.publish("shared/a", b"12345", qos=1)
    shown = await gym.ask("client_show", client="tr1", connected=False)
    assert shown["queue"]["messages"] == 3
    assert shown["queue"]["bytes"] >= 15


async def test_subscriptions(gym: Gym) -> None:
    first, second = await gym.connect("tr1"), await gym.connect("tr2", "bob")
    filters = [f"of/mary/{number}" for number in range(7)]
    await first.subscribe(*filters, "of/+/3")
    await second.subscribe("$share/g/of/bob/#", "of/bob/+")
    everything = await gym.all("subscription_list", 3)
    assert [(row["client"], row["filter"]) for row in everything] == [
        *(("tr1", filter) for filter in ("of/+/3", *filters)),
        ("tr2", "$share/g/of/bob/#"),
        ("tr2", "of/bob/+"),
    ]
    assert [row["group"] for row in everything[-2:]] == ["g", None]
    matching = await gym.all("subscription_list", 1, topic="of/mary/3")
    assert [row["filter"] for row in matching] == ["of/+/3", "of/mary/3"]
    assert await gym.all("subscription_list", 2, client="tr1") == everything[:8]
    assert await gym.all("subscription_list", 2, user="bob") == everything[8:]
    with pytest.raises(Problem, match="without wildcards"):
        await gym.ask("subscription_list", topic="a/#")


async def test_topics_are_a_tree_and_do_not_tell_content(gym: Gym) -> None:
    mary = await gym.connect("tr1")
    for topic in ("of/mary/a", "of/mary/a/1", "of/mary/a/2", "of/mary/a-b", "shared/x"):
        await mary.publish(topic, b"secret", qos=1, retain=True)
    top = await gym.all("topic_list", 1)
    assert [(row["scope"], row["topic"], row["below"]) for row in top] == [
        ("gym", "of", 4),
        ("gym", "shared", 1),
        ("other", "shared", 1),
    ]
    below = await gym.all("topic_list", 1, under="of/mary")
    assert [(row["topic"], row["below"], row["retained"] is not None) for row in below] == [
        ("of/mary/a", 2, True),
        ("of/mary/a-b", 0, True),
    ]
    shown = await gym.ask("topic_show", topic="shared/x")
    assert [(row["scope"], row["bytes"], row["publisher"]) for row in shown["retained"]] == [
        ("gym", 6, "user:mary/client:tr1"),
        ("other", 6, "user:mary/client:tr1"),
    ]
    assert "secret" not in str((top, below, shown))


async def test_disconnect_drop_and_clear(gym: Gym) -> None:
    will = wire.Will(topic="shared/will", payload=b"gone", qos=0, retain=False)
    victim = await gym.connect("tr1", will=will)
    watcher = await gym.connect("tr2")
    await watcher.subscribe("shared/will", qos=1)
    by = {"by": "uid:1", "why": "maintenance"}
    assert (await gym.ask("client_disconnect", client="tr1", dry_run=True, **by))["client"] == "tr1"
    await victim.silent()
    assert gym.changes() == []

    assert (await gym.ask("client_disconnect", client="tr1", **by))["user"] == "mary"
    assert (await victim.expect(wire.Disconnect)).reason == wire.Reason.ADMINISTRATIVE_ACTION
    await victim.closed()
    assert (await watcher.message()).payload == b"gone"
    with pytest.raises(Problem, match="no client of that identifier"):
        await gym.ask("client_disconnect", client="tr1", **by)

    again = await gym.connect("tr1", clean_start=False)
    await again.subscribe("shared/a", qos=1)
    dropped = await gym.ask("session_drop", client="tr1", **by)
    assert (dropped["connected"], dropped["subscriptions"]["granted"]) == (True, 1)
    assert (await again.expect(wire.Disconnect)).reason == wire.Reason.ADMINISTRATIVE_ACTION
    assert [row["client"] for row in await gym.all("session_list", 5)] == ["tr2"]

    await watcher.publish("shared/r", b"kept", qos=1, retain=True)
    assert (await gym.ask("topic_clear", topic="shared/r", scope="other", **by))["scopes"] == ["other"]
    assert (await gym.ask("topic_clear", topic="shared/r", **by))["scopes"] == ["gym"]
    with pytest.raises(Problem, match="no message is retained"):
        await gym.ask("topic_clear", topic="shared/r", **by)
    assert gym.changes() == [
        ("uid:1", "disconnect", "tr1", None, "user:mary/client:tr1 of scope gym: maintenance"),
        ("uid:1", "drop", "tr1", None, "user:mary/client:tr1 of scope gym: maintenance"),
        ("uid:1", "clear", None, "shared/r", "retained message of scope other: maintenance"),
        ("uid:1", "clear", None, "shared/r", "retained message of scope gym: maintenance"),
    ]


async def test_what_was_dropped_or_cleared_stays_so_after_a_restart(tmp_path: Path) -> None:
    async with from_file(tmp_path, FILE) as served:
        gym = Gym(served)
        tr1 = await gym.connect("tr1")
        await tr1.publish("of/mary/r", b"x", qos=1, retain=True)
        await gym.ask("topic_clear", topic="of/mary/r", by="t")
        await gym.ask("session_drop", client="tr1", by="t")
    async with from_file(tmp_path, FILE) as served:
        gym = Gym(served)
        assert await gym.all("session_list", 5) == []
        assert await gym.all("topic_list", 5) == []


class _Crowd:
    """A scope with very many sessions, of which every tenth is wanted."""

    def __init__(self, count: int) -> None:
        self.name = "crowd"
        self.sessions = Sessions()
        for number in range(count):
            self.sessions["", f"c{number:06}"] = number  # type: ignore[assignment]  # only counted


async def test_a_page_of_a_crowd_is_made_in_small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sessions there are: no slice takes more steps than it may, one slice in a turn of the loop."""
    crowd = _Crowd(100_000)
    looked: list[int] = []
    turns = 0
    pause = asyncio.sleep

    async def counted(seconds: float) -> None:
        nonlocal turns
        turns += 1
        looked.append(0)
        await pause(seconds)

    monkeypatch.setattr(pages, "asyncio", type("_", (), {"sleep": staticmethod(counted), "Lock": asyncio.Lock}))

    def rows(session: Any, within: str | None) -> Any:
        looked[-1] += 1
        if within is None and session % 10 == 0:
            yield "", {"number": session}

    made = Pages({"crowd": crowd})  # type: ignore[dict-item]
    found: list[int] = []
    after = None
    while True:
        answers = await asyncio.gather(*(made.page(rows, scope=None, after=after, limit=500) for _ in range(3)))
        assert answers[0] == answers[1] == answers[2]
        found += [row["number"] for row in answers[0]["items"]]
        if (after := answers[0]["next"]) is None:
            break
    assert found == list(range(0, 100_000, 10))
    assert max(looked) <= pages.SLICE
    assert turns > 100_000 // pages.SLICE
