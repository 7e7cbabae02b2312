"""*Denials*: what was denied, by rule and client; why, step by step; and a policy that would allow just that."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate.api.audit import Journal
from tidegate.api.documents import change
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import channel
from tidegate.api.schemas import LONG, Question
from tidegate.audit.query import Query as AuditQuery
from tidegate.console import drafts, rules
from tidegate.console.page import Page, form, render
from tidegate.errors import TidegateError

ROWS: Final = 300
Text = Annotated[str, Query(max_length=LONG)]
_ASKED: Final = ("read", "write", "subscribe")

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/denials")
async def denials(
    request: Request, user: Text = "", client: Text = "", rule: Text = "", stage: Text = "", topic: Text = ""
) -> Response:
    journal: Journal = request.app.state.journal
    wanted = {"user": user, "client": client, "rule": rule, "stage": stage, "topic": topic}
    given = {name: value for name, value in wanted.items() if value}
    found = await journal.page(_query(given), ROWS, None)
    return render(request, "denials.html", rows=grouped(found["items"]), wanted=wanted, more=found["next"] is not None)


def _query(given: dict[str, str]) -> AuditQuery:
    try:
        return AuditQuery(kinds=frozenset({"deny"}), **given)  # type: ignore[arg-type]
    except TidegateError as error:
        raise Problem(Kind.INVALID, str(error)) from None


def grouped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each rule, client and topic: the newest, with how often in all."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("stage", "rule", "user", "client", "action", "topic", "publisher"))
        known = found.get(key)
        if known is None:
            found[key] = {**row, "first": row["at"], "asked": question_of(row)}
        else:
            known["count"] += row["count"]
            known["first"] = row["at"]
    return list(found.values())


def question_of(row: dict[str, Any]) -> dict[str, str] | None:
    """What `explain` is asked about a denial; None: it is about no message."""
    if row["action"] not in _ASKED or not row["topic"] or not (row["user"] or row["client"]):
        return None
    asked = {"as": subject(row["user"], row["client"]), "action": row["action"], "topic": row["topic"]}
    if row["action"] == "read" and row["publisher"]:
        asked["from"] = row["publisher"].split(", ")[0]
    return asked


def subject(user: str | None, client: str | None) -> str:
    parts = [f"user:{user}"] if user else []
    return "/".join((*parts, f"client:{client}")) if client else parts[0]


@router.get("/ui/denials/why")
async def why(
    request: Request,
    who: Annotated[str, Query(alias="as", max_length=LONG)],
    action: Annotated[str, Query(pattern="^(read|write|subscribe)$")],
    topic: Annotated[str, Query(max_length=LONG)],
    publisher: Annotated[str | None, Query(alias="from", max_length=LONG)] = None,
) -> Response:
    """The steps of a decision as the rules in force take them. Contents are not shown: the audit has none."""
    asked: dict[str, Any] = {"as": who, "action": action, "topic": topic}
    if publisher:
        asked["from"] = publisher
    told = await channel(request).ask(Question.model_validate(asked).command())
    draft = drafts.policy(told) if not told["allowed"] and drafts.is_of_policies(told) else None
    return render(request, "why.html", asked=asked, told=told, draft=draft, tried=None, test=drafts.test(asked, told))


@router.post("/ui/denials/draft")
async def draft(request: Request) -> Response:
    """Tries, or makes, a policy that was drafted."""
    given = await form(request)
    written = given.get("body", "")
    asked = {name: given[name] for name in ("as", "action", "topic", "from") if given.get(name)}
    value = rules.parsed(written)
    id = str(value.pop("id", "") or "drafted")
    dry = given.get("do") != "apply"
    done = await change(request, "policy", id, value, None, rules.signed(request, dry=dry, why=given.get("why", "")))
    told = await channel(request).ask(Question.model_validate(asked).command())
    return render(
        request,
        "why.html",
        asked=asked,
        told=told,
        draft=written if dry else None,
        tried=done,
        test=drafts.test(asked, told),
    )
