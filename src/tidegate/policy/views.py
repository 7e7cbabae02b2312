"""Views: what of a message's content a subject may see (SEC-REDS; semantics, *Views*).

Up to three tables speak of a message: the administrator's, the publisher's (user property `view`), and the owner's
preferences with `keep`. Rows of one table that apply to a subject unite; tables intersect; a table without an
applicable row shows nothing, except that the administrator may choose what his shows.

Invariants
- A view only ever removes. What cannot be taken apart (not JSON, too large) is shown whole or not at all.
- User properties, response topic and correlation data are content: they are shown only if the view is all.
- The administrator's table of a topic are the rows whose topic matches; a topic without rows has no table.
- A publisher's table that cannot be read shows nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import orjson

from tidegate import topics
from tidegate.errors import ConfigError
from tidegate.policy import pointers
from tidegate.policy.domains import NO_DOMAINS, Domains
from tidegate.policy.index import FilterIndex
from tidegate.policy.outcome import DEFAULT
from tidegate.policy.pointers import Pointer
from tidegate.policy.selector import Selector, Term, Terms, terms_of
from tidegate.policy.spliced_view import NOT_CUT, Splicer, splicer
from tidegate.policy.subject import Subject

MAX_CONTENT: Final = 256 << 10
"""Bytes of content that are taken apart; more is shown whole or not at all."""
MAX_TABLE: Final = 16 << 10
"""Bytes of a publisher's table."""
MAX_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class View:
    """What may be seen: `keep` is None for all. Equal views show the same, so their bytes can be shared."""

    keep: frozenset[Pointer] | None
    _tree: pointers.Tree = field(init=False, repr=False, compare=False)
    _splicer: list[Splicer | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keep = self.keep
        if keep is not None:
            keep = pointers.united(keep)
            object.__setattr__(self, "keep", None if () in keep else keep)
        object.__setattr__(self, "_tree", pointers.tree(keep or ()))
        object.__setattr__(self, "_splicer", [])  # made when first asked: most views are only compared

    @classmethod
    def parse(cls, keep: str | Sequence[str]) -> View:
        """Reads `all` or a list of JSON pointers; ConfigError says what is wrong."""
        if isinstance(keep, str):
            if keep != "all":
                raise ConfigError(f"`{keep}` is no view: write `all` or a list of JSON pointers")
            return ALL
        if len(keep) > pointers.MAX_POINTERS:
            raise ConfigError(f"a view has at most {pointers.MAX_POINTERS} JSON pointers")
        try:
            return cls(frozenset(map(pointers.parse, keep)))
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigError(str(error)) from error

    @property
    def plain(self) -> str | list[str]:
        """As it is written: `all` or sorted JSON pointers."""
        return "all" if self.keep is None else sorted(map(pointers.text, self.keep))

    @property
    def shows_all(self) -> bool:
        """Whether everything is shown, user properties included."""
        return self.keep is None

    @property
    def shows_nothing(self) -> bool:
        return self.keep is not None and not self.keep

    def __or__(self, other: View) -> View:
        if self.keep is None or other.keep is None:
            return ALL
        return View(self.keep | other.keep)

    def __and__(self, other: View) -> View:
        if self.keep is None:
            return other
        if other.keep is None:
            return self
        return View(pointers.common(self.keep, other.keep))

    def apply(self, payload: bytes, *, limit: int = MAX_CONTENT) -> bytes | None:
        """What is left of the content; None if that is nothing, so that there is nothing to send."""
        if self.keep is None:
            return payload
        if not self.keep or len(payload) > limit:
            return None
        if not self._splicer:
            self._splicer.append(spliced(self.keep))
        if (splicer := self._splicer[0]) is not None and (cut := splicer(payload)) != NOT_CUT:
            return cut
        left = pointers.kept(_document(payload), self._tree)
        if pointers.hidden(left):
            return None
        try:
            return orjson.dumps(left)
        except orjson.JSONEncodeError:
            return None  # it is nested deeper than can be written


@lru_cache(1024)
def spliced(keep: frozenset[Pointer]) -> Splicer | None:
    """What cuts it out of an object; views that show the same share it."""
    return splicer(pointers.tree(keep))


@lru_cache(maxsize=1)
def _document(payload: bytes) -> Any:
    """Content taken apart, once for all views of a message; None, of which nothing is left, if it is no JSON."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None


ALL: Final = View(None)
NOTHING: Final = View(frozenset())


def united(views: Iterable[View]) -> View:
    """What rows of one table show together; without rows, nothing."""
    union = NOTHING
    for view in views:
        union |= view
    return union


# -- the administrator -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    id: str
    topic: str
    subject: Selector
    view: View


@dataclass(frozen=True, slots=True)
class Seen:
    """What a table shows a subject, and the rows that said so."""

    view: View
    rules: tuple[str, ...] = ()


class Views:
    """The administrator's rows. `otherwise` is what a subject sees of a topic that has rows, but none for it."""

    def __init__(
        self, rows: Iterable[Row], *, otherwise: View = NOTHING, domain: str = "", domains: Domains = NO_DOMAINS
    ) -> None:
        self.rows = tuple(rows)
        self.otherwise = otherwise
        self.domain = domain
        self.domains = domains
        self._index: FilterIndex[int] = FilterIndex()
        self._terms: list[frozenset[Term]] = []
        for position, row in enumerate(self.rows):
            self._index.add(row.topic.split("/"), position)
            self._terms.append(row.subject.within(domain).terms)
        self._spoken: frozenset[Term] = frozenset().union(*self._terms)

    def seen(self, actor: Subject, topic: str) -> Seen:
        considered = self.considered(actor, topic)
        if not considered:
            return Seen(ALL)
        mine = [row for row, applies in considered if applies]
        if mine:
            return Seen(united(row.view for row in mine), tuple(row.id for row in mine))
        return Seen(self.otherwise, (DEFAULT,))

    def considered(self, actor: Subject, topic: str) -> list[tuple[Row, bool]]:
        """The table of a topic: its rows, and whether each applies to an actor."""
        positions = [at for at in sorted(self._index.matching(topic)) if topics.matches(self.rows[at].topic, topic)]
        terms = self.terms(actor) if positions else frozenset()
        return [(self.rows[at], not self._terms[at].isdisjoint(terms)) for at in positions]

    def terms(self, actor: Subject) -> Terms:
        """What rows and tables select an actor by."""
        return terms_of(actor, self.domain, self.domains)

    def cache_key(self, actor: Subject) -> Hashable:
        """Actors with equal values see the same of everything."""
        return self.terms(actor) & self._spoken


# -- the publisher ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """A publisher's table of visibility; `error` says why it could not be read, and then it has no rows."""

    rows: tuple[tuple[Selector, View], ...]
    error: str | None = None

    @classmethod
    def parse(cls, text: str | bytes) -> Table:
        """Reads the user property `view`. Never raises: what cannot be read shows nothing to anybody."""
        if len(text) > MAX_TABLE:
            return cls((), f"the view has more than {MAX_TABLE} bytes")
        try:
            return cls.of(orjson.loads(text))
        except orjson.JSONDecodeError as error:
            return cls((), f"the view is no JSON: {error}")

    @classmethod
    def of(cls, table: object) -> Table:
        """The same from plain data."""
        if not isinstance(table, Mapping):
            return cls((), "the view is no JSON object of subjects")
        if len(table) > MAX_ROWS:
            return cls((), f"the view has more than {MAX_ROWS} rows")
        try:
            return cls(tuple((Selector.parse(subject), _row(keep)) for subject, keep in table.items()))
        except ConfigError as error:
            return cls((), f"the view cannot be read: {error}")

    def seen(self, actor: Subject, domain: str) -> View:
        """What an actor may see, the table having been written in `domain`, the publisher's."""
        return united(view for _, view, applies in self.considered(terms_of(actor), domain) if applies)

    def by_term(self, domain: str) -> dict[Term, View]:
        """The same by what can be said of an actor, so that many can be asked for at little cost."""
        views: dict[Term, View] = {}
        for subject, view in self.rows:
            for term in subject.within(domain).terms:
                views[term] = views.get(term, NOTHING) | view
        return views

    def considered(self, terms: Terms, domain: str) -> list[tuple[Selector, View, bool]]:
        """Its rows, and whether each applies to an actor with these terms."""
        return [(subject, view, not subject.within(domain).terms.isdisjoint(terms)) for subject, view in self.rows]

    def plain(self) -> dict[str, Any]:
        return {str(subject): view.plain for subject, view in self.rows}


def _row(keep: object) -> View:
    if isinstance(keep, str) or (isinstance(keep, list) and all(isinstance(each, str) for each in keep)):
        return View.parse(keep)
    raise ConfigError("a row is `all` or a list of JSON pointers")
