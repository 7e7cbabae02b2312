"""Somebody for whom an identity provider vouches: an OpenID Connect issuer, or an LDAP directory.

They belong to the domain that is the provider's name, with its roles and groups: see `domains`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who a provider says somebody is."""

    provider: str
    """The domain."""
    place: str
    """Where the provider is."""
    name: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    expires: float = math.inf
    """Until when the provider vouches for them."""

    @property
    def full_name(self) -> str:
        return f"{self.name}@{self.provider}"

    def left(self, wall: float, steady: float) -> float:
        """Seconds until then; it has come if there are none."""
        return self.expires - max(wall, steady)
