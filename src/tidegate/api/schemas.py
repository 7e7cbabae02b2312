"""What answers look like, for the OpenAPI document, and the schemas of documents, from the configuration.

Documents are checked by the node, with the texts that `tidegate check` has; here is only what they look like.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic.json_schema import models_json_schema

from tidegate.admin.roles import Role as TokenRole
from tidegate.api.problems import MEDIA_TYPE, ProblemAnswer
from tidegate.config import Operation
from tidegate.config.directory import Client, Group, Role, User
from tidegate.config.links import Link
from tidegate.config.monitors import Monitor
from tidegate.config.overlay import KINDS, Form
from tidegate.config.policies import Policy, Preference, View
from tidegate.explain import question

LONG: Final = 65_535  # bytes of a topic or a name in MQTT
KEY_MARK: Final = "^[A-Za-z0-9_-]{16,128}$"
KEY_ID: Final = "^[A-Za-z0-9_.-]{1,64}$"
BODY: Final = (408, 413, 415)
"""Statuses of problems with the body of a request."""
CHANGE: Final = (409, 501, 504)
"""Statuses of problems with a change."""
_TEXT: Final = r"^[^\x00-\x1f\x7f-\x9f]+$"
TEMPLATE: Final = "#/components/schemas/{model}"
_CONFIGURED: Final = (Policy, Preference, View, Monitor, Link, User, Client, Role, Group)
SECTIONS: Final[dict[str, type[BaseModel]]] = {model.__name__.lower(): model for model in _CONFIGURED}
"""The kinds of documents that have a model in the configuration."""
_TEXTS: Final = {kind: place.lists for kind, place in KINDS.items() if place.form is Form.TEXT}
_RULES: Final = ("source", "score", "topic")
"""What a rule of the pipeline is for; each as in the rules file, without its `id`."""
_OBJECT: Final[dict[str, Any]] = {"type": "object"}


class Document(BaseModel):
    """Something that is administered."""

    id: str
    value: dict[str, Any] = Field(description="As it would stand in the configuration file. Passwords are left out.")
    source: str = Field(description="`file`: read-only here, or `api`.")
    version: int | None = Field(None, description="The number of the change that wrote it; the ETag.")
    changed_at: str | None = None
    changed_by: str | None = None
    why: str | None = None


class Page(BaseModel):
    """Some of them, by id."""

    items: list[Document]
    next: str | None = Field(None, description="Send it as `after` for those that follow; null: that is all.")


class Warned(BaseModel):
    """What is allowed and probably not meant, such as a name that nobody has."""

    at: str = Field(description="The document, such as `policy/p1`.")
    warning: str


class Changed(BaseModel):
    """What was done, or with `dry_run` what would be."""

    id: str
    dry_run: bool
    version: int | None = Field(None, description="The number of this change, and the version of the document since.")
    rules: str | None = Field(None, description="The version of the rules in force.")
    pipeline: str | None = Field(
        None,
        description="The version of the pipeline's rules with this change. `GET /pipeline` says when it is in force.",
    )
    warnings: list[Warned] = Field(default_factory=list, description="Names in the document that nobody has.")
    automata: dict[str, str] | None = Field(None, description="With `dry_run`: the monitors, drawn as SVG.")
    effect: dict[str, Any] | None = Field(
        None,
        description="With `dry_run`: what would be decided differently, who could read more or less of whose data, "
        "which flows would open and close, and what this does not cover. "
        "Null for the roles `user` and `source`: it is about others.",
    )


class Version(BaseModel):
    """What a document was once."""

    sequence: int
    value: dict[str, Any] | None = Field(None, description="Null: it was deleted.")
    at: str
    by: str
    why: str


class History(BaseModel):
    """The versions of a document, the oldest first."""

    items: list[Version]


class Me(BaseModel):
    """Whose token this is."""

    token: str
    role: str
    user: str | None = None
    expires: str | None = None


class Token(BaseModel):
    """A token, without what makes it one."""

    id: str
    role: str
    user: str | None = None
    name: str | None = None
    expires: str | None = None
    revoked_at: str | None = Field(None, description="Since when it does not count any more; null: it was not revoked.")
    revoked_by: str | None = None


class ChangedToken(Token):
    """A token that was revoked, or with `dry_run` as it is."""

    dry_run: bool


class TriedToken(BaseModel):
    """A token that could be made; none was."""

    dry_run: bool
    role: str
    user: str | None = None
    name: str
    expires: str


class Tokens(BaseModel):
    """All of them."""

    items: list[Token]


class NewToken(Token):
    """A token that was made just now."""

    token: str = Field(description="It is shown this once.")


class Credentials(BaseModel):
    """What somebody logs in with, shown this once."""

    name: str
    password: str | None = Field(None, description="Unless it was sent.")
    token: str | None = Field(None, description="A token of the role `user`; null: `trouble` says why there is none.")
    expires: str | None = Field(None, description="When the token does.")
    version: int = Field(description="The number of this change, and the version of the user since.")
    rules: str | None = Field(None, description="The version of the rules in force.")
    trouble: str | None = Field(None, description="What of it could not be done; the rest stands.")


class Removed(Changed):
    """What was removed, or with `dry_run` would be."""

    trouble: str | None = Field(None, description="What of it could not be done; the rest stands.")


class TopicKey(BaseModel):
    """A topic key, without its secret."""

    id: str
    group: str | None = None
    filter: str | None = None
    owner: str | None = None
    demand: str | None = None
    topic: str | None = None
    made: str
    valid_until: str = Field(description="From then on no message is sealed with it.")
    readable_until: str = Field(description="From then on it is handed out no more.")
    used: int | None = Field(None, description="Messages that were sealed with it here.")
    seals: bool | None = Field(None, description="Whether messages are sealed with it now.")


class TopicKeys(BaseModel):
    """Some of them, by id."""

    items: list[TopicKey]
    next: str | None = Field(None, description="Send it as `after` for those that follow; null: that is all.")


class WrappedKey(BaseModel):
    """A topic key that only the reader can unwrap who asked for it."""

    keyId: str
    request: str = Field(description="The mark of the request: take no other answer for it.")
    validMs: int = Field(description="For how many milliseconds it counts.")
    kem: str
    key: str = Field(description="Base64 of HPKE's `enc` and the ciphertext.")


class Rotated(BaseModel):
    """What is sealed with other keys from the next message on, or with `dry_run` would be."""

    groups: int
    dry_run: bool


class Revoked(BaseModel):
    """What is never handed out again, or with `dry_run` would not be."""

    revoked: str
    dry_run: bool
    key: TopicKey | None = Field(None, description="With `dry_run`: the key, if the node has it.")


class Rows(BaseModel):
    """Rows of the audit, the newest first."""

    items: list[dict[str, Any]]
    next: str | None = Field(None, description="Send it as `before` for older ones; null: that is all.")


class Bounds(BaseModel):
    """What a journal holds."""

    first: int = Field(description="The oldest record there is.")
    next: int = Field(description="The one after the newest.")


class Progress(BaseModel):
    """How far somebody is who reads it."""

    next: int
    lag: int = Field(description="Records that are left.")


class Pipeline(BaseModel):
    """How the pipeline is doing."""

    state: Literal["running", "silent", "stopped", "never"] = Field(
        description="`silent`: its process lives and says nothing; `never`: none has run here."
    )
    why: str | None = Field(None, description="What is wrong, and what to do; null: nothing.")
    heard: str | None = Field(None, description="When the job last said something.")
    job: dict[str, Any] | None = Field(
        None, description="What it said then: its last batch, totals, rates, what it waits for, and `rules` in force."
    )
    journal: Bounds | None = Field(None, description="What is recorded for it; null: `why` says why.")
    readers: dict[str, Progress] = Field(description="Those for whom the journal is kept.")
    lag: int | None = Field(None, description="Records that the pipeline has not done yet; null: nobody knows.")


class Trend(BaseModel):
    """Scores of one day, source and dimension."""

    date: str
    source: str | None
    type: str | None
    name: str | None
    owner: str | None
    category: str | None
    dimension: str
    count: int = Field(description="Records.")
    assessed: int = Field(description="Records that have this score.")
    mean: float | None
    min: float | None
    p05: float | None
    p50: float | None


class Fault(BaseModel):
    """What is in quarantine for one reason."""

    source: str | None
    fault: str | None = Field(description="Why.")
    count: int
    last: str | None = Field(description="The newest day.")


class Quality(BaseModel):
    trends: list[Trend]
    quarantine: list[Fault]
    complete: bool = Field(description="Whether these are all rows.")


class Alive(BaseModel):
    """The process answers."""

    alive: bool


class Ready(BaseModel):
    """Whether the node does its work."""

    ready: bool
    checks: dict[str, bool]
    reasons: list[str]


# -- what is asked -----------------------------------------------------------------------------------------------------


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TokenRequest(_Sent):
    """A token to be made."""

    role: Annotated[TokenRole, Field(strict=False), WithJsonSchema({"type": "string", "enum": [*TokenRole]})]
    user: str | None = Field(None, min_length=1, max_length=1024, pattern=_TEXT, description="Whom it acts for.")
    name: str = Field("", max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$", description="What it is for.")
    seconds: int | None = Field(None, ge=60, le=10 * 366 * 86400, description="How long it is valid.")


_Named = Annotated[str, Field(min_length=1, max_length=200, pattern=_TEXT)]
_KeyText = Annotated[str, Field(min_length=1, max_length=4096, description="`x25519:…`, `mlkem768-x25519:…`, or PEM.")]


class _New(_Sent):
    """Somebody who registers."""

    model_config = ConfigDict(hide_input_in_errors=True)

    password: str | None = Field(
        None, min_length=1, max_length=1024, repr=False, description="Default: one is made up."
    )
    roles: list[_Named] = Field(default=[], max_length=100)
    groups: list[_Named] = Field(default=[], max_length=100)
    attributes: dict[str, JsonValue] = Field(default={}, max_length=100, description="Conditions read `a` as `s.a`.")
    public_key: _KeyText | None = None


class NewUser(_New):
    """A user who registers."""

    name: _Named


class NewApplication(_New):
    """An application that registers."""

    id: _Named
    description: str = Field("", max_length=1000, description="What it is.")


class NewKey(_Sent):
    """The public key for which topic keys are wrapped."""

    public_key: _KeyText


class Rotation(_Sent):
    """What is to be sealed with other keys; neither: everything."""

    filter: str | None = Field(None, min_length=1, max_length=LONG, description="One entry of `keys.protect`.")
    user: str | None = Field(None, min_length=1, max_length=1024, description="What this user could read.")


class Question(_Sent):
    """May somebody do something with a topic?"""

    model_config = ConfigDict(populate_by_name=True)

    subject: str = Field(alias="as", min_length=1, max_length=LONG, description="`user:mary`, `user:mary/client:tr1`.")
    action: Literal["read", "write", "subscribe"]
    topic: str = Field(min_length=1, max_length=LONG, description="For `subscribe` the filter.")
    publisher: str | None = Field(None, alias="from", min_length=1, max_length=LONG, description="Who published it.")
    payload: str = Field("", max_length=65_536, description="Its content.")
    qos: int = Field(0, ge=0, le=2)
    retain: bool = False
    properties: list[tuple[str, str]] = Field(default=[], max_length=64, strict=False, description="User properties.")
    where: str | None = Field(None, max_length=4096, description="The condition of the subscription.")
    require: str | None = Field(
        None, max_length=200, description="The levels and facts that are demanded, with commas between them."
    )
    at: float | None = Field(None, ge=0, le=253_402_300_000, description="Seconds since 1970. Default: now.")
    assume: dict[str, JsonValue] = Field(default={}, max_length=64, description="Attributes, such as `s.level`.")
    through: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="A linked node, which is asked for its part, or the directed link: `gym->remotegym`.",
    )

    def command(self) -> question.Question:
        through: dict[str, Any] = {} if self.through is None else {"through": self.through}
        asked = question.Question if self.through is None else question.QuestionThrough
        return asked.about(
            Operation(self.action),
            tuple(self.properties),
            self.where or None,
            self.require or None,
            subject=self.subject,
            topic=self.topic,
            publisher=self.publisher,
            payload=self.payload.encode(),
            qos=self.qos,
            retain=self.retain,
            at=self.at,
            overrides=self.assume,
            **through,
        )


class KeyRequest(BaseModel):
    """A request for a key: that of a message, or the one to seal what is published to a topic."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"oneOf": [{"required": ["keyId"]}, {"required": ["topic"]}]}
    )

    keyId: str = Field("", pattern=KEY_ID, description="Of a message that was received.")
    topic: str = Field("", min_length=1, max_length=LONG, description="Where you want to publish what you seal.")
    request: str = Field(pattern=KEY_MARK, description="A random mark, never the same twice.")


