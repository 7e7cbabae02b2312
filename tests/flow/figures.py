"""The seed's figures 3.1 to 3.7 as connection graphs, from what its text says of them (scopes, 3.4 and 3.5).

Figure 3.1 is told only in part: device 1 is seen in B, E and F, device 3 everywhere. The rest is chosen so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.flow.graph import ConnectionGraph, Link, connection
from tidegate.policy.brokering import chain

Parents = Mapping[str, tuple[str, ...]]


def entities(parents: Mapping[str, str], kind: str = "scope") -> dict[str, tuple[str, ...]]:
    """`{"C": "A B"}` as names of entities."""
    return {f"{kind}:{child}": tuple(f"scope:{each}" for each in some.split()) for child, some in parents.items()}


def component(parents: Parents) -> ConnectionGraph:
    """Everything but down and then up."""
    links = [link for child, some in parents.items() for each in some for link in connection(child, each, "up", "down")]
    return ConnectionGraph(links, entities=parents, allow=lambda first, second: (first, second) != ("down", "up"))


HIERARCHY = entities({"A": "", "B": "", "C": "A", "D": "A", "E": "B", "F": "B D"})
COMPONENTS = HIERARCHY | entities({"1": "E", "2": "E", "3": "F", "4": "C", "5": "D", "6": "A"}, "client")
DIRECTED_ACYCLIC = entities({"A": "", "B": "A", "C": "A", "D": "B C", "E": "D"})
CONJOINED = entities({"A": "", "B": "", "C": "A B", "D": "B", "E": "C", "F": "D"})
HOME_SCOPES = entities({"I": "", "H1": "I", "H2": "H1 H4", "H3": "H1", "H4": ""})
HOME_DEVICES = entities({"SP": "I", "DB": "H2", "DL": "H3", "MD": "H4", "SC": "H4"}, "client")
HOME = HOME_SCOPES | HOME_DEVICES

LABELS = ("unclassified", "confidential", "secret", "top secret")


def labelled(devices: Mapping[str, tuple[str, str]]) -> ConnectionGraph:
    """Two scopes that pass on what is secret at most, and devices with (scope, label in, label out)."""
    links = list(connection("scope:field", "scope:office", "secret", "unclassified"))
    for number, (name, (outward, inward)) in enumerate(devices.items()):
        links += connection(f"client:{name}", ("scope:field", "scope:office")[number % 2], inward, outward)
    return ConnectionGraph(links, allow=chain(LABELS))


def rbac(roles: Iterable[str], members: Mapping[str, str]) -> ConnectionGraph:
    """A pub and a sub scope for each role around a bus (RBAC-CG, RBAC-BP)."""
    links: list[Link] = []
    for role in roles:
        links += connection(f"scope:{role}-pub", "scope:bus", "PubUp", "PubDown")
        links += connection(f"scope:{role}-sub", "scope:bus", "SubUp", "SubDown")
    for device, role in members.items():
        for half in ("pub", "sub"):
            links += connection(f"client:{device}", f"scope:{role}-{half}", "DevUp", "DevDown")
    return ConnectionGraph(links, allow=[("PubUp", "SubDown"), ("DevUp", "PubUp"), ("SubDown", "DevDown")])
