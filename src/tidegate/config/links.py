"""Links between scopes in the configuration: parents, `links`, and the names by which others speak of them.

`directed_links` lists all links once, each direction by itself, with its place in the file. Whoever checks a name or
gives a type uses that list.

A link with `via` or `peer` leads to a scope of another node, which is not among `scopes`: exactly one of its ends is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field, ValidationInfo

from tidegate import policy
from tidegate.config.address import FarAddress
from tidegate.config.listeners import ClientCert
from tidegate.config.parser import Parser, problem_text
from tidegate.config.policies import Filter
from tidegate.config.problems import (
    PLAIN_NAME,
    DocumentPath,
    Finding,
    path_text,
    refusal,
    remedy,
    requires,
    suggestion,
    unknown,
)
from tidegate.config.section import CheckedSection, FilePath, Identity, Name, Section
from tidegate.config.units import Count, Duration, Switch
from tidegate.errors import ConfigError
from tidegate.flow.forest import Cycle, TwoPaths, forest_fault
from tidegate.policy.failover import Failover as Strategy
from tidegate.policy.failover import Mode
from tidegate.policy.scopes import ALL, Forward, Overflow, Way
from tidegate.policy.scopes import TopicMapping as Crossing
from tidegate.policy.trust_list import certificate_fingerprint

if TYPE_CHECKING:
    from tidegate.config.model import Config

SCOPE: Final = "scope:"
LISTED: Final = "listed"
FINGERPRINT: Final = "sha256:"
"""How the fingerprint of a certificate begins, where a subject might stand too."""


class ShareDirection(StrEnum):
    """In which directions something crosses."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


# -- names -----------------------------------------------------------------------------------------------------------


def ends(written: str) -> tuple[str, str]:
    """Source and target of a link by full name. Raises a refusal."""
    parts = [part.strip() for part in written.split("->")]
    if len(parts) != 2:
        raise refusal("is no link; write it as `from->to`, for example `client:lock->home`")
    source, target = map(_entity, parts)
    if source == target:
        raise refusal("begins and ends at the same place; write two different ones")
    if not source.startswith(SCOPE) and not target.startswith(SCOPE):
        raise refusal("has no scope at either end; clients are linked with scopes, not with each other")
    return source, target


def _entity(written: str) -> str:
    if written.startswith("client:") and written != "client:":
        return written
    bare = written.removeprefix(SCOPE)
    if not PLAIN_NAME.fullmatch(bare):
        raise refusal(f"has `{written}` at one end; write a scope by its name, and a client as `client:ID`")
    return f"{SCOPE}{bare}"


def between(written: str) -> str:
    """The name of a link of two scopes, `A->B`, however it is written. Raises a refusal."""
    source, target = ends(written)
    if not (source.startswith(SCOPE) and target.startswith(SCOPE)):
        raise refusal("has a client at one end; write `client` instead of `link`, with `in` and `out`")
    return f"{source.removeprefix(SCOPE)}->{target.removeprefix(SCOPE)}"


_RESERVED: Final = "begins with `$`, and reserved topics never cross; choose another one"
LinkName = Annotated[str, AfterValidator(between)]
Prefix = Annotated[
    str,
    requires(
        lambda prefix: not set("+#\0") & set(prefix),
        "is put in front of topics as it is; write it without `+` and `#`",
    ),
    requires(lambda prefix: not prefix.startswith("$"), _RESERVED),
]


def _peer(written: str) -> str:
    try:
        if written == LISTED:
            return written
        if not written.startswith(FINGERPRINT):
            policy.Trust(policy.By.SUBJECT, (written,))
            return written
        return f"{FINGERPRINT}{certificate_fingerprint(written)}"
    except ConfigError as error:
        raise refusal(f"is wrong: {problem_text(error)}") from None


PeerName = Annotated[str, AfterValidator(_peer)]


# -- sections --------------------------------------------------------------------------------------------------------


