"""Rules of the pipeline over HTTP: documents beside those of the rules file, checked here as the pipeline checks them.

The node keeps them and does not understand them. So a change is drafted there, checked here with the file and all other
documents, and made only if nothing has changed since it was drafted. Whether the rules suit the data is found out by
the pipeline: it tries a new version on recent records before it is in force, and says so in `GET /pipeline`.

What is wrong already does not keep anybody from removing things: a removal is refused only if it makes something worse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from fastapi import Request

from tidegate.admin.control_commands import ApplyChanges, DraftPipelineRules, RevertChange
from tidegate.admin.documents import FENCE
from tidegate.api import documents
from tidegate.api.documents import DocumentHandlers
from tidegate.api.pipeline import missing
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import channel
from tidegate.config import ConfigErrors
from tidegate.config.tree import compose
from tidegate.errors import ConfigError
from tidegate.pipeline.rules import WrongRules, parse

SECTIONS: Final = {"sources": "source", "scores": "score", "topics": "topic"}
"""The lists of the file, and what a document calls one of their entries."""
TRIES: Final = 10  # changes of others in between that are put up with
EMPTY: Final = "version: 1\n"
"""The rules file of a pipeline that has none."""
_COVERED: Final = (
    "what becomes of records: the pipeline tries the rules on recent ones before they are in force, and GET /pipeline"
    " tells the outcome"
)

Documents = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What documents and file make together."""

    version: str | None
    """None: nothing, because of the problems."""
    problems: tuple[ConfigError, ...] = ()


class PipelineRules:
    """The rules of one pipeline. `file`: those that cannot be changed here. It is read whenever it is needed."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def standing(self) -> dict[str, dict[str, Any]]:
        """What stands in the file, by id, as the bodies of documents."""
        try:
            tree, _ = compose(self._text(), str(self._file), {})
        except ConfigErrors as broken:
            raise _unreadable(str(broken)) from None
        found = tree.data()
        made: dict[str, dict[str, Any]] = {}
        for section, sort in SECTIONS.items():
            entries = found.get(section) if isinstance(found, dict) else None
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and isinstance(id := entry.get("id"), str):
                    made[id] = {sort: {key: value for key, value in entry.items() if key != "id"}}
        return made

    def checked(self, given: Documents) -> Checked:
        try:
            rules = parse(self._text(), str(self._file or ""), [(each["id"], each["body"]) for each in given])
        except WrongRules as wrong:
            return Checked(version=None, problems=wrong.problems)
        return Checked(version=rules.version_text)

    def _text(self) -> str:
        if self._file is None:
            return EMPTY
        try:
            return self._file.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise _unreadable(f"{self._file}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise _unreadable(f"{self._file}: it is no UTF-8") from None


# -- what is done with them ------------------------------------------------------------------------------------------


async def _page(request: Request, kind: str, limit: int, after: str | None) -> dict[str, Any]:
    """Those of the file and the documents, by id; of two that clash, the document."""
    found = await documents.page(request, kind, limit, after)
    end = found["next"]
    page = {
        id: _shown(id, body)
        for id, body in (await _standing(request)).items()
        if (after is None or id > after) and (end is None or id <= end)  # those after that are on the next page
    }
    page |= {each["id"]: each for each in found["items"]}
    items = [page[id] for id in sorted(page)]
    if len(items) <= limit:
        return {"items": items, "next": end}
    return {"items": items[:limit], "next": items[limit - 1]["id"]}


async def _document(request: Request, kind: str, id: str) -> dict[str, Any]:
    try:
        return await documents.document(request, kind, id)
    except Problem as problem:
        if problem.kind is not Kind.UNKNOWN or id not in (there := await _standing(request)):
            raise
        return _shown(id, there[id])


async def _ask(request: Request, command: ApplyChanges | RevertChange) -> dict[str, Any]:
    """Changes or reverts rules, once everything is checked that the node cannot check."""
    rules: PipelineRules | None = request.app.state.pipeline_rules
    if rules is None:
        raise missing()
    if isinstance(command, RevertChange):
        drafting = DraftPipelineRules(sequence=command.sequence)
    else:
        drafting = DraftPipelineRules(changes=command.changes)
        for each in command.changes:
            await _check_filed(request, each.kind, each.id)
    for _ in range(TRIES):
        draft = await channel(request).ask(drafting)
        before = await asyncio.to_thread(rules.checked, draft["before"])
        after = await asyncio.to_thread(rules.checked, draft["after"])
        _check(before, after, draft)
        if command.dry_run:
            effect = _effect(before, after, draft)
            return {"sequence": None, "rules": None, "pipeline": after.version, "effect": effect}
        try:
            done = await documents.ask(request, replace(command, fence=draft["fence"]))
        except Problem as problem:
            if not _overtaken(problem):
                raise
        else:
            return {**done, "pipeline": after.version}
    raise Problem(Kind.UNAVAILABLE, "others change things all the time", "try again", headers={"Retry-After": "1"})


WAYS: Final = DocumentHandlers(page=_page, document=_document, ask=_ask)


async def _standing(request: Request) -> dict[str, dict[str, Any]]:
    book: PipelineRules | None = request.app.state.pipeline_rules
    return {} if book is None else await asyncio.to_thread(book.standing)


async def _check_filed(request: Request, kind: str, id: str) -> None:
    """Problem if something only stands in the file. A document that came first can be changed, or given up."""
    if id not in await _standing(request):
        return
    try:
        await documents.document(request, kind, id)
    except Problem as problem:
        if problem.kind is not Kind.UNKNOWN:
            raise
        name, said = f"pipeline/{id}", "stands in the rules file of the node: change it there"
        raise Problem(Kind.READONLY, f"{name} {said}", errors=[{"at": name, "error": said}]) from None


def _shown(id: str, body: dict[str, Any]) -> dict[str, Any]:
    return documents.shown({"id": id, "body": body, "source": "file"})


def _check(before: Checked, after: Checked, draft: Mapping[str, Any]) -> None:
    told = after.problems
    if all(each in draft["before"] for each in draft["after"]):  # things are only removed
        known = {str(each) for each in before.problems}
        told = tuple(each for each in told if str(each) not in known)
    if told:
        errors = [
            {"at": f"{each.file}:{each.line}" if each.line else each.file, "error": str(each.args[0])} for each in told
        ]
        raise Problem(Kind.INVALID, "\n".join(map(str, told)), errors=errors)


def _effect(before: Checked, after: Checked, draft: Mapping[str, Any]) -> dict[str, Any]:
    old, new = ({each["id"]: each["body"] for each in draft[name]} for name in ("before", "after"))
    return {
        "validated": after.version is not None,
        "version": {"before": before.version, "after": after.version},
        "added": sorted(new.keys() - old.keys()),
        "changed": sorted(id for id in new.keys() & old.keys() if new[id] != old[id]),
        "removed": sorted(old.keys() - new.keys()),
        "not_covered": [_COVERED],
    }


def _overtaken(problem: Problem) -> bool:
    """Whether somebody else has changed something since the draft."""
    at = "/".join(FENCE)
    return problem.kind is Kind.CONFLICT and any(
        isinstance(each, dict) and each.get("at") == at for each in problem.errors
    )


def _unreadable(what: str) -> Problem:
    return Problem(Kind.UNAVAILABLE, f"the rules file of the pipeline cannot be read: {what}", "mend it on the node")
