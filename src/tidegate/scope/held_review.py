"""Held subscriptions when publishers' rules change: those that overlap may come alive, others fall asleep.

In pieces, one review at a time: what changes meanwhile is looked at by the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidegate.session import Site

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

CONCERNED: Final = 50  # changed filters that are looked at one by one; more concern everybody
PIECE: Final = 500  # microseconds of a review in one turn


class HeldReview:
    """Of all scopes of a node."""

    def __init__(self, site: Site, scopes: Mapping[str, Scope]) -> None:
        self.site = site
        self._scopes = scopes
        self._concerned: set[str] | None = set()  # filters to be reviewed; None: all
        self._reviewing = False

    def review(self, filters: Iterable[str]) -> None:
        """Rules about these have changed."""
        rules = next(iter(self._scopes.values())).rules
        if not rules.holds:
            return
        if self._concerned is not None:
            self._concerned.update(filters)
            if len(self._concerned) > CONCERNED or rules.renames:
                self._concerned = None
        if not self._reviewing:
            self._reviewing = True
            self.site.unfinished.append(self._reviewed().__next__)

    def _reviewed(self) -> Iterator[bool]:
        while self._concerned is None or self._concerned:
            filters, self._concerned = self._concerned, set()
            effort = 0
            for scope in list(self._scopes.values()):
                for session in list(scope.sessions.values()):
                    # who is away is looked at when it comes back
                    if session.connection is not None and session.subscriptions and scope.subjects.fresh(session):
                        for looked in scope.subscribing.waking(session, filters):
                            effort += looked
                            if effort > PIECE:
                                effort = 0
                                yield True
                    effort += 1
                    if effort > PIECE:
                        effort = 0
                        yield True
        self._reviewing = False
        yield False
