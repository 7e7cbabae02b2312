"""Brokering in the configuration: types of links, which may follow which, interfaces, and the presets.

What would let nothing pass and look as if somebody had meant it is refused: a type that occurs in no pair, a label
without a place in the order, a link between scopes without a type. The preset `rbac` is in `rbac`, `interface` in
`interfaces`; the filters of both are monitors like any other, with ids that the node gives (`generated_monitors`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, assert_never

from pydantic import Field, ValidationInfo, WithJsonSchema

from tidegate.config import interfaces, rbac
from tidegate.config.links import DirectedLink, LinkName, directed_links, no_link
from tidegate.config.parser import Parser, problem_text
from tidegate.config.policies import RULES, Subject, entries
from tidegate.config.problems import DocumentPath, Finding, remedy, requires
from tidegate.config.section import CheckedSection, Name, OneOrList, Section
from tidegate.errors import ConfigError
from tidegate.monitor import Attachment
from tidegate.policy import brokering
from tidegate.policy.brokering import PLAIN
from tidegate.policy.scopes import Way

if TYPE_CHECKING:
    from tidegate.config.model import Config

MAX_TYPES: Final = 256
"""Of a partial order all pairs are kept."""


class Preset(StrEnum):
    """Brokering policies that need not be written out."""

    OPEN = "open"
    COMPONENT = "component"
    BLP = "blp"
    RBAC = "rbac"


_PAIRS: Final[Mapping[Preset | None, brokering.Pairs]] = {
    Preset.COMPONENT: frozenset((("up", "up"), ("up", "down"), ("down", "down"))),
    Preset.RBAC: rbac.PAIRS,
}
"""Presets that know which types may follow which."""
_CLIENT_TYPES: Final[Mapping[Preset | None, brokering.Types]] = {
    Preset.COMPONENT: brokering.Types(inward="up", outward="down"),
    Preset.RBAC: rbac.CLIENT_TYPES,
}
_ONLY: Final = {"labels": Preset.BLP, "order": Preset.BLP, "bus": Preset.RBAC, "roles": Preset.RBAC}
"""Keys that only one preset knows."""


TypeName = Annotated[
    Name,
    requires(
        lambda name: name not in brokering.RESERVED,
        "is `{written}`, which the node calls links without a type; choose another name",
    ),
]
Pair = Annotated[
    tuple[TypeName, TypeName],
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}),
]


class Ends(Section):
    """Types of the two links of a client."""

    inward: TypeName | None = Field(default=None, alias="in")
    """Of the link from the client to the scope, over which it publishes."""
    outward: TypeName | None = Field(default=None, alias="out")
    """Of the link from the scope to the client, over which it receives."""

    def types(self, default: brokering.Types = brokering.NO_TYPES) -> brokering.Types:
        """The types of both links; a type that is left out is that of the default."""
        return brokering.Types(inward=self.inward or default.inward, outward=self.outward or default.outward)


class Default(Ends):
    """Types of all links that no assignment is about."""

    link: TypeName | None = None
    """Of the links between scopes."""


class Assignment(Ends, CheckedSection):
    """Types of the links of some clients, or the type of one link between scopes."""

    subject: Subject | None = Field(default=None, alias="client")
    """Whose links: a subject as in policies. The first assignment that selects a client counts. A type that is left out
    is that of `default`."""
    link: LinkName | None = None
    """Instead of `client`: the link from one scope to another, as `A->B`."""
    type: TypeName | None = None
    """With `link`: its type."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.link is None and self.subject is None:
            yield (), "is about nobody; add `client`, or `link` and `type`"
        elif self.link is None:
            if self.type is not None:
                yield ("type",), "has no effect beside `client`, which has two links; write `in` and `out`"
        else:
            if self.type is None:
                yield ("type",), "is missing, which `link` needs; add it"
            for key, written in (("client", self.subject), ("in", self.inward), ("out", self.outward)):
                if written is not None:
                    yield (key,), "has no effect beside `link`, which has one `type`; remove one of the two"


