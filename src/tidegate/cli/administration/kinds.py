"""The table of document kinds: what each is called, where it is, and the options that set its members.

`documents` makes the commands `list`, `add`, `set`, `show`, `remove`, `history` and `revert` from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import input_values, output
from tidegate.cli.administration.http_client import ApiClient
from tidegate.cli.administration.options import Complete, ids

Body = dict[str, Any]
Columns = Callable[[Mapping[str, Any]], Mapping[str, object]]
ShowEffect = Callable[[Mapping[str, Any] | None, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    parameter: str
    member: str
    annotation: Any
    read: Callable[[Any, Any], Any]
    """The member, from the value of the option and the member as it is; None removes it."""
    default: object = None

    def put(self, body: Body, value: Any) -> None:
        """Writes the value of the option; one that was not given leaves the member as it is."""
        if value is None or value is False or value == []:
            return
        content = self.read(value, body.get(self.member))
        if content is None:
            body.pop(self.member, None)
        else:
            body[self.member] = content


def _text(parameter: str, option: str, help: str, metavar: str) -> Field:
    """An option that is a text; an empty one removes the member."""
    annotation = Annotated[str | None, typer.Option(option, help=help, metavar=metavar)]
    return Field(parameter=parameter, member=parameter, annotation=annotation, read=lambda text, _: text or None)


def _list(
    parameter: str,
    option: str,
    help: str,
    metavar: str,
    read: Callable[[list[str], Any], Any] = lambda texts, _: input_values.texts(texts) or None,
    *,
    member: str = "",
) -> Field:
    annotation = Annotated[list[str] | None, typer.Option(option, help=help, metavar=metavar)]
    return Field(parameter=parameter, member=member or parameter, annotation=annotation, read=read)


def _password(prefix: str = "") -> Field:
    """A password from standard input; the interface hashes one with the prefix, and nothing else is stored."""
    option = typer.Option("--password-stdin", help="Read the password from the first line of standard input.")
    return Field(
        parameter="password_stdin",
        member="password",
        annotation=Annotated[bool, option],
        read=lambda *_: prefix + input_values.password(),
        default=False,
    )


def _keep(pointers: list[str], _: Any) -> str | list[str]:
    return "all" if pointers == ["all"] else [pointer for pointer in pointers if pointer]


TOPIC: Final = _text("topic", "--topic", "A topic filter.", "FILTER")
ROLES: Final = _list("roles", "--role", "A role. Repeatable.", "ROLE")
GROUPS: Final = _list("groups", "--group", "A group. Repeatable.", "GROUP")
ATTRIBUTES: Final = _list(
    "attributes",
    "--set",
    "An attribute; the value is JSON or text. Repeatable.",
    "NAME=VALUE",
    input_values.attributes,
)
PUBLIC_KEY: Final = replace(
    _text("public_key", "--public-key", "The public key; @FILE reads it from a file.", "KEY"),
    read=lambda text, _: input_values.public_key(text) or None,
)
OWNER: Final = _text("user", "--user", "The owner. Default: you.", "NAME")
ACCOUNT: Final = (ROLES, GROUPS, ATTRIBUTES, PUBLIC_KEY, _password())
"""What everybody who registers may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    command: str
    """The command after `tidegate`."""
    path: str
    one: str
    many: str
    columns: Columns
    """The columns of a table, from the content of a document."""
    own_path: str | None = None
    """The path for users, who administer their own only."""
    effect: ShowEffect = output.effect
    """Shows the result of a dry run, and what it was about."""
    metavar: str | None = "ID"
    id_help: str = "Its id."
    fields: tuple[Field, ...] = ()
    section: str | None = None
    """The section of the configuration file, if entries can be read from a file."""
    required: Mapping[str, str] | None = None
    """The members that a new document needs, and the option of each."""
    removal: str = "."
    """The rest of the sentence that says what `remove` does."""
    file: str = ""
    """The file that holds others of this kind, if it is not the configuration."""
    examples: Mapping[str, str]
    """The arguments of an example, by command."""

    def place(self, api: ApiClient) -> str:
        return self.own_path if self.own_path is not None and api.me.get("role") == "user" else self.path

    @property
    def complete(self) -> Complete:
        return ids(self.path, own=self.own_path)

    def argument(self, *, known: bool = True, optional: bool = False) -> Any:
        """The annotation of an argument that is an id; `known`: of a document that exists."""
        info = typer.Argument(
            help=self.id_help,
            metavar=self.metavar,
            show_default=False,
            autocompletion=self.complete if known else None,
        )
        return Annotated[str | None, info] if optional else Annotated[str, info]

    def edit(self, body: Body, values: Mapping[str, Any]) -> None:
        for field in self.fields:
            field.put(body, values[field.parameter])


def _members(*names: str, **defaults: object) -> Columns:
    def columns(value: Mapping[str, Any]) -> Mapping[str, object]:
        return {name: value.get(name, defaults.get(name)) for name in (*names, *defaults)}

    return columns


def _account_columns(*names: str) -> Columns:
    members = _members(*names)

    def columns(value: Mapping[str, Any]) -> Mapping[str, object]:
        return {**members(value), "key": str(value.get("public_key") or "").partition(":")[0]}

    return columns


