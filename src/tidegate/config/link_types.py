"""Brokering and the scopes together: the type of every link between scopes, interfaces, and the scopes of roles.

A link between scopes that had no type would let nothing pass, so it is refused. Filters of interfaces and of roles are
monitors like any other, with ids that the node gives (`generated_monitors`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, assert_never

from tidegate.config.brokering import PUB, Brokering, Preset
from tidegate.config.checks import RULES, entries
from tidegate.config.links import SCOPE, DirectedLink, directed_links
from tidegate.config.parser import Parser
from tidegate.config.problems import Finding, remedy, suggestion, unknown
from tidegate.config.section import as_tuple, listed
from tidegate.monitor import Attachment
from tidegate.monitor.library import Filter
from tidegate.policy.brokering import PLAIN
from tidegate.policy.scopes import Way

if TYPE_CHECKING:
    from tidegate.config.model import Config


def link_types(config: Config) -> dict[str, str | None]:
    """The type of every link between scopes, by its name; None: it has none."""
    section = config.brokering
    assigned = {entry.link: entry.type for entry in section.assign if entry.link is not None}
    return {joint.name: _type(section, assigned, joint) for joint in directed_links(config)}


def _type(section: Brokering, assigned: dict[str, str | None], joint: DirectedLink) -> str | None:
    match section.preset:
        case Preset.COMPONENT:
            return assigned.get(joint.name) if joint.way is Way.ACROSS else joint.way.value
        case Preset.RBAC:
            # scopes, RBAC-BP-2
            role = joint.source if joint.way is Way.UP else joint.target
            return f"{'Pub' if role.endswith(PUB) else 'Sub'}{joint.way.value.title()}"
        case Preset.BLP:
            return assigned.get(joint.name, section.default.link)
        case Preset.OPEN | None:
            return PLAIN.inward if section.allow is None else assigned.get(joint.name, section.default.link)
        case _:
            assert_never(section.preset)


def generated_monitors(config: Config, parser: Parser) -> Iterator[Attachment]:
    """The filters of interfaces, then those of roles: on links between scopes, and not written as monitors."""
    section = config.brokering

    def filtering(id: str, source: str, target: str, filters: tuple[str, ...], *, takes: bool = False) -> Attachment:
        # what a scope does not take is not denied: it goes elsewhere
        monitor, link = Filter([parser.filter(each) for each in filters]), (f"{SCOPE}{source}", f"{SCOPE}{target}")
        return Attachment(id=id, monitor=monitor, link=link, made=True, silent=takes)

    for index, interface in enumerate(as_tuple(section.interface)):
        id, scope, parent = f"interface[{index}]", interface.scope, interface.parent
        if (filters := interface.exports) is not None:
            yield filtering(f"{id}.export", scope, parent, filters)
        if (filters := interface.imports) is not None:
            yield filtering(f"{id}.import", parent, scope, filters, takes=True)
    bus = section.bus or ""
    for role, rights in (section.roles or {}).items():
        publishing, receiving = section.expanded[role]
        yield filtering(f"rbac.{role}.pub", publishing, bus, rights.pub)
        yield filtering(f"rbac.{role}.sub", bus, receiving, rights.sub, takes=True)


def misplaced(config: Config) -> Iterator[Finding]:
    """Sections beside a bus and its roles, which make all scopes and links themselves."""
    bus = config.brokering.bus
    if config.brokering.preset is not Preset.RBAC:
        return
    if bus not in config.scopes:
        yield ("brokering", "bus"), unknown("scope", str(bus), config.scopes, "scopes")
        return
    for role, scopes in config.brokering.expanded.items():
        if bus in scopes:
            yield ("brokering", "roles", role), f"has the scope `{bus}`, which is the bus; rename one of the two"
    for name, scope in config.scopes.items():
        if name != bus:
            text = f"cannot stand beside `preset: rbac`, which makes all scopes but the bus `{bus}`; remove it"
            yield ("scopes", name), text
        elif scope.parents:
            yield ("scopes", name, "parents"), "cannot stand beside `preset: rbac`: the bus has no parents; remove it"
    if config.links:
        yield ("links",), "cannot stand beside `preset: rbac`, which makes all links; remove it"


def problems(config: Config) -> Iterator[Finding]:
    """Types, interfaces and roles that do not fit the scopes and links."""
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
            other = f"brokering.assign[{first[entry.link]}]"
            yield at, f"is `{entry.link}`, and so is that of `{other}`; remove one of them"
        elif config.brokering.preset is Preset.COMPONENT and known[entry.link].way is not Way.ACROSS:
            way = known[entry.link].way.value
            yield at, f"is `{entry.link}`, which is `{way}` because one is the parent of the other; remove it"
        first.setdefault(entry.link, index)


def no_link(name: str, known: Collection[str]) -> str:
    """The text for a link that does not exist."""
    source, _, target = name.partition("->")
    back = f"{target}->{source}"
    meant = back if back in known else suggestion(name, known)
    how = f"did you mean `{meant}`?" if meant else "add it under `links`, or as one of a scope's `parents`"
    return f"names the unknown link `{name}`; {how}"


def _untyped(config: Config) -> Iterator[Finding]:
    types = link_types(config)
    without: dict[tuple[str | int, ...], list[str]] = {}
    for joint in directed_links(config):
        if types[joint.name] is None:
            without.setdefault(joint.at, []).append(joint.name)
    default = "" if config.brokering.preset is Preset.COMPONENT else ", or set `brokering.default.link`"
    for at, names in without.items():
        untyped = " and ".join(f"`{name}`" for name in names)
        how = f'add `{{link: "{names[0]}", type: …}}` to `brokering.assign`{default}'
        yield at, f"has no type for {untyped}, so nothing would pass there; {how}"


def _interfaces(config: Config) -> Iterator[Finding]:
    seen: set[tuple[str, str]] = set()
    for index, interface in listed(config.brokering.interface):
        path: tuple[str | int, ...] = ("brokering", "interface", *index)
        name, parent = interface.scope, interface.parent
        scope = config.scopes.get(name)
        if scope is None:
            yield (*path, "scope"), unknown("scope", name, config.scopes, "scopes")
        elif parent not in scope.parents:
            how = remedy(parent, scope.parents, f"add it to `scopes.{name}.parents`")
            yield (*path, "parent"), f"is `{parent}`, which is no parent of `{name}`; {how}"
        elif (name, parent) in seen:
            yield path, f"is a second one for `{name}` and `{parent}`; make one of the two"
        seen.add((name, parent))


def _several_roles(config: Config) -> Iterator[Finding]:
    """Directory entries that would have to be at two places (scopes, 3.4.3: exactly one role for each device)."""

    def problem(roles: tuple[str, ...], whose: str = "") -> str:
        several = [f"`{role}`" for role in dict.fromkeys(roles) if role in (config.brokering.roles or ())]
        text = f"has {' and '.join(several)}{whose}, and `preset: rbac` allows one of these; remove the others"
        return text if len(several) > 1 else ""

    users = config.directory.users
    refused = {name: text for name, user in users.items() if (text := problem(user.roles))}
    for name, text in refused.items():
        yield ("directory", "users", name, "roles"), text
    for name, client in config.directory.clients.items():
        owner = None if client.user is None else users.get(client.user)
        inherited, whose = ((), "") if owner is None else (owner.roles, f" with those of `{client.user}`")
        if client.user not in refused and (text := problem((*inherited, *client.roles), whose)):
            yield ("directory", "clients", name, "roles"), text


def _taken(config: Config) -> Iterator[Finding]:
    generated = {monitor.id for monitor in generated_monitors(config, Parser())}
    for section in RULES if generated else ():
        for index, entry in enumerate(entries(config, section)):
            if entry.id in generated:
                text = f"is `{entry.id}`, which the node calls one of its own filters; choose another id"
                yield (section, index, "id"), text
