"""Erasing what is somebody's: they ask, an administrator may have to grant it, and there is a receipt."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from tidegate.admin.me.commands import MOST, DecideErasure, EraseOwn, ListErasures, ListOwnErasures
from tidegate.api.documents import iso
from tidegate.api.requests import Id, Route, Signature, Signed, address, answer, caller, channel, read, user
from tidegate.api.schemas import BODY, body_of, returns

Limit = Annotated[int, Query(ge=1, le=MOST, description="At most so many.")]
_TIMES: Final = ("asked_at", "decided_at", "done_at")


class Wish(BaseModel):
    """That it is really you. With neither you have to have signed in with your password in the last five minutes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    password: str | None = Field(None, min_length=1, max_length=1024)
    why: str = Field("", max_length=500, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")


class Erasure(BaseModel):
    """A request, and the receipt once it is done."""

    id: str
    user: str
    state: str = Field(description="`asked`, `running`, `done` or `refused`.")
    asked_at: str = Field(description="What was received until then goes.")
    by: str | None = Field(description="Who has decided it.")
    decided_at: str | None
    why: str
    done_at: str | None
    erased: dict[str, int] = Field(description="How many went, by place.")
    left: list[str] = Field(description="What was not erased.")
    trouble: str | None = Field(description="Why it is not done yet; it is tried again.")


class Erasures(BaseModel):
    items: list[Erasure]


router = APIRouter(route_class=Route)


@router.post(
    "/me/erase",
    tags=["own data"],
    summary="Have everything erased that is yours",
    status_code=202,
    responses=returns(Erasure, 403, 409, 429, *BODY, success=202),
    openapi_extra=body_of(Wish),
)
async def erase(request: Request) -> Response:
    """Messages, journals, the lake. `me: {erase}` says whether an administrator has to grant it."""
    wish = await read(request, Wish)
    command = EraseOwn(
        user=user(request),
        identity=caller(request).identity or "",
        password=wish.password,
        address=address(request) or "unknown",
        why=wish.why,
    )
    return answer(_shown(await channel(request).ask(command, alters=True)), 202)


@router.get("/me/erase", tags=["own data"], summary="Show what became of it", responses=returns(Erasures))
async def own(request: Request, limit: Limit = 100) -> Response:
    """Your requests and receipts, the newest first."""
    command = ListOwnErasures(user=user(request), identity=caller(request).identity or "", limit=limit)
    return answer(_all(await channel(request).ask(command)))


@router.get("/erasures", tags=["erasures"], summary="List what people want erased", responses=returns(Erasures))
async def listed(request: Request, limit: Limit = 100) -> Response:
    """Requests and receipts, the newest first."""
    return answer(_all(await channel(request).ask(ListErasures(limit=limit))))


@router.post("/erasures/{id}/grant", tags=["erasures"], summary="Grant a request", responses=returns(Erasure, 404, 409))
async def grant(request: Request, id: Id, signed: Signature) -> Response:
    """It begins at once, and is done when its `state` says so."""
    return await _decided(request, id, signed, grant=True)


@router.post(
    "/erasures/{id}/refuse", tags=["erasures"], summary="Refuse a request", responses=returns(Erasure, 404, 409)
)
async def refuse(request: Request, id: Id, signed: Signature) -> Response:
    """Nothing is erased; say `why`."""
    return await _decided(request, id, signed, grant=False)


async def _decided(request: Request, id: str, signed: Signed, *, grant: bool) -> Response:
    return answer(_shown(await channel(request).ask(DecideErasure(id=id, grant=grant, **signed), alters=True)))


def _all(found: dict[str, Any]) -> dict[str, Any]:
    return {"items": [_shown(each) for each in found["items"]]}


def _shown(erasure: dict[str, Any]) -> dict[str, Any]:
    times = {name: None if erasure[name] is None else iso(erasure[name]) for name in _TIMES}
    return {**{name: value for name, value in erasure.items() if name != "devices"}, **times}
