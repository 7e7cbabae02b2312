"""*Shadow*, under *Denials*: what would be denied where rules are not enforced yet, by rule and client."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate.api.audit import Journal
from tidegate.api.requests import channel
from tidegate.audit.query import Query as AuditQuery
from tidegate.audit.would_deny import By, report
from tidegate.console.page import Page, render
from tidegate.store.journal.rows import AuditRow, Kind

PAGE: Final = 1000  # rows read at a time,
PAGES: Final = 10  # and how many of these are added up
LINES: Final = 200

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/denials/shadow")
async def shadow(request: Request, by: Annotated[By, Query()] = By.BOTH) -> Response:
    journal: Journal = request.app.state.journal
    rows: list[AuditRow] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = await journal.page(AuditQuery(kinds=frozenset({Kind.SHADOW.value})), PAGE, cursor)
        rows += map(_row, page["items"])
        cursor = page["next"]
        if cursor is None:
            break
    status = await channel(request).ask("metrics")
    return render(
        request,
        "shadow.html",
        lines=[line.shown() for line in report(rows, by)[:LINES]],
        by=by.value,
        more=cursor is not None,
        not_enforced=status.get("not_enforced") or {},
        unknown=[guard for guard in status.get("guards", ()) if guard.get("unknown_publishers")],
    )


def _row(item: dict[str, Any]) -> AuditRow:
    return AuditRow(**{**item, "at": datetime.fromisoformat(item["at"]).timestamp()})
