"""The case study (scopes, 3.5) through real clients: motion stays at home, A1 guards the lock, and I may go away.

What should happen is said here a second time, without any code of the node: a message is seen in the scopes that have
an ancestor in common with its own, and A1 is a table of three states. Every sequence of events is compared whole: each
scope has a watcher that subscribes to everything, and must have got exactly what is said here, once, in this order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness import Client
from processes import Served, from_file, on_uvloop, until
from sockets.acts import Section, dismissed, inbox, say, setting, user
from tidegate import wire
from tidegate.wire import Reason

EXAMPLE = Path(__file__).parents[2] / "examples/smart-home/tidegate.yaml"
PARENTS = {"I": (), "H1": ("I",), "H2": ("H1", "H4"), "H3": ("H1",), "H4": ()}
DEVICES = {"MD": "H4", "SC": "H4", "DB": "H2", "hub": "H2", "DL": "H3", "SP": "I"}
EVENTS = ("MD_motion", "MD_no_motion", "DL_unlock", "DL_lock", "AccessRequest", "AccessGranted", "AccessDenied")
A1 = {
    "q0": [{"on": "DL_unlock", "emit": []}, {"on": "AccessRequest", "go": "q1"}],
    "q1": [
        {"on": "DL_unlock", "emit": []},
        {"on": "AccessDenied", "go": "q0"},
        {"on": "AccessGranted", "go": "q2"},
    ],
    "q2": [{"on": "DL_unlock", "go": "q0"}],
}


def home(*, internet: bool = True, data: bool = False, forbid: str = "client:MD -> scope:H1") -> str:
    """The house, in which only scopes, brokering and A1 decide. Without the internet I and its listener are gone."""
    scopes = {name: {"parents": [one for one in above if internet or one != "I"]} for name, above in PARENTS.items()}
    clients: Section = {name: {"user": name, "scopes": [scope]} for name, scope in DEVICES.items()}
    flows = {"forbid": [forbid], "require": ["client:MD -> client:DB"]}
    if internet:
        flows["forbid"].append("client:MD -> scope:I")
    else:
        del scopes["I"], clients["SP"]
    return setting(
        data=data,
        scopes=scopes,
        listeners=[{"url": f"mqtt://127.0.0.1:{name}_PORT", "scope": name, "anonymous": True} for name in scopes],
        directory={"users": {name: user() for name in DEVICES}, "clients": clients},
        brokering={"preset": "component"},
        monitors=[{"id": "a1", "link": "H1->H3", "automaton": {"start": "q0", "states": A1}}],
        flows=flows,
        policies="open",
    )


async def at(
    node: Served,
    scope: str,
    name: str = "",
    *,
    client: str = "",
    version: int = wire.V5,
    stays: bool = False,
    expect: int = 0,
    password: str = "pw",
) -> Client:
    """Somebody connects to a scope: a device by its name, or a watcher."""
    end = await node.dial(node.ports[f"{scope}_PORT"])
    fields: Section = {"username": name, "password": password.encode()} if name else {}
    if stays and version == wire.V5:
        fields["properties"] = wire.Properties(session_expiry_interval=1000)
    packet = wire.Connect(version=version, client_id=client or name, clean_start=not stays, keep_alive=0, **fields)
    await end.send(packet)
    end.version = version
    end.connack = await end.expect(wire.Connack)
    assert end.connack.reason == expect, end.connack
    return end


# -- what should happen ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a device publishes."""

    device: str
    topic: str
    qos: int
    retain: bool


def ancestors(scope: str) -> set[str]:
    return {scope}.union(*map(ancestors, PARENTS[scope]))


def visible(scope: str) -> set[str]:
    """Where something from this scope is seen, but for A1 (3.4.1.2)."""
    return {other for other in PARENTS if ancestors(scope) & ancestors(other)}


@dataclass(slots=True)
class Automaton:
    """A1 as section 3.5 tells it."""

    state: int = 0

    def passes(self, event: str) -> bool:
        match self.state, event:
            case (0, "AccessRequest"):
                self.state = 1
            case (1, "AccessDenied"):
                self.state = 0
            case (1, "AccessGranted"):
                self.state = 2
            case (2, "DL_unlock"):
                self.state = 0
            case (_, "DL_unlock"):
                return False
        return True