class Brokering(CheckedSection):
    """Over which links a message may leave, by the types of the links."""

    preset: Preset | None = None
    """`open`: over all of them. `component`: up to parents, then down to children, never up again. `blp`: labels, and a
    message never goes to a lower one (Bell-LaPadula). `rbac`: from what a role may publish, over a bus, to what roles
    may receive. Default: `open`, or own types if there is `allow`."""
    allow: tuple[Pair, ...] | None = Field(default=None, min_length=1)
    """Own types, as pairs: what came over a link of the first type may leave over one of the second. Nothing else
    may."""
    labels: tuple[TypeName, ...] | None = Field(default=None, min_length=1, max_length=MAX_TYPES)
    """With `blp`: the labels, lowest first."""
    order: Mapping[TypeName, tuple[TypeName, ...]] | None = Field(default=None, min_length=1, max_length=MAX_TYPES)
    """With `blp`, instead of `labels`: a partial order. Each label, and those below it; what follows from others need
    not be written."""
    bus: Name | None = None
    """With `rbac`: the scope that clients connect to, and the only one that is written. Each role has two more,
    `ROLE.pub` and `ROLE.sub`, which are linked with it; clients are placed there by their role."""
    roles: Mapping[rbac.RoleName, rbac.Rights] | None = Field(default=None, min_length=1)
    """With `rbac`: the roles of the directory that may connect, and their rights. Whoever connects has exactly one."""
    assign: tuple[Assignment, ...] = ()
    """Which links have which types. With `component` only for links between scopes that are not parent and child."""
    default: Default = Field(default_factory=Default)
    """Types of all other links. Clients' links without a type let nothing pass; with `blp`, clients without labels
    cannot connect. A link between scopes must have a type."""
    interface: OneOrList[interfaces.Interface] = ()
    """What scopes tell their parents and take from them, one or a list: short for monitors that are filters."""

    def _problems(self, info: ValidationInfo) -> list[Finding]:
        return list(self._useless()) or list(self._wrong())

    @property
    def labelled(self) -> bool:
        return self.preset is Preset.BLP

    @property
    def expanded(self) -> dict[str, tuple[str, str]]:
        """With `rbac`: the two scopes of each role."""
        return rbac.expanded(self.roles or ())

    @property
    def otherwise(self) -> brokering.Types:
        """The types of clients that no assignment selects."""
        return _CLIENT_TYPES.get(self.preset) or self.default.types()

    @property
    def pairs(self) -> brokering.Pairs | None:
        """What may follow what; None: everything. ConfigError if labels have no order."""
        if self.preset in _PAIRS:
            return _PAIRS[self.preset]
        if self.labels is not None:
            return brokering.chain(self.labels)
        if self.order is not None:
            return brokering.ordered(self.order)
        return None if self.allow is None else frozenset(self.allow)

    def _useless(self) -> Iterator[Finding]:
        """Keys that have no effect with this preset, and keys that it needs."""
        written = self.model_fields_set
        for key, preset in _ONLY.items():
            if key in written and self.preset is not preset:
                yield (key,), f"has no effect without `preset: {preset}`; add that, or remove it"
        if self.preset is not None and self.allow is not None:
            yield ("allow",), f"has no effect with `preset: {self.preset}`; remove it, or the preset"
        match self.preset:
            case Preset.BLP:
                if self.labels is None and self.order is None:
                    yield (
                        ("labels",),
                        "is missing, which `blp` needs; list the labels, lowest first, or write an `order`",
                    )
                if self.labels is not None and self.order is not None:
                    yield ("order",), "is a second order beside `labels`; remove one of them"
            case Preset.COMPONENT:
                useless = "has no effect with `preset: component`, where links"
                if "default" in written:
                    yield ("default",), f"{useless} are `up` or `down`; remove it"
                for index, entry in enumerate(self.assign):
                    if entry.subject is not None:
                        text = f"{useless} from clients are `up` and those to them `down`; remove it"
                        yield ("assign", index, "client"), text
            case Preset.RBAC:
                if self.bus is None:
                    yield ("bus",), "is missing, which `rbac` needs; name the scope that clients connect to"
                if self.roles is None:
                    yield ("roles",), "is missing, which `rbac` needs; add at least one role, with `pub` and `sub`"
                for key in ("assign", "default", "interface"):
                    if key in written:
                        yield (key,), "has no effect with `preset: rbac`, which makes its own links; remove it"
            case Preset.OPEN | None:
                for key in ("assign", "default") if self.allow is None else ():
                    if key in written:
                        text = "has no effect while brokering is open; add `allow` or `preset: blp`, or remove it"
                        yield (key,), text
            case _:
                assert_never(self.preset)

    def _wrong(self) -> Iterator[Finding]:
        """Unknown types, and clients that write to a lower label than they read."""
        try:
            pairs = self.pairs
        except ConfigError as error:
            yield ("labels" if self.order is None else "order",), f"is wrong: {problem_text(error)}"
            return
        policy = brokering.Brokering(pairs, labelled=self.labelled)
        if len(policy.known) > MAX_TYPES:
            yield ("allow" if self.order is None else "order",), f"has more than {MAX_TYPES} types; use fewer"
            return
        rows: list[tuple[DocumentPath, Default | Assignment]] = [
            *((("assign", index), entry) for index, entry in enumerate(self.assign)),
            (("default",), self.default),
        ]
        for path, ends in rows:
            unknown = list(_unknown(ends, policy.known, self.preset))
            yield from (((*path, key), text) for key, text in unknown)
            of_link = isinstance(ends, Assignment) and ends.link is not None
            if self.labelled and not unknown and not of_link:
                types = ends.types(self.default.types())
                yield from ((path, text) for text in _labels(policy, types, ends is not self.default))


