"""Nobody can stop the loop: every packet has a price, and whoever asks for much waits, not the others."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from harness import PATIENCE, Client, Live
from processes import Served, on_uvloop, until
from sockets.acts import PEOPLE, asking, come, door, go, policy, say
from tidegate import wire
from tidegate.gate.attributes import READ, READ_BYTES, MessageAttributes
from tidegate.gate.decision import CUT
from tidegate.scope import subscribing
from tidegate.scope.handshake import RESUMED
from tidegate.session import packet_costs
from tidegate.session.packet_costs import ASKED, OVERLAPPING, PROPERTY, Payer
from tidegate.wire.properties import MOST

MINE = policy("mine", "mine/#", subject="user:mary")
COSTLY = " && ".join(["o.size + 1 > 0"] * 24)
REFUSED, QUOTA, TOO_LARGE, BUSY = 0x87, 0x97, 0x95, 0x89


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The conditions that were compiled."""
    texts: list[str] = []
    compile = subscribing.condition

    def condition(text: str, functions: object) -> object:
        texts.append(text)
        return compile(text, functions)  # type: ignore[arg-type]

    monkeypatch.setattr(subscribing, "condition", condition)
    return texts


@on_uvloop
async def test_a_condition_is_compiled_only_for_who_may_subscribe_and_only_once(
    tmp_path: Path, compiled: list[str]
) -> None:
    async with door(tmp_path, MINE) as node:
        stranger, mary, again = await come(node, "bob"), await come(node, "mary"), await come(node, "mary", client="m2")
        for number in range(20):
            where = asking(("where", f"{COSTLY} && o.size > {number}"))
            assert (await stranger.subscribe("mine/x", properties=where)).reasons == (REFUSED,)
        assert compiled == []
        where = asking(("where", COSTLY))
        assert (await mary.subscribe("mine/x", "others/x", properties=where)).reasons == (0, REFUSED)
        assert (await again.subscribe("mine/y", properties=where)).reasons == (0,)
        assert compiled == [COSTLY]


@on_uvloop
async def test_a_condition_that_is_none_is_an_error_only_for_what_would_be_granted(tmp_path: Path) -> None:
    async with door(tmp_path, MINE) as node:
        mary = await come(node, "mary")
        suback = await mary.subscribe("others/x", "mine/x", properties=asking(("where", "o.size >")))
        assert suback.reasons == (REFUSED, 0x83)


@on_uvloop
async def test_long_conditions_rest_between_each_other_and_all_are_compiled(tmp_path: Path) -> None:
    async with door(tmp_path, MINE) as node:
        mary = await come(node, "mary")
        for number in range(5):
            where = asking(("where", f"{COSTLY} && o.size > {number}"))
            assert (await mary.subscribe(f"mine/{number}", properties=where)).reasons == (0,)
        assert node.node.site.rested > 0


# -- what comes before login ---------------------------------------------------------------------------------------


def connect(pairs: int = 0, payload: int = 0) -> bytes:
    properties = wire.Properties(user_properties=(("", ""),) * pairs)
    will = wire.Will(topic="w", payload=b"x" * payload, qos=0, retain=False) if payload else None
    packet = wire.Connect(version=5, client_id="c", clean_start=True, keep_alive=0, will=will, properties=properties)
    return wire.encode(packet, 5)


@on_uvloop
async def test_the_number_of_properties_is_bounded(tmp_path: Path) -> None:
    async with door(tmp_path) as node:
        for pairs, reason in ((MOST, 0), (MOST + 1, QUOTA), (20_000, QUOTA)):
            client = await node.socket()
            await client.raw(connect(pairs))
            assert (await client.expect(wire.Connack)).reason == reason
        client = await node.connect("other")
        many = wire.Properties(user_properties=(("", ""),) * (MOST + 1))
        await client.send(wire.Publish(topic="t", payload=b"", properties=many))
        assert (await client.expect(wire.Disconnect)).reason == QUOTA