@dataclass(slots=True)
class Expected:
    """What watchers should have got, and what is retained in each scope."""

    a1: Automaton = field(default_factory=Automaton)
    got: dict[str, list[tuple[str, bytes]]] = field(default_factory=lambda: {scope: [] for scope in PARENTS})
    retained: dict[str, dict[str, bytes]] = field(default_factory=lambda: {scope: {} for scope in PARENTS})

    def happens(self, event: Event, payload: bytes) -> None:
        home = DEVICES[event.device]
        for scope in visible(home):
            if scope == "H3" and home != "H3" and not self.a1.passes(event.topic):
                continue
            self.got[scope].append((event.topic, payload))
            if event.retain:
                self.retained[scope][event.topic] = payload


def test_what_is_expected_is_what_the_study_says() -> None:
    assert visible("H4") == {"H4", "H2"}  # "only made visible to scope H2"
    assert visible("H2") == set(PARENTS)  # "shares a common ancestor with every other scope"
    assert visible("I") == visible("H3") == {"I", "H1", "H2", "H3"}
    a1 = Automaton()
    said = ("DL_unlock", "AccessGranted", "DL_unlock", "AccessRequest", "DL_unlock", "AccessGranted", "DL_unlock")
    assert [a1.passes(event) for event in said if event] == [False, True, False, True, False, True, True]
    assert not a1.passes("DL_unlock")


# -- any sequence of events ----------------------------------------------------------------------------------------


class House:
    """A running node with all devices, and a watcher in each scope; half of them speak MQTT 3.1.1."""

    def __init__(self, node: Served) -> None:
        self.node = node
        self.devices: dict[str, Client] = {}
        self.watchers: dict[str, Client] = {}

    async def open(self) -> None:
        for number, (name, scope) in enumerate(DEVICES.items()):
            self.devices[name] = await at(self.node, scope, name, version=(wire.V5, wire.V311)[number % 2])
        for number, scope in enumerate(PARENTS):
            watcher = await at(self.node, scope, client=f"watcher of {scope}", version=(wire.V311, wire.V5)[number % 2])
            await watcher.subscribe("#", qos=2)
            self.watchers[scope] = watcher

    async def seen(self) -> dict[str, list[tuple[str, bytes]]]:
        """What each watcher has got since the last time."""
        found = await asyncio.gather(*map(inbox, self.watchers.values()))
        return {
            scope: [(one.topic, one.payload) for one in messages]
            for scope, messages in zip(self.watchers, found, strict=True)
        }

    async def kept(self, scope: str) -> dict[str, bytes]:
        """What is retained there: what somebody gets who comes late."""
        late = await at(self.node, scope, client="late")
        await late.subscribe("#", qos=1)
        found = await inbox(late)
        assert all(one.retain for one in found)
        await late.disconnect()
        return {one.topic: one.payload for one in found}

    async def begin(self) -> None:
        """Nothing is retained anywhere, and A1 is at its start."""

        async def clear(name: str) -> None:
            for topic in EVENTS:
                await say(self.devices[name], topic, b"", qos=1, retain=True)

        await asyncio.gather(clear("hub"), clear("DL"))  # what hub says in H2 may be suppressed on its way to H3
        for topic in ("AccessRequest", "AccessGranted", "DL_unlock"):
            await say(self.devices["SP"], topic, b"", qos=1)
        await self.seen()

    async def play(self, events: Sequence[Event]) -> None:
        await self.begin()
        expected = Expected()
        for number, event in enumerate(events):
            payload = f"{event.device} {number}".encode()
            await say(self.devices[event.device], event.topic, payload, qos=event.qos, retain=event.retain)
            expected.happens(event, payload)
        assert await self.seen() == expected.got
        kept = await asyncio.gather(*map(self.kept, PARENTS))
        assert dict(zip(PARENTS, kept, strict=True)) == expected.retained


