"""The links of the node to other nodes, as they are now. As documents, `documents` has them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from tidegate.api.requests import Route, answer, channel
from tidegate.api.schemas import returns


class LinkState(BaseModel):
    """One link."""

    link: str
    direction: str
    """Whether this end `connects`, or `is connected to`."""
    state: str
    """`connected`, `connecting`, or `waiting`: until it connects again, or until the other end does."""
    address: str | None
    level: str | None
    """Of the connection that there is."""
    degraded: str | None
    """Why that connection counts as untrusted; null: it does not."""
    queue: int
    """Messages that the other node has not acknowledged."""
    bytes: int
    oldest: float | None
    """Seconds since the first of them was published."""
    round_trip: float | None
    """Seconds, at the end that connects."""
    since: str | None
    """When it was connected, or when the last connection ended."""
    error: str | None
    standby: int
    """Connections that are open beside the one that carries."""
    switches: int
    """How often another connection has taken over, at the end that connects."""
    on_backup: bool
    """Whether another connection than the default carries."""
    failover: dict[str, Any] | None
    """At the end that connects, with `failover`: `mode`, `default`, `reason`, and all `connections`."""


class LinkStates(BaseModel):
    links: list[LinkState]
    groups: list[list[str]]
    """The groups that the scopes of this node are in: scopes that trusted links join, over all nodes that are known, as
    `scope@node`."""


router = APIRouter(route_class=Route, tags=["operation"])


@router.get("/links/state", summary="Show how links to other nodes are doing", responses=returns(LinkStates))
async def state(request: Request) -> Response:
    return answer(await channel(request).ask("link_list"))