@on_uvloop
async def test_connect_has_a_size_of_its_own(tmp_path: Path) -> None:
    listener = {"url": "mqtt://127.0.0.1:PORT", "anonymous": True, "max_connect": "1KiB"}
    async with door(tmp_path, listeners=[listener]) as node:
        for payload, reason in ((900, 0), (1100, TOO_LARGE)):
            client = await node.socket()
            await client.raw(connect(payload=payload))
            assert (await client.closed())[3] == reason if reason else (await client.expect(wire.Connack)).reason == 0
        client = await node.connect("other")
        await client.publish("t", b"x" * 5000)
        await client.silent()


@on_uvloop
async def test_what_is_kept_before_login_is_bounded_in_sum(tmp_path: Path) -> None:
    async with door(tmp_path, limits={"handshake_bytes": "4KiB"}) as node:
        whole = connect(payload=3000)
        slow, slower = await node.socket(), await node.socket()
        await slow.raw(whole[:2500])
        await until(lambda: node.node.site.handshake_bytes == 2500)
        await slower.raw(whole[:2500])
        await slower.closed()  # there is room for one of them
        other = await node.socket()
        await other.raw(connect(payload=900))  # what comes whole is not kept
        assert (await other.expect(wire.Connack)).reason == 0
        await slow.raw(whole[2500:])
        assert (await slow.expect(wire.Connack)).reason == 0
        assert node.node.site.handshake_bytes == 0


@on_uvloop
async def test_http_heads_are_kept_within_the_same_bound(tmp_path: Path) -> None:
    listeners = [
        {"url": "mqtt://127.0.0.1:PORT", "anonymous": True},
        {"url": "ws://127.0.0.1:WS_PORT/mqtt", "anonymous": True},
    ]
    async with door(tmp_path, limits={"handshake_bytes": "4KiB"}, listeners=listeners) as node:
        site = node.node.site
        head = b"GET /mqtt HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 2500
        slow, slower = await node.dial(node.ports["WS_PORT"]), await node.dial(node.ports["WS_PORT"])
        await slow.raw(head)
        await until(lambda: site.handshake_bytes == len(head))
        await slower.raw(head)
        assert (await slower.closed()).startswith(b"HTTP/1.1 503 ")
        assert site.handshake_bytes == len(head)
        plain = await node.socket()
        await plain.raw(connect(payload=3000)[:2500])
        await plain.closed()  # the bound is for both together
        await slow.raw(b"\r\n\r\n")
        assert (await slow.closed()).startswith(b"HTTP/1.1 4")  # it asks for no WebSocket
        assert site.handshake_bytes == 0
        gone = await node.dial(node.ports["WS_PORT"])
        await gone.raw(head)
        await until(lambda: site.handshake_bytes == len(head))
        gone.abort()
        await until(lambda: site.handshake_bytes == 0)


@on_uvloop
async def test_connections_of_one_address_are_bounded(tmp_path: Path) -> None:
    listener = {"url": "mqtt://127.0.0.1:PORT", "anonymous": True, "address_connections": 2}
    async with door(tmp_path, listeners=[listener]) as node:
        first, _ = await node.connect("1"), await node.connect("2")
        third = await node.socket()
        assert await third.closed() == b""
        (bound,) = node.node.listeners.bound.values()
        assert bound.turned_away == 1
        first.abort()
        await until(lambda: len(bound.connections) == 1)
        await node.connect("3")


# -- what comes after it -------------------------------------------------------------------------------------------

FLOODS = {
    "PINGREQ": b"\xc0\x00" * 20_000,
    "SUBSCRIBE": wire.encode(
        wire.Subscribe(packet_id=1, subscriptions=tuple(wire.Subscription(filter=f"f/{n}") for n in range(50))), 5
    )
    * 100,
    "UNSUBSCRIBE": wire.encode(wire.Unsubscribe(packet_id=1, filters=("f/0",) * 50), 5) * 100,
    "PUBLISH QoS 0": wire.encode(wire.Publish(topic="known", payload=b""), 5) * 50_000,
    "PUBLISH QoS 1": wire.encode(wire.Publish(topic="known", payload=b"", qos=1, packet_id=1), 5) * 5000,
    "PUBLISH to new topics": b"".join(wire.encode(wire.Publish(topic=f"t/{n}", payload=b""), 5) for n in range(2000)),
    "PUBACK": wire.encode(wire.Puback(packet_id=1), 5) * 50_000,
    "PUBREL": wire.encode(wire.Pubrel(packet_id=1), 5) * 20_000,
}


