"""The configuration of a node: every key, its type, its meaning and its default, in this one place.

Values are frozen. What a single value can be wrong about is checked by its type; what several can only be wrong about
together is checked beside the section that it is about (`problems`, `warnings`). The descriptions become the JSON
schema and the reference page, so each field has one. A key that this version does not enforce does not exist here:
nothing may look enforced that is not.
"""

from __future__ import annotations

import os
import tempfile
import zoneinfo
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from tidegate import policy
from tidegate.config import (
    administration,
    brokering,
    directory,
    identity_providers,
    links,
    lint,
    listeners,
    monitors,
    pipeline,
    rbac,
    references,
    scopes,
    shadow,
    sources,
)
from tidegate.config.address import parse_address
from tidegate.config.administration import DATABASE, SQLITE, Http, MasterKey, StorePlace, Tokens
from tidegate.config.brokering import Brokering, Preset
from tidegate.config.capabilities import Capabilities
from tidegate.config.directory import Directory
from tidegate.config.document import Source
from tidegate.config.flows import Flows
from tidegate.config.keys import Keys
from tidegate.config.limits import Limits
from tidegate.config.links import Link
from tidegate.config.listeners import Listener
from tidegate.config.me import Me
from tidegate.config.monitors import Monitor
from tidegate.config.parser import Parser, parser_of, problem_text
from tidegate.config.pipeline import Pipeline
from tidegate.config.policies import (
    Class,
    EnvironmentAttributes,
    Levels,
    Policies,
    Policy,
    Preference,
    PublisherRules,
    Subscribe,
    Trust,
    View,
    ViewDefault,
    repeated_ids,
)
from tidegate.config.problems import PLAIN_NAME, Finding, refusal, remedy
from tidegate.config.rule_tests import RuleTest
from tidegate.config.scopes import Scope
from tidegate.config.section import LIST, ONE, CheckedSection, FilePath, Identity, Name, PythonName, Section, shape
from tidegate.config.sources import Sources
from tidegate.config.tree import Location
from tidegate.config.units import Count, Duration, Rate, Size, Switch
from tidegate.errors import ConfigError
from tidegate.policy.levels import ORDER, ranking

if TYPE_CHECKING:
    from tidegate.config.build import Built


class Durability(StrEnum):
    """When an acknowledgement may be sent: after the commit (sync), or before it (async)."""

    SYNC = "sync"
    ASYNC = "async"


class Reload(StrEnum):
    """What makes a node read its file again: SIGHUP only, or also a change of the file."""

    SIGNAL = "signal"
    WATCH = "watch"


class DeniedPublish(StrEnum):
    """What an MQTT 3.1.1 publisher sees of a denied publish; that protocol has no negative PUBACK."""

    ACKNOWLEDGE = "acknowledge"
    DISCONNECT = "disconnect"


class LogFormat(StrEnum):
    """How log lines look; `auto` is console on a terminal and JSON otherwise."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Record(StrEnum):
    """What is written down beyond denials: nothing, what was allowed too, or the messages themselves."""

    OFF = "off"
    DECISIONS = "decisions"
    TRAFFIC = "traffic"


def _timezone(written: str) -> str:
    try:
        zoneinfo.ZoneInfo(written)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise refusal("is not a time zone; write a name such as `UTC` or `Europe/Rome`") from None
    return written


def _open(written: object) -> object:
    if written != Policies.OPEN:
        how = remedy(str(written), [Policies.OPEN], "write one of these")
        raise refusal(f"must be `open` or a list of policies; {how}")
    return written


def _function(written: str, info: ValidationInfo) -> str:
    parser = parser_of(info)
    if parser is not None:
        try:
            parser.learn(written)
        except ConfigError as error:
            raise refusal(f"cannot be used: {problem_text(error)}") from None
    return written


class Node(CheckedSection):
    """The node itself."""

    name: Name
    """Name of the node. Unique among the nodes that will ever be linked with it."""
    domain: Name = Field(default_factory=lambda data: data.get("name", ""))
    """The administrative domain the node belongs to. Default: the name of the node."""
    data: FilePath | None = None
    """Folder for everything that must survive a restart. Without it nothing does: the node is volatile."""
    timezone: Annotated[str, AfterValidator(_timezone)] = "UTC"
    """Time zone of times of day in the configuration."""
    cert: FilePath | None = None
    """Certificate chain (PEM) that the node shows where it connects to other nodes."""
    key: FilePath | None = None
    """Its private key (PEM). Default: the one in the file of the certificate."""
    ca: FilePath | None = None
    """Certificates (PEM) of the authorities that sign those of the nodes and brokers that it connects to."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.key is not None and self.cert is None:
            yield ("key",), "has no effect without `cert`; add that, or remove it"


