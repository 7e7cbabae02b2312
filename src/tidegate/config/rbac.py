"""The preset `rbac`: a bus, and two scopes for each role around it (scopes, 3.4.3; semantics, *Brokering*).

- A role publishes into one of its scopes and receives from the other, each behind a filter.
- A device has exactly one role, and no role receives what it publishes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import ValidationInfo

from tidegate import topics
from tidegate.config.interfaces import link_filter
from tidegate.config.links import DirectedLink
from tidegate.config.parser import Parser
from tidegate.config.policies import Filter
from tidegate.config.problems import PLAIN_NAME, Finding, requires, unknown
from tidegate.config.section import CheckedSection
from tidegate.monitor import Attachment
from tidegate.policy import brokering
from tidegate.policy.scopes import Way

if TYPE_CHECKING:
    from tidegate.config.model import Config

PUB, SUB = ".pub", ".sub"
"""How the scopes of a role end, in which its members publish and from which they receive."""
# scopes, RBAC-BP-3
PAIRS: Final[brokering.Pairs] = frozenset((("DevUp", "PubUp"), ("PubUp", "SubDown"), ("SubDown", "DevDown")))
CLIENT_TYPES: Final = brokering.Types(inward="DevUp", outward="DevDown")

RoleName = Annotated[
    str,
    requires(
        lambda name: PLAIN_NAME.fullmatch(f"{name}{PUB}"),
        f"becomes the name of scopes; write at most {64 - len(PUB)} letters, digits, `.`, `_` and `-`",
    ),
]


class Rights(CheckedSection):
    """What the members of a role may do."""

    pub: tuple[Filter, ...] = ()
    """Topic filters: what they may publish."""
    sub: tuple[Filter, ...] = ()
    """Topic filters: what they may receive. Nothing of it may be among what they publish."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        parser = Parser()
        how = "a role cannot receive what it publishes; make one of the two narrower, or make two roles"
        for index, pub in enumerate(self.pub):
            for sub in self.sub:
                # scopes, 3.4.3: members are joined with the bus by two ways, and would receive what they publish
                if topics.overlaps(parser.filter(pub), parser.filter(sub)):
                    yield ("pub", index), f"is `{pub}`, which overlaps `{sub}` of `sub`, and {how}"
        if not self.pub and not self.sub:
            yield (), "may do nothing; add `pub` or `sub`"


def expanded(roles: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The two scopes of each role."""
    return {role: (f"{role}{PUB}", f"{role}{SUB}") for role in roles}


def link_type(joint: DirectedLink) -> str:
    """The type of a link between the bus and a scope of a role (scopes, RBAC-BP-2)."""
    role = joint.source if joint.way is Way.UP else joint.target
    return f"{'Pub' if role.endswith(PUB) else 'Sub'}{joint.way.value.title()}"


def filters(config: Config, parser: Parser) -> Iterator[Attachment]:
    """What roles may publish and receive, as monitors on the links of their scopes."""
    section = config.brokering
    for role, rights in (section.roles or {}).items():
        publishing, receiving = section.expanded[role]
        yield link_filter(parser, f"rbac.{role}.pub", publishing, section.bus or "", rights.pub)
        yield link_filter(parser, f"rbac.{role}.sub", section.bus or "", receiving, rights.sub, takes=True)


def layout_problems(config: Config) -> Iterator[Finding]:
    """Sections beside a bus and its roles, which make all scopes and links themselves."""
    bus = config.brokering.bus
    if bus is None:
        return
    if bus not in config.scopes:
        yield ("brokering", "bus"), unknown("scope", bus, config.scopes, "scopes")
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


def role_problems(config: Config) -> Iterator[Finding]:
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
