"""`cidr`: whether an address is in a network."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from tidegate.predicate.failure import CelError
from tidegate.predicate.types import Kind, kind
from tidegate.predicate.values import refuse, short
from tidegate.predicate.work import Meter

MAX_ADDRESS: Final = 128
"""Characters that an address or a network may have."""

_PARSED: Final = 100
"""Operations to read a network."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@lru_cache(1024)
def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise CelError(f"no network: {short(text)}: {error}") from error


def network(value: Any) -> Network:
    if not isinstance(value, str):
        refuse("cidr", value)
    if len(value) > MAX_ADDRESS:
        raise CelError(f"no network: {short(value)}")
    return _network(value)


def networks(work: Meter, value: Any) -> list[Network]:
    match kind(value):
        case Kind.STRING:
            work.spend(_PARSED)
            return [network(value)]
        case Kind.LIST:
            work.spend(_PARSED * len(value))
            return [network(item) for item in value]
        case _:
            refuse("cidr", value)


def _address(value: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address. An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) is the IPv4 address."""
    if not isinstance(value, str):
        refuse("cidr", value)
    if len(value) > MAX_ADDRESS:
        raise CelError(f"no address: {short(value)}")
    try:
        parsed = ipaddress.ip_address(value)
    except ValueError as error:
        raise CelError(f"no address: {short(value)}") from error
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed


def cidr(work: Meter, address: Any, value: Any) -> bool:
    candidates, parsed = networks(work, value), _address(address)
    return any(parsed.version == each.version and parsed in each for each in candidates)


def prepare_cidr(work: Meter, value: object) -> Callable[..., bool]:
    """With networks that are known: their prefixes by length, so that thousands cost as much as a few."""
    among: dict[tuple[int, int], set[int]] = {}
    for each in networks(work, value):
        host = each.max_prefixlen - each.prefixlen
        among.setdefault((each.version, host), set()).add(int(each.network_address) >> host)

    def run(work: Meter, address: object) -> bool:
        parsed = _address(address)
        if len(among) > 8:
            work.spend(2 * len(among))
        number, version = int(parsed), parsed.version
        return any(of == version and number >> host in known for (of, host), known in among.items())

    return run