def waits(node: Live) -> bool:
    """Whether anybody does."""
    return len(node.node.site.waiting) + len(node.node.site.resting) > 0


@contextlib.asynccontextmanager
async def flooding(attacker: Client, data: bytes) -> AsyncIterator[None]:
    """Sends it, reads the answers, and at the end sees that the connection is alive and everything was read."""

    async def read() -> None:
        while not isinstance(await attacker.receive(), wire.Disconnect):
            pass

    async def write() -> None:
        await attacker.raw(data)

    reading, writing = asyncio.create_task(read()), asyncio.create_task(write())
    try:
        yield
        await writing
        await attacker.raw(b"\x10\x00")  # a second CONNECT, which is answered with DISCONNECT when all is read
        await reading
    finally:
        reading.cancel()
        writing.cancel()


@pytest.mark.parametrize("kind", FLOODS)
@on_uvloop
async def test_others_are_served_while_a_flood_waits(tmp_path: Path, kind: str) -> None:
    async with door(tmp_path, data=kind == "PUBREL") as node:
        attacker, victim, reader = await node.connect("attacker"), await node.connect("v"), await node.connect("r")
        await reader.subscribe("v/#")
        await attacker.publish("known")
        async with flooding(attacker, FLOODS[kind]):
            between = 0
            await until(lambda: waits(node))
            while waits(node):
                await victim.publish("v/0")
                await victim.publish("v/1", qos=1)
                assert [(await reader.message()).topic for _ in range(2)] == ["v/0", "v/1"]
                between += 1
            assert between  # both were served before all of the flood was


@on_uvloop
async def test_a_client_that_waits_for_each_answer_rests_as_well(tmp_path: Path) -> None:
    async with door(tmp_path) as node:
        attacker, victim = await node.connect("attacker"), await node.connect("victim")

        async def ask() -> None:
            while True:
                await attacker.subscribe(*(f"f/{number}" for number in range(20)))

        asking = asyncio.create_task(ask())
        try:
            rested = 0
            async with asyncio.timeout(PATIENCE):
                while rested < 10:
                    await victim.publish("v", qos=1)
                    rested += node.node.turns._resting
            assert not asking.done()
        finally:
            asking.cancel()


@on_uvloop
async def test_one_request_for_very_many_filters_is_done_in_pieces(tmp_path: Path) -> None:
    async with door(tmp_path) as node:
        attacker, victim = await node.connect("attacker"), await node.connect("victim")
        asked = asyncio.create_task(attacker.subscribe(*(f"f/{number}" for number in range(5000))))
        await until(lambda: waits(node))
        await victim.silent()
        assert not asked.done()
        assert (await asked).reasons == (0,) * 5000
        gone = asyncio.create_task(attacker.unsubscribe(*(f"f/{number}" for number in range(5000))))
        assert (await gone).reasons == (0,) * 5000
        assert not waits(node)


@on_uvloop
async def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(tmp_path: Path) -> None:
    async with door(tmp_path) as node:
        attacker, victim = await node.connect("attacker"), await node.connect("victim")
        packet = wire.Subscribe(
            packet_id=1, subscriptions=tuple(wire.Subscription(filter=f"f/{n}") for n in range(5000))
        )
        await attacker.send(packet)
        await until(lambda: waits(node))
        attacker.abort()
        await until(lambda: not waits(node) and not _sessions(node, "attacker"))
        await victim.silent()


def _sessions(node: Live | Served, client: str) -> bool:
    return any(name == client for scope in node.node.realm.scopes.values() for _, name in scope.sessions)