POLICIES: Final = Kind(
    command="policy",
    path="/policies",
    one="policy",
    many="policies",
    columns=_members("subject", "topic", "action", effect="allow", when=None),
    fields=(
        _list(
            "subjects",
            "--subject",
            "Who: *, user:…, role:…, group:…, client:…. Repeatable.",
            "SUBJECT",
            lambda subjects, _: input_values.one_or_many(subjects),
            member="subject",
        ),
        TOPIC,
        _list(
            "actions",
            "--action",
            "read, write, or read,write.",
            "ACTION",
            lambda actions, _: input_values.one_or_many(input_values.texts(actions)),
            member="action",
        ),
        _text("effect", "--effect", "allow or deny. Default: allow.", "EFFECT"),
        _text("when", "--when", "A condition (CEL). Default: always.", "CONDITION"),
    ),
    section="policies",
    required={"id": "ID", "subject": "--subject", "topic": "--topic", "action": "--action"},
    examples={
        "add": "gym --subject role:coach --topic 'gym/#' --action read,write --dry-run",
        "set": "gym --when 's.shift == \"day\"' --dry-run",
    },
)

PREFERENCES: Final = Kind(
    command="preference",
    path="/preferences",
    own_path="/me/preferences",
    one="preference",
    many="preferences",
    columns=_members("user", "topic", "to", "effect", "when", "expires", keep="all"),
    fields=(
        OWNER,
        TOPIC,
        _text("to", "--to", "A scope, or *: about forwarding to it.", "SCOPE"),
        _text("effect", "--effect", "allow, or deny: who may not, whatever others allow.", "EFFECT"),
        _text("when", "--when", "Who may receive it: a condition (CEL). Default: everybody.", "CONDITION"),
        _text("expires", "--expires", "Until when it counts, such as 2026-12-31T23:00:00Z.", "TIME"),
        _list("keep", "--keep", "What they see: all, or a JSON pointer. Repeatable.", "POINTER", _keep),
    ),
    section="preferences",
    required={"topic": "--topic"},
    examples={
        "list": "--user mary",
        "add": "--topic 'mary/#' --when 's.role == \"coach\"' --keep /pulse",
        "set": "p1 --keep all",
    },
)

CLIENTS: Final = Kind(
    command="client",
    path="/directory/clients",
    one="client",
    many="clients",
    columns=_account_columns("user", "roles", "groups", "attributes", "scopes"),
    id_help="Its client identifier.",
    fields=(
        _text("user", "--user", "The user it belongs to.", "NAME"),
        ROLES,
        GROUPS,
        ATTRIBUTES,
        _list("scopes", "--scope", "A scope it may connect to. Repeatable.", "SCOPE"),
        PUBLIC_KEY,
    ),
    required={"id": "ID"},
    examples={"add": "tr1 --user mary --set room=3", "set": "tr1 --set room=4 --role ''"},
)

USERS: Final = Kind(
    command="user",
    path="/directory/users",
    one="user",
    many="users",
    columns=_account_columns("roles", "groups", "attributes"),
    metavar="NAME",
    id_help="User name.",
    fields=(ROLES, GROUPS, ATTRIBUTES, PUBLIC_KEY, _password("plain:")),
    examples={"set": "mary --role coach --role nurse --set shift="},
)

APPLICATIONS: Final = Kind(
    command="application",
    path="/applications",
    one="application",
    many="applications",
    columns=_members("description"),
    removal=" together with its users.",
    examples={"show": "diary", "remove": "diary --dry-run"},
)

SOURCES: Final = Kind(
    command="source",
    path="/sources",
    one="source",
    many="sources",
    columns=_members("type", "mode", "scheme"),
    metavar=None,
    id_help="Its NodeId.",
    removal=". Its credentials are not valid any more.",
    examples={"remove": "station-1"},
)

RULE_SECTIONS: Final = {"sources": "source", "scores": "score", "topics": "topic"}
"""The lists of a rules file, and the member of a document that holds one of their entries."""


def _rule_columns(value: Mapping[str, Any]) -> Mapping[str, object]:
    member = next((member for member in RULE_SECTIONS.values() if member in value), None)
    return {"for": member, "rule": value if member is None else value[member]}


def _rule_effect(result: Mapping[str, Any] | None, would: str) -> None:
    """The result of a dry run: which rules would differ, and under which version."""
    effect = result or {}
    versions = effect.get("version") or {}
    differing = [f"{id} {how}" for how in ("added", "changed", "removed") for id in effect.get(how) or ()]
    before, after = (versions.get(name) or "-" for name in ("before", "after"))
    terminal.done(f"{would}, and nothing was changed; rules {before} → {after}: {', '.join(differing) or 'the same'}")
    for text in effect.get("not_covered") or ():
        terminal.note(f"Not covered: {text}.")


PIPELINE_RULES: Final = Kind(
    command="pipeline rule",
    path="/pipeline/rules",
    one="rule",
    many="rules",
    columns=_rule_columns,
    effect=_rule_effect,
    file="rules file",
    examples={},
)
