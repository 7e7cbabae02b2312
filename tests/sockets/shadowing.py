"""What shadow mode says, and what enforcement does, as sets that can be compared."""

from __future__ import annotations

from collections import Counter

from harness import Live

Denials = dict[tuple[str, ...], int]


async def denials(node: Live, kind: str) -> Denials:
    """What is in the audit of this kind (`deny`, `shadow`): rule, stage, subject, publisher, action and topic, and how
    often."""
    await node.node.audit.counted()
    counts: Counter[tuple[str, ...]] = Counter()
    for row in node.node.audit.sink.recent():
        if row.kind == kind:
            parts = (row.rule, row.stage, row.link, row.user, row.client, row.publisher, row.action, row.topic)
            counts[tuple(part or "" for part in parts)] += row.count
    return dict(counts)
