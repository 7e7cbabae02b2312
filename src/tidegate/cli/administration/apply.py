"""`tidegate apply`: a node gets the documents that a file declares, over the API.

The file has sections as a configuration: `policies`, `preferences`, `views`, `monitors`, and `directory` with `users`,
`clients`, `roles` and `groups`. What is there already and the same stays untouched, so applying a file twice changes
nothing. A document that changed between being compared and being sent is refused, not overwritten.

A password is never told, so it cannot be compared: it counts for users that are new, and for others with `--passwords`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tidegate.cli import terminal
from tidegate.cli.administration.http_client import ApiClient, path
from tidegate.cli.administration.options import DryRun, Why, with_api
from tidegate.cli.options import Json
from tidegate.errors import ConfigError, TidegateError

_NAMED: Final = {name: f"/directory/{name}" for name in ("roles", "groups", "users", "clients")}
_LISTED: Final = {name: f"/{name}" for name in ("policies", "preferences", "views", "monitors")}
_PASSWORD: Final = "password"  # noqa: S105 - the name of the key


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    place: str
    id: str
    body: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.place.rpartition('/')[2]}/{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What becomes of one document."""

    name: str
    what: str
    """`made`, `changed`, `removed` or `unchanged`."""
    differences: dict[str, tuple[Any, Any]]
    """By member: before and after."""


def _apply(
    api: ApiClient,
    file: Annotated[Path, typer.Argument(help="The file that declares them.", show_default=False, metavar="FILE")],
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Remove others of the sections that the file has, if they were made over HTTP."),
    ] = False,
    passwords: Annotated[bool, typer.Option("--passwords", help="Set passwords of users that are there, too.")] = False,
    dry_run: DryRun = False,
    why: Why = "",
    json: Json = False,
) -> None:
    """Give a node the documents that a file declares: users, policies, views and others; twice changes nothing.

    [dim]tidegate apply users.yaml --dry-run[/dim]
    """
    declared, places = _read(file)
    steps: list[_Step] = []
    try:
        for each in declared:
            steps.append(_put(api, each, passwords=passwords, dry_run=dry_run, why=why))
        if prune:
            keep = {(each.place, each.id) for each in declared}
            for place in reversed(places):
                steps += _removed(api, place, keep, dry_run=dry_run, why=why)
    except TidegateError as refused:
        _report(steps, dry_run=dry_run, json=json)
        raise TidegateError(f"{refused}; what stands above is done, and the rest was not tried") from None
    _report(steps, dry_run=dry_run, json=json)


apply = with_api(_apply)


def _put(api: ApiClient, declared: _Declared, *, passwords: bool, dry_run: bool, why: str) -> _Step:
    target = path(declared.place, declared.id)
    found = _found(api, declared)
    if found is None:
        api.change("PUT", target, dry_run=dry_run, why=why, body=declared.body)
        differences = {key: (None, value) for key, value in declared.body.items()}
        return _Step(name=declared.name, what="made", differences=_shown(differences))
    before, version = found
    body = declared.body
    if declared.place == _NAMED["users"] and not passwords:
        body = {key: value for key, value in body.items() if key != _PASSWORD}
    keys = dict.fromkeys((*before, *body))
    differences = {key: (before.get(key), body.get(key)) for key in keys if before.get(key) != body.get(key)}
    if not differences:
        return _Step(name=declared.name, what="unchanged", differences={})
    if version is None:
        raise TidegateError(f"{declared.name} stands in the file of the node: change it there")
    api.change("PUT", target, dry_run=dry_run, why=why, body=body, match=version)
    return _Step(name=declared.name, what="changed", differences=_shown(differences))


def _found(api: ApiClient, declared: _Declared) -> tuple[dict[str, Any], str | None] | None:
    """The document as it is, and its version; None for one of the node's file: that is compared, and never changed."""
    from tidegate.cli.administration.http_client import Refused

    try:
        document, version = api.read(path(declared.place, declared.id))
    except Refused as refused:
        if refused.status == 404:
            return None
        raise
    value = {key: each for key, each in document["value"].items() if key not in ("id", "owner")}
    return value, version if document.get("source") == "api" else None


def _removed(api: ApiClient, place: str, keep: set[tuple[str, str]], *, dry_run: bool, why: str) -> Iterator[_Step]:
    for item in list(api.pages(place)):
        if item["source"] == "api" and (place, item["id"]) not in keep:
            api.change("DELETE", path(place, item["id"]), dry_run=dry_run, why=why, match="*")
            yield _Step(name=f"{place.rpartition('/')[2]}/{item['id']}", what="removed", differences={})


def _shown(differences: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """The same, without a secret."""
    return {key: (None, "…") if key == _PASSWORD else pair for key, pair in differences.items()}


def _report(steps: list[_Step], *, dry_run: bool, json: bool) -> None:
    if json:
        items = [
            {"document": step.name, "what": step.what, "differences": {k: list(v) for k, v in step.differences.items()}}
            for step in steps
        ]
        terminal.print_json({"dry_run": dry_run, "items": items})
        return
    would = "would be " if dry_run else ""
    for step in steps:
        if step.what == "unchanged":
            continue
        terminal.out().print(terminal.harmless(f"{step.name} {would}{step.what}"), markup=False, highlight=False)
        for key, (before, after) in step.differences.items():
            text = f"  {key}: {after!r}" if before is None else f"  {key}: {before!r} -> {after!r}"
            terminal.out().print(terminal.harmless(text), markup=False, highlight=False, soft_wrap=True)
    unchanged = sum(step.what == "unchanged" for step in steps)
    terminal.note(f"{len(steps) - unchanged} {would}changed, {unchanged} as they are")


def _read(file: Path) -> tuple[list[_Declared], list[str]]:
    """What the file declares, in an order in which what is named stands before who names it; and the sections."""
    from tidegate.config import ConfigErrors
    from tidegate.config.tree import compose

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as broken:
        raise TidegateError(f"cannot read {file}: {broken}") from None
    tree, problems = compose(text, str(file), {})
    if problems:
        raise ConfigErrors(problems)
    data = tree.data()
    directory = data.pop("directory", None) or {} if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(directory, dict):
        raise ConfigError("holds no sections as a configuration has them", file=str(file))
    data.pop("version", None)
    unknown = [*(data.keys() - _LISTED.keys()), *(f"directory.{key}" for key in directory.keys() - _NAMED.keys())]
    if unknown:
        names = ", ".join((*_LISTED, *(f"directory.{name}" for name in _NAMED)))
        text = f"`{sorted(unknown)[0]}` cannot be applied; there is {names}"
        raise ConfigError(text, file=str(file))
    declared: list[_Declared] = []
    for name, place in _NAMED.items():
        for id, body in (directory.get(name) or {}).items():
            declared.append(_Declared(place=place, id=id, body=dict(body or {})))
    for name, place in _LISTED.items():
        for body in data.get(name) or []:
            if not isinstance(body, dict) or not isinstance(id := body.get("id"), str) or not id:
                raise ConfigError(f"an entry of `{name}` has no `id`; say which one it is", file=str(file))
            declared.append(_Declared(place=place, id=id, body={k: v for k, v in body.items() if k != "id"}))
    places = [place for name, place in (*_NAMED.items(), *_LISTED.items()) if name in directory or name in data]
    if not declared and not places:
        raise ConfigError("declares nothing; write for example `policies`", file=str(file))
    return declared, places
