"""Who a client is whose certificate another node knows: `CN@domain`, and never a user of this node."""

from __future__ import annotations

from typing import Final

from tidegate.policy import Transport
from tidegate.policy.capability import Capability
from tidegate.policy.certificate_packets import Vouched
from tidegate.policy.levels import Levels
from tidegate.policy.preference_sets import NAMED
from tidegate.scope import Identity

VOUCHED: Final = "vouched:"
"""Before `name@domain`, the principal."""


def principal_of(vouched: Vouched) -> str:
    return f"{VOUCHED}{vouched.name}@{vouched.domain}"


def encryption(transport: Transport) -> dict[str, str]:
    if transport.tls_version is None:
        return {}
    return {"version": transport.tls_version, "cipher": transport.tls_cipher or ""}


def identity(principal: str, transport: Transport, capability: Capability | None, levels: Levels) -> Identity:
    """Nothing that the directory here says is about them."""
    vouched = transport.vouched
    name, _, domain = principal.removeprefix(VOUCHED).rpartition("@")
    if vouched is None:  # nobody is connected: what is left of them is still theirs
        vouched = Vouched(domain=domain, name=name, seconds=0.0)
    owner = vouched.owner
    return Identity(
        principal=principal,
        user=name,
        roles=() if capability is None else capability.roles,
        groups=() if capability is None else capability.groups,
        level=levels.level_of(transport),
        facts=levels.facts_of(transport),
        tls=encryption(transport),
        capability=capability,
        id="" if owner is None or owner[0].startswith(NAMED) else owner[0],
        certified=True,
        vouched=vouched,
    )
