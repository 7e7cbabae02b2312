"""Random graphs of nodes with random shares, policies of both ends, monitors, preferences, changes, cuts and restarts.

The model is a walk over the graph, step by step as semantics.md says it. What may have been allowed at any time since
a message was published may be delivered; what was allowed all that time has to be, if it is QoS 1 or 2 all the way,
once. The nodes are the real ones, joined by memory in place of sockets. Where some end or are killed, and begin
anew, their stores are real, too: then what has been acknowledged has to be delivered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from pure import End
from scope.durable import DurableNode, disk
from scope.nodes import Cable, Node, node_link, share
from scope.spaces import got
from scope.test_node_links import ALL_WRITE, denial, policies, rule
from tidegate.monitor import Attachment, Direction, Monitors
from tidegate.monitor.library import Filter
from tidegate.policy import Action, Policy, Preference, Preferences
from tidegate.policy.domains import Domain
from tidegate.predicate import compile
from tidegate.wire import Properties, Puback, Pubcomp, Publish, Pubrel

NAMES = "abcd"
TOPICS = ("t", "u")
USERS = ("mary", "bob")
Edge = tuple[str, str]


@dataclass(frozen=True)
class Way:
    """One direction of a link: what its shares let cross, with which QoS at most."""

    topics: frozenset[str]
    qos: int


@dataclass(frozen=True)
class Rules:
    """What one node decides by, in words of the model."""

    out: frozenset[tuple[str, str]]  # (neighbour, topic) that it does not forward
    into: frozenset[tuple[str, str]]  # (neighbour, topic) that it does not import
    read: frozenset[str]  # topics that its reader may read


@dataclass(frozen=True)
class Graph:
    nodes: str
    ways: dict[Edge, Way]
    rules: dict[str, Rules]
    leaving: dict[Edge, str]  # by which monitor only one topic leaves
    kept: dict[tuple[str, str], str]  # (home, user) -> a neighbour that their messages are not forwarded to
    readers: dict[tuple[str, str], str]  # (home, user) -> the only node where their messages may be read


def subsets(values: list[Any]) -> st.SearchStrategy[frozenset[Any]]:
    return st.frozensets(st.sampled_from(values)) if values else st.just(frozenset())


@st.composite
def rules_of(draw: st.DrawFn, neighbours: list[str]) -> Rules:
    pairs = [(neighbour, topic) for neighbour in neighbours for topic in TOPICS]
    some = st.one_of(st.just(frozenset()), subsets(pairs))
    return Rules(draw(some), draw(some), frozenset(TOPICS) - draw(st.one_of(st.just(frozenset()), subsets([*TOPICS]))))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = NAMES[: draw(st.sampled_from([3, 4, 2]))]
    pairs = [*combinations(nodes, 2)]
    linked = draw(st.lists(st.sampled_from(pairs), min_size=len(nodes) - 1, max_size=len(pairs), unique=True))
    ways: dict[Edge, Way] = {}
    every = frozenset(TOPICS)
    open_graph = draw(st.booleans())  # everything crosses, so that there are rings and several ways
    some = st.just(every) if open_graph else st.sampled_from([every, frozenset("t"), frozenset("u"), frozenset()])
    for one, other in linked:
        for edge in ((one, other), (other, one)):
            ways[edge] = Way(draw(some), draw(st.sampled_from([1, 2] if open_graph else [0, 1, 2])))
    neighbours = {node: [b for a, b in ways if a == node] for node in nodes}
    # such a monitor acts on all links that leave a node, so that has only one
    alone = [edge for edge in ways if len(neighbours[edge[0]]) == 1]
    leaving = {edge: draw(st.sampled_from(TOPICS)) for edge in alone if draw(st.integers(0, 3)) == 0}
    kept: dict[tuple[str, str], str] = {}
    readers: dict[tuple[str, str], str] = {}
    for node in nodes:  # everybody lives at one node
        user = USERS[NAMES.index(node) % 2] + node
        if neighbours[node] and draw(st.booleans()):
            kept[node, user] = draw(st.sampled_from(neighbours[node]))
        if draw(st.integers(0, 3)) == 0:
            readers[node, user] = draw(st.sampled_from(nodes))
    return Graph(nodes, ways, {node: draw(rules_of(neighbours[node])) for node in nodes}, leaving, kept, readers)


@dataclass
class Said:
    """A message, and what was the case since it was published."""

    home: str
    user: str
    topic: str
    qos: int
    payload: bytes
    pid: int = 0
    acknowledged: bool = True
    then: list[dict[str, Rules]] = field(default_factory=list)


class Model:
    """Who may receive a message, and who has to."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def crosses(self, said: Said, edge: Edge, rules: dict[str, Rules]) -> bool:
        """Steps 6 to 11 where a message leaves one node, and 1 to 2 where it enters the other."""
        graph, (here, there) = self.graph, edge
        return (
            said.topic in graph.ways[edge].topics
            and (there, said.topic) not in rules[here].out
            and (here, said.topic) not in rules[there].into
            and graph.leaving.get(edge, said.topic) == said.topic
            and graph.kept.get((said.home, said.user)) != there
        )

    def reached(self, said: Said, *, surely: bool) -> set[str]:
        found, waiting = {said.home}, [said.home]
        for here in waiting:
            for edge, way in self.graph.ways.items():
                if edge[0] != here or edge[1] in found or (surely and not way.qos):
                    continue
                held = [self.crosses(said, edge, rules) for rules in said.then]
                if all(held) if surely else any(held):
                    found.add(edge[1])
                    waiting.append(edge[1])
        return found

    def readers(self, said: Said, *, surely: bool) -> set[str]:
        only = self.graph.readers.get((said.home, said.user))
        return {
            node
            for node in self.reached(said, surely=surely)
            if (only is None or node == only)
            and (all if surely else any)(said.topic in rules[node].read for rules in said.then)
        }

    def once(self, said: Said) -> bool:
        """Whether no way may lose what it remembers: QoS 0 has no memory."""
        return all(way.qos for way in self.graph.ways.values())