class TopicMapping(CheckedSection):
    """Topics that cross a link."""

    topic: Filter
    """A topic filter, without the prefixes. A topic crosses by the first entry that matches it."""
    direction: ShareDirection = ShareDirection.OUT
    """`out`: from `from` to `to`. `in`: the other way. `both`: either."""
    qos: Count = Field(default=2, ge=0, le=2)
    """The highest QoS with which they cross."""
    local_prefix: Prefix = ""
    """What stands in front of them on the side of `from`."""
    remote_prefix: Prefix = ""
    """What stands in front of them on the side of `to`."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.topic.startswith("$") and not (self.local_prefix and self.remote_prefix):
            yield ("topic",), _RESERVED


class BrokerVersion(StrEnum):
    """The protocol that a foreign broker is spoken to in."""

    MQTT_5 = "5"
    MQTT_311 = "3.1.1"


class Broker(CheckedSection):
    """A foreign broker at the other end of a link, and how this node connects to it as a client."""

    version: BrokerVersion = BrokerVersion.MQTT_5
    """The version of MQTT: `"5"` or `"3.1.1"`."""
    client: Identity | None = None
    """The client id of this node there. Default: the name of the node and that of the link."""
    user: str | None = None
    """Its user name there."""
    password: str | None = Field(default=None, repr=False)
    """Its password there. Keep it in the environment: `${NAME}`."""
    ca: FilePath | None = None
    """Certificates (PEM) of the authorities that may have signed that of the broker. Default: `node.ca`, and without
    that those that the system knows."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.password is not None and self.user is None:
            yield ("password",), "has no effect without `user`; add that, or remove it"


class Failover(Section):
    """How a link to another node uses the addresses of `via`: the first is its default, the others are backups."""

    mode: Mode = Mode.ON_DEMAND
    """`on_demand`: a backup is opened when the default cannot be reached any more. `active`: all are open, and one
    carries, so that another can take over at once."""
    attempts: Count = Field(default=4, ge=1, le=1000)
    """How often the default is tried, with `on_demand`, before a backup is opened."""
    interval: Duration = Field(default=3.0, ge=0.01, le=3600)
    """The time from one attempt to the next. An attempt that takes longer is given up."""
    restore: Duration | None = Field(default=30.0, ge=0.01, le=86400)
    """How often the default is tried again while a backup carries; with `active`, how long the default must have been
    there before it carries again. `null`: the backup goes on carrying."""
    heartbeat: Duration = Field(default=1.0, ge=0.02, le=300)
    """How often each connection is tested. One over which nothing comes for three heartbeats is lost."""
    overload: Count | None = Field(default=None, ge=1)
    """While the default has more messages than this in its queue and does not catch up, a backup carries. Default: only
    a loss counts."""

    @property
    def built(self) -> Strategy:
        return Strategy(
            mode=self.mode,
            attempts=self.attempts,
            interval=self.interval,
            restore=self.restore,
            heartbeat=self.heartbeat,
            overload=self.overload,
        )


