"""*Rules*: documents of every kind, tried before they count, applied with a reason, and taken back.

They are written as in the configuration, in YAML. What is wrong is told with its place; what a change would decide
differently is shown by decisions of the last hours, asked again.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from tidegate.admin.control_commands import RevertChange
from tidegate.admin.documents import PIPELINE
from tidegate.api import requests
from tidegate.api.access import COLLECTIONS, Collection, kinds_changed_by, only_narrows
from tidegate.api.documents import ask, change, document, page, versions
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, Signed, caller
from tidegate.config.document import source_of
from tidegate.config.problems import ConfigErrors
from tidegate.console import drafts
from tidegate.console.completion import words
from tidegate.console.page import Page, form, render, segment, to
from tidegate.console.pictures import inline

LONGEST: Final = 64 << 10
LISTED: Final = 200
_COLLECTIONS: Final = {one.kind: one for one in COLLECTIONS if one.changed_by is not None and one.kind != PIPELINE}
_EXAMPLES: Final = {
    "policy": 'subject: "role:coach"\ntopic: gym/#\naction: read\n',
    "preference": "user: mary\ntopic: gym/#\nwhen: \"'coach' in s.roles\"\n",
    "view": 'topic: gym/#\nfor: "role:visitor"\nkeep: [/value]\n',
    "monitor": "scope: main\ndirection: im_pub\neach: client\nrate: 20/s\n",
    "link": "from: gym\nto: brand\n",
    "rule": "allow: gym/#\n",
    "user": "roles: [coach]\n",
    "client": "user: mary\n",
    "role": "parents: []\n",
    "group": "members: []\n",
    "flow": 'forbid: "client:a -> client:b"\n',
}
KindName = Annotated[str, Path(max_length=40, pattern="^[a-z]+$")]

router = APIRouter(route_class=Page, include_in_schema=False)


def collection(kind: str) -> Collection:
    if kind not in _COLLECTIONS:
        raise Problem(Kind.UNKNOWN, f"there are no documents of the kind {kind}", "choose one that is listed")
    return _COLLECTIONS[kind]


def signed(request: Request, *, dry: bool, why: str) -> Signed:
    return requests.signed(request, dry_run=dry, why=why[:500].replace("\n", " "))


def parsed(written: str) -> dict[str, Any]:
    """What was written, as a document; a Problem names the lines."""
    if len(written) > LONGEST:
        raise Problem(Kind.TOO_LARGE, "the document is too large", f"write at most {LONGEST >> 10} KiB")
    try:
        source = source_of(written, "line", None, first="the document")
    except ConfigErrors as error:
        raise Problem(Kind.INVALID, "this is no YAML", errors=[str(each) for each in error.problems]) from None
    if source.problems:
        raise Problem(Kind.INVALID, "this cannot be read", errors=[str(each) for each in source.problems])
    value = source.tree.data()
    if not isinstance(value, dict):
        raise Problem(Kind.INVALID, "a document has keys and values", "write for example `topic: gym/#`")
    return value


@router.get("/ui/rules")
async def start() -> Response:
    return to("/ui/rules/policy")


@router.get("/ui/rules/{kind}")
async def listed(
    request: Request, kind: KindName, after: Annotated[str | None, Query(max_length=1024)] = None
) -> Response:
    found = await page(request, kind, LISTED, after) if collection(kind) else {}
    return render(
        request,
        "rules.html",
        kinds=_COLLECTIONS.values(),
        one=collection(kind),
        items=[{**each, "text": drafts.written(each["value"])} for each in found["items"]],
        next=found["next"],
        may=_may(request, kind),
    )


def _may(request: Request, kind: str) -> bool:
    changed_by = collection(kind).changed_by
    return changed_by is not None and caller(request).role in changed_by


@router.get("/ui/new/{kind}")
async def blank(request: Request, kind: KindName) -> Response:
    return await _editor(request, kind, "", _EXAMPLES.get(collection(kind).kind, ""), None)


@router.get("/ui/rules/{kind}/{id}")
async def shown(request: Request, kind: KindName, id: Id) -> Response:
    collection(kind)
    found = await document(request, kind, id)
    history = await versions(request, kind, id) if found["version"] is not None else []
    return await _editor(request, kind, id, drafts.written(found["value"]), found, history=history)


@router.post("/ui/rules/{kind}")
async def make(request: Request, kind: KindName) -> Response:
    collection(kind)
    given = await form(request)
    id = given.get("id", "").strip()
    if not id or len(id) > 1024 or not id.isprintable():
        raise Problem(Kind.INVALID, "a new document needs a name", "write it above the text")
    return await _change(request, kind, id, given, None)


@router.post("/ui/rules/{kind}/{id}")
async def put(request: Request, kind: KindName, id: Id) -> Response:
    collection(kind)
    given = await form(request)
    version = given.get("version", "")
    return await _change(request, kind, id, given, int(version) if version.isdigit() else None)


async def _change(request: Request, kind: str, id: str, given: dict[str, str], version: int | None) -> Response:
    written, do, why = given.get("body", ""), given.get("do", "try"), given.get("why", "")
    try:
        value = None if do in ("delete", "try-delete") else parsed(written)
        if value is not None and value.pop("id", id) != id:
            raise Problem(Kind.INVALID, "the `id` in the text is another one", "leave it out")
        dry = do not in ("apply", "delete")
        done = await change(request, kind, id, value, version, signed(request, dry=dry, why=why))
    except Problem as problem:
        if problem.kind.status not in (403, 409, 412, 422, 428):
            raise
        return await _editor(request, kind, id, written, None, problem=problem, version=version, why=why)
    if not dry:
        return to(f"/ui/rules/{kind}" if do == "delete" else f"/ui/rules/{kind}/{segment(id)}", done=None)
    return await _editor(request, kind, id, written, None, tried=done, version=version, why=why)


@router.post("/ui/rules/{kind}/{id}/revert")
async def revert(request: Request, kind: KindName, id: Id) -> Response:
    given = await form(request)
    sequence = given.get("sequence", "")
    if not sequence.isdigit() or not any(
        each["sequence"] == int(sequence) for each in await versions(request, collection(kind).kind, id)
    ):
        raise Problem(Kind.UNKNOWN, f"{id} has no such change", "choose one of its history")
    kinds = kinds_changed_by(caller(request).role)
    narrow = any(only_narrows(caller(request).role, each) for each in kinds or (kind,))
    said = signed(request, dry=False, why=given.get("why", "") or f"took back change {sequence}")
    await ask(request, RevertChange(sequence=int(sequence), narrow=narrow, kinds=kinds, **said))
    return to(f"/ui/rules/{kind}/{segment(id)}")


async def _editor(
    request: Request,
    kind: str,
    id: str,
    text: str,
    found: dict[str, Any] | None,
    *,
    history: list[dict[str, Any]] | None = None,
    problem: Problem | None = None,
    tried: dict[str, Any] | None = None,
    version: int | None = None,
    why: str = "",
) -> Response:
    may = _may(request, kind) and (found is None or found["version"] is not None)
    flows = None if tried is None or not tried.get("effect") else tried["effect"].get("flows")
    drawn = (tried or {}).get("automata") or {}
    entries = [
        {**each, "text": "deleted" if each["value"] is None else drafts.written(each["value"])}
        for each in history or ()
    ]
    return render(
        request,
        "rule.html",
        code=200 if problem is None else problem.kind.status,
        one=collection(kind),
        id=id,
        text=text,
        source=None if found is None else found["source"],
        version=version if found is None else found["version"],
        history=entries,
        problem=problem,
        tried=tried,
        why=why,
        may=may,
        words=await words(request, kind) if may else None,
        drawn=inline(drawn[id], f"The automaton of {id}") if id in drawn else None,
        flows=None
        if flows is None
        else {name: inline(flows[name], f"Flows {name} the change", prefix=name) for name in ("before", "after")},
        narrows=only_narrows(caller(request).role, kind),
    )
