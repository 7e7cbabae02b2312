"""What conditions cost is measured, and whoever brings the message pays: how long they take is for its content to say.

A policy that looks through a list of the payload takes up to a millisecond if the list is long, also to say no.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.gate import Deny, undecided
from tidegate.gate.verdict import Residual
from tidegate.session import Message, Site


def asked(
    conditions: tuple[Residual, ...], message: Message, site: Site, stopwatch: Callable[[], float]
) -> Deny | None:
    """The first denial of a message by what was left to ask when its plan was made; None: it may go on."""
    begun = stopwatch()
    why = undecided(conditions, message)
    site.effort += int((stopwatch() - begun) * 1e6)
    return why
