"""Brokering and the scopes together: the type of every link between scopes, interfaces, and the scopes of roles.

A link between scopes that had no type would let nothing pass, so it is refused. Filters of interfaces and of roles are
monitors like any other, with ids that the node gives (`filters`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from tidegate.config.brokering import PUB, Brokering, Preset
from tidegate.config.checks import RULES, Finding, entries, unknown
from tidegate.config.links import DirectedLink, directed_links
from tidegate.config.problems import suggestion
from tidegate.policy.brokering import PLAIN
from tidegate.policy.scopes import Way

if TYPE_CHECKING:
    from tidegate.config.model import Config


def link_types(config: Config) -> dict[str, str | None]:
    """The type of every link between scopes, by its name; None: it has none."""
    said = config.brokering
    assigned = {entry.link: entry.type for entry in said.assign if entry.link is not None}
    return {joint.name: _type(said, assigned, joint) for joint in directed_links(config)}


def _type(said: Brokering, assigned: dict[str, str | None], joint: DirectedLink) -> str | None:
    match said.preset:
        case Preset.COMPONENT:
            return assigned.get(joint.name) if joint.way is Way.ACROSS else joint.way.value
        case Preset.RBAC:
            # scopes, RBAC-BP-2
            role = joint.source if joint.way is Way.UP else joint.target
            return f"{'Pub' if role.endswith(PUB) else 'Sub'}{joint.way.value.title()}"
        case Preset.BLP:
            return assigned.get(joint.name, said.default.link)
        case Preset.OPEN | None:
            return PLAIN.inward if said.allow is None else assigned.get(joint.name, said.default.link)
        case _:
            assert_never(said.preset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedMonitor:
    """A filter on a link between scopes that is not written as a monitor."""

    id: str
    source: str
    target: str
    filters: tuple[str, ...]
    takes: bool = False
    """It says what a scope takes; what it does not take goes elsewhere, and nobody is denied anything."""


def filters(config: Config) -> Iterator[GeneratedMonitor]:
    """Those of interfaces, then those of roles."""
    said = config.brokering
    for index, one in enumerate(said.interfaces):
        name = f"interface[{index}]"
        if one.exports is not None:
            yield GeneratedMonitor(id=f"{name}.export", source=one.scope, target=one.parent, filters=one.exports)
        if one.imports is not None:
            yield GeneratedMonitor(
                id=f"{name}.import", source=one.parent, target=one.scope, filters=one.imports, takes=True
            )
    bus = said.bus or ""
    for role, rights in (said.roles or {}).items():
        publishing, receiving = said.expanded[role]
        yield GeneratedMonitor(id=f"rbac.{role}.pub", source=publishing, target=bus, filters=rights.pub)
        yield GeneratedMonitor(id=f"rbac.{role}.sub", source=bus, target=receiving, filters=rights.sub, takes=True)


def misplaced(config: Config) -> Iterator[Finding]:
    """What stands beside a bus and its roles, which make all scopes and links themselves."""
    said = config.brokering
    if said.preset is not Preset.RBAC:
        return
    if said.bus not in config.scopes:
        yield ("brokering", "bus"), unknown("scope", str(said.bus), tuple(config.scopes), "scopes")
        return
    for role, made in said.expanded.items():
        if said.bus in made:
            yield ("brokering", "roles", role), f"has the scope `{said.bus}`, which is the bus; rename one of the two"
    for name, scope in config.scopes.items():
        if name != said.bus:
            yield (
                ("scopes", name),
                f"cannot stand beside `preset: rbac`, which makes all scopes but the bus `{said.bus}`; remove it",
            )
        elif scope.parents:
            yield ("scopes", name, "parents"), "cannot stand beside `preset: rbac`: the bus has no parents; remove it"
    if config.links:
        yield ("links",), "cannot stand beside `preset: rbac`, which makes all links; remove it"


def problems(config: Config) -> Iterator[Finding]:
    """What is wrong with types, interfaces and roles, given the scopes and links that there are."""
    yield from _assigned(config)
    yield from _untyped(config)
    yield from _interfaces(config)
    yield from _several_roles(config)
    yield from _taken(config)


def _assigned(config: Config) -> Iterator[Finding]:
    known = {joint.name: joint for joint in directed_links(config)}
    first: dict[str, int] = {}
    for index, entry in enumerate(config.brokering.assign):
        if entry.link is None:
            continue
        at = ("brokering", "assign", index, "link")
        if entry.link not in known:
            yield at, no_link(entry.link, known)
        elif entry.link in first:
            yield (
                at,
                f"is `{entry.link}`, and so is that of `brokering.assign[{first[entry.link]}]`; remove one of them",
            )
        elif config.brokering.preset is Preset.COMPONENT and known[entry.link].way is not Way.ACROSS:
            way = known[entry.link].way.value
            yield at, f"is `{entry.link}`, which is `{way}` because one is the parent of the other; remove it"
        first.setdefault(entry.link, index)


def no_link(name: str, known: Collection[str]) -> str:
    """What is said of a link that there is not."""
    source, _, target = name.partition("->")
    back = f"{target}->{source}"
    meant = back if back in known else suggestion(name, known)
    remedy = f"did you mean `{meant}`?" if meant else "add it under `links`, or as one of a scope's `parents`"
    return f"names the unknown link `{name}`; {remedy}"


def _untyped(config: Config) -> Iterator[Finding]:
    types = link_types(config)
    without: dict[tuple[str | int, ...], list[str]] = {}
    for joint in directed_links(config):
        if types[joint.name] is None:
            without.setdefault(joint.at, []).append(joint.name)
    default = "" if config.brokering.preset is Preset.COMPONENT else ", or set `brokering.default.link`"
    for at, names in without.items():
        told = " and ".join(f"`{name}`" for name in names)
        yield (
            at,
            f"has no type for {told}, so nothing would pass there; "
            f'add `{{link: "{names[0]}", type: …}}` to `brokering.assign`{default}',
        )


def _interfaces(config: Config) -> Iterator[Finding]:
    several = isinstance(config.brokering.interface, tuple)
    seen: set[tuple[str, str]] = set()
    for index, one in enumerate(config.brokering.interfaces):
        at: tuple[str | int, ...] = ("brokering", "interface", index) if several else ("brokering", "interface")
        scope = config.scopes.get(one.scope)
        if scope is None:
            yield (*at, "scope"), unknown("scope", one.scope, tuple(config.scopes), "scopes")
        elif one.parent not in scope.parents:
            meant = suggestion(one.parent, scope.parents)
            remedy = f"did you mean `{meant}`?" if meant else f"add it to `scopes.{one.scope}.parents`"
            yield (*at, "parent"), f"is `{one.parent}`, which is no parent of `{one.scope}`; {remedy}"
        elif (one.scope, one.parent) in seen:
            yield at, f"is a second one for `{one.scope}` and `{one.parent}`; make one of the two"
        seen.add((one.scope, one.parent))


def _several_roles(config: Config) -> Iterator[Finding]:
    """Directory entries that would have to be at two places (scopes, 3.4.3: exactly one role for each device)."""
    roles = config.brokering.roles or {}

    def text(held: tuple[str, ...], whose: str = "") -> str:
        found = [role for role in dict.fromkeys(held) if role in roles]
        told = " and ".join(f"`{role}`" for role in found)
        return f"has {told}{whose}, and `preset: rbac` allows one of these; remove the others" if found[1:] else ""

    users = config.directory.users
    refused = {name: said for name, user in users.items() if (said := text(user.roles))}
    for name, said in refused.items():
        yield ("directory", "users", name, "roles"), said
    for name, client in config.directory.clients.items():
        owner = None if client.user is None else users.get(client.user)
        inherited, whose = ((), "") if owner is None else (owner.roles, f" with those of `{client.user}`")
        if client.user not in refused and (said := text((*inherited, *client.roles), whose)):
            yield ("directory", "clients", name, "roles"), said


def _taken(config: Config) -> Iterator[Finding]:
    made = {one.id for one in filters(config)}
    for section in RULES if made else ():
        for index, entry in enumerate(entries(config, section)):
            if entry.id in made:
                text = f"is `{entry.id}`, which the node calls one of its own filters; choose another id"
                yield (section, index, "id"), text
