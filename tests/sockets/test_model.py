"""A node with sockets delivers only what the model allows, whatever it is told to be and whatever it was before.

Hypothesis makes up the life of a node: one configuration after the other, each with its clients and what they do. Each
is written to the file as a user would write it, and the node reads it while it runs. Whoever is connected to a scope
that stays, and is needed again, stays connected. The model is made from what was meant, not from what was read.

Clients of our own speak 3.1.1 or 5, foreign ones are aiomqtt. Patient clients act one after the other, and everything
has to arrive in between; the others do not wait before a round is over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import aiomqtt
import pytest
import uvloop
import yaml
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st

from harness import PATIENCE, Client, free_port
from processes import Served, from_file, until
from simulate.spaces import World, worlds
from tidegate import wire
from tidegate.config import Config
from tidegate.flow.forest import forest_fault
from tidegate.flow.presence import Presence
from tidegate.monitor import Attachment, Event, Machine, Monitors
from tidegate.monitor.library import Alternate, Filter, Mapper, Twice
from tidegate.monitor.sequence import Step, guard
from tidegate.policy.brokering import OPEN, Brokering, Types
from tidegate.policy.scopes import ALL, ScopeGraph, ScopeLink, TopicMapping, Way
from tidegate.simulate.explore import Unfinished, find_run
from tidegate.simulate.run import Outcome
from tidegate.simulate.scenario import Change, Filters, Publication, Round, Rounds, parse
from tidegate.simulate.schema import Link
from tidegate.simulate.steps import Delivery

FOREIGN = "aiomqtt"
KINDS = ("3.1.1", "5", FOREIGN)
COMPONENT = Brokering([("up", "up"), ("up", "down"), ("down", "down")], default=Types(inward="up", outward="down"))
NEVER = "never"
"""Nobody publishes it. Who subscribes to it is answered after everything that came before."""
BOUND = 20_000


@dataclass(frozen=True)
class Play:
    """One configuration, and what clients do while it is in force."""

    world: World
    patient: bool

    @property
    def preset(self) -> str:
        return "component" if self.world.brokering is COMPONENT else "open" if self.world.brokering.open else ""


@dataclass(frozen=True)
class Life:
    """Of a node."""

    kinds: dict[str, str]
    """What each client is made of."""
    plays: list[Play]


# -- what there can be -------------------------------------------------------------------------------------------------


@st.composite
def lives(draw: st.DrawFn) -> Life:
    kinds = {f"client:c{at}": draw(st.sampled_from(KINDS)) for at in range(3)}
    return Life(kinds, [draw(plays()) for _ in range(draw(st.integers(1, 4)))])


@st.composite
def plays(draw: st.DrawFn) -> Play:
    world = draw(worlds(most=6, deaf=draw(st.booleans())))
    patient = draw(st.booleans())
    presences, brokering = world.presences, world.brokering
    links = list(_conjoined(world.space.links))
    if brokering.open and draw(st.booleans()):
        brokering = COMPONENT
        kinds = st.sampled_from(("up", "down"))
        links = [replace(one, type=draw(kinds) if one.way is Way.ACROSS else one.way.value) for one in links]
        presences = {link: replace(one, inward="up", outward="down") for link, one in presences.items()}
    limits = st.integers(0, 2)
    links = [
        one if one.shares is ALL else replace(one, shares=tuple(replace(each, qos=draw(limits)) for each in one.shares))
        for one in links
    ]
    rounds: list[Round | Change] = []
    for each in world.scenario.rounds:
        if isinstance(each, Change):
            rounds.append(each)
            continue
        said = [replace(one, a=_at(one, draw(st.integers(0, 1)))) for queue in each for one in queue]
        rounds += _apart(sorted(said, key=lambda one: one.number), patient)
    return Play(
        replace(
            world,
            space=replace(world.space, links=tuple(links)),
            brokering=brokering,
            presences=presences,
            scenario=replace(world.scenario, rounds=tuple(rounds)),
        ),
        patient,
    )


def _conjoined(links: Iterable[ScopeLink]) -> Iterator[ScopeLink]:
    """Parents that a forest cannot have are no parents, but linked all the same."""
    parents: dict[str, tuple[str, ...]] = {}
    for one in links:
        way = one.way
        if way is Way.UP:
            above = {**parents, one.source: (*parents.get(one.source, ()), one.target)}
            if forest_fault(above) is None:
                parents = above
        family = one.target in parents.get(one.source, ()) or one.source in parents.get(one.target, ())
        yield replace(one, way=way if family else Way.ACROSS)


def _at(one: Publication, qos: int) -> Event:
    assert isinstance(one.a, Event)
    return one.a.changed(qos=qos)


def _apart(said: list[Publication], patient: bool) -> Iterator[Round]:
    """Patient clients wait for each other; otherwise each connection is in its own order, and nothing else is known."""
    if patient:
        yield from (((one,),) for one in said)
        return
    links = dict.fromkeys((one.x, one.y) for one in said)
    yield tuple(tuple(one for one in said if (one.x, one.y) == link) for link in links)


# -- what chance finds too seldom --------------------------------------------------------------------------------------


def by_hand(links: str, monitor: Attachment, *topics: str) -> Life:
    """c0 publishes in S0, and c1 listens in S3; everything is linked in one direction."""
    clients = {"c0": {"scope": "S0"}, "c1": {"scope": "S3", "subscribes": "#"}}
    steps = [{"client": "c0", "publish": topic, "payload": str(at)} for at, topic in enumerate(topics)]
    scenario = parse({"clients": clients, "steps": [step for each in steps for step in (each, "settle")]})
    presences = {
        (scope, client): Presence(client=client, enters=scope[6:], leaves=scope[6:], inward="in", outward="out")
        for scope, client in scenario.sub
    }
    between = tuple(ScopeLink(source=one[:2], target=one[4:]) for one in links.split())
    space = ScopeGraph(scopes=("S0", "S1", "S2", "S3"), links=between)
    world = World(space, OPEN, Monitors([monitor]), scenario, presences)
    return Life(dict.fromkeys(("client:c0", "client:c1"), "5"), [Play(world, True)])


TWO_WAYS = by_hand(
    "S0->S1 S0->S2 S1->S2 S2->S3",
    Attachment(id="m", monitor=Alternate(), link=("scope:S2", "scope:S3")),
    "a",
    "b",
    "a",
)
"""What comes a second time is not counted a second time."""
CALM = by_hand(
    "S0->S1 S1->S3",
    Attachment(
        id="m",
        monitor=guard(only=Step(on=("b",)), after=[Step(on=("a",))], reset=Step(on=("x/#",))),
        link=("scope:S0", "scope:S1"),
    ),
    "x/a",
    "a",
    "x/a",
    "b",
    "a",
    "b",
    "b",
)
"""`x/a` does nothing at first, and then it does."""


# -- the file ----------------------------------------------------------------------------------------------------------


def written(play: Play, ports: Mapping[str, int], number: int) -> str:
    """The configuration, as the file has it. Monitors have names that none had before: they begin anew."""
    world = play.world
    parents: dict[str, list[str]] = {name: [] for name in world.space.scopes}
    across: dict[frozenset[str], list[ScopeLink]] = {}
    for one in world.space.links:
        if one.way is Way.ACROSS:
            across.setdefault(frozenset((one.source, one.target)), []).append(one)
        elif one.way is Way.UP:
            parents[one.source].append(one.target)
    brokering: dict[str, Any] = {"preset": play.preset}
    assigned = [{"link": one.name, "type": one.type} for one in world.space.links if one.way is Way.ACROSS]
    if not play.preset:
        own = {one.client: (one.inward, one.outward) for one in world.presences.values()}
        assigned = [{"link": one.name, "type": one.type} for one in world.space.links]
        assigned += [{"client": client, "in": inward, "out": outward} for client, (inward, outward) in own.items()]
        brokering = {"allow": [list(pair) for pair in sorted(world.brokering.pairs or ())]}
    if play.preset != "open":
        brokering["assign"] = assigned
    sections = {
        "version": 1,
        "node": {"name": "n"},
        "scopes": {name: {"parents": above} if above else {} for name, above in parents.items()},
        "links": [_link(*each) for each in across.values()],
        "listeners": [
            {"url": f"mqtt://127.0.0.1:{ports[name]}", "scope": name, "anonymous": True} for name in world.space.scopes
        ],
        "policies": "open",
        "brokering": brokering,
        "monitors": [_monitor(each, number) for each in world.monitors],
        "sys": {"interval": "0s"},
    }
    return yaml.safe_dump(sections, sort_keys=False)


def _link(out: ScopeLink, back: ScopeLink | None = None) -> dict[str, Any]:
    ends = {"from": out.source, "to": out.target}
    if out.shares is ALL and (back is None or back.shares is ALL):
        return ends if back is not None else {**ends, "direction": "out"}
    shares = [_share(each, "out", each.here, each.there) for each in out.shares]
    if back is not None:
        shares += [_share(each, "in", each.there, each.here) for each in back.shares]
    return {**ends, "share": shares}


def _share(one: TopicMapping, direction: str, local: str, remote: str) -> dict[str, Any]:
    return {
        "topic": one.filter,
        "direction": direction,
        "qos": one.qos,
        "local_prefix": local,
        "remote_prefix": remote,
    }


def _monitor(one: Attachment, number: int) -> dict[str, Any]:
    place: dict[str, Any] = {"scope": one.scope, "direction": one.direction and one.direction.value}
    if one.link is not None:
        place = {"link": "->".join(end.removeprefix("scope:") for end in one.link)}
    return {"id": f"{one.id}-{number}", **place, "default": one.default, **_machine(one.monitor)}


def _machine(one: Machine) -> dict[str, Any]:
    """As `spaces.machines` has them; `as_meant` notices if not."""
    match one:
        case Filter():
            return {"filter": ["a", "x/#"]}
        case Mapper():
            return {"map": {"a": "b"}}
        case Alternate():
            return {"use": "hsup_em"}
        case Twice():
            return {"use": "multi_em"}
    return {"only": "b", "after": ["a"], "reset": "x/#"}


def as_meant(config: Config, world: World) -> None:
    """What was read is what was meant."""
    rules = config.built.rules
    assert rules.space.scopes == world.space.scopes
    assert {replace(one, back=()) for one in rules.space.links} == set(world.space.links)
    assert rules.brokering.pairs == world.brokering.pairs
    for read, meant in zip(rules.monitors, world.monitors, strict=True):
        assert (read.link, read.scope, read.direction) == (meant.link, meant.scope, meant.direction)
        assert (read.each, read.default) == (meant.each, meant.default)
        assert read.monitor.graph() == meant.monitor.graph()


# -- clients -----------------------------------------------------------------------------------------------------------


class End(Protocol):
    """A client's end of a connection."""

    async def subscribe(self, filter: str) -> None: ...
    async def unsubscribe(self, filter: str) -> None: ...
    async def publish(self, event: Event) -> None:
        """Returns when it is sent, or later."""

    async def heard(self) -> list[Event]:
        """What came since the last time, when the node has dealt with all that was sent to it here before."""

    async def leave(self) -> None: ...
    async def sent_away(self) -> None:
        """The node ends the connection."""


