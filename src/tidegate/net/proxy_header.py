"""The PROXY protocol, versions 1 and 2: the header in which a load balancer says whose connection it passes on.

`parse` reads a header from bytes; `accepting` takes it from a socket.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from tidegate.errors import MalformedPacket

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
V1: Final = b"PROXY "
LONGEST_V1: Final = 107
LONGEST_V2: Final = 16 + 4096  # with additional fields, such as a certificate's name; none of them is read
_FAMILIES: Final = {0x11: (4, 12), 0x21: (16, 36)}  # TCP over IPv4 and IPv6: bytes of an address, of all addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a header says; `address` is empty if the proxy speaks for itself."""

    address: str
    length: int


def parse(data: bytes) -> Header | None:
    """The header that `data` begins with; None while it is incomplete. MalformedPacket if it is none."""
    if data.startswith(V1):
        return _version_1(data)
    if data.startswith(SIGNATURE):
        return _version_2(data)
    if V1.startswith(data) or SIGNATURE.startswith(data):
        return None
    raise MalformedPacket("no PROXY header")


def _version_1(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, LONGEST_V1)
    if end < 0:
        if len(data) >= LONGEST_V1:
            raise MalformedPacket("PROXY header without an end")
        return None
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return Header(address="", length=end + 2)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise MalformedPacket("PROXY header of an unknown kind")
    try:
        address, target = (ipaddress.ip_address(word.decode("ascii")) for word in words[2:4])
        ports = [int(word) for word in words[4:] if word.isdigit() and len(word) <= 5]
    except ValueError:
        raise MalformedPacket("PROXY header without an address") from None
    version = int(words[1][3:])
    if {address.version, target.version} != {version} or len(ports) != 2 or max(ports) > 65535:
        raise MalformedPacket("PROXY header with addresses of another kind, or without ports")
    return Header(address=str(address), length=end + 2)


def _version_2(data: bytes) -> Header | None:
    if len(data) < 16:
        return None
    command, family = data[12], data[13]
    length = 16 + int.from_bytes(data[14:16], "big")
    if command not in (0x20, 0x21):
        raise MalformedPacket("PROXY header of an unknown version or command")
    if length > LONGEST_V2:
        raise MalformedPacket("PROXY header too long")
    if len(data) < length:
        return None
    if command == 0x20:  # the proxy itself, which looks whether anybody is there
        return Header(address="", length=length)
    if family not in _FAMILIES:
        raise MalformedPacket("PROXY header of a connection that is not TCP")
    size, whole = _FAMILIES[family]
    if length < 16 + whole:
        raise MalformedPacket("PROXY header without an address")
    return Header(address=str(ipaddress.ip_address(data[16 : 16 + size])), length=length)
