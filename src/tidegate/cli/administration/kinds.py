"""The table of document kinds: what each is called, where it is, and the options that set its members.

`documents` makes the commands `list`, `add`, `set`, `show`, `remove`, `history` and `revert` from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import input_values, output
from tidegate.cli.administration.completion import Complete, ids
from tidegate.cli.administration.http_client import ApiClient

Body = dict[str, Any]
Columns = Callable[[Mapping[str, Any]], Mapping[str, object]]
ShowEffect = Callable[[Mapping[str, Any] | None, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An option of a command that sets one member of a document."""

    parameter: str
    annotation: Any
    put: Callable[[Body, Any], None]
    """Writes the value of the option; None leaves the member as it is, an empty text removes it."""
    default: object = None


def _field(
    parameter: str,
    option: str,
    help: str,
    metavar: str,
    put: Callable[[Body, Any], None] | None = None,
    *,
    many: bool = False,
) -> Field:
    annotation = Annotated[list[str] | None if many else str | None, typer.Option(option, help=help, metavar=metavar)]  # type: ignore[valid-type]  # chosen at run time
    name = parameter

    def put_text(body: Body, value: Any) -> None:
        input_values.put(body, name, value)

    def put_list(body: Body, value: Any) -> None:
        input_values.put_list(body, name, value)

    return Field(parameter=parameter, annotation=annotation, put=put or (put_list if many else put_text))


def _put_subjects(body: Body, values: list[str] | None) -> None:
    if values:
        body["subject"] = input_values.one_or_many(values)


def _put_actions(body: Body, values: list[str] | None) -> None:
    if values:
        body["action"] = input_values.one_or_many(input_values.texts(values))


def _put_keep(body: Body, values: list[str] | None) -> None:
    if values:
        body["keep"] = "all" if values == ["all"] else [pointer for pointer in values if pointer]


def _put_attributes(body: Body, values: list[str] | None) -> None:
    if values:
        body["attributes"] = input_values.attributes(values, body.get("attributes"))


def _put_public_key(body: Body, value: str | None) -> None:
    input_values.put(body, "public_key", input_values.public_key(value))


def _put_password(body: Body, given: bool) -> None:
    if given:
        body["password"] = input_values.password()


def _put_plain_password(body: Body, given: bool) -> None:
    if given:
        body["password"] = f"plain:{input_values.password()}"  # the interface hashes it, and nothing else is stored


TOPIC: Final = _field("topic", "--topic", "A topic filter.", "FILTER")
ROLES: Final = _field("roles", "--role", "A role. Repeatable.", "ROLE", many=True)
GROUPS: Final = _field("groups", "--group", "A group. Repeatable.", "GROUP", many=True)
ATTRIBUTES: Final = _field(
    "attributes",
    "--set",
    "An attribute; the value is JSON or text. Repeatable.",
    "NAME=VALUE",
    _put_attributes,
    many=True,
)
PUBLIC_KEY: Final = _field(
    "public_key", "--public-key", "The public key; @FILE reads it from a file.", "KEY", _put_public_key
)
OWNER: Final = _field("user", "--user", "The owner. Default: you.", "NAME")
_PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of standard input.")
]
PASSWORD: Final = Field(parameter="password_stdin", annotation=_PasswordStdin, put=_put_password, default=False)
ACCOUNT: Final = (ROLES, GROUPS, ATTRIBUTES, PUBLIC_KEY, PASSWORD)
"""What everybody who registers may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Documents of one kind."""

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
    metavar: str = "ID"
    id_help: str = "Its id."
    fields: tuple[Field, ...] = ()
    section: str | None = None
    """The section of the configuration file, if entries can be read from a file."""
    required: Mapping[str, str] | None = None
    """The members that a new document needs, and the option of each."""
    file: str = ""
    """The file that holds others of this kind, if it is not the configuration."""
    examples: Mapping[str, str]
    """The arguments of an example, by command."""

    def place(self, api: ApiClient) -> str:
        """The path for whoever asks."""
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


def _policy_columns(value: Mapping[str, Any]) -> Mapping[str, object]:
    members = {name: value.get(name) for name in ("subject", "topic", "action")}
    return {**members, "effect": value.get("effect", "allow"), "when": value.get("when")}


POLICIES: Final = Kind(
    command="policy",
    path="/policies",
    one="policy",
    many="policies",
    columns=_policy_columns,
    fields=(
        _field(
            "subjects",
            "--subject",
            "Who: *, user:…, role:…, group:…, client:…. Repeatable.",
            "SUBJECT",
            _put_subjects,
            many=True,
        ),
        TOPIC,
        _field("actions", "--action", "read, write, or read,write.", "ACTION", _put_actions, many=True),
        _field("effect", "--effect", "allow or deny. Default: allow.", "EFFECT"),
        _field("when", "--when", "A condition (CEL). Default: always.", "CONDITION"),
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
    columns=_members("user", "topic", "to", "when", keep="all"),
    fields=(
        OWNER,
        TOPIC,
        _field("to", "--to", "A scope, or *: about forwarding to it.", "SCOPE"),
        _field("when", "--when", "Who may receive it: a condition (CEL). Default: everybody.", "CONDITION"),
        _field("keep", "--keep", "What they see: all, or a JSON pointer. Repeatable.", "POINTER", _put_keep, many=True),
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
        _field("user", "--user", "The user it belongs to.", "NAME"),
        ROLES,
        GROUPS,
        ATTRIBUTES,
        _field("scopes", "--scope", "A scope it may connect to. Repeatable.", "SCOPE", many=True),
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
    fields=(
        ROLES,
        GROUPS,
        ATTRIBUTES,
        PUBLIC_KEY,
        Field(parameter="password_stdin", annotation=_PasswordStdin, put=_put_plain_password, default=False),
    ),
    examples={"set": "mary --role coach --role nurse --set shift="},
)

APPLICATIONS: Final = Kind(
    command="application",
    path="/applications",
    one="application",
    many="applications",
    columns=_members("description"),
    examples={"show": "diary", "remove": "diary --dry-run"},
)

SOURCES: Final = Kind(
    command="source",
    path="/sources",
    one="source",
    many="sources",
    columns=_members("type", "mode", "scheme"),
    id_help="Its NodeId.",
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
    output.done(f"{would}, and nothing was changed; rules {before} → {after}: {', '.join(differing) or 'the same'}")
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