@pytest.mark.pure
@on_uvloop
async def test_who_leaves_and_comes_back_at_once_has_not_paid_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection began with a clean account: whoever came again and again had most of the loop."""
    left: list[float] = []
    owe = Payer.owe

    def noted(payer: Payer, until: float, now: float) -> None:
        owe(payer, until, now)
        left.append(payer.until - now)

    monkeypatch.setattr(Payer, "owe", noted)
    async with door(tmp_path) as node:
        attacker = await node.connect("attacker")
        packet = wire.Subscribe(
            packet_id=2, subscriptions=tuple(wire.Subscription(filter=f"g/{n}") for n in range(1000))
        )
        await attacker.raw(wire.encode(packet, 5) + b"\xe0\x00")
        await attacker.closed()
    assert max(left) > 0.01


@pytest.mark.pure
@on_uvloop
async def test_the_next_connection_from_there_goes_on_paying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bursts, each over a connection of its own, were served as if each came from somebody else."""
    monkeypatch.setattr(packet_costs, "SECONDS", 1e-2)  # it takes minutes to pay, so that no time is short enough
    monkeypatch.setattr(packet_costs, "MEMORY", 1000.0)
    async with door(tmp_path) as node:
        attacker = await node.connect("attacker")
        many = tuple(wire.Subscription(filter=f"g/{n}") for n in range(1000))
        await attacker.raw(wire.encode(wire.Subscribe(packet_id=2, subscriptions=many), 5) + b"\xe0\x00")
        await attacker.closed()
        await node.connect("again")
        [session] = [one for one in node.node.scopes["main"].sessions.values() if one.client == "again"]
        assert session.connection is not None
        assert session.connection.reader.payer.until > node.node.site.now + 10


# -- work that is done for the messages of others ------------------------------------------------------------------

NESTED = "o.payload.l.exists(a, o.payload.l.exists(b, a + b == -%d))"
LIST = b'{"l": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]}'


def paid(node: Live, client: str) -> int:
    """What was done for a client of mary's, in microseconds."""
    sessions = [one for one in node.node.scopes["main"].sessions.values() if one.client == client]
    assert sessions[0].connection is not None
    payer = sessions[0].connection.reader.payer
    return payer.paid + payer._given - payer.credit


@on_uvloop
async def test_conditions_are_paid_for_by_whoever_publishes(tmp_path: Path) -> None:
    """One message that is asked a hundred costly conditions has the price of that work."""
    async with door(tmp_path, MINE) as node:
        mary, publisher = await come(node, "mary"), await come(node, "mary", client="p")
        for number in range(100):
            asked = asking(("where", NESTED % (number + 1)))
            assert (await mary.subscribe(f"mine/{'+/' * (number % 7)}#", properties=asked)).reasons[0] in (0, QUOTA)
        await publisher.publish("mine/a/b/c/d/e/f/g", LIST, qos=1)
        assert paid(node, "p") > 100, "seven conditions of some 50 µs each"
        await mary.silent()


@on_uvloop
async def test_a_changed_subscription_pays_for_large_plans_that_are_compiled_again(tmp_path: Path) -> None:
    async with door(tmp_path, MINE) as node:
        crowd = [await come(node, "mary", client=f"m{number}") for number in range(60)]
        for one in crowd:
            await one.subscribe("mine/x", "mine/+", "mine/#")
        publisher, changing = await come(node, "mary", client="p"), await come(node, "mary", client="c")
        await publisher.publish("mine/x", b"1", qos=1)
        before = paid(node, "c")
        await changing.subscribe("mine/x")
        assert paid(node, "c") - before > 200, "the plan had 60 targets"
        for one in crowd:
            one.writer.close()


