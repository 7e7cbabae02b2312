"""Worlds with several scopes, and what their clients receive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from pure import End, World
from tidegate import wire
from tidegate.gate import RuleSet
from tidegate.monitor import Attachment, Monitors
from tidegate.policy.brokering import Brokering, Types
from tidegate.policy.scopes import ALL, ScopeGraph, ScopeLink, TopicMapping, Way


def both(one: str, other: str, *shares: TopicMapping, **fields: Any) -> tuple[ScopeLink, ScopeLink]:
    """Two links between two scopes."""
    there = shares or ALL
    back = tuple(share.turned for share in there)
    return (
        ScopeLink(source=one, target=other, shares=there, back=back, **fields),
        ScopeLink(source=other, target=one, shares=back, back=there, **fields),
    )


def chain(*names: str) -> ScopeGraph:
    links = [link for one, other in pairwise(names) for link in both(one, other)]
    return ScopeGraph(scopes=names, links=tuple(links))


def hierarchy(parents: Mapping[str, Iterable[str]]) -> ScopeGraph:
    """Components: links up and down."""
    names = dict.fromkeys([*parents, *(name for above in parents.values() for name in above)])
    links = []
    for child, above in parents.items():
        for parent in above:
            links.append(ScopeLink(source=child, target=parent, type="up", way=Way.UP, back=ALL))
            links.append(ScopeLink(source=parent, target=child, type="down", way=Way.DOWN, back=ALL))
    made = {child: tuple(above) for child, above in parents.items()}
    return ScopeGraph(scopes=tuple(names), parents=made, links=tuple(links))


COMPONENT = Brokering([("up", "up"), ("up", "down"), ("down", "down")], default=Types(inward="up", outward="down"))


def world(space: ScopeGraph, *monitors: Attachment, **fields: Any) -> World:
    return World(rules=RuleSet(space=space, monitors=Monitors(monitors), **fields))


def got(end: End) -> list[tuple[str, bytes]]:
    """Topics and payloads of what was published to it; what is QoS 1 is acknowledged."""
    found = [packet for packet in end.take() if isinstance(packet, wire.Publish)]
    for packet in found:
        if packet.qos == 1:
            end.send(wire.Puback(packet_id=packet.packet_id))
    return [(packet.topic, packet.payload) for packet in found]


def say(end: End, topic: str, payload: bytes = b"x", **fields: Any) -> None:
    if fields.get("qos"):
        fields.setdefault("packet_id", 7)
    end.send(wire.Publish(topic=topic, payload=payload, **fields))
