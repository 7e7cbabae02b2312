"""Brokering in the configuration: types of clients' links, and which may follow which.

Names are checked here, with their place: a type that occurs in no pair, or a label without a place in the order, would
let nothing pass and look as if somebody had meant it. What needs several scopes is refused (see `load.NOT_YET`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator, model_validator

from tidegate.config.checks import Finding
from tidegate.config.deciding import Subject, together
from tidegate.config.problems import suggestion
from tidegate.config.section import Name, Section, not_yet
from tidegate.config.units import refusal
from tidegate.config.vocabulary import sentence
from tidegate.errors import ConfigError
from tidegate.policy import brokering

MAX_TYPES: Final = 256
"""Of a partial order all pairs are kept."""


class Preset(StrEnum):
    """Brokering policies that need not be written out."""

    OPEN = "open"
    COMPONENT = "component"
    BLP = "blp"
    RBAC = "rbac"


def _type(written: str) -> str:
    if written in brokering.RESERVED:
        raise refusal(f"is `{written}`, which the node calls links without a type; choose another name")
    return written


TypeName = Annotated[Name, AfterValidator(_type)]
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
        """Both, with those of the default where one is left out."""
        return brokering.Types(inward=self.inward or default.inward, outward=self.outward or default.outward)


class Assignment(Ends):
    """Types of the links of some clients. A type that is left out is that of `default`."""

    subject: Subject = Field(alias="client")
    """Whose links: a subject as in policies. The first assignment that selects a client counts."""


class Brokering(Section):
    """Over which links a message may leave, by the types of the links."""

    preset: Preset | None = None
    """`open`: over all of them. `blp`: labels, and a message never goes to a lower one (Bell-LaPadula). `component` and
    `rbac` are not supported yet. Default: `open`, or own types if there is `allow`."""
    allow: tuple[Pair, ...] | None = Field(default=None, min_length=1)
    """Own types, as pairs: what came over a link of the first type may leave over one of the second. Nothing else
    may."""
    labels: tuple[TypeName, ...] | None = Field(default=None, min_length=1, max_length=MAX_TYPES)
    """With `blp`: the labels, lowest first."""
    order: Mapping[TypeName, tuple[TypeName, ...]] | None = Field(default=None, min_length=1, max_length=MAX_TYPES)
    """With `blp`, instead of `labels`: a partial order. Each label, and those below it; what follows from others need
    not be written."""
    assign: tuple[Assignment, ...] = ()
    """Whose links have which types."""
    default: Ends = Field(default_factory=Ends)
    """Types of the links of all other clients. Without them: nothing passes over these links; with `blp`, clients
    without labels cannot connect."""

    @field_validator("preset")
    @classmethod
    def _one_scope(cls, preset: Preset | None) -> Preset | None:
        if preset in (Preset.COMPONENT, Preset.RBAC):
            raise not_yet(f"as `{preset}`, which is for several scopes,")
        return preset

    @model_validator(mode="after")
    def _together(self) -> Self:
        found = list(self._useless()) or list(self._wrong())
        if found:
            raise together(found)
        return self

    @property
    def labelled(self) -> bool:
        return self.preset is Preset.BLP

    def types(self, ends: Ends) -> brokering.Types:
        """The types that an assignment, or the default, gives."""
        return ends.types(self.default.types())

    @property
    def pairs(self) -> brokering.Pairs | None:
        """What may follow what; None: everything. ConfigError if labels have no order."""
        if self.labels is not None:
            return brokering.chain(self.labels)
        if self.order is not None:
            return brokering.ordered(self.order)
        return None if self.allow is None else frozenset(self.allow)

    def _useless(self) -> Iterator[Finding]:
        """What is written and would not count, or is not there and has to be."""
        said = self.model_fields_set
        if self.labelled:
            if self.labels is None and self.order is None:
                yield ("labels",), "is missing, which `blp` needs; list the labels, lowest first, or write an `order`"
            if self.labels is not None and self.order is not None:
                yield ("order",), "is a second order beside `labels`; remove one of them"
            if self.allow is not None:
                yield ("allow",), "has no effect with `preset: blp`; remove it, or the preset"
            return
        for key in ("labels", "order"):
            if key in said:
                yield (key,), "has no effect without `preset: blp`; add that, or remove it"
        if self.allow is None:
            for key in ("assign", "default"):
                if key in said:
                    yield (key,), "has no effect while brokering is open; add `allow` or `preset: blp`, or remove it"
        elif self.preset is Preset.OPEN:
            yield ("allow",), "has no effect with `preset: open`; remove it, or the preset"

    def _wrong(self) -> Iterator[Finding]:
        """Types that there are not, and labels that fall."""
        try:
            pairs = self.pairs
        except ConfigError as error:
            yield ("labels" if self.order is None else "order",), f"is wrong: {sentence(error)}"
            return
        made = brokering.Brokering(pairs, labelled=self.labelled)
        if len(made.known) > MAX_TYPES:
            yield ("allow" if self.order is None else "order",), f"has more than {MAX_TYPES} types; use fewer"
            return
        rows = [(("assign", at), one) for at, one in enumerate(self.assign)]
        for path, ends in (*rows, (("default",), self.default)):
            wrong = list(_unknown(ends, made.known))
            yield from (((*path, key), text) for key, text in wrong)
            if self.labelled and not wrong:
                yield from ((path, text) for text in _labels(made, self.types(ends), isinstance(ends, Assignment)))


def _unknown(ends: Ends, known: frozenset[str]) -> Iterator[tuple[str, str]]:
    for key, name in (("in", ends.inward), ("out", ends.outward)):
        if name is not None and name not in known:
            meant = suggestion(name, known)
            yield key, f"names the unknown type `{name}`; {_remedy(meant)}"


def _labels(made: brokering.Brokering, types: brokering.Types, needed: bool) -> Iterator[str]:
    """What is wrong with the labels of a client. Those of the default may be incomplete: it only fills up."""
    if types.complete:
        if not made.falls_nowhere(types):
            high, low = types.outward, types.inward
            yield f"reads `{high}` (out) and writes `{low}` (in), which is not as high; raise `in`, or lower `out`"
    elif needed:
        key = "in" if types.inward == brokering.UNTYPED else "out"
        yield f"has no label `{key}`, and neither has `default`; add one"


def _remedy(meant: str) -> str:
    return f"did you mean `{meant}`?" if meant else "write it among the labels, or into a pair of `allow`"