class World:
    """The same with real nodes."""

    def __init__(self, graph: Graph, folder: Path | None = None) -> None:
        """`folder`: where stores are, if nodes end and begin anew."""
        self.graph = graph
        self.folder = folder
        self.boots = 0
        self.killed = False
        self.wall = 1_700_000_000.0
        self.rules = dict(graph.rules)
        self.nodes = {name: self.made(name) for name in graph.nodes}
        self.cables = {
            (a, b): Cable(self.nodes[a], self.nodes[b], f"{scope(a)}->{scope(b)}") for a, b in graph.ways if a < b
        }
        self.readers = {name: self.reader(name) for name in graph.nodes}
        for end in self.readers.values():
            end.subscribe("#", 1)
        self.unsure: dict[tuple[str, str], list[Said]] = {}
        """What has not been acknowledged to a publisher."""
        self.publishers: dict[tuple[str, str], End] = {}
        self.received: dict[str, Counter[bytes]] = {name: Counter() for name in graph.nodes}
        self.order: dict[str, list[bytes]] = {name: [] for name in graph.nodes}
        self.pid = 0
        self.run()

    def made(self, name: str) -> Node:
        graph = self.graph
        links = []
        for other in (b for a, b in graph.ways if a == name):
            out, into = (
                tuple(share(topic, qos=graph.ways[edge].qos) for topic in sorted(graph.ways[edge].topics))
                for edge in ((name, other), (other, name))
            )
            links.append(node_link(scope(name), scope(other), out=out, into=into))
        monitors = [
            Attachment(id=f"m{b}", monitor=Filter([topic]), scope=scope(a), direction=Direction.EX_PUB)
            for (a, b), topic in graph.leaving.items()
            if a == name
        ]
        preferences = [
            Preference(id=f"k{user}", user=user, topic="#", to=scope(there), when=compile("false"), text="false")
            for (home, user), there in graph.kept.items()
            if home == name
        ]
        for (home, user), where in graph.readers.items():
            if home == name:
                text = f"s.user == 'reader{where}'"
                preferences.append(Preference(id=f"r{user}", user=user, topic="#", when=compile(text), text=text))
        rules: dict[str, Any] = {
            "monitors": Monitors(monitors),
            "preferences": Preferences(preferences, domain="d"),
            "believes": {"d": Domain(nodes=tuple(NAMES))},
            "policies": policies(*self.written(name)),
        }
        if self.folder is None:
            return Node(name, *links, **rules)
        self.boots += 1
        self.wall += 1
        place = self.folder / name
        return DurableNode(name, *links, folder=place, boot=self.boots, wall=self.wall, **rules)

    def reader(self, name: str) -> End:
        kept = Properties(session_expiry_interval=1000)
        return self.nodes[name].peer("reader", username=f"reader{name}", clean_start=False, properties=kept)

    def restart(self, name: str, *, kill: bool) -> None:
        """A node ends, and begins anew. What its clients and neighbours have not taken is lost on the way."""
        node = self.nodes[name]
        assert isinstance(node, DurableNode)
        if kill:
            self.killed = True
            node.store.kill()
        for edge, cable in self.cables.items():
            if name in edge and not cable.mine.closed:
                cable.cut()
        if not kill:
            self.readers[name].connection.lost()
            node.turn()
            self.acknowledge()
            node.store.close()
        for key in [key for key in self.publishers if key[0] == name]:
            self.acknowledge()
            del self.publishers[key]
            for said in self.unsure.pop(key, ()):
                said.acknowledged = False
        node = self.nodes[name] = self.made(name)
        for edge, cable in self.cables.items():
            if edge[0] == name:
                cable.here = node
            elif edge[1] == name:
                cable.there = node
        self.readers[name] = self.reader(name)

    def acknowledge(self) -> None:
        """What publishers have been told is safe."""
        for key, end in self.publishers.items():
            for packet in end.take():
                if isinstance(packet, Puback | Pubcomp):
                    self.unsure[key] = [each for each in self.unsure[key] if each.pid != packet.packet_id]

    def written(self, name: str) -> list[Policy]:
        """The rules of a node as its administrator writes them."""
        rules = self.rules[name]
        found = [ALL_WRITE]
        found += [rule(f"r{topic}", f"user:reader{name}", topic, Action.READ) for topic in sorted(rules.read)]
        found.append(rule("sub", f"user:reader{name}", "never", Action.READ))
        for a, b in self.graph.ways:
            if b == name:
                found.append(rule(f"in{a}", f"link:{scope(a)}->{scope(b)}", "#", Action.READ))
        for other, topic in sorted(rules.out):
            found.append(denial(f"o{other}{topic}", f"link:{scope(name)}->{scope(other)}", topic, Action.WRITE))
        for other, topic in sorted(rules.into):
            found.append(denial(f"i{other}{topic}", f"link:{scope(other)}->{scope(name)}", topic, Action.READ))
        return found

    def change(self, name: str, rules: Rules) -> None:
        self.rules[name] = rules
        node = self.nodes[name]
        changed = {key: getattr(node.realm.rules, key) for key in ("monitors", "preferences")}
        node.change(**changed, policies=policies(*self.written(name)))

    def say(self, said: Said) -> None:
        end = self.publishers.get((said.home, said.user))
        if end is None:
            end = self.nodes[said.home].peer(said.user, username=said.user)
            self.publishers[said.home, said.user] = end
        self.pid += 1
        said.pid = pid = self.pid if said.qos else 0
        if pid:
            self.unsure.setdefault((said.home, said.user), []).append(said)
        end.send(Publish(topic=said.topic, payload=said.payload, qos=said.qos, packet_id=pid))
        if said.qos == 2:
            end.send(Pubrel(packet_id=pid))

    def run(self) -> None:
        for _ in range(2 * len(self.nodes)):
            for cable in self.cables.values():
                if not cable.mine.closed and not cable.theirs.closed:
                    cable.run()
        for name, end in self.readers.items():
            for _, payload in got(end):
                self.received[name][payload] += 1
                if self.received[name][payload] == 1:
                    self.order[name].append(payload)


