"""Several nodes in one process, joined by links that are only memory."""

from __future__ import annotations

from typing import Any

from pure import Listening, World
from tidegate import wire
from tidegate.gate import RuleSet
from tidegate.policy import Preferences
from tidegate.policy.domains import Domain
from tidegate.policy.home_preferences import HomePreferences, TravellingPreferences
from tidegate.policy.scopes import ALL, NodeLink, ScopeGraph, ScopeLink, TopicMapping
from tidegate.scope.link_greeting import Peer
from tidegate.session import Connection, Limits, Origin, Store

DOMAIN = "d"


def share(filter: str, *, here: str = "", there: str = "", qos: int = 2) -> TopicMapping:
    return TopicMapping(filter=filter, here=here, there=there, qos=qos)


def node_link(
    near: str,
    far: str,
    *,
    out: tuple[TopicMapping, ...] = ALL,
    into: tuple[TopicMapping, ...] = ALL,
    types: tuple[str, str] = ("in", "in"),
    **fields: Any,
) -> NodeLink:
    """This node's entry of a link: `out` from near to far, `into` from far to near, both as their sources see them."""
    return NodeLink(
        near=near,
        far=far,
        out=ScopeLink(source=near, target=far, shares=out, back=into, type=types[0]) if out else None,
        into=ScopeLink(source=far, target=near, shares=into, back=out, type=types[1]) if into else None,
        **fields,
    )


class Node(World):
    """A node with scopes and links, whose domain is `d` unless it is given."""

    def __init__(
        self,
        name: str,
        *links: NodeLink,
        domain: str = DOMAIN,
        believes: dict[str, Domain] | None = None,
        space: ScopeGraph | None = None,
        limits: Limits | None = None,
        store: Store | None = None,
        boot: int = 1,
        wall: float | None = None,
        **rules: Any,
    ) -> None:
        self.name = name
        near = tuple(dict.fromkeys(link.near for link in links))
        graph = space or ScopeGraph(scopes=near)
        graph = ScopeGraph(scopes=graph.scopes, parents=graph.parents, links=graph.links, remote=links)
        domains = believes if believes is not None else {domain: Domain(nodes=("a", "b", "c", "d"))}
        self.made = {"space": graph, "domain": domain, "domains": domains}
        super().__init__(rules=RuleSet(**{**self.made, **rules}), limits=limits, store=store)
        self.wall = wall or self.wall
        self.site.origin = Origin(name.encode().hex().rjust(16, "0")[-16:], boot)
        self.realm.node_links.arrange(self.realm.rules)  # now that the node has its id
        signers = {node: of for of, known in domains.items() for node in known.nodes}
        self.verify = lambda signer, signed, signature: signers.get(signer.decode())
        self.realm.node_links.travel(signed_by(self, self.realm.rules.preferences), self.verify)

    def change(self, **rules: Any) -> None:
        self.realm.change(RuleSet(**{**self.made, **rules}))
        self.turn()


def signed_by(node: Node, preferences: Preferences) -> TravellingPreferences:
    """What the owners of a node's domain say, with a signature that only says who made it."""
    home = HomePreferences(preferences)
    numbers = {each.owner: each for each in home.renumbered({}, node.wall)}
    return TravellingPreferences(home, numbers, signer=lambda data: b"signed", certificate=node.name.encode())


class Side:
    """One end of a cable (session.Shell)."""

    def __init__(self, node: Node, host: Any) -> None:
        self.node = node
        self.sent = b""
        self.closed = False
        node.site.open()
        self.connection = Connection(site=node.site, host=host, listener=Listening(), on_bug=self._bug)
        self.connection.opened(self, "127.0.0.1", None)

    def _bug(self, connection: Connection, error: BaseException) -> None:
        self.node.bugs.append(error)
        raise error

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def hold_more(self) -> None: ...


class Cable:
    """A connection that `here` has made to `there`, for their link."""

    def __init__(
        self,
        here: Node,
        there: Node,
        name: str,
        *,
        level: str = "trusted",
        facts: tuple[str, ...] = (),
        degraded: str = "",
    ) -> None:
        """`degraded`: why `there` does not trust `here`."""
        self.here, self.there = here, there
        self.degraded = degraded
        self.name = name
        self.level, self.facts = level, facts
        self.why: object = ""
        self.plug()

    def plug(self) -> None:
        end = self.here.realm.node_links.ends[self.name]
        near, _, far = self.name.partition("->")
        other = self.there.realm.node_links.ends[f"{far}->{near}"]
        self.mine, self.theirs = Side(self.here, end), Side(self.there, other)
        self.theirs.connection.phase = self.mine.connection.phase = type(self.mine.connection.phase).WAITING
        greeting = end.greeting(self._peer(self.there))
        self.why = other.welcome(self.theirs.connection, greeting, self._peer(self.here)) or ""
        self.there.turn()
        if self.why:
            return
        framed = wire.frame(self.theirs.sent, 0, 2**28)
        assert framed is not None
        first, start, stop = framed
        connack = wire.decode(first, self.theirs.sent[start:stop], wire.V5)
        assert isinstance(connack, wire.Connack)
        self.theirs.sent = self.theirs.sent[stop:]
        self.why = end.connected(self.mine.connection, connack, self._peer(self.there))
        self.run()

    def _peer(self, node: Node) -> Peer:
        degraded = self.degraded if node is self.here else ""
        return Peer(subject=f"CN={node.name}", name=node.name, level=self.level, facts=self.facts, degraded=degraded)

    def run(self) -> None:
        """Carries what both have to say until nobody says anything more."""
        for _ in range(100):
            self.here.turn()
            self.there.turn()
            mine, theirs = self.mine, self.theirs
            if not (mine.sent or theirs.sent):
                return
            data, mine.sent = mine.sent, b""
            if data and not theirs.closed:
                theirs.connection.reader.receive(data)
            data, theirs.sent = theirs.sent, b""
            if data and not mine.closed:
                mine.connection.reader.receive(data)

    def cut(self, *, lose: bool = True) -> None:
        """The connection breaks; what is under way is lost."""
        for side in (self.mine, self.theirs):
            side.sent = b""
            if not side.closed:
                side.closed = True
                side.connection.lost()
        self.here.turn()
        self.there.turn()