class Ours:
    """A client that speaks packets."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pid = 0

    @classmethod
    async def connect(cls, node: Served, port: int, name: str, version: int) -> Ours:
        client = await node.dial(port)
        await client.send(wire.Connect(version=version, client_id=name, clean_start=True, keep_alive=0))
        client.version = version
        assert (await client.expect(wire.Connack)).reason == 0
        return cls(client)

    async def subscribe(self, filter: str) -> None:
        assert (await self._client.subscribe(filter, qos=2)).reasons == (2,)

    async def unsubscribe(self, filter: str) -> None:
        await self._client.unsubscribe(filter)

    async def publish(self, event: Event) -> None:
        self._pid += 1
        pid = self._pid if event.qos else 0
        await self._client.send(
            wire.Publish(topic=event.topic, payload=event.payload, qos=event.qos, packet_id=pid, retain=event.retain)
        )

    async def heard(self) -> list[Event]:
        found: list[Event] = []
        await self._client.send(wire.Pingreq())
        while True:
            match packet := await self._client.receive():
                case wire.Pingresp():
                    return found
                case wire.Puback():
                    assert packet.reason < 0x80, packet
                case wire.Publish():
                    found.append(Event(packet.topic, bytes(packet.payload), packet.qos, packet.retain))
                    if packet.qos == 1:
                        await self._client.send(wire.Puback(packet_id=packet.packet_id))
                case _:
                    raise AssertionError(packet)

    async def leave(self) -> None:
        await self._client.disconnect()

    async def sent_away(self) -> None:
        if self._client.version == wire.V5:
            assert (await self._client.expect(wire.Disconnect)).reason == wire.Reason.ADMINISTRATIVE_ACTION
        assert await self._client.closed() == b""


class Foreign:
    """aiomqtt."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self._client = client

    @classmethod
    async def connect(cls, port: int, name: str) -> Foreign:
        version = aiomqtt.ProtocolVersion.V5
        client = aiomqtt.Client("127.0.0.1", port, identifier=name, protocol=version, timeout=PATIENCE)
        await client.__aenter__()
        return cls(client)

    async def subscribe(self, filter: str) -> None:
        answer = await self._client.subscribe(filter, qos=2)
        assert [str(one) for one in answer] == ["Granted QoS 2"]

    async def unsubscribe(self, filter: str) -> None:
        await self._client.unsubscribe(filter)

    async def publish(self, event: Event) -> None:
        await self._client.publish(event.topic, event.payload, event.qos, event.retain)

    async def heard(self) -> list[Event]:
        await self._client.subscribe(NEVER)
        came = [await anext(self._client.messages) for _ in range(len(self._client.messages))]
        return [Event(str(one.topic), one.payload, one.qos, one.retain) for one in came]

    async def leave(self) -> None:
        await self._client.__aexit__(None, None, None)

    async def sent_away(self) -> None:
        with pytest.raises(aiomqtt.MqttError):
            async with asyncio.timeout(PATIENCE):
                await anext(self._client.messages)
        await self.leave()


