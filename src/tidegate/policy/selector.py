"""Subject selectors: `*`, `user:mary`, `role:coach`, `scope:gym`, ... or a list of them.

A selector is a set of terms, and so is what can be said of an actor; it selects the actor if they share one. That
makes an index of selectors a dict of terms.

- `user:alice` is alice of the domain in which the selector was written, `user:alice@remotegym` of another one. So it
  is with roles and groups. A client is always one of the domain in which the selector was written.
- Whom `domains` makes the same as somebody here is selected by either name.
- `*` is everybody. What it allows it does not allow to monitors, which speak for others: see `names_needed`.
- `scope:gym` is the scope itself and every link it has (sharing, example 6); `link:gym->remotegym` is one link. A
  client of a scope is not the scope.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidegate.errors import ConfigError
from tidegate.policy.domains import NO_DOMAINS, Domains, believed
from tidegate.policy.subject import Subject

SORTS: Final = ("user", "role", "group", "client", "scope", "link", "service", "monitor")
QUALIFIED: Final = frozenset(("user", "role", "group"))
"""What can be written with a domain."""
DOMESTIC: Final = QUALIFIED | {"client"}
"""What belongs to a domain."""


class Term(NamedTuple):
    """One thing that can be said of an actor. `domain` is given for people and clients only."""

    sort: str
    name: str = ""
    domain: str = ""

    def __str__(self) -> str:
        if self.sort == "*":
            return "*"
        return f"{self.sort}:{self.name}@{self.domain}" if self.domain else f"{self.sort}:{self.name}"


ANYONE: Final = Term("*")
Terms = frozenset[Term]


def terms_of(actor: Subject, here: str = "", domains: Domains = NO_DOMAINS) -> Terms:
    """What can be said of an actor, also in the domain `here`, which believes this of others."""
    home = actor.domain
    terms = [ANYONE]
    if not actor.impostor:
        terms.append(Term(actor.kind, actor.client, home if actor.kind in DOMESTIC else ""))
    if actor.user is not None:
        terms.append(Term("user", actor.user, home))
    if actor.kind == "link":
        terms.append(Term("scope", actor.scope))
    terms += [Term("role", role, home) for role in actor.roles]
    terms += [Term("group", group, home) for group in actor.groups]
    if home in domains:
        seen = believed(actor, here, domains)
        terms += [] if seen.user is None else [Term("user", *seen.user)]
        terms += [Term("role", *role) for role in seen.roles]
        terms += [Term("group", *group) for group in seen.groups]
    return frozenset(terms)


def names_needed(terms: Terms) -> Terms:
    """What a policy has to name in order to allow something: a monitor is allowed what is allowed to it by name, and
    not what `*` is. For everybody else it is nothing."""
    return frozenset(term for term in terms if term.sort == "monitor")


@dataclass(frozen=True, slots=True)
class Selector:
    """Which subjects something is about. Names without a domain have `domain == ""`: see `within`."""

    terms: frozenset[Term]

    @classmethod
    def parse(cls, text: str | Sequence[str]) -> Selector:
        """Reads one selector or a list; ConfigError says what is wrong."""
        if isinstance(text, str):
            return cls(frozenset((_term(text),)))
        if not text:
            raise ConfigError("no subject: write `*` for everybody")
        return cls(frozenset(map(_term, text)))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(term.name for term in self.terms)

    def within(self, domain: str) -> Selector:
        """The same, written in `domain`: people and clients without a domain are those of it."""
        return Selector(
            frozenset(
                Term(term.sort, term.name, domain) if term.sort in DOMESTIC and not term.domain else term
                for term in self.terms
            )
        )

    def matches(self, actor: Subject, domain: str, domains: Domains = NO_DOMAINS) -> bool:
        """Whether it selects the actor, read as written in `domain`, which believes this of others."""
        return not self.within(domain).terms.isdisjoint(terms_of(actor, domain, domains))

    def covers(self, other: Selector) -> bool:
        """Whether it surely selects everyone whom `other` selects; both read in the same domain."""
        return ANYONE in self.terms or other.terms <= self.terms

    def __str__(self) -> str:
        return ", ".join(sorted(map(str, self.terms)))


def _term(text: object) -> Term:
    if not isinstance(text, str):
        raise ConfigError(f"a subject is a text such as `role:coach`, not {text!r}")
    if text == "*":
        return ANYONE
    sort, colon, name = text.partition(":")
    if sort not in SORTS or not colon:
        raise ConfigError(f"`{text}` is no subject: {_hint(sort, bool(colon))}")
    if not name or name != name.strip():
        raise ConfigError(f"`{text}` is no subject: a name follows `{sort}:` without spaces around it")
    if sort == "link":
        source, arrow, target = name.partition("->")
        source, target = source.strip(), target.strip()
        if not (arrow and source and target) or "->" in target:
            raise ConfigError(f"`{text}` is no subject: write `link:A->B`")
        return Term(sort, f"{source}->{target}")
    if sort in QUALIFIED and "@" in name:
        name, _, domain = name.rpartition("@")
        if not name or not domain:
            raise ConfigError(f"`{text}` is no subject: write `{sort}:name` or `{sort}:name@domain`")
        return Term(sort, name, domain)
    if name == "*":
        raise ConfigError(f"`{text}` is no subject: `*` alone means everybody, and names have no wildcards")
    return Term(sort, name)


def _hint(sort: str, colon: bool) -> str:
    if not colon:
        return f"say what it is, for instance `user:{sort}` or `role:{sort}`"
    near = difflib.get_close_matches(sort, SORTS, n=1)
    return f"did you mean `{near[0]}:`?" if near else f"it begins with one of {', '.join(SORTS)}"
