"""Regulating data sharing across MQTT environments ("sharing"), examples 1 to 9 on three nodes: `examples/two-gyms`.

The nodes are processes, linked over TLS with certificates at both ends. What one environment decides for itself is
tested in `tests/seeds/test_sharing.py` as well.

Carla has no wishes, and everybody in all three environments may have her speed: what was published before it has come
when it comes, or does not come.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from examples.linked import Nodes, nodes
from harness import PATIENCE, Client
from tidegate import wire

MYGYM, REMOTEGYM, ANALYZER = "1883", "1884", "1885"
TREADMILL, TABLET, SERVER = "+/performance/ts1/+", "+/performance/#", "+/+/performance/#"
OPEN, CLOSED = 'opening: "00:00-24:00"', 'opening: "00:00-00:00"'
WORKS, OFF = 'shift: "00:00-24:00"', 'shift: "00:00-00:00"'
LAST = "tr3/performance/ts1/speed"  # of Carla's treadmill


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with nodes(tmp_path_factory.mktemp("gyms"), "two-gyms", "mygym", "remotegym", "analyzer") as made:
        connected(made)
        yield made


@pytest.fixture
async def gyms(running: Nodes) -> AsyncIterator[Nodes]:
    """Where everybody leaves at the end of a test."""
    yield running
    await running.leave()


def connected(gyms: Nodes) -> None:
    for link in ("mygym->remotegym", "mygym->analyzer"):
        gyms.until("mygym", link, state="connected", level="trusted")


async def carla(gyms: Nodes) -> Client:
    return await gyms.come("carla", MYGYM)


async def until_carlas(client: Client) -> list[str]:
    """Topics that come before Carla's speed."""
    topics: list[str] = []
    while not (message := await client.message()).topic.endswith(LAST):
        topics.append(message.topic)
    return topics


async def before_carlas(gyms: Nodes, *clients: Client) -> list[list[str]]:
    """The same for several, now that what is looked for has been published."""
    await (await carla(gyms)).publish(LAST, b"8.0", qos=1)
    return [await until_carlas(client) for client in clients]


def speed(treadmill: int) -> str:
    return f"tr{treadmill}/performance/ts1/speed"


# -- section 2 -------------------------------------------------------------------------------------------------------

WHAT = ("speed", "avgspeed", "length", "duration", "heartbeats")


async def test_sharing_example_1_treadmills_and_tablets_in_both_gyms(gyms: Nodes) -> None:
    """Treadmills of both gyms show the session, and the tablets of coaches everything."""
    treadmill, tablet = await gyms.come("rita", REMOTEGYM, TREADMILL), await gyms.come("alice", REMOTEGYM, TABLET)
    here, runner = await gyms.come("alice", MYGYM, TABLET), await carla(gyms)
    published = [f"tr4/performance/ts1/{what}" for what in WHAT]
    for topic in published:
        await runner.publish(topic, b"1", qos=1)
    assert await before_carlas(gyms, treadmill, tablet, here) == [published] * 3


async def test_sharing_example_2_bridging_rules(gyms: Nodes) -> None:
    """br1: speeds go to the analyzer with the gym in front. br2: those of RemoteGym come here. Both with QoS 0."""
    server, mary = await gyms.come("server", ANALYZER, SERVER), await gyms.come("mary", MYGYM, TREADMILL)
    rita, runner = await gyms.come("rita", REMOTEGYM), await carla(gyms)
    for what in WHAT:
        await rita.publish(f"tr9/performance/ts1/{what}", b"10.9", qos=1)
    message = await mary.message()
    assert (message.topic, message.payload, message.qos) == (speed(9), b"10.9", 0)
    for what in reversed(WHAT):
        await runner.publish(f"tr4/performance/ts1/{what}", b"11.2", qos=1)
    message = await server.message()  # and nothing of Rita, which was not published in MyGym
    assert (message.topic, message.payload, message.qos) == (f"MyGym/{speed(4)}", b"11.2", 0)


def test_sharing_example_2_no_way_from_the_analyzer_to_the_gyms(gyms: Nodes) -> None:
    shown = gyms.link("mygym", "mygym->analyzer")
    assert (shown["in"], [share["there"] for share in shown["out"]]) == ([], ["MyGym/+/performance/+/speed"])
    assert [share["topic"] for share in gyms.link("mygym", "mygym->remotegym")["in"]] == ["+/performance/+/speed"]


