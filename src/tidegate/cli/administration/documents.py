"""The commands that every kind of document has, made from the table in `kinds`; and the groups that have only these:
`tidegate policy`, `preference`, `client` and `pipeline rule`.

A change is made to the version that was read: a change that somebody else made meanwhile is not overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import Parameter
from typing import Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import input_values, kinds, output
from tidegate.cli.administration.http_client import ApiClient, Refused, path
from tidegate.cli.administration.kinds import OWNER, Body, Field, Kind
from tidegate.cli.administration.options import DryRun, Preview, Why, parameter, with_api
from tidegate.cli.options import Json
from tidegate.errors import TidegateError

File = Annotated[
    str | None,
    typer.Option(
        "--file", help="A file with one entry or several, as in a configuration; - for standard input.", metavar="FILE"
    ),
]
CHANGE_OPTIONS = (parameter("why", Why, ""), parameter("dry_run", DryRun, False), parameter("json", Json, False))
"""The last options of every command that changes documents."""


def options_of(fields: Sequence[Field]) -> list[Parameter]:
    return [parameter(field.parameter, field.annotation, field.default) for field in fields]


# -- the commands ------------------------------------------------------------------------------------------------------


def add_commands(app: typer.Typer, kind: Kind, *names: str) -> None:
    for name in names:
        run, own, help = _COMMANDS[name](kind)
        example = kind.examples.get(name, "" if name == "list" else "mary" if kind.metavar == "NAME" else "p1")
        if name in ("remove", "revert") and name not in kind.examples:
            example += " --dry-run" if name == "remove" else " 17 --why mistaken"
        run.__doc__ = f"{help}\n\n[dim]tidegate {kind.command} {name} {example}".rstrip() + "[/dim]"
        app.command(name)(with_api(run, own))


def _list(kind: Kind) -> tuple[Callable[..., None], list[Parameter], str]:
    def run(api: ApiClient, json: bool, user: str | None = None) -> None:
        items = api.pages(kind.place(api))
        show_all((item for item in items if user is None or item["value"].get("user") == user), kind, json=json)

    own = options_of([OWNER]) if kind.own_path is not None else []
    note = "; with the token of a user, that user's only" if kind.own_path is not None else ""
    file = "configuration file" if kind.fields else kind.file
    fixed = f" Those in the {file} can only be changed there." if file else ""
    return run, [*own, parameter("json", Json, False)], f"List {kind.many}{note}.{fixed}"


def _add(kind: Kind) -> tuple[Callable[..., None], list[Parameter], str]:
    required = kind.required or {}

    def run(
        api: ApiClient, id: str | None, *, why: str, dry_run: bool, json: bool, file: str | None = None, **values: Any
    ) -> None:
        if file is not None:
            entries = _entries_of_file(kind, file, id, values)
        else:
            body: Body = {} if id is None else {"id": id}
            kind.edit(body, values)
            if any(not body.get(member) for member in required):
                *most, last = required.values()
                needed = f"{', '.join(most)} and {last}" if most else last
                terminal.usage(f"give {needed}, or --file")
            if kind.own_path is not None and "user" not in body and api.me.get("role") != "user":
                terminal.usage("name the owner with --user")
            entries = [body]
        place = kind.place(api)

        def post(entry: Body) -> Body:
            return api.change("POST", place, dry_run=dry_run, why=why, body=entry)

        each(entries, post, kind, "made", dry_run=dry_run, json=json)

    own = _change_options(kind, known=False)
    help = f"Add a {kind.one}" + (", or all entries of a file, one after the other." if kind.section else ".")
    return run, own, help + (" The node makes up an id that is not given." if "id" not in required else "")


def _set(kind: Kind) -> tuple[Callable[..., None], list[Parameter], str]:
    def run(
        api: ApiClient, id: str | None, *, why: str, dry_run: bool, json: bool, file: str | None = None, **values: Any
    ) -> None:
        if file is not None:
            entries = _entries_of_file(kind, file, id, values)
            each(entries, partial(_replace, api, kind, dry_run, why), kind, "changed", dry_run=dry_run, json=json)
            return
        if id is None:
            terminal.usage("give the ID, or --file")
        target = path(kind.place(api), id)
        document, version = api.read(target)
        body: Body = dict(document["value"])
        kind.edit(body, values)
        done = api.change("PUT", target, dry_run=dry_run, why=why, body=body, match=version)
        report([done], kind.one, "changed", dry_run=dry_run, json=json, effect=kind.effect)

    keeps = f"Change a {kind.one}. Options that are not given stay as they are"
    more = ". With a file, its entries replace the stored ones." if kind.section else "; an empty text removes a value."
    return run, _change_options(kind), keeps + more


def _show(kind: Kind) -> tuple[Callable[..., None], list[Parameter], str]:
    def run(api: ApiClient, id: str, json: bool) -> None:
        document = api.get(path(kind.place(api), id))
        if json:
            terminal.print_json(document)
            return
        # A version is a name and not a quantity: it is written without thousands separators.
        changed = {"version": str(document["version"] or "-"), "changed_at": output.moment(document["changed_at"])}
        output.details({**document, **changed})

    return run, [parameter("id", kind.argument()), parameter("json", Json, False)], f"Show {_a(kind)}."


def _remove(kind: Kind) -> tuple[Callable[..., None], list[Parameter], str]:
    def run(api: ApiClient, id: str, why: str, dry_run: bool, json: bool) -> None:
        target = path(kind.place(api), id)
        done = api.change("DELETE", target, dry_run=dry_run, why=why, match="*")
        removed = {**done, "version": None}
        report([removed], kind.one, "removed", dry_run=dry_run, json=json, effect=kind.effect)

    return run, [parameter("id", kind.argument()), *CHANGE_OPTIONS], f"Remove {_a(kind)}{kind.removal}"


def _history(kind: Kind) -> tuple[Callable[..., None], list[Parameter], str]:
    def run(api: ApiClient, id: str, json: bool) -> None:
        def columns(entry: Body) -> Mapping[str, object]:
            return {
                "change": str(entry["sequence"]),
                "at": output.moment(entry["at"]),
                "by": entry["by"],
                "why": entry["why"],
                **({"value": "removed"} if entry["value"] is None else kind.columns(entry["value"])),
            }

        entries = versions(api, kind, id)
        output.listing(entries, columns, none="There is no history.", json=json, whole=("change", "by"))

    help = f"Show the earlier versions of a {kind.one}: who changed it, when and why."
    return run, [parameter("id", kind.argument()), parameter("json", Json, False)], help


def _revert(kind: Kind) -> tuple[Callable[..., None], list[Parameter], str]:
    def run(api: ApiClient, id: str, change: int | None, why: str, dry_run: bool, json: bool) -> None:
        sequence = versions(api, kind, id)[-1]["sequence"] if change is None else change
        target = path(kind.path, id) + "/revert"
        done = api.change("POST", target, dry_run=dry_run, why=why, body={"sequence": sequence})
        verb = f"{'' if dry_run else 'is '}what it was before change {sequence}"
        report([done], kind.one, verb, dry_run=dry_run, json=json, effect=kind.effect)

    number = Annotated[
        int | None, typer.Argument(help="Number of the change, as `history` shows it. Default: the last.", min=1)
    ]
    own = [parameter("id", kind.argument()), parameter("change", number, None), *CHANGE_OPTIONS]
    return run, own, f"Take back a change of a {kind.one}, together with everything that was changed with it."


_COMMANDS = {
    "list": _list,
    "add": _add,
    "set": _set,
    "show": _show,
    "remove": _remove,
    "history": _history,
    "revert": _revert,
}
ALL_COMMANDS = tuple(_COMMANDS)


def _a(kind: Kind) -> str:
    return f"{'an' if kind.one.startswith('a') else 'a'} {kind.one}"


def _change_options(kind: Kind, *, known: bool = True) -> list[Parameter]:
    """The id, a field for each member, and a file in their place where a section of the configuration has them."""
    if kind.section is None:
        return [parameter("id", kind.argument(known=known)), *options_of(kind.fields), *CHANGE_OPTIONS]
    id = parameter("id", kind.argument(known=known, optional=True), None)
    return [id, *options_of(kind.fields), parameter("file", File, None), *CHANGE_OPTIONS]


def _entries_of_file(kind: Kind, file: str, id: str | None, values: Mapping[str, Any]) -> list[Body]:
    assert kind.section is not None
    if id is not None or any(value is not None for value in values.values()):
        terminal.usage("--file replaces ID and the other options: leave them out")
    return input_values.entries(file, kind.section)


def _replace(api: ApiClient, kind: Kind, dry_run: bool, why: str, entry: Body) -> Body:
    id = entry.get("id")
    if not isinstance(id, str) or not id:
        raise TidegateError(f"an entry has no `id`: name the {kind.one}, or use `add`")
    target = path(kind.place(api), id)
    return api.change("PUT", target, dry_run=dry_run, why=why, body=entry, match=api.read(target)[1])


def versions(api: ApiClient, kind: Kind, id: str) -> list[dict[str, Any]]:
    """The versions of a document, the oldest first."""
    if kind.place(api) != kind.path:
        raise TidegateError("the history is for administrators and auditors: use a token of theirs")
    items: list[dict[str, Any]] = api.get(path(kind.path, id) + "/history")["items"]
    return items


# -- output ------------------------------------------------------------------------------------------------------------


def show_all(documents: Iterable[Mapping[str, Any]], kind: Kind, *, json: bool) -> None:

    def columns(item: Mapping[str, Any]) -> Mapping[str, object]:
        more = {"from": item["source"], "changed": output.moment(item.get("changed_at"))}
        return {"id": item["id"], **kind.columns(item["value"]), **more}

    output.listing(list(documents), columns, none=f"There are no {kind.many}.", json=json)


def each(
    entries: Sequence[Body], do: Callable[[Body], Body], kind: Kind, verb: str, *, dry_run: bool, json: bool
) -> None:
    """Changes one entry after the other. If one is refused, those before it stay changed and are reported."""
    done: list[Body] = []
    try:
        for entry in entries:
            done.append(do(entry))
    except TidegateError as refused:
        if len(entries) == 1:
            raise
        if done:
            report(done, kind.one, verb, dry_run=dry_run, json=json, effect=kind.effect)
        position = f"entry {len(done) + 1} of {len(entries)} was refused, and those after it were not tried"
        raise TidegateError(f"{position}: {refused}") from None
    report(done, kind.one, verb, dry_run=dry_run, json=json, effect=kind.effect)


def report(
    changes: Sequence[Mapping[str, Any]],
    one: str,
    verb: str,
    *,
    dry_run: bool,
    json: bool,
    effect: Callable[[Mapping[str, Any] | None, str], None] = output.effect,
) -> None:
    if json:
        terminal.print_json(changes[0] if len(changes) == 1 else {"items": list(changes)})
        return
    for change in changes:
        if dry_run:
            effect(change.get("effect"), f"{one} {change['id']} would be {verb}")
        else:
            version = f", version {change['version']}" if change.get("version") is not None else ""
            terminal.done(f"{one} {change['id']} {verb}{version}")
        if change.get("trouble"):
            terminal.warning(str(change["trouble"]))
        for each in change.get("warnings") or ():
            terminal.warning(f"{each['at']}: {each['warning']}")


# -- the groups that have only these -----------------------------------------------------------------------------------

policy = terminal.command_group("Administer the access policies of a running node.")
preference = terminal.command_group("Administer the preferences of data owners, or your own.")
client = terminal.command_group("Administer the known clients of a running node.")
pipeline_rule = terminal.command_group("Administer the pipeline rules of a running node.")

add_commands(policy, kinds.POLICIES, *ALL_COMMANDS)
add_commands(preference, kinds.PREFERENCES, *ALL_COMMANDS)
add_commands(client, kinds.CLIENTS, *ALL_COMMANDS)
add_commands(pipeline_rule, kinds.PIPELINE_RULES, "list")


@pipeline_rule.command("set")
@with_api
def set_pipeline_rules(
    api: ApiClient,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            help="A file with `sources`, `scores` and `topics`, like a rules file; - for standard input.",
            metavar="FILE",
        ),
    ],
    why: Why = "",
    dry_run: Preview = False,
    json: Json = False,
) -> None:
    """Add or change the rules of a file, one after the other.

    The pipeline tries them on recent data before they are in force: see `tidegate pipeline status`.

    [dim]tidegate pipeline rule set --file more.yaml --dry-run[/dim]
    """

    def put(entry: Body) -> Body:
        target = path(kinds.PIPELINE_RULES.path, entry["id"])
        return api.change("PUT", target, dry_run=dry_run, why=why, body=entry, match=_version(api, target))

    each(input_values.rules(file, kinds.RULE_SECTIONS), put, kinds.PIPELINE_RULES, "set", dry_run=dry_run, json=json)


def _version(api: ApiClient, target: str) -> str | None:
    """The version of a rule; None: there is no such rule yet."""
    try:
        return api.read(target)[1] or "*"
    except Refused as refused:
        if refused.status != 404:
            raise
        return None


add_commands(pipeline_rule, kinds.PIPELINE_RULES, "show", "remove", "history", "revert")
