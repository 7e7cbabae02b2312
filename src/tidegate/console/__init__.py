"""The web console: pages under `/ui/` for people who have signed in, made here and sent as HTML.

A page asks the node over the same channel as the HTTP interface, with the session of whoever looks at it, so the node
decides what they may see and do. Nothing here has rights of its own.
"""

from __future__ import annotations

from fastapi import APIRouter

from tidegate.api.app import Pages
from tidegate.console import (
    assets,
    clients,
    denials,
    editor,
    events,
    flows,
    monitors,
    my_data,
    now,
    quality,
    replays,
    rules,
    shadow,
    sign_in,
    topics,
)
from tidegate.console.access import ALLOWED

_SCREENS = (
    assets,
    sign_in,
    events,
    now,
    denials,
    shadow,
    clients,
    topics,
    flows,
    rules,
    replays,
    editor,
    my_data,
    quality,
    monitors,
)


def pages() -> Pages:
    """All of it, for the HTTP process."""
    router = APIRouter()
    for screen in _SCREENS:
        router.routes.extend(screen.router.routes)
    return Pages(router=router, allowed=ALLOWED)
