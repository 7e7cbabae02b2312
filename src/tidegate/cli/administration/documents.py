"""What can be done with documents of every kind, and the commands that are alike for all of them.

A change is made to the version that was looked at: whoever was faster is not overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import shown
from tidegate.cli.administration.asking import Api, path
from tidegate.cli.administration.completing import ids
from tidegate.cli.administration.options import DryRun, Json, Why, asks
from tidegate.errors import TidegateError

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Documents of one kind: where they are, what one is called, and what of it a table shows."""

    where: str
    one: str
    many: str
    columns: Callable[[Mapping[str, Any]], Mapping[str, object]]
    own: str | None = None
    """Where users have theirs, if they have some."""
    effect: Callable[[Mapping[str, Any] | None, str], None] = shown.effect
    """Shows what a dry run found, and what it was about."""

    def place(self, api: Api) -> str:
        """Where they are for whoever asks."""
        return self.own if self.own is not None and api.me.get("role") == "user" else self.where

    @property
    def complete(self) -> Callable[[typer.Context, str], list[str]]:
        return ids(self.where, own=self.own)


def show_all(found: Iterable[Mapping[str, Any]], kind: Kind, *, json: bool) -> None:
    """A table of documents."""
    items = list(found)
    if json:
        terminal.print_json({"items": items})
        return
    table = [
        {
            "id": each["id"],
            **kind.columns(each["value"]),
            "from": each["source"],
            "changed": shown.moment(each.get("changed_at")),
        }
        for each in items
    ]
    shown.rows(table, none=f"There are no {kind.many}.")


def show_one(found: Mapping[str, Any], *, json: bool) -> None:
    """All about one document."""
    if json:
        terminal.print_json(found)
        return
    # A version is a name and no number: it is not written with thousands.
    told = {"version": str(found["version"] or "-"), "changed_at": shown.moment(found["changed_at"])}
    shown.details({**found, **told})


def make(api: Api, kind: Kind, entries: Sequence[Body], *, dry_run: bool, why: str, json: bool) -> None:
    """Makes new ones, one after the other."""
    place = kind.place(api)

    def one(entry: Body) -> Body:
        found: Body = api.ask("POST", place, query={"dry_run": dry_run, "why": why}, body=entry).value
        return found

    each(entries, one, kind, "made", dry_run=dry_run, json=json)


def replace(api: Api, kind: Kind, entries: Sequence[Body], *, dry_run: bool, why: str, json: bool) -> None:
    """Changes those that are there, one after the other, to what the entries say."""
    place = kind.place(api)

    def one(entry: Body) -> Body:
        id = entry.get("id")
        if not isinstance(id, str) or not id:
            raise TidegateError(f"an entry has no `id`: say which {kind.one} it is, or use `add`")
        seen = api.get(path(place, id))
        return _put(api, path(place, id), entry, seen.version, dry_run=dry_run, why=why)

    each(entries, one, kind, "changed", dry_run=dry_run, json=json)


def change(api: Api, kind: Kind, id: str, edit: Callable[[Body], None], *, dry_run: bool, why: str, json: bool) -> None:
    """Changes one: `edit` is given what it is, and makes of it what it should be."""
    where = path(kind.place(api), id)
    seen = api.get(where)
    body: Body = dict(seen.value["value"])
    edit(body)
    done = _put(api, where, body, seen.version, dry_run=dry_run, why=why)
    tell([done], kind.one, "changed", dry_run=dry_run, json=json, effect=kind.effect)


def _put(api: Api, where: str, body: Body, version: str | None, *, dry_run: bool, why: str) -> Body:
    found: Body = api.ask("PUT", where, query={"dry_run": dry_run, "why": why}, body=body, match=version).value
    return found


def each(
    entries: Sequence[Body], do: Callable[[Body], Body], kind: Kind, verb: str, *, dry_run: bool, json: bool
) -> None:
    """Does it with one after the other. What was done stays done if a later one is refused, so it is told then, too."""
    made: list[Body] = []
    try:
        for entry in entries:
            made.append(do(entry))
    except TidegateError as refused:
        if len(entries) == 1:
            raise
        if made:
            tell(made, kind.one, verb, dry_run=dry_run, json=json, effect=kind.effect)
        left = f"entry {len(made) + 1} of {len(entries)} was refused, and those after it were not tried"
        raise TidegateError(f"{left}: {refused}") from None
    tell(made, kind.one, verb, dry_run=dry_run, json=json, effect=kind.effect)


