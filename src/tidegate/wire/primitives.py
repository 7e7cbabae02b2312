"""The data types of section 1.5, and where a frame ends.

Readers take `(data, pos, end)` and return the value and the position after it; they never look at or
past `end`, so a field cannot borrow bytes from what follows it. Writers raise ValueError for what the
format cannot say. Nothing here knows packets, except which first bytes exist.
"""

from __future__ import annotations

from typing import Final

from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.wire.reasons import Reason, Type

MAX_VARINT: Final = 268_435_455
MAX_U16: Final = 65_535
MAX_U32: Final = 4_294_967_295


def frame(data: bytes, pos: int, limit: int) -> tuple[int, int, int] | None:
    """The first byte, body start and body end of the frame at `pos`; None while it is incomplete.

    A frame that declares more than `limit` bytes, fixed header included, is refused as soon as its length
    is known, before its body is there.
    """
    # hot: once per packet; nearly all packets have one or two length bytes
    have = len(data)
    start = pos + 2
    if start > have:
        return None
    size = data[pos + 1]
    if size > 127:
        if start >= have:
            return None
        more = data[start]
        start += 1
        if more == 0:
            raise MalformedPacket("remaining length is not in its shortest form")  # [MQTT-1.5.5-1]
        size += (more - 1) << 7
        if more > 127:
            measured = _long_length(data, pos, have)
            if measured is None:
                return None
            size, start = measured
    end = start + size
    if end - pos > limit:
        raise ProtocolError(f"packet of {end - pos} bytes, allowed are {limit}", Reason.PACKET_TOO_LARGE)
    if end > have:
        return None
    return data[pos], start, end


def announced(data: bytes, pos: int) -> int:
    """Where the frame at `pos` will end, as far as its header says; the header is valid or incomplete."""
    length = shift = 0
    for index in range(pos + 1, min(pos + 5, len(data))):
        length |= (data[index] & 0x7F) << shift
        if data[index] < 128:
            return index + 1 + length
        shift += 7
    return len(data) + 1


def _long_length(data: bytes, pos: int, have: int) -> tuple[int, int] | None:
    """Remaining lengths of three and four bytes; None while bytes are missing."""
    size = 0
    for count in range(4):
        at = pos + 1 + count
        if at >= have:
            return None
        byte = data[at]
        size |= (byte & 127) << (7 * count)
        if byte < 128:
            if byte == 0:
                raise MalformedPacket("remaining length is not in its shortest form")  # [MQTT-1.5.5-1]
            return size, at + 1
    raise MalformedPacket("remaining length of more than four bytes")  # 2.1.4 with 1.5.5


def _first_bytes() -> tuple[str | None, ...]:
    """For each first byte of a packet, what is wrong with it, or None (2.1.2 and 2.1.3)."""
    wrong: list[str | None] = ["packet type 0 is forbidden"] * 256
    for kind in Type:
        # [MQTT-2.1.3-1] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] reserved flags have one right value
        flags = 2 if kind in (Type.PUBREL, Type.SUBSCRIBE, Type.UNSUBSCRIBE) else 0
        for low in range(16):
            wrong[kind << 4 | low] = None if low == flags else f"{kind.name} with flags {low:#06b}"
    for low in range(16):
        qos = low >> 1 & 3
        if qos == 3:
            wrong[Type.PUBLISH << 4 | low] = "PUBLISH with QoS 3"  # [MQTT-3.3.1-4]
        elif qos == 0 and low & 8:
            wrong[Type.PUBLISH << 4 | low] = "PUBLISH with DUP at QoS 0"  # [MQTT-3.3.1-2]
        else:
            wrong[Type.PUBLISH << 4 | low] = None
    return tuple(wrong)


FIRST: Final = _first_bytes()


def check_first(first: int) -> None:
    """Refuse a first byte that no packet of MQTT 5 may have."""
    wrong = FIRST[first]
    if wrong is not None:
        raise MalformedPacket(wrong)


def u16(data: bytes, pos: int, end: int) -> tuple[int, int]:
    if pos + 2 > end:
        raise MalformedPacket("two byte integer cut short")
    return data[pos] << 8 | data[pos + 1], pos + 2


def u32(data: bytes, pos: int, end: int) -> tuple[int, int]:
    stop = pos + 4
    if stop > end:
        raise MalformedPacket("four byte integer cut short")
    return int.from_bytes(data[pos:stop], "big"), stop


def varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    value = 0
    for count in range(4):
        if pos >= end:
            raise MalformedPacket("variable byte integer cut short")
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << (7 * count)
        if byte < 128:
            if byte == 0 and count:
                raise MalformedPacket("variable byte integer not in its shortest form")  # [MQTT-1.5.5-1]
            return value, pos
    raise MalformedPacket("variable byte integer of more than four bytes")  # 1.5.5


def binary(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    start = pos + 2
    if start > end:
        raise MalformedPacket("length of a field cut short")
    stop = start + (data[pos] << 8 | data[pos + 1])
    if stop > end:
        raise MalformedPacket("field runs past its end")
    return data[start:stop], stop


def utf8(data: bytes, pos: int, end: int) -> tuple[str, int]:
    """A string; control characters other than U+0000 and a leading U+FEFF are kept [MQTT-1.5.4-3]."""
    start = pos + 2
    if start > end:
        raise MalformedPacket("length of a string cut short")
    stop = start + (data[pos] << 8 | data[pos + 1])
    if stop > end:
        raise MalformedPacket("string runs past its end")
    try:
        text = data[start:stop].decode()
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"string is not UTF-8: {error.reason}") from None  # [MQTT-1.5.4-1]
    if "\0" in text:
        raise MalformedPacket("string contains U+0000")  # [MQTT-1.5.4-2]
    return text, stop


def encode_varint(n: int) -> bytes:
    if not 0 <= n <= MAX_VARINT:
        raise ValueError(f"{n} does not fit a variable byte integer")
    # hot: once per message of the fast lanes that change a packet
    if n < 1 << 7:
        return n.to_bytes(1, "big")
    if n < 1 << 14:
        return bytes((n & 127 | 128, n >> 7))
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def encode_u16(n: int) -> bytes:
    if not 0 <= n <= MAX_U16:
        raise ValueError(f"{n} does not fit two bytes")
    return n.to_bytes(2, "big")


def encode_u32(n: int) -> bytes:
    if not 0 <= n <= MAX_U32:
        raise ValueError(f"{n} does not fit four bytes")
    return n.to_bytes(4, "big")


def encode_binary(raw: bytes) -> bytes:
    if len(raw) > MAX_U16:
        raise ValueError(f"a field of {len(raw)} bytes; the format ends at {MAX_U16}")
    return len(raw).to_bytes(2, "big") + raw


def encode_utf8(text: str) -> bytes:
    if "\0" in text:
        raise ValueError("a string may not contain U+0000")  # [MQTT-1.5.4-2]
    return encode_binary(text.encode())  # UnicodeEncodeError, for a lone surrogate, is a ValueError
