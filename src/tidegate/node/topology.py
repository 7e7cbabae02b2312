"""What the links of a node to others may form, by its configuration (`flows`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.config.flows import Topology
from tidegate.flow.assertions import Assertion, Expect
from tidegate.flow.graph import SCOPE

if TYPE_CHECKING:
    from tidegate.node.node import Node


class NodeTopology:
    """Tells the neighbourhood of a node what is configured."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def arrange(self) -> None:
        """Other rules are in force."""
        config, neighbourhood = self._node.config, self._node.realm.node_links.neighbourhood
        neighbourhood.name = config.node.name
        neighbourhood.forest = config.flows.topology is Topology.FOREST
        neighbourhood.forbidden = self._forbidden
        neighbourhood.changed()

    def _forbidden(self, far: str, names: frozenset[str]) -> str:
        """Which forbidden flow a link to a scope opens, behind which those with these names lie."""
        node = self._node
        scopes = {SCOPE + name for name in names if name != far} - {SCOPE + name for name in node.scopes}
        for said in node.config.built.flows:
            if said.expect is not Expect.FORBID or not scopes & {said.source, said.target}:
                continue
            short = _shortened(said, scopes, SCOPE + far)
            if node.realm.opened(node.realm.rules, [short], node.config.built.presences, node.authentication):
                return f"`{said}` is forbidden, and the link with {far} opens it"
        return ""


def _shortened(said: Assertion, beyond: set[str], far: str) -> Assertion:
    """The same flow as far as it is known here: to or from the far end of the link."""
    source = far if said.source in beyond else said.source
    target = far if said.target in beyond else said.target
    return replace(said, source=source, target=target)
