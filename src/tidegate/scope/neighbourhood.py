"""The groups that this node is in, as the nodes of them tell each other, and the topology test when a link opens.

What a node says of itself goes to all trusted neighbours when it changes, and from there on; a neighbour that connects
is told all that is known. SEC-REDS, 2.3 and 2.6: a group is made of scopes that are joined by trusted links, and a link
that opens must pass the topology test as well as the security test.

- A link must not open a flow that is forbidden here, also one to or from a scope that lies beyond the other end.
- With `forest` it must not be a second way from one scope to another. Links that open at the same moment do not know of
  each other: when they do, the last one of the ring, in an order that is the same for all nodes, is closed again.
- Where links form a ring, QoS 0 messages are looked at one by one, so that each is taken once (`LinkImports.ringed`).
- States that come over a link are bounded in number and by rate. Nobody else says anything of this node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.policy.known_nodes import (
    HIGHEST,
    NodeState,
    OpenLink,
    Place,
    beyond,
    groups,
    reaches,
    redundant,
    ringed,
)
from tidegate.session import Bucket, Site
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.scope.node_links import LinkEnd, NodeLinks

STATE: Final = "$tidegate/link/node"
MOST: Final = 500  # nodes that are known
RATE: Final = 20.0  # states a second of one neighbour
BURST: Final = 1000.0

Forbidden = Callable[[str, frozenset[str]], str]
"""Which forbidden flow a link to a scope would open, behind which those with these names lie; empty: none."""


class Neighbourhood:
    """Of all links of a node."""

    def __init__(self, site: Site, links: NodeLinks) -> None:
        self.site = site
        self.name = ""  # of this node
        self.forest = False
        self.forbidden: Forbidden = lambda far, names: ""
        self._links = links
        self._states: dict[str, NodeState] = {}  # by node; that of this one, too
        self._rates: dict[str, Bucket] = {}

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The groups that the scopes of this node are in."""
        self.changed()
        return groups(self._states, self.site.origin.node)

    @property
    def states(self) -> Mapping[str, NodeState]:
        """What the nodes that are known say of themselves, by their ids."""
        self.changed()
        return self._states

    # -- told ------------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """A link has opened or ended, or there are other rules."""
        own = self._own()
        before = self._states.get(own.node)
        if before is not None and before.says(own):
            return
        number = max(int(self.site.wall * 1000), 0 if before is None else before.number + 1)
        self._states[own.node] = own = replace(own, number=min(number, HIGHEST - 1))
        self._tell(own, None)
        self._look_for_rings()

    def _own(self) -> NodeState:
        links = tuple(
            OpenLink(end.link.near, end.link.far, end.greeted.node, end.link.out is not None, end.link.into is not None)
            for end in self._links.ends.values()
            if end.trusted and end.greeted is not None
        )
        return NodeState(
            node=self.site.origin.node, name=self.name or "?", joined=tuple(self._links.joint_scopes), links=links
        )

    def _tell(self, state: NodeState, source: LinkEnd | None) -> None:
        data = state.encode()
        for end in self._links.ends.values():
            if end is not source and end.trusted:
                end.control.tell(STATE, data)

    def opened(self, end: LinkEnd) -> None:
        """A neighbour has connected."""
        if end.trusted:
            for state in self._states.values():
                end.control.tell(STATE, state.encode())
        self.changed()
        self._look_for_rings()

    # -- heard -----------------------------------------------------------------------------------------------------

    def take(self, end: LinkEnd, data: bytes) -> None:
        """What a node says of itself, over a link. ProtocolError if that cannot be read."""
        try:
            state = NodeState.decode(data)
        except MalformedPacket as error:
            raise ProtocolError(f"the state of a node that cannot be read: {error}") from error
        rate = self._rates.get(end.link.name)
        if rate is None:
            rate = self._rates[end.link.name] = Bucket(RATE, BURST, self.site.now)
        if not rate.afford(self.site.now):
            end.refused("what nodes say of themselves: too much at a time")
            return
        if not end.trusted or state.node == self.site.origin.node:
            return  # our own has come round
        known = self._states.get(state.node)
        if known is not None and known.number >= state.number:
            return
        if known is None and len(self._states) >= MOST:
            self._forget_strangers()
            if len(self._states) >= MOST:
                end.refused(f"what a node says of itself: {MOST} are known")
                return
        self._states[state.node] = state
        self._tell(state, end)
        self._look_for_rings()
        self._review()

    def _forget_strangers(self) -> None:
        """Lets go of nodes that nothing leads to any more."""
        reached, waiting = set(), [self.site.origin.node]
        for node in waiting:
            if node in self._states and node not in reached:
                reached.add(node)
                waiting += [link.node for link in self._states[node].links]
        self._states = {node: state for node, state in self._states.items() if node in reached}

    # -- the topology test -----------------------------------------------------------------------------------------

    def objection(self, end: LinkEnd, node: str) -> str:
        """Why a link to a node must not open; empty: it may."""
        link, own = end.link, self.site.origin.node
        here, there = (link.near, own), (link.far, node)
        if self.forest:
            self.changed()
            mine = self._states[own]
            apart = tuple(each for each in mine.links if (each.near, each.far, each.node) != (*here[:1], *there))
            states = {**self._states, own: replace(mine, links=apart)}
            for wanted, source, target in ((link.out, here, there), (link.into, there, here)):
                if wanted is not None and reaches(states, source, target):
                    return f"topology: there is another way from {source[0]} to {target[0]} already"
        why = self.forbidden(link.far, beyond(self._states, there, own))
        return f"topology: {why}" if why else ""

    def _look_for_rings(self) -> None:
        """Of what comes over links, some may come twice now, or not any more."""
        ends = [end for end in self._links.ends.values() if end.greeted is not None and end.link.broker is None]
        found: set[Place] = set()
        if len(ends) > 1:
            places = [(end.link.far, end.greeted.node) for end in ends if end.greeted is not None]
            found = ringed(self._states, self.site.origin.node, places)
        for end in ends:
            place = (end.link.far, "" if end.greeted is None else end.greeted.node)
            # of what lies beyond a node that is not trusted nothing is known
            unknown = end.peer is not None and not end.trusted and len(ends) > 1
            end.plans.is_ringed(place in found or unknown)

    def _second_way(self, end: LinkEnd, there: Place) -> bool:
        """Whether a link that is open has to give way to others of a ring."""
        link, here = end.link, (end.link.near, self.site.origin.node)
        ways = ((link.out, here, there), (link.into, there, here))
        return self.forest and any(
            way is not None and redundant(self._states, source, target, (here, there)) for way, source, target in ways
        )

    def _review(self) -> None:
        """More is known of what lies beyond the links that are open."""
        for end in tuple(self._links.ends.values()):
            connection = end.session.connection
            if connection is None or end.greeted is None or not end.trusted:
                continue
            there = (end.link.far, end.greeted.node)
            why = self.forbidden(end.link.far, beyond(self._states, there, self.site.origin.node))
            if self._second_way(end, there):
                why = f"there is another way between {end.link.near} and {end.link.far} already"
            if why:
                end.refused(f"topology: {why}")
                connection.close(Reason.NOT_AUTHORIZED, f"topology: {why}")