@contextmanager
def running(folder: Path, text: str) -> Iterator[tuple[House, asyncio.Runner]]:
    """A house that stays open while something is played in it again and again."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()
        house = House(runner.run(stack.enter_async_context(from_file(folder, text))))
        try:
            runner.run(house.open())
            yield house, runner
        finally:
            runner.run(stack.aclose())


EVENT = st.builds(
    Event,
    device=st.sampled_from(tuple(DEVICES)),
    topic=st.sampled_from(EVENTS),
    qos=st.integers(0, 2),
    retain=st.booleans(),
)
UNLOCKING = [
    Event(device=device, topic=topic, qos=1, retain=False)
    for device, topic in (("DB", "AccessRequest"), ("SP", "AccessGranted"), ("SP", "DL_unlock"), ("hub", "DL_unlock"))
]


def test_motion_stays_at_home_and_the_lock_opens_when_a1_says_so(tmp_path: Path) -> None:
    """Anybody says anything, at any QoS, retained or not."""
    with running(tmp_path, home()) as (house, runner):

        @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @example(UNLOCKING)
        @example([Event(device="MD", topic=topic, qos=qos, retain=True) for topic in EVENTS for qos in (0, 1, 2)])
        @given(st.lists(EVENT, min_size=1, max_size=20))
        def sequence(events: list[Event]) -> None:
            runner.run(house.play(events))

        sequence()
        assert house.node.node.status()["bugs"] == 0


@on_uvloop
async def test_everybody_at_once(tmp_path: Path) -> None:
    """Nobody waits for anybody: A1 reads what passes H1, in that order, whoever is first."""
    async with from_file(tmp_path, home()) as node:
        house = House(node)
        await house.open()
        chance = random.Random(35)
        for _ in range(10):
            await house.begin()
            told = {name: [chance.choice(EVENTS) for _ in range(40)] for name in DEVICES}

            async def tell(name: str, events: list[str], qos: int) -> None:
                for number, topic in enumerate(events):
                    await say(house.devices[name], topic, f"{name} {number}".encode(), qos=qos)

            qos = {name: chance.randrange(3) for name in DEVICES}
            await asyncio.gather(*(tell(name, events, qos[name]) for name, events in told.items()))
            seen = await house.seen()
            a1 = Automaton()
            entering = [one for one in seen["H1"] if not one[1].startswith(b"DL ")]
            wanted = [one for one in entering if a1.passes(one[0])]
            assert [one for one in seen["H3"] if not one[1].startswith(b"DL ")] == wanted
            for scope, messages in seen.items():
                heard = [name for name in DEVICES if scope in visible(DEVICES[name])]
                for name in heard if scope != "H3" else ("DL",):
                    said = [(topic, f"{name} {number}".encode()) for number, topic in enumerate(told[name])]
                    assert [one for one in messages if one[1].split()[0] == name.encode()] == said, (scope, name)
                assert {payload.split()[0].decode() for _, payload in messages} <= set(heard), scope


# -- the example, with its policies ------------------------------------------------------------------------------------


def furnished() -> str:
    """The file of the example, on other ports."""
    text = EXAMPLE.read_text().partition("\ntests:")[0]
    for scope, port in (("I", 1883), ("H2", 1884), ("H3", 1885), ("H4", 1886)):
        assert str(port) in text
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{scope}_PORT")
    return text.replace("node: { name: home, data: var/data }", "node: { name: home }")


def may(device: str, topic: str) -> bool:
    """Who says what (table 3.1), and the hub, which says everything but one thing."""
    table = {
        "MD": ("MD_motion", "MD_no_motion"),
        "SC": (),
        "DL": (),
        "DB": ("AccessRequest",),
        "SP": ("AccessGranted", "AccessDenied", "DL_unlock"),
        "hub": tuple(one for one in EVENTS if one != "AccessGranted"),
    }
    return topic in table[device]


@on_uvloop
async def test_the_example_holds_whoever_is_hijacked(tmp_path: Path) -> None:
    """Here no `MD_…` gets to I even if somebody in H2 says it, and nobody says what is not in the table."""
    async with from_file(tmp_path, furnished()) as node:
        devices = {name: await at(node, scope, name, password=name) for name, scope in DEVICES.items()}
        cloud = await at(node, "I", "cloud", password="cloud")
        assert (await cloud.subscribe("+", qos=2)).reasons == (2,)
        assert (await devices["DL"].subscribe("DL_unlock", "DL_lock", qos=2)).reasons == (2, 2)
        chance = random.Random(35)
        a1 = Automaton()
        lock: list[bytes] = []
        opened: list[bytes] = []
        internet: list[bytes] = []
        for number in range(600):
            name, topic = chance.choice(list(DEVICES)), chance.choice(EVENTS)
            payload = f"{name} {number}".encode()
            retain = bool(chance.randrange(2))
            answer = await say(devices[name], topic, payload, qos=chance.choice((1, 2)), retain=retain)
            assert (answer < 0x80) is may(name, topic), (name, topic, answer)
            opened += [one.payload for one in await inbox(devices["DL"])]
            if name == "MD" or not may(name, topic):
                continue
            if not topic.startswith("MD_"):
                internet.append(payload)
            if a1.passes(topic) and topic.startswith("DL_"):
                lock.append(payload)
        assert opened + [one.payload for one in await inbox(devices["DL"])] == lock
        assert [one.payload for one in await inbox(cloud)] == internet
        assert any(b"hub" in one for one in lock)  # it may use a grant that was meant for somebody else: see the README
        late = await at(node, "I", "cloud", password="cloud")
        await late.subscribe("+", qos=1)
        assert {one.topic for one in await inbox(late)} == {one for one in EVENTS if not one.startswith("MD_")}


@pytest.mark.parametrize("name", DEVICES)
@on_uvloop
async def test_devices_connect_to_their_own_scope_only(tmp_path: Path, name: str) -> None:
    async with from_file(tmp_path, home()) as node:
        for scope in PARENTS:
            expect = 0 if scope == DEVICES[name] else Reason.NOT_AUTHORIZED
            await at(node, scope, name, expect=expect)


@on_uvloop
async def test_whoever_would_open_a_forbidden_flow_is_turned_away(tmp_path: Path) -> None:
    """Nobody knows this client: what it may open is found out when it connects."""
    async with from_file(tmp_path, home(forbid="client:gossip -> scope:H3")) as node:
        for scope in PARENTS:
            expect = Reason.NOT_AUTHORIZED if "H3" in visible(scope) else 0
            await at(node, scope, client="gossip", expect=expect)


# -- the internet goes away --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [False, True], ids=("volatile", "durable"))
@on_uvloop
async def test_local_flows_go_on_without_the_internet(tmp_path: Path, data: bool) -> None:
    async with from_file(tmp_path, home(data=data)) as node:
        bell, hub, motion = [await at(node, DEVICES[name], name) for name in ("DB", "hub", "MD")]
        lock = await at(node, "H3", "DL", stays=True)
        phone = await at(node, "I", "SP", stays=True)
        gossip = await at(node, "I", client="gossip", version=wire.V311)
        await bell.subscribe("MD_motion", "MD_no_motion", qos=1)
        await lock.subscribe("DL_unlock", "DL_lock", qos=1)
        await phone.subscribe("AccessRequest", qos=1)
        await say(bell, "AccessRequest", b"first", qos=1, retain=True)  # A1 is in q1
        assert (await phone.message()).payload == b"first"

        assert (await node.reload(home(internet=False, data=data)))["reloaded"]
        await dismissed(phone, Reason.ADMINISTRATIVE_ACTION)
        await dismissed(gossip, Reason.ADMINISTRATIVE_ACTION)
        with pytest.raises(ConnectionRefusedError):
            await at(node, "I", "SP")
        for qos in (0, 1, 2):
            await say(motion, "MD_motion", b"%d" % qos, qos=qos)
            assert (await bell.message()).payload == b"%d" % qos
            await say(hub, "DL_lock", b"%d" % qos, qos=qos)
            assert (await lock.message()).payload == b"%d" % qos
        lock.abort()
        await until(lambda: node.node.scopes["H3"].connected == 0)
        await say(hub, "DL_lock", b"while it was away", qos=1)
        lock = await at(node, "H3", "DL", stays=True)
        assert lock.connack.session_present
        assert (await lock.message()).payload == b"while it was away"
        await say(bell, "AccessRequest", b"unheard", qos=1)

        assert (await node.reload(home(data=data)))["reloaded"]
        phone = await at(node, "I", "SP", stays=True)
        assert phone.connack.session_present
        await say(bell, "AccessRequest", b"second", qos=1)
        assert (await phone.message()).payload == b"second"  # and not what was said meanwhile
        await say(phone, "AccessGranted", b"", qos=1)  # A1 has been in q1 all the time
        await say(phone, "DL_unlock", b"by the owner", qos=1)
        assert (await lock.message()).payload == b"by the owner"
        await say(hub, "DL_unlock", b"by the hub", qos=1)
        await say(hub, "DL_lock", b"last", qos=1)
        assert (await lock.message()).payload == b"last"
        await motion.silent()  # the same connections as before
        late = await at(node, "I", client="late")
        await late.subscribe("AccessRequest", qos=1)
        assert (await late.message()).payload == b"first"  # what I had kept
        assert node.node.status()["bugs"] == 0