class Link(CheckedSection):
    """Two scopes that are joined, neither of which is the parent of the other. With `via` or `peer` one of them is a
    scope of another node."""

    source: Name = Field(alias="from")
    """One of the two scopes."""
    target: Name = Field(alias="to")
    """The other one. A scope of another node has the same name at both ends of the link."""
    direction: ShareDirection = ShareDirection.BOTH
    """Without `share`: whether everything crosses `out` (from `from` to `to`), `in` (the other way), or `both`."""
    share: tuple[TopicMapping, ...] | None = Field(default=None, min_length=1)
    """What crosses. Default: everything. A direction in which nothing is shared has no link."""
    via: tuple[FarAddress, ...] = Field(default=(), min_length=1, max_length=16)
    """For a scope of another node or a foreign broker: where that is, the preferred address first. `mqtts://`, host,
    and port (default 8883); for a foreign broker, and as a backup, also `mqtt://` (1883). Default: the other end
    connects."""
    peer: PeerName | None = None
    """For a scope of another node: the certificate that the other end must have, as a subject such as
    `CN=remotegym,O=MyGymBrand`, or as `sha256:` and its fingerprint; nobody else is let in. `listed`, the default with
    `via`: one that `trust.accept` lists, and others as `trust.otherwise` says."""
    export: tuple[Name, ...] = ()
    """For a scope of another node: attributes of publishers that it is told. Those that an owner's own preferences read
    as `p.NAME` go along anyway. Which of them count there is said by `trust.domains` there."""
    broker: Broker | None = None
    """The other end is no Tidegate node, but any MQTT broker: an ordinary bridge. `{}` is enough."""
    trusted: Switch = True
    """For a scope of another node: whether that is believed. `false`, at either end: nothing but the id and the way of
    a message travels, the other node has to be allowed all of what crosses, and what comes was published by the
    link."""
    plain_backup: Switch = False
    """For a scope of another node that connects here: whether it may come without a certificate, by a listener such as
    `mqtt://`, while there is no trusted connection. Over it goes only what `trusted: false` would let go; the rest
    waits. Nobody knows who is at its other end, and what that acknowledges counts as delivered."""
    sign: Switch = False
    """For a scope of another node: what leaves is signed by the node that made it, and nothing comes in without such a
    signature, of a node that speaks for the domain of its publisher. Signatures of other nodes go along anyway."""
    overflow: Overflow = Overflow.DROP
    """What happens when the queue of the link is full: `drop`: the oldest message goes. `refuse`: publishers are
    refused (0x97) before anything is delivered."""
    forward: Forward = Forward.ALL
    """What of all that crosses this end sends to another node: `all`, or only what matches `subscriptions` there."""
    failover: Failover | None = None
    """For several addresses in `via`: when which of them is used. Default: they are tried in order, and the first that
    answers is kept until it is lost."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.share is not None and "direction" in self.model_fields_set:
            yield ("direction",), "has no effect beside `share`, where each entry says its own; remove it"
        if self.source == self.target:
            yield ("to",), f"is `{self.target}`, as `from` is; name two different scopes"
        if self.export and (self.broker is not None or not self.remote):
            yield (
                ("export",),
                "tells another Tidegate node of publishers, and there is none at the other end; remove it",
            )
        if not self.remote and "overflow" in self.model_fields_set:
            text = "has no effect inside a node; add `via` or `peer` if another has the scope, or remove it"
            yield ("overflow",), text
        if not self.remote and "forward" in self.model_fields_set:
            text = "has no effect inside a node; add `via` or `peer` if another has the scope, or remove it"
            yield ("forward",), text
        if self.sign and (self.broker is not None or not self.trusted or not self.remote or self.plain_backup):
            yield ("sign",), "needs a trusted Tidegate node at the other end, over each connection; remove it"
        if self.broker is not None and not self.via:
            yield ("broker",), "is connected to by this node; add `via` with its address"
        if not self.trusted and self.broker is not None:
            yield ("trusted",), "has no effect with `broker`, which is never believed; remove it"
        elif not self.trusted and self.forward is Forward.SUBSCRIPTIONS:
            yield ("forward",), "is of no use where nothing is believed that the other node says; remove it"
        if self.broker is not None and self.forward is Forward.SUBSCRIPTIONS:
            yield ("forward",), "needs a Tidegate node at the other end, which tells what is subscribed to; remove it"
        if self.broker is not None and self.failover is not None:
            yield ("failover",), "needs a Tidegate node at the other end; remove it: addresses are tried in order"
        if self.failover is not None and len(self.via) < 2:
            text = "chooses between addresses, and `via` has" + (" one" if self.via else " none")
            yield ("failover",), f"{text}; add another one to `via`, or remove it"
        if self.plain_backup and (self.via or self.broker is not None or not self.remote):
            yield ("plain_backup",), "is said where the other node connects; remove it here"
        if self.peer == LISTED and self.broker is not None:
            yield ("peer",), "is of no use for a foreign broker; name its certificate, or remove it"
        for index, address in enumerate(self.via):
            if not address.tls and self.broker is None:
                if index == 0:
                    text = "is not encrypted, and nodes prove to each other who they are; write mqtts://"
                    yield ("via", index), f"{text}, or `broker: {{}}` if it is no Tidegate node"
                elif self.failover is None or self.failover.restore is None:
                    text = "is not encrypted, and good for a backup only; add `failover` with `restore`"
                    yield ("via", index), f"{text}, so that a better connection is looked for, or write mqtts://"
            if address in self.via[:index]:
                yield ("via", index), f"is `{address}` again; remove one of the two"

    @property
    def remote(self) -> bool:
        """Whether it leads to a scope of another node."""
        return bool(self.via) or self.peer is not None or self.broker is not None

    def towards(self) -> set[ShareDirection]:
        """The directions in which something crosses: `out`, `in`, or these two."""
        directions = {self.direction} if self.share is None else {each.direction for each in self.share}
        return {ShareDirection.OUT, ShareDirection.IN} if ShareDirection.BOTH in directions else directions

    def crossings(self, parser: Parser, *, outward: bool) -> tuple[Crossing, ...]:
        wanted = ShareDirection.OUT if outward else ShareDirection.IN
        if wanted not in self.towards():
            return ()
        if self.share is None:
            return ALL
        crossings = (
            Crossing(filter=parser.filter(each.topic), here=each.local_prefix, there=each.remote_prefix, qos=each.qos)
            for each in self.share
            if each.direction in (wanted, ShareDirection.BOTH)
        )
        return tuple(crossing if outward else crossing.turned for crossing in crossings)


# -- what is joined --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectedLink:
    """A directed link between two scopes, and where the file says so."""

    source: str
    target: str
    way: Way
    at: DocumentPath
    entry: Link | None = None
    """The entry that says what crosses; None: everything does."""
    bridge: bool = False
    """Another broker's bridge, which is a client of a guarded scope."""

    @property
    def remote(self) -> bool:
        """Whether one end is at another node."""
        return self.bridge or (self.entry is not None and self.entry.remote)

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    def crossings(self, parser: Parser, *, back: bool = False) -> tuple[Crossing, ...]:
        """What crosses, or what crosses the link in the other direction."""
        if self.entry is None:
            return ALL
        return self.entry.crossings(parser, outward=(self.source == self.entry.source) is not back)


