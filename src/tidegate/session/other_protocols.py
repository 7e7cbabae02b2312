"""What is spoken to an MQTT port if it is not MQTT: so that an error can name the remedy."""

from __future__ import annotations

from typing import Final

HTTP: Final = (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT", b"PRI")


def spoken(data: bytes) -> str:
    """The mistake, and its remedy; empty if nobody can tell."""
    if data[0] == 0x16 and data[1:2] in (b"", b"\x03"):
        return "TLS spoken to a plain port: use the port of an mqtts:// or wss:// listener"
    if data.startswith((b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n")):
        return "PROXY header on a listener without `proxy: true`"
    if data.split(b" ", 1)[0] in HTTP:
        return "HTTP spoken to an MQTT port: use the port of a ws:// or wss:// listener"
    return ""