async def test_sharing_example_3_policies_and_preferences_count_in_the_other_gym(gyms: Nodes) -> None:
    """Bob forbids John to see his data, also where John works in the other gym."""
    wish = '{ id: up3, user: bob, topic: +/performance/ts1/+, to: remotegym, when: "false" }'
    other = "{ id: not-john, user: bob, topic: +/performance/#, when: s.user != 'john' }"
    with gyms.changed("mygym", (wish, other)):
        alice, john = await gyms.come("alice", REMOTEGYM, TABLET), await gyms.come("john", REMOTEGYM, TABLET)
        bob = await gyms.come("bob", MYGYM)
        await bob.publish(speed(2), b"9.8", qos=1)
        assert await before_carlas(gyms, alice, john) == [[speed(2)], []]


async def test_sharing_example_4_p1_and_p2_of_the_other_gym(gyms: Nodes) -> None:
    """Who may read there is said by the policies there, whatever those of the gym where it was published say."""
    runner = await carla(gyms)
    with gyms.changed("remotegym", (WORKS, OFF), ("enrolled: [ts1]", "enrolled: []")):
        rita = await gyms.come("rita", REMOTEGYM)
        assert (await rita.subscribe(TREADMILL)).reasons == (wire.Reason.NOT_AUTHORIZED,)
        alice = await gyms.come("alice", REMOTEGYM, TABLET)
        here = await gyms.come("alice", MYGYM, TABLET)
        await runner.publish(speed(4), b"off", qos=1)
        assert (await here.message()).payload == b"off"
        gyms.until("mygym", "mygym->remotegym", queue=0)  # RemoteGym has it
        await alice.silent()
    await runner.publish(speed(4), b"at work", qos=1)
    assert (await alice.message()).payload == b"at work"


@pytest.mark.parametrize("gym", [MYGYM, REMOTEGYM])
async def test_sharing_example_5_up1_leaves_marys_performance_to_alice(gyms: Nodes, gym: str) -> None:
    alice, john = await gyms.come("alice", gym, TABLET), await gyms.come("john", gym, TABLET)
    runner = await gyms.come("bob" if gym == MYGYM else "rita", gym, TREADMILL)
    mary = await gyms.come("mary", MYGYM)
    await mary.publish(speed(1), b"11.2", qos=1)
    assert await before_carlas(gyms, alice, john, runner) == [[speed(1)], [], []]


# -- section 3 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gym", ["mygym", "remotegym"])
async def test_sharing_example_6_p3_and_p4_let_pass_while_the_gym_is_open(gyms: Nodes, gym: str) -> None:
    """Both brokers have to agree, in both directions: p3 that of MyGym, p4 that of RemoteGym."""
    mary, rita = await gyms.come("mary", MYGYM, TREADMILL), await gyms.come("rita", REMOTEGYM, TREADMILL)
    runner = await carla(gyms)
    with gyms.changed(gym, (OPEN, CLOSED)):
        for client, topic, link in ((runner, speed(4), "mygym->remotegym"), (rita, speed(9), "remotegym->mygym")):
            before = len(gyms.denials(gym, client=link))
            await client.publish(topic, b"closed")
            await until_denied(gyms, gym, link, before + 1)
        for client in (mary, rita):  # each in its own gym as ever
            assert (await client.message()).payload == b"closed"
            await client.silent()
    await runner.publish(speed(4), b"open", qos=1)
    assert (await rita.message()).payload == b"open"
    assert (await mary.message()).payload == b"open"
    await rita.publish(speed(9), b"open")
    assert (await mary.message()).payload == b"open"


