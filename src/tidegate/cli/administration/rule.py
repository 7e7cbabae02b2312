"""`tidegate pipeline rule`: rules of the pipeline of a running node, beside those in its rules file.

They are written as in that file. The node checks them with all the others; the pipeline tries them on recent data
before they are in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import documents, shown, written
from tidegate.cli.administration.asking import Answer, Api, Refused, path
from tidegate.cli.administration.documents import Body, Kind
from tidegate.cli.administration.options import Json, Try, Why, asks, group

SECTIONS: Final = {"sources": "source", "scores": "score", "topics": "topic"}
"""The lists of a rules file, and what one of their entries is called here."""
_UNKNOWN: Final = 404


def _columns(value: Mapping[str, Any]) -> Mapping[str, object]:
    for sort in SECTIONS.values():
        if sort in value:
            return {"for": sort, "rule": value[sort]}
    return {"for": None, "rule": value}


def _effect(found: Mapping[str, Any] | None, would: str) -> None:
    """What a dry run found: which rules would be others, and under which version."""
    effect = found or {}
    versions = effect.get("version") or {}
    differing = [f"{each} {how}" for how in ("added", "changed", "removed") for each in effect.get(how) or ()]
    before, after = (versions.get(name) or "-" for name in ("before", "after"))
    told = f"rules {before} → {after}: {', '.join(differing) or 'the same'}"
    shown.done(f"{would}, and nothing was changed; {told}")
    for each in effect.get("not_covered") or ():
        terminal.note(f"Not covered: {each}.")


RULES = Kind(where="/pipeline/rules", one="rule", many="rules", columns=_columns, effect=_effect)

rules = group("Administer rules of the pipeline of a running node.")

File = Annotated[
    str,
    typer.Option(
        "--file",
        help="A file with `sources`, `scores` and `topics`, as a rules file has them; - for standard input.",
        metavar="FILE",
    ),
]


@rules.command("list")
@asks
def list_command(api: Api, json: Json = False) -> None:
    """List rules. Those that stand in the rules file can only be changed there.

    [dim]tidegate pipeline rule list[/dim]
    """
    documents.show_all(api.pages(RULES.where), RULES, json=json)


@rules.command("set")
@asks
def set_command(api: Api, file: File, why: Why = "", dry_run: Try = False, json: Json = False) -> None:
    """Make the rules of a file, or change those that are there, one after the other.

    The pipeline tries them on recent data before they are in force: see `tidegate pipeline status`.

    [dim]tidegate pipeline rule set --file more.yaml --dry-run[/dim]
    """

    def one(entry: Body) -> Body:
        where = path(RULES.where, entry["id"])
        there = _there(api, where)
        match = None if there is None else there.version or "*"
        found: Body = api.ask("PUT", where, query={"dry_run": dry_run, "why": why}, body=entry, match=match).value
        return found

    documents.each(written.rules(file, SECTIONS), one, RULES, "set", dry_run=dry_run, json=json)


def _there(api: Api, where: str) -> Answer | None:
    try:
        return api.get(where)
    except Refused as refused:
        if refused.status != _UNKNOWN:
            raise
        return None


documents.add_alike(rules, RULES, command="pipeline rule")
