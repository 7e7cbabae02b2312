"""The number of the rules in force: it increases with every change, and stays if nothing has changed."""

from __future__ import annotations

from dataclasses import replace

from tidegate.gate import Rules

VERSION = "policy version"
"""The name under which the store keeps the last one."""


class Versions:
    """Numbers rules. `last` is the version that was in force when the node stopped."""

    def __init__(self, last: str | None) -> None:
        number, _, self._digest = (last or "").partition("-")
        self._number = int(number) if number.isdigit() else 0

    def next(self, rules: Rules) -> Rules:
        """The same rules with the number they have from now on (formats.md, *policy version*)."""
        digest = rules.version.partition("-")[2]
        if digest != self._digest:
            self._number += 1
            self._digest = digest
        return replace(rules, version=f"{self._number}-{digest}")