class Authentication(Section):
    """How clients prove who they are, beyond passwords and certificates."""

    methods: Mapping[Identity, PythonName] = Field(default_factory=dict)
    """MQTT 5 authentication methods: their names, and the `package.module:factory` that makes each."""
    workers: Count = Field(default=2, ge=1, le=64)
    """Threads that verify passwords."""
    attempts: Count = Field(default=60, ge=1)
    """Failed attempts as one user from one address (IPv6: /64) in a minute; then more are refused unheard. It does not
    count for devices that logged in before: see the guide to authentication."""
    address_attempts: Count = Field(default=1000, ge=1)
    """Failed attempts from one address in a minute, and as one user from everywhere; then strangers are refused
    unheard there."""
    cache: Duration = Field(default=60.0, ge=0, le=3600)
    """How long a verified password is remembered; 0: not at all."""


class Sys(Section):
    """Statistics under `$SYS/`."""

    interval: Duration = Field(default=10.0, ge=0, le=86400)
    """Time between two publications; 0: none."""


class Log(Section):
    """Log lines, written to standard error."""

    format: LogFormat = LogFormat.AUTO
    """`console` for people, `json` for machines, `auto`: console on a terminal, JSON otherwise."""
    level: LogLevel = LogLevel.INFO
    """The least severe line that is written."""


class Audit(Section):
    """The record of what was denied and changed."""

    keep: Duration = Field(default=30 * 86400.0, gt=0)
    """How long it is kept."""
    size: Size = Field(default=1 << 30, ge=1 << 20)
    """How large it may become; the oldest records go first."""
    rate: Rate = Field(default=20.0, gt=0, le=1e6)
    """Records in full for each rule and second; more are only counted."""
    address_rate: Rate = Field(default=1.0, gt=0, le=1e6)
    """Refused connections from one address that are recorded in full, per second; more are only counted."""


class Traffic(Section):
    """The record of messages, with `record: traffic`."""

    keep: Duration = Field(default=7 * 86400.0, gt=0)
    """How long it is kept."""
    size: Size = Field(default=10 << 30, ge=1 << 20)
    """How large it may become; the oldest records go first."""
    payloads: Switch = False
    """Whether the content of messages is recorded too. Conditions that read it cannot be replayed otherwise."""