def scope_names(config: Config) -> tuple[str, ...]:
    """All scopes: those that are written, and those that roles are expanded to."""
    return (*config.scopes, *(name for rights in config.brokering.expanded.values() for name in rights))


def remote_scopes(config: Config) -> tuple[str, ...]:
    """The scopes of other nodes that links lead to."""
    ends = [name for entry in config.links if entry.remote for name in (entry.source, entry.target)]
    ends += [name for scope in config.scopes.values() for name in scope.bridges]
    return tuple(dict.fromkeys(name for name in ends if name not in config.scopes))


def directed_links(config: Config) -> Iterator[DirectedLink]:
    """All links between scopes: with parents, then of `links`, then of roles with the bus."""
    for name, scope in config.scopes.items():
        for index, parent in enumerate(scope.parents):
            yield from _family(name, parent, ("scopes", name, "parents", index))
    for index, entry in enumerate(config.links):
        for towards, source, target in (
            (ShareDirection.OUT, entry.source, entry.target),
            (ShareDirection.IN, entry.target, entry.source),
        ):
            if towards in entry.towards():
                yield DirectedLink(source=source, target=target, way=Way.ACROSS, at=("links", index), entry=entry)
    for name, scope in config.scopes.items():
        for environment in scope.bridges:
            at: DocumentPath = ("scopes", name, "bridges", environment)
            for source, target in ((environment, name), (name, environment)):
                yield DirectedLink(source=source, target=target, way=Way.ACROSS, at=at, bridge=True)
    for role, scopes in config.brokering.expanded.items():
        for name in scopes:
            yield from _family(name, config.brokering.bus or "", ("brokering", "roles", role))


def _family(child: str, parent: str, at: DocumentPath) -> Iterator[DirectedLink]:
    yield DirectedLink(source=child, target=parent, way=Way.UP, at=at)
    yield DirectedLink(source=parent, target=child, way=Way.DOWN, at=at)


def no_link(name: str, known: Collection[str]) -> str:
    """The text for a link that does not exist."""
    source, _, target = name.partition("->")
    back = f"{target}->{source}"
    meant = back if back in known else suggestion(name, known)
    how = f"did you mean `{meant}`?" if meant else "add it under `links`, or as one of a scope's `parents`"
    return f"names the unknown link `{name}`; {how}"