@on_uvloop
async def test_overlapping_filters_are_decided_together_and_have_a_price(tmp_path: Path) -> None:
    """Each by itself they held the loop for a third of a second."""
    views = [{"id": "v", "topic": "mine/#", "for": "*", "keep": ["/a"]}]
    async with door(tmp_path, policy("mine", "mine/#"), views=views, limits={"patterns": 1000}) as node:
        mary = await come(node, "mary")
        filters = ["mine/" + "/".join(levels) for levels in product("a+", repeat=8)]
        await mary.subscribe(*filters)
        await mary.subscribe("mine/#", qos=1, properties=asking(("where", "o.size > 1")))
        bob = await come(node, "bob")
        before = paid(node, "bob")
        await bob.publish("mine/a/a/a/a/a/a/a/a", b'{"a": 1}', qos=1)
        assert (await mary.message()).qos == 1
        assert paid(node, "bob") - before > OVERLAPPING * 256
        gate = node.node.scopes["main"].gate
        (plan,) = [plan for lane in gate.cache.lanes.values() for plan in lane.plans.values()]
        assert sum(map(len, plan.conditional)) == 2  # those with a condition, and those without


@pytest.mark.parametrize("qos", [0, 1])
@on_uvloop
async def test_members_of_a_shared_subscription_that_are_asked_have_a_price(tmp_path: Path, qos: int) -> None:
    async with door(tmp_path, policy("mine", "mine/#")) as node:
        members = [await come(node, "mary", client=f"m{number}") for number in range(20)]
        for member in members:
            await member.subscribe("$share/g/mine/#", qos=1, properties=asking(("where", "o.payload.a > 1")))
        bob = await come(node, "bob")
        before = paid(node, "bob")
        for _ in range(20):
            await bob.publish("mine/x", b'{"a": 1}', qos=qos)
        await bob.silent()
        assert paid(node, "bob") - before > 20 * 20 * ASKED


@on_uvloop
async def test_whoever_comes_back_again_and_again_pays_for_what_is_sent_each_time(tmp_path: Path) -> None:
    async with door(tmp_path, policy("mine", "mine/#")) as node:
        away = await come(node, "mary", stays=True)
        await away.subscribe("mine/#", qos=1)
        await go(node, away)
        bob = await come(node, "bob")
        for number in range(200):
            await bob.publish("mine/x", b"%d" % number, qos=1)
        (bound,) = node.node.listeners.bound.values()
        before = bound.admission.payer("127.0.0.1").paid
        back = await come(node, "mary", stays=True)
        assert [(await back.message()).payload for _ in range(200)] == [b"%d" % number for number in range(200)]
        assert bound.admission.payer("127.0.0.1").paid - before > 200 * RESUMED


@on_uvloop
async def test_user_properties_have_a_price(tmp_path: Path) -> None:
    """A thousand of them are 7 KB, and took a millisecond."""
    async with door(tmp_path, policy("mine", "mine/#")) as node:
        mary = await come(node, "mary")
        many = wire.Properties(user_properties=(("k", "v"),) * 900)
        before = paid(node, "mary")
        assert (await mary.publish("mine/x", b"", qos=1, properties=many)).reason == 0x10
        await mary.send(wire.Unsubscribe(packet_id=3, filters=("a",), properties=many))
        await mary.expect(wire.Unsuback)
        assert paid(node, "mary") - before > 2 * 900 * PROPERTY


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_a_large_message_is_paid_for_once_for_each_receiver(tmp_path: Path, qos: int) -> None:
    """A hundred clients of one's own, and each message of 100 KB made the node write ten megabytes."""
    async with door(tmp_path, policy("mine", "mine/#")) as node:
        readers = [await come(node, "mary", client=f"r{number}") for number in range(20)]
        for reader in readers:
            await reader.subscribe("mine/x", qos=qos)
        bob = await come(node, "bob")
        before = paid(node, "bob")
        await bob.publish("mine/x", bytes(100_000), qos=qos)
        for reader in readers:
            assert len((await reader.message()).payload) == 100_000
        assert paid(node, "bob") - before > 20 * 24 + 100_000 // 512


