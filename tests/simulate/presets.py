"""Brokering policies that give well-known visibility (scopes, 3.4): none at all, labels, components, roles.

Each is a function from what the seed starts from to its ⟨T, type, allow⟩, in its own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.errors import ConfigError
from tidegate.simulate.schema import BrokeringPolicy, ConnectionGraph, Entity, Link, Type

UP: Final = "up"
DOWN: Final = "down"
BUS: Final = "Bus"


def joined(*pairs: Link) -> frozenset[Link]:
    """Links in both directions."""
    return frozenset(link for x, y in pairs for link in ((x, y), (y, x)))


def liberal(link: Iterable[Link]) -> BrokeringPolicy:
    """BP₀: one type, and everything may follow everything (3.4.1)."""
    return BrokeringPolicy(type=dict.fromkeys(link, "t0"), allow=frozenset({("t0", "t0")}))


def information_flow(
    cg: ConnectionGraph, label: Mapping[Link, Type], at_most: frozenset[tuple[Type, Type]]
) -> BrokeringPolicy:
    """Bell-LaPadula (3.4.1.1): `at_most` is ≤, and it is what may follow what (BLP-1, BLP-3)."""
    for x, y in sorted(cg.link):
        for v, z in sorted(cg.link):
            # BLP-2
            if y == v and y in cg.devices and (label[x, y], label[v, z]) not in at_most:
                reads, writes = f"reads {label[x, y]} from {x}", f"writes {label[v, z]} to {z}"
                raise ConfigError(f"`{y}` {reads} and {writes}: raise what it writes, or lower what it reads")
    return BrokeringPolicy(type=label, allow=at_most)


def component(parent: Iterable[Link]) -> BrokeringPolicy:
    """The component architecture (3.4.1.2): (x, y) means that y is a parent of x. Never up again after down."""
    parent = frozenset(parent)
    return BrokeringPolicy(
        type={link: UP if link in parent else DOWN for link in joined(*parent)},
        allow=frozenset({(UP, UP), (UP, DOWN), (DOWN, DOWN)}),
    )


def role_scopes(role: str) -> tuple[Entity, Entity]:
    """r^pub and r^sub (RBAC-CG-2)."""
    return f"{role}.pub", f"{role}.sub"


def roles(member: Mapping[Entity, str]) -> tuple[ConnectionGraph, BrokeringPolicy]:
    """Roles around a bus (3.4.3), from the role of each device: RBAC-CG-1 to 3 and RBAC-BP-1 to 3."""
    kinds: dict[Link, Type] = {}
    for role in sorted(set(member.values())):
        pub, sub = role_scopes(role)
        kinds |= {(sub, BUS): "SubUp", (BUS, sub): "SubDown", (pub, BUS): "PubUp", (BUS, pub): "PubDown"}
    for device, role in member.items():
        for scope in role_scopes(role):
            kinds |= {(device, scope): "DevUp", (scope, device): "DevDown"}
    devices = frozenset(member)
    scopes = frozenset(x for link in kinds for x in link) - devices
    return (
        ConnectionGraph(devices=devices, scopes=scopes | {BUS}, link=frozenset(kinds)),
        BrokeringPolicy(
            type=kinds,
            allow=frozenset({("PubUp", "SubDown"), ("DevUp", "PubUp"), ("SubDown", "DevDown")}),
        ),
    )
