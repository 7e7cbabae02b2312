"""Rules of publishers that allow something, found by whom they are about and by a filter that they overlap."""

from __future__ import annotations

from tidegate.policy import Term, Terms
from tidegate.policy.index import FilterIndex
from tidegate.policy.publisher_rules import Rule

LEVELS = 8  # of a filter that are indexed: as many as tell most of them apart


class AllowingRules:
    """Those of all publishers of a node, each with the key of its publisher."""

    def __init__(self) -> None:
        self._by_term: dict[Term, FilterIndex[tuple[str, Rule]]] = {}

    def add(self, key: str, rule: Rule, terms: Terms) -> None:
        for term in terms:
            self._by_term.setdefault(term, FilterIndex()).add(_levels(rule), (key, rule))

    def discard(self, key: str, rule: Rule, terms: Terms) -> None:
        for term in terms:
            self._by_term[term].discard(_levels(rule), (key, rule))

    def about(self, terms: Terms) -> list[FilterIndex[tuple[str, Rule]]]:
        """Those about somebody whom one of these terms means."""
        return [index for term in terms if (index := self._by_term.get(term)) is not None]


def _levels(rule: Rule) -> list[str]:
    levels = rule.topic.split("/")
    return levels if len(levels) <= LEVELS else [*levels[:LEVELS], "#"]