def _unknown(ends: Default | Assignment, known: frozenset[str], preset: Preset | None) -> Iterator[tuple[str, str]]:
    component = preset is Preset.COMPONENT
    how = "write `up` or `down`" if component else "write it among the labels, or into a pair of `allow`"
    of_link = ("type", ends.type) if isinstance(ends, Assignment) else ("link", ends.link)
    for key, name in (("in", ends.inward), ("out", ends.outward), of_link):
        if name is not None and name not in known:
            yield key, f"names the unknown type `{name}`; {remedy(name, known, how)}"


def _labels(policy: brokering.Brokering, types: brokering.Types, needed: bool) -> Iterator[str]:
    """What is wrong with the labels of a client. The default may be incomplete: it only fills in missing types."""
    if types.complete:
        if not policy.falls_nowhere(types):
            high, low = types.outward, types.inward
            yield f"reads `{high}` (out) and writes `{low}` (in), which is not as high; raise `in`, or lower `out`"
    elif needed:
        key = "in" if types.inward == brokering.UNTYPED else "out"
        yield f"has no label `{key}`, and neither has `default`; add one"


# -- with scopes and links -------------------------------------------------------------------------------------------


def link_types(config: Config) -> dict[str, str | None]:
    """The type of every link between scopes, by its name; None: it has none."""
    section = config.brokering
    assigned = {entry.link: entry.type for entry in section.assign if entry.link is not None}
    return {joint.name: _type(section, assigned, joint) for joint in directed_links(config)}


def _type(section: Brokering, assigned: dict[str, str | None], joint: DirectedLink) -> str | None:
    match section.preset:
        case Preset.COMPONENT:
            return assigned.get(joint.name) if joint.way is Way.ACROSS else joint.way.value
        case Preset.RBAC:
            return rbac.link_type(joint)
        case Preset.BLP:
            return assigned.get(joint.name, section.default.link)
        case Preset.OPEN | None:
            return PLAIN.inward if section.allow is None else assigned.get(joint.name, section.default.link)
        case _:
            assert_never(section.preset)


def generated_monitors(config: Config, parser: Parser) -> Iterator[Attachment]:
    """The filters of interfaces, then those of roles: on links between scopes, and not written as monitors."""
    yield from interfaces.filters(config, parser)
    yield from rbac.filters(config, parser)


def problems(config: Config) -> Iterator[Finding]:
    """Types, interfaces and roles that do not fit the scopes and links."""
    yield from _assigned(config)
    yield from _untyped(config)
    yield from interfaces.problems(config)
    yield from rbac.role_problems(config)
    yield from _taken(config)


def _assigned(config: Config) -> Iterator[Finding]:
    known = {joint.name: joint for joint in directed_links(config)}
    first: dict[str, int] = {}
    for index, entry in enumerate(config.brokering.assign):
        if entry.link is None:
            continue
        at = ("brokering", "assign", index, "link")
        if entry.link not in known:
            yield at, no_link(entry.link, known)
        elif entry.link in first:
            other = f"brokering.assign[{first[entry.link]}]"
            yield at, f"is `{entry.link}`, and so is that of `{other}`; remove one of them"
        elif config.brokering.preset is Preset.COMPONENT and known[entry.link].way is not Way.ACROSS:
            way = known[entry.link].way.value
            yield at, f"is `{entry.link}`, which is `{way}` because one is the parent of the other; remove it"
        first.setdefault(entry.link, index)


def _untyped(config: Config) -> Iterator[Finding]:
    types = link_types(config)
    without: dict[DocumentPath, list[str]] = {}
    for joint in directed_links(config):
        if types[joint.name] is None:
            without.setdefault(joint.at, []).append(joint.name)
    default = "" if config.brokering.preset is Preset.COMPONENT else ", or set `brokering.default.link`"
    for at, names in without.items():
        untyped = " and ".join(f"`{name}`" for name in names)
        how = f'add `{{link: "{names[0]}", type: …}}` to `brokering.assign`{default}'
        yield at, f"has no type for {untyped}, so nothing would pass there; {how}"


def _taken(config: Config) -> Iterator[Finding]:
    generated = {monitor.id for monitor in generated_monitors(config, Parser())}
    for section in RULES if generated else ():
        for index, entry in enumerate(entries(config, section)):
            if entry.id in generated:
                text = f"is `{entry.id}`, which the node calls one of its own filters; choose another id"
                yield (section, index, "id"), text