_ASKED: Final = (KeyRequest, TokenRequest, Question, NewUser, NewApplication, NewKey, Rotation)


Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Responses:
    """What a route may answer besides what it is for. Every route may be refused, fail, or be asked too much."""
    every = sorted({*statuses, 400, 401, 403, 422, 429, 500, 503})
    return {status: {"model": ProblemAnswer, "content": {MEDIA_TYPE: {}}, "description": ""} for status in every}


def returns(
    model: type[BaseModel], *statuses: int, made: type[BaseModel] | None = None, success: int = 200
) -> Responses:
    """What a route answers: 200 with a model, or 201 with what it `made`, or a problem with one of the statuses."""
    if made is None:
        return {success: {"model": model}, **problems(*statuses)}
    tried: dict[str, Any] = {"model": model, "description": "What would be, with `dry_run`."}
    return {200: tried, 201: {"model": made}, **problems(*statuses)}


def body_of_kind(kind: str) -> dict[str, Any]:
    """What OpenAPI says of a body that is a document of that kind."""
    if kind in SECTIONS:
        return body_of(SECTIONS[kind])
    if kind in _TEXTS or kind == "pipeline":
        keys = {key: {"type": "string"} for key in _TEXTS[kind]} if kind in _TEXTS else dict.fromkeys(_RULES, _OBJECT)
        single = {"additionalProperties": False, "minProperties": 1, "maxProperties": 1}
        return _body({"type": "object", "properties": keys, **single})
    return _body(_OBJECT)


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """The same of a body of that shape."""
    return _body({"$ref": TEMPLATE.format(model=model.__name__)})


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def sections() -> dict[str, Any]:
    """The schemas that bodies refer to, by name."""
    models: list[type[BaseModel]] = [*SECTIONS.values(), *_ASKED]
    _, schema = models_json_schema([(model, "validation") for model in models], ref_template=TEMPLATE)
    found: dict[str, Any] = schema.get("$defs", {})
    return found
