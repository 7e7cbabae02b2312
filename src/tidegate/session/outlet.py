"""Where frames are written once in a turn, and what stands there while they cannot be."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.native import mypyc_attr


class Shut:
    """The outbox of a client that cannot be written to: what is appended is dropped and counted."""

    __slots__ = ("dropped",)

    def __init__(self) -> None:
        self.dropped = 0

    def __bool__(self) -> bool:
        return True  # as if it were full, so nobody marks the session as having something to send

    def append(self, frame: bytes, /) -> None:
        self.dropped += 1


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet:
    """Somebody who is sent frames: the site writes all of `out` at the end of the turn."""

    __slots__ = ("out", "shut", "write")

    out: list[bytes] | Shut
    shut: bool
    """Nothing can be sent at the moment; `out` drops what it is given."""
    write: Callable[[bytes], None]

    def open_out(self) -> None:
        """Frames may be appended from now on."""
        self.out = []
        self.shut = False

    def shut_out(self) -> None:
        """From now on what is appended is dropped and counted."""
        if not self.shut:
            self.out = Shut()
            self.shut = True

    @property
    def dropped(self) -> int:
        """What came while it could not be written to."""
        return self.out.dropped if isinstance(self.out, Shut) else 0

    def gathered(self) -> None:
        """Puts what was gathered for it into `out`. It is for links that something is gathered."""