async def until_denied(gyms: Nodes, node: str, link: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(gyms.denials(node, client=link)) < count:
            await asyncio.sleep(0.01)


async def test_sharing_example_6_p3_is_about_the_session(gyms: Nodes) -> None:
    """RemoteGym and MyGym exchange what belongs to ts1; the share alone would let all sessions cross."""
    policies = ("topic: +/performance/ts1/+\n    action: [read, write]\n    when: \"'ts1' in s.enrolled\"", "")
    wider = policies[0].replace("ts1/+", "#")
    with gyms.changed("mygym", (policies[0], wider)):
        runner, alice = await carla(gyms), await gyms.come("alice", REMOTEGYM, TABLET)
        await runner.publish("tr4/performance/ts2/speed", b"1", qos=1)
        assert await before_carlas(gyms, alice) == [[]]


async def test_sharing_example_6_p5_takes_in_what_the_gyms_send(gyms: Nodes) -> None:
    """p5 is said of the topic before the gym is put in front of it; without p5 nothing comes in."""
    server, runner = await gyms.come("server", ANALYZER, SERVER), await carla(gyms)
    before = len(gyms.denials("analyzer", client="mygym->analyzer"))
    with gyms.changed("analyzer", ("topic: +/performance/#", "topic: MyGym/+/performance/#")):
        await runner.publish(speed(4), b"1", qos=1)
        await until_denied(gyms, "analyzer", "mygym->analyzer", before + 1)
    await runner.publish(speed(4), b"2", qos=1)
    assert (await server.message()).payload == b"2"


async def test_sharing_example_6_footnote_5_policies_of_one_connection(gyms: Nodes) -> None:
    """p3a and p3b instead of p3: a policy may be about one bridging connection."""
    subject, clock = "subject: scope:mygym", "    when: within(e.now, e.opening)\n\npreferences:"
    p3a = 'subject: ["link:mygym->remotegym", "link:remotegym->mygym"]'
    p3b = "  - {id: p3b, subject: link:mygym->analyzer, topic: +/performance/ts1/+, action: write}\n\npreferences:"
    runner, before = await carla(gyms), len(gyms.denials("mygym", client="mygym->analyzer"))
    server, rita = await gyms.come("server", ANALYZER, SERVER), await gyms.come("rita", REMOTEGYM, TREADMILL)
    with gyms.changed("mygym", (subject, p3a)):
        await runner.publish(speed(4), b"p3a", qos=1)
        assert (await rita.message()).payload == b"p3a"
        await until_denied(gyms, "mygym", "mygym->analyzer", before + 1)
    with gyms.changed("mygym", (subject, p3a), (clock, clock.replace("\n\npreferences:", f"\n{p3b}"))):
        await runner.publish(speed(4), b"p3b", qos=1)
        assert (await rita.message()).payload == (await server.message()).payload == b"p3b"


async def test_sharing_example_7_up2_and_up3_forbid_forwarding(gyms: Nodes) -> None:
    """Mary's go to RemoteGym and not to the analyzer, Bob's the other way round."""
    alice, server = await gyms.come("alice", REMOTEGYM, TABLET), await gyms.come("server", ANALYZER, SERVER)
    mary, bob = await gyms.come("mary", MYGYM), await gyms.come("bob", MYGYM)
    for number in range(2):
        await mary.publish(speed(1), b"%d" % number, qos=number)
        await bob.publish(speed(2), b"%d" % number, qos=number)
    assert await before_carlas(gyms, alice, server) == [[speed(1)] * 2, [f"MyGym/{speed(2)}"] * 2]
    rules = {row["rule"] for row in gyms.denials("mygym", action="forward")}
    assert {"up2", "up3"} <= rules


async def test_sharing_example_7_only_in_the_gym_where_it_was_sensed(gyms: Nodes) -> None:
    """A wish for all other environments: `to: "*"`."""
    with gyms.changed(
        "mygym", ("user: bob, topic: +/performance/ts1/+, to: remotegym", 'user: bob, topic: "#", to: "*"')
    ):
        bob, here = await gyms.come("bob", MYGYM), await gyms.come("alice", MYGYM, TABLET)
        alice, server = await gyms.come("alice", REMOTEGYM, TABLET), await gyms.come("server", ANALYZER, SERVER)
        await bob.publish(speed(2), b"9.8", qos=1)
        assert await before_carlas(gyms, here, alice, server) == [[speed(2)], [], []]


async def test_sharing_example_8_who_gets_the_performance_of_mary_and_bob(gyms: Nodes) -> None:
    """Mary sees Bob's and Bob not Mary's; Mary's go to RemoteGym, Bob's to the analyzer."""
    mary, bob = await gyms.come("mary", MYGYM, TREADMILL), await gyms.come("bob", MYGYM, TREADMILL)
    alice, rita = await gyms.come("alice", REMOTEGYM, TABLET), await gyms.come("rita", REMOTEGYM, TREADMILL)
    server = await gyms.come("server", ANALYZER, SERVER)
    answer = await mary.publish(speed(1), b"11.2", qos=1)
    assert answer is not None
    assert answer.reason == wire.Reason.SUCCESS
    await bob.send(wire.Publish(topic=speed(2), payload=b"9.8", qos=0))
    assert await before_carlas(gyms, mary, bob, alice, rita, server) == [
        [speed(2)],
        [speed(2)],
        [speed(1)],
        [],
        [f"MyGym/{speed(2)}"],
    ]


async def test_sharing_example_9_at_remotegym_alice_receives_marys_performance_in_her_shift(gyms: Nodes) -> None:
    """p2 of RemoteGym and up1, which has come with Mary's message, both have to grant it."""
    alice, john = await gyms.come("alice", REMOTEGYM, TABLET), await gyms.come("john", REMOTEGYM, TABLET)
    rita = await gyms.come("rita", REMOTEGYM, TREADMILL)
    mary = await gyms.come("mary", MYGYM)
    await mary.publish(speed(1), b"in her shift", qos=1)
    assert await before_carlas(gyms, alice, john, rita) == [[speed(1)], [], []]
    with gyms.changed("remotegym", (WORKS, OFF)):
        await mary.publish(speed(1), b"after it", qos=1)
        gyms.until("mygym", "mygym->remotegym", queue=0)
        for one in (alice, john, rita):
            await one.silent()
    assert await before_carlas(gyms, alice) == [[]]


async def test_sharing_example_9_a_change_of_up1_counts_in_the_other_gym(gyms: Nodes) -> None:
    alice, john = await gyms.come("alice", REMOTEGYM, TABLET), await gyms.come("john", REMOTEGYM, TABLET)
    mary = await gyms.come("mary", MYGYM)
    with gyms.changed("mygym", ("s.user == 'alice'", "s.user == 'john'")):
        await mary.publish(speed(1), b"11.2", qos=1)
        assert await before_carlas(gyms, alice, john) == [[], [speed(1)]]
    await mary.publish(speed(1), b"11.2", qos=1)
    assert await before_carlas(gyms, alice, john) == [[speed(1)], []]


# -- two domains -----------------------------------------------------------------------------------------------------

BRAND, SHARED = "  domain: gymbrand", "    gymbrand: { nodes: [mygym, remotegym] }"
THERE = "    mygym: { nodes: [mygym] }"
HERE = "    remotegym: { nodes: [remotegym] }"
BELIEF = "    remotegym: { nodes: [remotegym], users: { alice: alice }, roles: { coach: coach } }"
ROLE_ONLY = "    remotegym: { nodes: [remotegym], roles: { coach: coach } }"


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[Nodes]:
    """The gyms are of two companies, which do not know each other yet."""
    made = Nodes(tmp_path, "two-gyms", "mygym", "remotegym")
    for name, domains in (("mygym", HERE), ("remotegym", "    third: { nodes: [third] }")):
        file = made.files[name]
        text = file.path.read_text()
        assert BRAND in text
        assert SHARED in text
        file.path.write_text(re.sub(rf"{BRAND}.*\n", "", text).replace(SHARED, domains))
    try:
        made.start("remotegym", "mygym")
        made.until("mygym", "mygym->remotegym", state="connected")
        yield made
    except BaseException:
        made.kill()
        raise
    made.stop()


async def test_sharing_example_9_with_two_domains(strangers: Nodes) -> None:
    """Alice of RemoteGym is nobody whom Mary means, until Mary's gym believes that she is its Alice and its coach."""
    gyms = strangers
    try:
        alice, rita = await gyms.come("alice", REMOTEGYM, TABLET), await gyms.come("rita", REMOTEGYM, TREADMILL)
        mary, runner = await gyms.come("mary", MYGYM), await carla(gyms)

        async def published(payload: bytes) -> list[str]:
            await mary.publish(speed(1), payload, qos=1)
            await runner.publish(LAST, payload, qos=1)
            return await until_carlas(alice)

        # RemoteGym has never heard of MyGym's domain: nothing comes in at all
        await runner.publish(LAST, b"unknown", qos=1)
        await until_denied(gyms, "remotegym", "mygym->remotegym", 1)
        await alice.silent()
        with gyms.changed("remotegym", ("    third: { nodes: [third] }", THERE)):
            assert await published(b"imported") == []  # what is Mary's is not for alice@remotegym
            with gyms.changed("mygym", (HERE, ROLE_ONLY)):
                assert await published(b"role") == []
            with gyms.changed("mygym", (HERE, BELIEF)):  # what MyGym believes travels with Mary's preferences
                assert await published(b"believed") == [speed(1)]
            assert await published(b"withdrawn") == []
            assert [await until_carlas(rita) for _ in range(4)] == [[]] * 4
    finally:
        await gyms.leave()
