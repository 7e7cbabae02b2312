"""Two nodes in one process and the connections of the link between them, without sockets, TLS, clock or disk.

They are opened as two nodes open them. What one end writes is kept until somebody hands it to the other.
"""

from __future__ import annotations

from typing import Any

from bench.gate.in_process import NOBODY, Door, Known, site_of
from tidegate import wire
from tidegate.config import parse
from tidegate.scope import Realm, Scope
from tidegate.scope.link_greeting import Peer
from tidegate.scope.node_links import LinkEnd
from tidegate.scope.standby_connections import StandbyEnd, standby_of
from tidegate.session import Connection, Limits, Origin, Phase


class Node:
    """A node in memory."""

    def __init__(self, name: str, text: str, number: int) -> None:
        built = parse(text, "bench.yaml").built
        self.name = name
        self.site = site_of(Limits(inflight=65535, receive_maximum=65535))
        self.site.origin = Origin(f"{number:016x}", 1)
        known = Known(built.rules, built.directory, NOBODY)
        self.realm = Realm(node=name, site=self.site, authenticator=known, rules=built.rules)

    @property
    def scope(self) -> Scope:
        return self.realm.scopes[self.name]

    @property
    def link(self) -> LinkEnd:
        (end,) = self.realm.node_links.ends.values()
        return end

    def rest(self) -> None:
        self.site.close()
        self.site.rest()


class LinkSocket:
    """One end of a connection between the nodes (session.Shell)."""

    def __init__(self, node: Node, end: Any) -> None:
        self.sent: list[bytes] = []
        self.node = node
        node.site.open()
        self.connection = Connection(site=node.site, host=end, listener=Door(), on_bug=self._bug)
        self.connection.opened(self, "127.0.0.1", None)
        self.connection.phase = Phase.WAITING

    @staticmethod
    def _bug(connection: Connection, error: BaseException) -> None:
        raise error

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def taken(self) -> bytes:
        data = b"".join(self.sent)
        self.sent.clear()
        return data

    def close(self) -> None:
        raise AssertionError("a link was closed")

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def hold_more(self) -> None: ...


def opened(near: Node, far: Node, *, level: str, standby: bool = False) -> tuple[LinkSocket, LinkSocket]:
    """A connection of the link, once both have greeted each other; `standby`: one that does not carry."""
    peers = [Peer(subject=f"CN={node.name}", name=node.name, level=level) for node in (near, far)]
    mine: LinkEnd = StandbyEnd(near.link, "1") if standby else near.link
    greeting = mine.greeting(peers[1])
    theirs = standby_of(far.link, greeting.properties.user_properties)
    here, there = LinkSocket(near, mine), LinkSocket(far, theirs)
    refused = theirs.welcome(there.connection, greeting, peers[0])
    assert refused is None, refused.text
    far.rest()
    data = there.taken()
    whole = wire.frame(data, 0, len(data))
    assert whole is not None
    first, start, stop = whole
    answer = wire.decode(first, data[start:stop], wire.V5)
    assert isinstance(answer, wire.Connack)
    why = mine.connected(here.connection, answer, peers[1])
    assert not why, why
    near.rest()
    there.sent.append(data[stop:])
    return here, there