def scope(node: str) -> str:
    return f"s{node}"


STEPS = st.one_of(
    st.tuples(st.just("say"), st.integers(0, 3), st.sampled_from(TOPICS), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("run")),
    st.tuples(st.just("cut"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("plug"), st.integers(0, 5)),
    st.tuples(st.just("change"), st.integers(0, 3), st.integers(0, 2**12 - 1)),
)


def varied(graph: Graph, node: str, number: int) -> Rules:
    """Other rules of a node, chosen by a number."""
    neighbours = [b for a, b in graph.ways if a == node]
    pairs = [(neighbour, topic) for neighbour in neighbours for topic in TOPICS]
    chosen = {pair for at, pair in enumerate(pairs) if number >> at & 1 and number & 3 == 3}
    read = frozenset(topic for at, topic in enumerate(TOPICS) if not number >> (8 + at) & 1)
    half = len(chosen) // 2
    return Rules(frozenset(sorted(chosen)[:half]), frozenset(sorted(chosen)[half:]), read)


def compare(graph: Graph, steps: list[tuple[Any, ...]]) -> None:
    note(f"{graph}")
    note(f"{steps}")
    if not any(step[0] == "restart" for step in steps):
        play(graph, steps, World(graph))
        return
    folder = disk()
    world = World(graph, folder)
    try:
        play(graph, steps, world)
    finally:
        for node in world.nodes.values():
            assert isinstance(node, DurableNode)
            node.store.close()
        rmtree(folder)


def play(graph: Graph, steps: list[tuple[Any, ...]], world: World) -> None:
    model, messages = Model(graph), list[Said]()
    cables = [*world.cables.values()]

    def plug(cable: Cable) -> None:
        if cable.mine.closed:
            cable.plug()
            assert cable.why == ""

    for step in steps:
        match step:
            case "say", int(at), str(topic), int(qos), bool(owned):
                home = graph.nodes[at % len(graph.nodes)]
                user = USERS[NAMES.index(home) % 2] + home if owned else f"nobody{home}"
                payload = f"{len(messages)}/{home}/{user}".encode()
                said = Said(home, user, topic, qos, payload, then=[dict(world.rules)])
                messages.append(said)
                world.say(said)
            case ("run",):
                world.run()
            case "cut", int(at), bool(lose):
                cable = cables[at % len(cables)]
                if not cable.mine.closed:
                    cable.cut(lose=lose)
            case "plug", int(at):
                plug(cables[at % len(cables)])
            case "restart", int(at), bool(kill):
                world.restart(graph.nodes[at % len(graph.nodes)], kill=kill)
            case "change", int(at), int(number):
                node = graph.nodes[at % len(graph.nodes)]
                world.change(node, varied(graph, node, number))
                for each in messages:
                    each.then.append(dict(world.rules))
    for cable in cables:
        plug(cable)
    world.run()
    for said in messages:
        for node in graph.nodes:
            times = world.received[node][said.payload]
            assert not times or node in model.readers(said, surely=False), (said, node)
            if said.qos and said.acknowledged and node in model.readers(said, surely=True):
                assert times, (said, node)
            if said.qos and model.once(said) and not world.killed:
                assert times <= 1, (said, node)
    for node in graph.nodes:  # in the order of each publisher and topic
        if len(graph.ways) == 2 * (len(graph.nodes) - 1):  # over one way only
            last: dict[tuple[str, str, int], int] = {}
            for payload in world.order[node]:
                said = messages[int(payload.split(b"/")[0])]
                key = said.user, said.topic, said.qos  # MQTT 5, 4.6: of one QoS
                if said.qos:
                    assert int(payload.split(b"/")[0]) > last.get(key, -1), world.order[node]
                    last[key] = int(payload.split(b"/")[0])


RESTARTS = st.tuples(st.just("restart"), st.integers(0, 3), st.booleans())
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
STORIES = st.lists(STEPS, min_size=3, max_size=25)
WITH_RESTARTS = st.lists(st.one_of(STEPS, STEPS, RESTARTS), min_size=3, max_size=25)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(graph=graphs(), steps=STORIES)
def test_what_is_delivered_is_what_the_model_allows_and_all_that_it_demands(graph: Graph, steps: Any) -> None:
    compare(graph, steps)


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(graph=graphs(), steps=WITH_RESTARTS)
def test_the_same_with_restarts(graph: Graph, steps: Any) -> None:
    compare(graph, steps)


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, suppress_health_check=SLOW)
@given(graph=graphs(), steps=st.one_of(STORIES, WITH_RESTARTS))
def test_the_same_of_thousands_of_graphs(graph: Graph, steps: Any) -> None:
    compare(graph, steps)
