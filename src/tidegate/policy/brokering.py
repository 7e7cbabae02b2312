"""Brokering: over which links a message may leave, by the type of the link it came over (semantics, *Brokering*).

Every directed link has a type. What came over a link of type t1 may leave over one of type t2 iff (t1, t2) is among
the allowed pairs. A client's connection is two links, and so has two types: `in` for what it publishes, `out` for what
it receives. The first assignment whose selector matches gives them, or the default.

Invariants
- What has no type, or one that is not known here, is in no pair: nothing passes.
- Under Bell-LaPadula (scopes, 3.4.1.1) the pairs are a partial order, and a device's `out` label is at most its `in`
  label, so that labels never fall on any path, also through devices.
- Statistics of the node itself (`service:sys`) come over no link and are of no type: they pass. Who reads them is a
  matter of policies. Other services have types like clients.

It does not know which links there are, and types of links between scopes are not assigned here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final

from tidegate.errors import ConfigError
from tidegate.policy.domains import NO_DOMAINS, Domains
from tidegate.policy.selector import Selector, Term, terms_of
from tidegate.policy.subject import Subject

UNTYPED: Final = "untyped"
RESERVED: Final = frozenset(("in", "out", UNTYPED))
"""What links are called that nobody has given a type. No type can be called so: messages keep the type by its name."""

Pairs = frozenset[tuple[str, str]]

SEVERAL: Final = "\n"
"""Between the types of a retained message that came over several links. No type has it in its name."""


def came_over(link: str) -> Sequence[str]:
    return link.split(SEVERAL) if SEVERAL in link else (link,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Types:
    """Of the two links of a client."""

    inward: str = UNTYPED
    """From the client to the scope."""
    outward: str = UNTYPED
    """From the scope to the client."""

    @property
    def complete(self) -> bool:
        return UNTYPED not in (self.inward, self.outward)


NO_TYPES: Final = Types()
PLAIN: Final = Types(inward="in", outward="out")
"""Where every link is like any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    subject: Selector
    types: Types


class Brokering:
    """Which link types there are, whose links have them, and which may follow which. Without pairs: open."""

    def __init__(
        self,
        allow: Iterable[tuple[str, str]] | None = None,
        assign: Sequence[Assignment] = (),
        default: Types = NO_TYPES,
        *,
        labelled: bool = False,
        domain: str = "",
        domains: Domains = NO_DOMAINS,
    ) -> None:
        self._domain, self._domains = domain, domains
        self.pairs: Pairs | None = None if allow is None else frozenset(allow)
        self.labelled = labelled
        """Whether types are labels: every client needs both, and `out` may not be above `in`."""
        self.known = frozenset(name for pair in self.pairs or () for name in pair)
        self._default = default
        self._assigned = tuple(assignment.types for assignment in assign)
        self._first: dict[Term, int] = {}
        for position, assignment in enumerate(assign):
            for term in assignment.subject.within(domain).terms:
                self._first.setdefault(term, position)

    @property
    def open(self) -> bool:
        return self.pairs is None

    @property
    def terms(self) -> frozenset[Term]:
        """All that assignments say of a client."""
        return frozenset(self._first)

    # hot when a plan is compiled: one lookup for each target
    def allow(self, source: str, target: str) -> bool:
        """Whether what came over a link of one type may leave over one of another."""
        return self.pairs is None or (source, target) in self.pairs

    def types(self, actor: Subject) -> Types:
        """Of the links of a client, or of a service: by the first assignment that selects it."""
        if self.pairs is None:
            return PLAIN
        first = self._first
        terms = terms_of(actor, self._domain, self._domains)
        position = min((first[term] for term in terms if term in first), default=None)
        return self._default if position is None else self._assigned[position]

    def objection(self, actor: Subject) -> str:
        """Why a client may not be connected; empty if it may."""
        if not self.labelled:
            return ""
        types = self.types(actor)
        if not types.complete:
            return "brokering: no label is assigned to you"
        return "" if self.falls_nowhere(types) else "brokering: your out label is not at most your in label"

    def falls_nowhere(self, types: Types) -> bool:
        """Whether a device with these labels writes no lower than it reads (scopes, BLP-2)."""
        return self.allow(types.outward, types.inward)


OPEN: Final = Brokering()


def exempt(actor: Subject) -> bool:
    """Whether it is the node that speaks of itself."""
    return actor.kind == "service" and actor.client == "sys"


def chain(labels: Sequence[str]) -> Pairs:
    """The pairs of labels that stand in a row, lowest first."""
    if len(set(labels)) < len(labels):
        raise ConfigError("a label stands there twice: remove one of them")
    return frozenset((low, high) for at, low in enumerate(labels) for high in labels[at:])


def ordered(below: Mapping[str, Iterable[str]]) -> Pairs:
    """The pairs of a partial order, from each label and some of those below it; the rest follows."""
    lower = {label: tuple(labels) for label, labels in below.items()}
    try:
        lowest_first = tuple(TopologicalSorter(lower).static_order())
    except CycleError as error:
        cycle = error.args[1][::-1]
        raise ConfigError(
            f"`{cycle[0]}` is below itself ({' > '.join(cycle)}): labels need an order without cycles"
        ) from None
    under: dict[str, frozenset[str]] = {}
    for label in lowest_first:
        labels = lower.get(label, ())
        under[label] = frozenset(labels).union(*(under[each] for each in labels))
    return frozenset((low, high) for high, labels in under.items() for low in (high, *labels))