def tell(
    made: Sequence[Mapping[str, Any]],
    one: str,
    verb: str,
    *,
    dry_run: bool,
    json: bool,
    effect: Callable[[Mapping[str, Any] | None, str], None] = shown.effect,
) -> None:
    """What became of a change, or what would."""
    if json:
        terminal.print_json(made[0] if len(made) == 1 else {"items": list(made)})
        return
    for each in made:
        if dry_run:
            effect(each.get("effect"), f"{one} {each['id']} would be {verb}")
        else:
            version = f", version {each['version']}" if each.get("version") is not None else ""
            shown.done(f"{one} {each['id']} {verb}{version}")
        if each.get("trouble"):
            shown.warning(str(each["trouble"]))


# -- commands that are alike for all kinds -----------------------------------------------------------------------------


def add_alike(app: typer.Typer, kind: Kind, *, command: str, name: str = "ID") -> None:
    """`show`, `remove`, `history` and `revert`."""
    which = Annotated[str, typer.Argument(help=f"Which {kind.one}.", metavar=name, autocompletion=kind.complete)]
    example = "mary" if name == "NAME" else "p1"

    def show(api: Api, id: str, json: Json = False) -> None:
        show_one(api.get(path(kind.place(api), id)).value, json=json)

    def remove(api: Api, id: str, why: Why = "", dry_run: DryRun = False, json: Json = False) -> None:
        where = path(kind.place(api), id)
        done = api.ask("DELETE", where, query={"dry_run": dry_run, "why": why}, match="*").value
        removed = {**done, "version": None}
        tell([removed], kind.one, "removed", dry_run=dry_run, json=json, effect=kind.effect)

    def history(api: Api, id: str, json: Json = False) -> None:
        found = versions(api, kind, id)
        if json:
            terminal.print_json({"items": found})
            return
        table = [
            {
                "change": str(each["sequence"]),
                "at": shown.moment(each["at"]),
                "by": each["by"],
                "why": each["why"],
                **({"value": "removed"} if each["value"] is None else kind.columns(each["value"])),
            }
            for each in found
        ]
        shown.rows(table, none="There is no history.", whole=("change", "by"))

    def revert(
        api: Api,
        id: str,
        change: Annotated[
            int | None, typer.Argument(help="Number of the change, as `history` shows it. Default: the last.", min=1)
        ] = None,
        why: Why = "",
        dry_run: DryRun = False,
        json: Json = False,
    ) -> None:
        sequence = versions(api, kind, id)[-1]["sequence"] if change is None else change
        where = path(kind.where, id) + "/revert"
        done = api.ask("POST", where, query={"dry_run": dry_run, "why": why}, body={"sequence": sequence}).value
        verb = "" if dry_run else "is "
        verb += f"what it was before change {sequence}"
        tell([done], kind.one, verb, dry_run=dry_run, json=json, effect=kind.effect)

    show.__doc__ = f"Show a {kind.one}.\n\n[dim]tidegate {command} show {example}[/dim]"
    remove.__doc__ = f"Remove a {kind.one}.\n\n[dim]tidegate {command} remove {example} --dry-run[/dim]"
    history.__doc__ = f"Show what a {kind.one} was before, who changed it, when and why."
    revert.__doc__ = (
        f"Take back a change of a {kind.one}, together with all that was changed with it.\n\n"
        f"[dim]tidegate {command} revert {example} 17 --why mistaken[/dim]"
    )
    for made in (show, remove, history, revert):
        app.command()(asks(made, id=which))


def versions(api: Api, kind: Kind, id: str) -> list[dict[str, Any]]:
    """What a document was, the oldest first."""
    if kind.place(api) != kind.where:
        raise TidegateError("the history is for administrators and auditors: use a token of theirs")
    found: list[dict[str, Any]] = api.get(path(kind.where, id) + "/history").value["items"]
    return found
