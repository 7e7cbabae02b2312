"""What a session needs of the journal in which messages are written down before they are acknowledged (step 5).

The real one is in `admin/`; `Unwritten` writes nothing. All calls are made on the loop, do no I/O and never wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tidegate.native import mypyc_attr
from tidegate.session.message import Message


class Journal(Protocol):
    """Of messages whose plan says so (`Route.ingested`)."""

    takes_all: bool
    """It takes every message, whatever the plan says."""

    @property
    def refusing(self) -> bool:
        """True while rows wait that cannot be written (disk full): what has to be safe is refused."""
        ...

    @property
    def full(self) -> bool:
        """Much waits for the disk: whoever publishes more should wait, until `after` tells."""
        ...

    def write(self, message: Message) -> bool:
        """Take it as it is now. False: there is no room, and it will not be written."""
        ...

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        """Run it, on the loop, when everything taken so far is safe; callbacks run in the order they were given."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Unwritten:
    """Nothing is written down."""

    takes_all = False
    refusing = False
    full = False

    def write(self, message: Message) -> bool:
        return True

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        callback(*args)
