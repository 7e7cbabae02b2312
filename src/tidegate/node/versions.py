"""The number of the rules in force, and what the domain was called before.

The number increases with every change, and stays if nothing has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from tidegate.gate import RuleSet

VERSION = "policy version"
"""The name under which the store keeps the last one."""
DOMAINS = "domains"
"""And all that the domain was ever called."""


class Versions:
    """Numbers rules. `notes` is what the store kept when the node stopped."""

    def __init__(self, notes: Mapping[str, str]) -> None:
        number, _, self._digest = notes.get(VERSION, "").partition("-")
        self._number = int(number) if number.isdigit() else 0
        self._domains = set(json.loads(notes.get(DOMAINS, "[]")))

    def next(self, rules: RuleSet) -> RuleSet:
        """The same rules with the number they have from now on (formats.md, *policy version*)."""
        digest = rules.version.partition("-")[2]
        if digest != self._digest:
            self._number += 1
            self._digest = digest
        self._domains.add(rules.domain)
        formerly = frozenset(self._domains - {rules.domain})
        return replace(rules, version=f"{self._number}-{digest}", formerly=formerly)

    def notes(self) -> dict[str, str]:
        """What the store has to keep."""
        return {VERSION: f"{self._number}-{self._digest}", DOMAINS: json.dumps(sorted(self._domains))}
