"""Step 9: what of the content a subject may see (semantics, *Views*).

The administrator's table and the publisher's intersect here; what the owner's preferences keep was answered with
step 8. The gate intersects all of them and shows what is left.

What the pipeline makes has other parts than what it was made of: a table that names parts of that shows nothing of it.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from tidegate.gate.verdict import ALLOW, REMADE, Allow, Answer, Deny, Known, Stage, Step
from tidegate.policy import Table, View, Views
from tidegate.policy.selector import Term
from tidegate.policy.views import united
from tidegate.session import Link

PUBLISHER = "publisher's view"


@lru_cache(1024)
def _table(text: str, domain: str) -> tuple[dict[Term, View], str]:
    """A publisher's table, written in its domain, by terms; and why it cannot be read."""
    table = Table.parse(text)
    return table.by_term(domain), table.error or ""


class ViewStage(Stage):
    """The administrator's table and the publisher's."""

    step = Step.VIEW

    def __init__(self, views: Views) -> None:
        self.views = views

    def evaluate(self, known: Known) -> Answer:
        target = known.target
        assert target is not None
        seen = self.views.seen(target.subject, known.topic)
        if seen.view.shows_nothing:
            return Deny(step=Step.VIEW, rule=", ".join(seen.rules))
        text = known.context.view
        if text is None:
            return ALLOW if seen.view.shows_all else Allow(rule=", ".join(seen.rules), view=seen.view)
        rows, error = _table(text, known.context.subject.domain)
        view = united(rows[term] for term in self.views.terms(target.subject) if term in rows)
        if view.shows_nothing:
            return Deny(step=Step.VIEW, rule=PUBLISHER, error=error)
        if known.context.scored and not view.shows_all:
            return Deny(step=Step.VIEW, rule=PUBLISHER, error=REMADE)
        return Allow(rule=", ".join((*seen.rules, PUBLISHER)), view=seen.view & view)

    def cache_key(self, source: Link) -> Hashable:
        return source.subject.domain