def problems(config: Config) -> Iterator[Finding]:
    """Scopes that do not exist, that are linked twice, or that are above themselves."""
    known = tuple(config.scopes)
    joined: dict[frozenset[str], str] = {}
    for name, scope in config.scopes.items():
        for index, parent in enumerate(scope.parents):
            at: DocumentPath = ("scopes", name, "parents", index)
            if parent not in config.scopes:
                yield at, unknown("scope", parent, known, "scopes")
            elif parent in scope.parents[:index]:
                yield at, f"is `{parent}` again; remove one of the two"
            joined.setdefault(frozenset((name, parent)), path_text(at))
    for index, entry in enumerate(config.links):
        at = ("links", index)
        pair = frozenset((entry.source, entry.target))
        if entry.remote:
            yield from _remote(config, at, entry)
        else:
            for key, name in (("from", entry.source), ("to", entry.target)):
                if name not in config.scopes:
                    how = remedy(name, known, "add it under `scopes`, or `via` or `peer` if another node has it")
                    yield (*at, key), f"names the unknown scope `{name}`; {how}"
        if pair in joined:
            yield at, f"joins `{entry.source}` and `{entry.target}`, as {joined[pair]} does; remove one of the two"
        joined.setdefault(pair, path_text(at))
    match fault := forest_fault({name: scope.parents for name, scope in config.scopes.items()}):
        case Cycle(path) | TwoPaths(path):
            yield ("scopes", path[0], "parents"), f"is wrong: {problem_text(ConfigError(str(fault)))}"


def _remote(config: Config, at: DocumentPath, entry: Link) -> Iterator[Finding]:
    """What a link to another node lacks at this one."""
    here = [name for name in (entry.source, entry.target) if name in config.scopes]
    if len(here) == 2:
        key = "via" if entry.via else "peer"
        yield (*at, key), "is of no use between two scopes of this node; remove it, or name a scope of the other node"
    elif not here:
        how = remedy(entry.source, config.scopes, "name a scope of this node in `from` or `to`")
        yield at, f"joins `{entry.source}` and `{entry.target}`, and neither is a scope of this node; {how}"
    if entry.sign and config.node.cert is None and not any(each.cert is not None for each in config.listeners):
        yield (*at, "sign"), "needs a certificate to sign with; add `node.cert` and `node.key`"
    if entry.broker is not None:
        if entry.peer is not None and not all(address.tls for address in entry.via):
            text = "names a certificate, and an address in `via` is not encrypted; write mqtts://, or remove `peer`"
            yield (*at, "peer"), text
    elif entry.via:
        for key in ("cert", "ca"):
            if getattr(config.node, key) is None:
                text = f"is missing, which {path_text(at)} needs: nodes prove to each other who they are; add it"
                yield ("node", key), text
        if entry.peer in (None, LISTED) and not (config.trust is not None and config.trust.accept):
            text = "is missing" if entry.peer is None else "is `listed`"
            yield (
                (*at, "peer"),
                f"{text}, and there is no `trust.accept`, so no node would be trusted; add one of the two",
            )
    elif entry.peer == LISTED and not (config.trust is not None and config.trust.accept):
        text = "is `listed`, and there is no `trust.accept`, so no node would be trusted; add that, or name the node"
        yield (*at, "peer"), text
    elif not any(each.url.tls and each.client_cert is not ClientCert.NONE for each in config.listeners):
        text = "has no `via`, so the other end connects, and no listener asks for a certificate; add `via`"
        yield at, f"{text}, or an mqtts:// listener with `client_cert: optional` and `client_ca`"


def warnings(config: Config) -> Iterator[Finding]:
    """Scopes that nothing can come into."""
    entered = {listener.scope for listener in config.listeners}
    linked = {name for joint in directed_links(config) for name in (joint.source, joint.target)}
    for name in config.scopes:
        if name not in entered and name not in linked:
            text = "has neither a listener nor links, so nothing can come into it; add one, or remove the scope"
            yield ("scopes", name), text