# -- the node ----------------------------------------------------------------------------------------------------------


class Stage:
    """A node and who is connected to it."""

    def __init__(self, node: Served, kinds: dict[str, str], ports: Mapping[str, int], tally: Counter[str]) -> None:
        self.node = node
        self.kinds = kinds
        self.ports = ports
        self.tally = tally
        self.ends: dict[Link, End] = {}
        self.filters: dict[Link, Filters] = {}
        self.heard: dict[str, list[Delivery]] = {}

    async def play(self, play: Play) -> Outcome:
        """What clients get."""
        scenario = play.world.scenario
        await self._gather(scenario.sub)
        self.heard = {}
        for each in scenario.rounds:
            if isinstance(each, Change):
                await self._change(each.link, each.to)
                continue
            for one in sorted((one for queue in each for one in queue), key=lambda one: one.number):
                assert isinstance(one.a, Event)
                await self.ends[one.y, one.x].publish(one.a)
            await self._settle()
        assert self.node.node.status()["bugs"] == 0
        return Outcome.of({device: tuple(came) for device, came in self.heard.items()})

    async def _gather(self, sub: Mapping[Link, Filters]) -> None:
        """Those are connected who should be, and subscribe to what they should."""
        scopes = self.node.node.scopes
        for link in [link for link in self.ends if link not in sub]:
            end = self.ends.pop(link)
            del self.filters[link]
            if link[0].removeprefix("scope:") in scopes:
                await end.leave()
            else:
                await end.sent_away()
                self.tally["sent away"] += 1
        await until(lambda: sum(scope.connected for scope in scopes.values()) == len(self.ends))
        self.tally["stayed"] += len(self.ends)
        for link, filters in sub.items():
            if link not in self.ends:
                self.ends[link] = await self._connect(*link)
                self.filters[link] = Filters(())
            await self._change(link, filters)

    async def _connect(self, scope: str, client: str) -> End:
        port, name, kind = self.ports[scope.removeprefix("scope:")], client.removeprefix("client:"), self.kinds[client]
        self.tally[kind] += 1
        if kind == FOREIGN:
            return await Foreign.connect(port, name)
        return await Ours.connect(self.node, port, name, wire.V5 if kind == "5" else wire.V311)

    async def _change(self, link: Link, to: Filters) -> None:
        had, self.filters[link] = self.filters[link].filters, to
        for each in had:
            if each not in to.filters:
                await self.ends[link].unsubscribe(each)
        for each in to.filters:
            if each not in had:
                await self.ends[link].subscribe(each)

    async def _settle(self) -> None:
        """Everything has arrived. After the first time all is dealt with that was published, so after the second all
        has come."""
        for _ in range(2):
            for (scope, client), end in self.ends.items():
                came = await end.heard()
                self.heard.setdefault(client, []).extend((scope, event) for event in came)

    async def part(self) -> None:
        for end in self.ends.values():
            await end.leave()