LONG_LIST = json.dumps({"l": [0] * 2000}).encode()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("kind", ["policy", "monitor in", "monitor out"])
@on_uvloop
async def test_whoever_publishes_pays_for_policies_and_monitors_that_read_the_content(
    tmp_path: Path, kind: str, qos: int
) -> None:
    """Also for what they deny: a list of the payload that is looked through takes half a millisecond."""
    reads = "o.payload.l.exists(x, x > 5)"
    sections: dict[str, Any] = {}
    policies = [policy("mine", "mine/#", when=reads if kind == "policy" else "true"), policy("r", "mine/#", "read")]
    if kind != "policy":
        states = {"a": [{"on": "mine/#", "when": reads, "emit": []}]}
        direction = "im_pub" if kind == "monitor in" else "im_sub"
        monitor = {"id": "m", "scope": "main", "direction": direction, "automaton": {"start": "a", "states": states}}
        sections["monitors"] = [monitor]
    async with door(tmp_path, *policies, **sections) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob")
        await bob.subscribe("mine/#", qos=qos)
        before = paid(node, "mary")
        for _ in range(10):
            await say(mary, "mine/x", LONG_LIST, qos=qos)
        assert paid(node, "mary") - before > 2000, "ten times half a millisecond"


# -- memory --------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_what_conditions_read_of_messages_is_let_go_of(tmp_path: Path) -> None:
    """A message and what was read of it refer to each other: without that they would wait for the garbage collector,
    which comes when there are very many of them, and not when they are large."""
    async with door(tmp_path, policy("mine", "mine/#")) as node:
        mary = await come(node, "mary")
        await mary.subscribe("mine/#", qos=1, properties=asking(("where", "o.payload.a > 1")))
        bob = await come(node, "bob")
        attributes = node.node.scopes["main"].gate.attributes

        def kept() -> int:
            found = (each for each in gc.get_objects() if isinstance(each, MessageAttributes))
            return sum(each.attributes is attributes for each in found)

        gc.disable()
        try:
            for number in range(2 * READ):
                await bob.publish(f"mine/{number}", b'{"a": 1}', qos=1, retain=True)
            assert 0 < kept() <= READ
            large = b'{"a": 1, "b": "%b"}' % (b"x" * 100_000)
            for number in range(30):
                await bob.publish(f"mine/{number}", large, qos=1)
            assert 0 < kept() <= READ_BYTES // len(large) + 1
        finally:
            gc.enable()


@on_uvloop
async def test_parts_of_messages_that_views_leave_are_let_go_of(tmp_path: Path) -> None:
    """A retained message would be kept as often as there are views of it."""
    views = [{"id": f"v{name}", "topic": "mine/#", "for": f"user:{name}", "keep": [f"/{name}"]} for name in PEOPLE]
    async with door(tmp_path, policy("mine", "mine/#"), views=views) as node:
        everybody = [await come(node, name) for name in PEOPLE]
        for each in everybody:
            await each.subscribe("mine/#")
        whole = json.dumps(dict.fromkeys(PEOPLE, 1)).encode()
        publisher = await come(node, "mary", client="publisher")
        for number in range(3 * CUT):
            await publisher.publish(f"mine/{number}", whole, qos=1, retain=True)
        retained = node.node.scopes["main"].retained
        kept = [message for _, message in retained.matching("#") if message.views]
        assert 0 < len(kept) <= CUT
        assert [json.loads((await each.message()).payload) for each in everybody] == [{name: 1} for name in PEOPLE]


@on_uvloop
async def test_what_a_message_demands_is_short(tmp_path: Path) -> None:
    """Each demand has plans of its own; a name that is no level and no fact is cut."""
    async with door(tmp_path, policy("mine", "mine/#")) as node:
        mary = await come(node, "mary")
        for number in range(20):
            demand = asking(("require", "x" * 50_000 + str(number)))
            assert (await mary.publish("mine/x", b"", qos=1, properties=demand)).reason == 0x83
        gate = node.node.scopes["main"].gate
        demands = [
            variant.context.demand.text
            for lane in gate.cache.lanes.values()
            for variant in (lane.variants or {}).values()
            if variant.context.demand is not None
        ]
        assert sum(map(len, demands)) < 20 * 300
