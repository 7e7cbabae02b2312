"""Actors for tests of policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A plain actor."""

    kind: str = "client"
    client: str = "c1"
    user: str | None = None
    domain: str = "mygymbrand"
    scope: str = "gym"
    node: str = "mygym"
    level: str = "plain"
    facts: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    listener: str = "mqtt"
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tls: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    impostor: bool = False
    identity: str = ""


HOME = "mygymbrand"

mary = Person(client="tr1", user="mary", roles=("frequenter",), attributes={"enrolled": ["ts1"]})
bob = Person(client="tr2", user="bob", roles=("frequenter",), attributes={"enrolled": ["ts1"]})
alice = Person(client="tablet-a", user="alice", roles=("coach",), attributes={"shift": "08:00-14:00"})
john = Person(client="tablet-j", user="john", roles=("coach",), attributes={"shift": "08:00-14:00"})
stranger = Person(client="phone")