async def live(life: Life, folder: Path, ports: Mapping[str, int], tally: Counter[str]) -> None:
    """From the first configuration to the last."""
    first = written(life.plays[0], ports, 0)
    async with from_file(folder, first) as node:
        stage = Stage(node, life.kinds, ports, tally)
        for number, play in enumerate(life.plays):
            text = written(play, ports, number)
            note(text)
            if number:
                await node.reload(text)
            as_meant(node.node.config, play.world)
            check(play, await stage.play(play), tally)
        await stage.part()


def check(play: Play, played: Outcome, tally: Counter[str]) -> None:
    schema, placed = play.world.model()
    rounds: Rounds = placed.rounds
    note(f"{rounds}\n{played}")
    tally["deliveries"] += sum(len(came) for _, came in played.heard)
    tally[f"preset {play.preset or 'own types'}"] += 1
    tally["patient" if play.patient else "hurried"] += 1
    try:
        run = find_run(schema, rounds, played, bound=BOUND)
    except Unfinished:
        tally["unfinished"] += 1
        return
    assert run is not None, f"{'patient' if play.patient else 'hurried'}: {played}"
    tally["allowed"] += 1


@pytest.mark.parametrize(
    "examples", [pytest.param(30, id="some"), pytest.param(300, id="many", marks=pytest.mark.soak)]
)
def test_what_a_node_delivers_is_an_outcome_of_the_model(examples: int, tmp_path: Path) -> None:
    ports: dict[str, int] = {}
    while len(set(ports.values())) < 4:  # here, because Hypothesis makes everything below draw the same numbers
        ports = {f"S{at}": free_port() for at in range(4)}
    tally: Counter[str] = Counter()

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(lives())
    @example(TWO_WAYS)
    @example(CALM)
    def play(life: Life) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(live(life, tmp_path, ports, tally))

    play()
    assert tally["allowed"] > 20 * tally["unfinished"]
    assert all(tally[each] for each in (*KINDS, "stayed", "sent away", "patient", "hurried"))
    assert all(tally[f"preset {each}"] for each in ("open", "component", "own types"))
    assert tally["deliveries"] > 2 * tally["allowed"]