class Config(CheckedSection):
    """Configuration of a Tidegate node."""

    version: Literal[1]
    """Version of this format: 1."""
    node: Node
    """The node itself."""
    scopes: Mapping[Name, Scope] = Field(default_factory=lambda: {"main": Scope()}, min_length=1)
    """Event spaces by name. Default: one, `main`; with `preset: rbac`, the bus."""
    enforce: Switch = True
    """`false`: shadow mode for all scopes. Everything passes; what the rules would deny is audited as `shadow`."""
    listeners: tuple[Listener, ...] = Field(min_length=1)
    """Where clients connect."""
    links: tuple[Link, ...] = ()
    """Scopes that are joined besides parents and children."""
    directory: Directory = Field(default_factory=Directory)
    """Users, clients, roles and groups."""
    functions: tuple[Annotated[PythonName, AfterValidator(_function)], ...] = ()
    """Python functions that conditions can call, as `package.module:name`, each decorated with
    `tidegate.predicate.function`."""
    levels: Levels | None = None
    """How well connections are protected. Where this is present, MQTT 5 subscribers are told the lowest level on the
    way of each message, and the facts that held all the way."""
    policies: (
        Annotated[
            Annotated[Policies, BeforeValidator(_open), Tag(ONE)] | Annotated[tuple[Policy, ...], Tag(LIST)],
            Discriminator(shape),
        ]
        | None
    ) = None
    """Who may read and write what. What no policy allows is denied, so by default nothing passes. `open`: everybody
    who may connect may publish and subscribe to everything."""
    combining: policy.Combining = policy.Combining.DENY_OVERRIDES
    """What counts when several policies apply: any that denies, any that allows, or the first."""
    subscribe: Subscribe = Subscribe.STRICT
    """What becomes of a subscription to what its client may not read: `strict`: it is refused. `hold`: it is granted,
    delivers nothing, and comes alive when it is allowed."""
    preferences: tuple[Preference, ...] = ()
    """What owners of data say about it."""
    brokering: Brokering = Field(default_factory=Brokering)
    """Over which links messages may leave, by the types of the links."""
    rules: PublisherRules | None = None
    """What publishers may say themselves about who reads their own messages, with rules that they send to
    `$tidegate/rules`. What a policy denies they cannot allow. Default: nothing."""
    trust: Trust | None = None
    """Which TLS clients are trusted. Default: no list, so nobody is `trusted` and nobody is turned away."""
    capabilities: Capabilities | None = None
    """Signed tokens that say what somebody may do at most. Default: none are taken."""
    views: tuple[View, ...] = ()
    """What of the content somebody sees. Topics without views are seen whole."""
    view_default: ViewDefault = ViewDefault.NOTHING
    """What somebody sees of a topic that has views, but none for them."""
    classify: tuple[Class, ...] = ()
    """Categories of topics, read as `o.category`."""
    environment: EnvironmentAttributes = Field(default_factory=dict)
    """What conditions read as `e.…` besides the clock, such as `{location: milan}`."""
    monitors: tuple[Monitor, ...] = ()
    """What is expected on links, one event after the other. Several on one link act in this order."""
    flows: Flows = Field(default_factory=Flows)
    """What must not flow from whom to whom, and what must be able to. Checked when the file is read, when anything
    changes, and when clients connect."""
    tests: tuple[RuleTest, ...] = ()
    """Tests of the rules themselves."""
    record: Record = Record.OFF
    """What is recorded besides denials and changes: `decisions`: subscriptions and what was allowed. `traffic`: also
    the messages, for a replay under other rules."""
    audit: Audit = Field(default_factory=Audit)
    """The record of what was denied and changed."""
    traffic: Traffic = Field(default_factory=Traffic)
    """The record of messages, with `record: traffic`."""
    durability: Durability = Durability.SYNC
    """When QoS 1 and 2 are acknowledged: `sync`: after the disk has them. `async`: after the system has them; a
    crash of the node loses nothing, a power failure may."""
    reload: Reload = Reload.SIGNAL
    """`signal`: SIGHUP and `tidegate reload` read the file again. `watch`: so does a change of the file."""
    limits: Limits = Field(default_factory=Limits)
    """Bounds of every session, of every user, and of the node."""
    denied_publish_311: DeniedPublish = DeniedPublish.ACKNOWLEDGE
    """What an MQTT 3.1.1 client sees of a denied publish, since that protocol cannot refuse one."""
    explain: Switch = False
    """Whether MQTT 5 clients are told which rule denied them."""
    tell_no_subscribers: Switch = True
    """Whether PUBACK tells an MQTT 5 publisher that nobody received its message (0x10). Under the preset `blp` it never
    does."""
    authentication: Authentication = Field(default_factory=Authentication)
    """How clients prove who they are, beyond passwords and certificates."""
    sys: Sys = Field(default_factory=Sys)
    """Statistics under `$SYS/`."""
    log: Log = Field(default_factory=Log)
    """Log lines."""
    keys: Keys = Field(default_factory=Keys)
    """Topic keys: which topics are encrypted, and for how long one key does."""
    store: StorePlace = Field(default=SQLITE, repr=False)
    """Where policies, people, keys and tokens that are administered over HTTP are kept: `sqlite`, a file in the data
    folder; or, for several nodes, `postgresql://USER@HOST/DATABASE`, with a password from `${NAME}`."""
    master_key: MasterKey | None = None
    """The keys under which secrets are stored. Default: one that is made in the data folder, in `master.key`."""
    http: Http | None = None
    """The HTTP interface. Default: none."""
    tokens: Tokens = Field(default_factory=Tokens)
    """Bearer tokens for the HTTP interface."""
    me: Me = Field(default_factory=Me)
    """What people learn when they ask about their own data."""
    sources: Sources = Field(default_factory=Sources)
    """Sources that register and send data over HTTP."""
    pipeline: Pipeline | None = None
    """The data pipeline on Spark. Default: none."""

    _source: Source | None = PrivateAttr(default=None)
    _parser: Parser | None = PrivateAttr(default=None)
    _built: Built | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _bus_alone(cls, written: Any) -> Any:
        """Where roles make all other scopes, the bus need not be listed."""
        match written:
            case {"brokering": {"preset": Preset.RBAC, "bus": str() as bus}} if "scopes" not in written:
                return {**written, "scopes": {bus: {}}} if PLAIN_NAME.fullmatch(bus) else written
            case _:
                return written

    @field_validator("levels", mode="wrap")
    @classmethod
    def _rank(cls, written: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Conditions compare levels by their order. While that is wrong, no condition is blamed for its names."""
        parser = parser_of(info) or Parser()
        parser.ranking = None
        levels = validate(written)
        parser.ranking = ranking(ORDER if levels is None else levels.order)
        return levels

    @field_validator("listeners")
    @classmethod
    def _only_scope(cls, listeners: tuple[Listener, ...], info: ValidationInfo) -> tuple[Listener, ...]:
        names = tuple(info.data.get("scopes", ()))
        if len(names) != 1:
            return listeners
        return tuple(
            listener if listener.scope else listener.model_copy(update={"scope": names[0]}) for listener in listeners
        )

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        layout = [*scopes.problems(self), *links.problems(self), *rbac.layout_problems(self)]
        yield from (*listeners.problems(self), *directory.problems(self), *repeated_ids(self))
        yield from (*administration.problems(self), *sources.problems(self), *layout)
        yield from identity_providers.problems(self)
        yield from pipeline.problems(self)
        yield from shadow.problems(self)
        if not layout:  # what refers to scopes and links would only be wrong in the same way
            yield from (*brokering.problems(self), *references.problems(self), *monitors.problems(self))

    @classmethod
    def ephemeral(cls, port: int = 1883) -> Config:
        """What runs without a file: open to everybody on this machine, and forgotten when it stops."""
        address = parse_address(f"mqtt://127.0.0.1:{port}")
        return cls(
            version=1,
            node=Node(name="ephemeral"),
            listeners=(Listener(url=address, anonymous=True),),
            policies=Policies.OPEN,
        )

    @property
    def control_socket(self) -> Path:
        """The path of the control socket: in the data folder, or in the user's runtime folder."""
        if self.node.data is not None:
            return self.node.data / "control.sock"
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        folder = Path(runtime) if runtime else Path(tempfile.gettempdir())
        return folder / f"tidegate-{os.getuid()}" / f"{self.node.name}-{self.listeners[0].url.port}.sock"

    @property
    def http_socket(self) -> Path:
        """Where the HTTP process asks the node: beside the control socket, with the rights of whoever asks it."""
        return self.control_socket.with_name(f"{self.control_socket.stem}-http.sock")

    @property
    def administered(self) -> bool:
        """Whether there is a store for documents that are administered over HTTP, now or from an earlier run."""
        if self.store != SQLITE:
            return True
        data = self.node.data
        wanted = self.http is not None or "store" in self.model_fields_set
        return data is not None and (wanted or (data / DATABASE).exists())

    def location(self, *path: str | int) -> Location:
        """Where this is said: in the file, or in a document."""
        if self._source is None:
            return Location(file="", line=0, path=path)
        return self._source.tree.location(path, self._source.file)

    def warnings(self) -> list[tuple[int, str]]:
        """What is allowed but probably not meant: (line, text), in the order of the file."""
        findings = (
            *shadow.warnings(self),
            *listeners.warnings(self),
            *administration.warnings(self),
            *sources.warnings(self),
            *links.warnings(self),
            *references.warnings(self),
            *lint.warnings(self),
            *monitors.warnings(self),
        )
        located = ((self.location(*path), text) for path, text in findings)
        return sorted(((location.line, location.warning(text)) for location, text in located), key=itemgetter(0))

    @property
    def built(self) -> Built:
        """What the gate decides by, made when first asked for. Raises `ConfigErrors`."""
        from tidegate.config.build import build

        if self._built is None:
            self._built = build(self, self._parser)
        return self._built

    @property
    def parser(self) -> Parser:
        """The one that parsed its conditions, or for a configuration that is made in Python, another."""
        if self._parser is None:
            parser = Parser()
            parser.functions.update(self.built.rules.functions)
            return parser
        return self._parser

    def warnings_of(self, documents: Collection[str]) -> list[tuple[str, str]]:
        """Names that nobody has in these documents, each `kind/id`."""
        located = ((self.location(*path), text) for path, text in references.unknown_names(self))
        return [(at.file, f"{at.name} {text}") for at, text in located if not at.line and at.file in documents]

    @property
    def source(self) -> Source | None:
        """The file that it was read from, and the documents laid over it."""
        return self._source

    def remember(self, source: Source, parser: Parser) -> None:
        """Keeps what it was read from, for the line numbers of warnings and later errors."""
        self._source, self._parser = source, parser

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but a copy that differs is built anew."""
        copy = super().model_copy(update=update, deep=deep)
        if update:
            copy._built = copy._parser = None
        return copy
