"""How many patterns of wildcards the subscriptions of a session have: that bounds what one topic may cost.

The pattern of a filter is where its `+` stand, how many levels it has, and whether it ends in `#`. Two filters of one
pattern differ in some level that is written out, so they never match the same topic: a session has at most as many
filters for one topic as it has patterns. Ten thousand filters that differ in what they write out are one pattern;
`a/a`, `a/+`, `+/a` and `+/+` are three (the first has none).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from tidegate.session import LinkSession, Session
from tidegate.topics import share

_WRITTEN_OUT: Final = re.compile("[^/+#]+")


def pattern_of(filter: str) -> str:
    """Empty: the filter, which may be shared, has no wildcard."""
    filter = share(filter)[1]
    return _WRITTEN_OUT.sub("", filter) if "+" in filter or "#" in filter else ""


class SubscriptionPatterns:
    """Those of all sessions of a scope. Links between nodes subscribe for many clients, and are not counted."""

    def __init__(self) -> None:
        self._of: dict[Session, Counter[str]] = {}

    def count(self, session: Session) -> int:
        return len(self._of.get(session, ()))

    def fits(self, session: Session, filter: str, most: int) -> bool:
        """Whether one more subscription of a session stays within so many patterns."""
        counted = self._of.get(session)
        if counted is None or len(counted) < most:
            return True
        pattern = pattern_of(filter)
        return not pattern or pattern in counted

    def add(self, session: Session, filter: str) -> None:
        if isinstance(session, LinkSession) or not (pattern := pattern_of(filter)):
            return
        counted = self._of.get(session)
        if counted is None:
            counted = self._of[session] = Counter()
        counted[pattern] += 1

    def remove(self, session: Session, filter: str) -> None:
        counted = self._of.get(session)
        if counted is None or not (pattern := pattern_of(filter)):
            return
        counted[pattern] -= 1
        if not counted[pattern]:
            del counted[pattern]
        if not counted:
            del self._of[session]
