"""What would have been denied where rules are not enforced, by rule and client: the report of shadow mode.

It adds up rows of the audit of the kind `shadow`, wherever they come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidegate.store.journal.rows import AuditRow

EXAMPLES: Final = 3
UNKNOWN: Final = "unknown"
"""The publisher of what a guarded broker delivers, if the guard does not know who published it."""


class By(StrEnum):
    """What is added up."""

    BOTH = "both"
    RULE = "rule"
    CLIENT = "client"


@dataclass(slots=True)
class WouldDeny:
    """What one rule would have denied to one client; empty: to all of them, or whatever the rule."""

    rule: str
    stage: str
    client: str
    user: str
    action: str
    count: int = 0
    first: float = float("inf")
    last: float = 0.0
    topics: dict[str, None] = field(default_factory=dict)
    publishers: dict[str, None] = field(default_factory=dict)
    left_out: int = 0
    """Of `count`, those that had no room in the audit in full: their topics are not known."""

    def add(self, row: AuditRow) -> None:
        from tidegate.audit.query import LEFT_OUT  # `--help` imports this module, and not the store

        self.count += row.count
        self.first, self.last = min(self.first, row.at), max(self.last, row.at)
        if row.detail == LEFT_OUT:
            self.left_out += row.count
            return
        if row.topic and len(self.topics) < EXAMPLES:
            self.topics[row.topic] = None
        publisher = row.publisher or (UNKNOWN if row.action == "read" else "")
        if publisher and len(self.publishers) < EXAMPLES:
            self.publishers[publisher] = None

    def shown(self) -> dict[str, Any]:
        """For scripts."""
        from tidegate.audit.query import iso

        return {
            "rule": self.rule,
            "stage": self.stage,
            "client": self.client or None,
            "user": self.user or None,
            "action": self.action,
            "count": self.count,
            "first": iso(self.first),
            "last": iso(self.last),
            "topics": list(self.topics),
            "publishers": list(self.publishers),
            "left_out": self.left_out,
        }


def report(rows: Iterable[AuditRow], by: By = By.BOTH) -> list[WouldDeny]:
    """The largest first."""
    sums: dict[tuple[str, ...], WouldDeny] = {}
    for row in rows:
        rule, stage = (row.rule or "", row.stage or "") if by is not By.CLIENT else ("", "")
        client, user = (row.client or "", row.user or "") if by is not By.RULE else ("", "")
        key = (rule, stage, client, user, row.action or "")
        total = sums.get(key) or sums.setdefault(key, WouldDeny(*key))
        total.add(row)
    return sorted(sums.values(), key=lambda each: (-each.count, each.rule, each.client, each.user, each.action))
