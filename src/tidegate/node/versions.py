"""The number of the rules in force, what the domain was called before, and the links between scopes.

The number increases with every change, and stays if nothing has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from tidegate.gate import RuleSet
from tidegate.policy.scopes import ScopeLink, TopicMapping, Way

VERSION = "policy version"
"""The name under which the store keeps the last one."""
DOMAINS = "domains"
"""And all that the domain was ever called."""
LINKS = "links between scopes"
"""And the links of the last ones, so that a link which comes with a restart is known as new."""


class Versions:
    """Numbers rules. `notes` is what the store kept when the node stopped."""

    def __init__(self, notes: Mapping[str, str]) -> None:
        number, _, self._digest = notes.get(VERSION, "").partition("-")
        self._number = int(number) if number.isdigit() else 0
        self._domains = set(json.loads(notes.get(DOMAINS, "[]")))
        self._links: tuple[ScopeLink, ...] = ()
        self._stored_links = notes.get(LINKS)

    def links_before(self) -> tuple[ScopeLink, ...]:
        """The links of the rules that were in force when the node stopped; those of now if that is not known."""
        if self._stored_links is None:
            return self._links
        return tuple(
            ScopeLink(
                source=source,
                target=target,
                type=type,
                way=Way(way),
                shares=tuple(TopicMapping(filter=f, here=here, there=there, qos=qos) for f, here, there, qos in shares),
            )
            for source, target, type, way, shares in json.loads(self._stored_links)
        )

    def next(self, rules: RuleSet) -> RuleSet:
        """The same rules with the number they have from now on (formats.md, *policy version*)."""
        digest = rules.version.partition("-")[2]
        if digest != self._digest:
            self._number += 1
            self._digest = digest
        self._domains.add(rules.domain)
        self._links = rules.space.links
        formerly = frozenset(self._domains - {rules.domain})
        return replace(rules, version=f"{self._number}-{digest}", formerly=formerly)

    def notes(self) -> dict[str, str]:
        """What the store has to keep."""
        links = [
            (
                link.source,
                link.target,
                link.type,
                link.way.value,
                [(share.filter, share.here, share.there, share.qos) for share in link.shares],
            )
            for link in self._links
        ]
        return {
            VERSION: f"{self._number}-{self._digest}",
            DOMAINS: json.dumps(sorted(self._domains)),
            LINKS: json.dumps(links),
        }
