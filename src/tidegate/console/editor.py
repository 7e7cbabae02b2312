"""What the editor of rules says while somebody writes: what is wrong, and where; and how a monitor looks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.api import requests
from tidegate.api.documents import change
from tidegate.api.problems import Problem
from tidegate.api.requests import answer
from tidegate.console import rules
from tidegate.console.page import Page, form
from tidegate.console.pictures import inline

_PLACE: Final = re.compile(r"^(?:line:(\d+)|[^`]*`([\w-]+))")
router = APIRouter(route_class=Page, include_in_schema=False)


@router.post("/ui/check/{kind}")
async def check(request: Request, kind: rules.KindName) -> Response:
    """What is wrong with a draft, and where; of a monitor also how it looks. Nothing is changed."""
    rules.collection(kind)
    given = await form(request)
    id, body, version = given.get("id", "").strip() or "draft", given.get("body", ""), given.get("version", "")
    try:
        value = rules.parsed(body)
        value.pop("id", None)
        said = requests.signed(request, dry_run=True, why="")
        said["compared"] = False  # that takes longer, and is for *Try it*
        tried = await change(request, kind, id, value, int(version) if version.isdigit() else None, said)
    except Problem as problem:
        if problem.kind.status not in (403, 409, 412, 422, 428):
            raise
        return answer({"problems": _placed(body, problem), "picture": ""})
    drawn = (tried.get("automata") or {}).get(id, "")
    return answer({"problems": [], "picture": str(inline(drawn, f"The automaton of {id}")) if drawn else ""})


def _placed(body: str, problem: Problem) -> list[dict[str, Any]]:
    """Each error with its line; 0: it has none."""
    errors: Iterable[Any] = problem.errors or [problem.detail]
    return [{"line": _line(body, text), "text": re.sub(r"^line:\d+: ", "", text)} for text in map(_text, errors)]


def _text(error: Any) -> str:
    return str(error.get("error") or error.get("text") or error) if isinstance(error, Mapping) else str(error)


def _line(body: str, text: str) -> int:
    found = _PLACE.match(text)
    if found is None:
        return 0
    if found[1]:
        return min(int(found[1]), len(body.splitlines()))  # what is missing is missing at the end
    key = re.compile(rf"^\s*(?:- )?{re.escape(found[2])}\s*:")
    return next((number for number, line in enumerate(body.splitlines(), 1) if key.match(line)), 0)
