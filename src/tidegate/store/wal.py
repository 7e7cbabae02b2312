"""Is SQLite's write-ahead log whole?

SQLite reads the log up to the first frame whose checksum is wrong and takes that for the end: right for the torn
end that a power failure leaves, silent loss when a frame in the middle is damaged. The two can be told apart:
with synchronous=FULL every commit is on the disk before the next one begins, so behind a torn end there is at
most one commit. Two or more mean that frames were lost that had been acknowledged.

Only for logs written with synchronous=FULL; only read while nothing has the database open. The format is
SQLite's documented one (fileformat2, section 4), checksums in the byte order that the header names.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct(">8I")  # magic, version, page size, sequence, salt, salt, checksum, checksum
_FRAME: Final = struct.Struct(">6I")  # page, size after commit (0: no commit), salt, salt, checksum, checksum
_MAGIC: Final = 0x377F0682  # its lowest bit: the checksum words are big-endian
_MASK: Final = 0xFFFFFFFF


def damage(log: Path) -> str | None:
    """What is wrong with the log, None if nothing is."""
    try:
        data = log.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _HEADER.size or not any(data[: _HEADER.size]):
        return None  # created, and nothing committed to it
    magic, _, size, _, salt1, salt2, sum1, sum2 = _HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    if magic & ~1 != _MAGIC or _checksum(order, data[:24], (0, 0)) != (sum1, sum2):
        return "its header is damaged"
    step = _FRAME.size + size
    frames = (len(data) - _HEADER.size) // step
    broken = _whole(data, order, step, frames, (salt1, salt2), (sum1, sum2))
    commits = 0
    for index in range(broken, frames):
        _, commit, a, b, _, _ = _FRAME.unpack_from(data, _HEADER.size + index * step)
        commits += bool(commit) and (a, b) == (salt1, salt2)
    if commits >= 2:
        return f"frame {broken + 1} is damaged, and {commits} commits come after it"
    return None


def _whole(data: bytes, order: str, step: int, frames: int, salt: tuple[int, int], sums: tuple[int, int]) -> int:
    """How many frames from the first one on are whole."""
    for index in range(frames):
        start = _HEADER.size + index * step
        _, _, salt1, salt2, sum1, sum2 = _FRAME.unpack_from(data, start)
        if (salt1, salt2) != salt:
            return index
        sums = _checksum(order, data[start : start + 8] + data[start + _FRAME.size : start + step], sums)
        if sums != (sum1, sum2):
            return index
    return frames


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    a, b = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        a = (a + even + b) & _MASK
        b = (b + odd + a) & _MASK
    return a, b
