"""What the node has counted in the last hour, for those who look at it: a row every ten seconds."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidegate.node.node import Node

STEP: Final = 10.0  # seconds
ROWS: Final = 361  # an hour, with both its ends


class NumberHistory:
    """Rows of running totals; who wants rates looks at two of them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rows: deque[dict[str, Any]] = deque(maxlen=ROWS)
        self._take()

    def _take(self) -> None:
        site = self._node.site
        self._rows.append(self._row())
        site.timers.at(site.now + STEP, self._take)

    def _row(self) -> dict[str, Any]:
        node, counters = self._node, self._node.site.counters
        denied: Counter[str] = Counter()
        for (stage, _), count in node.audit.log.by_rule.items():
            denied[stage] += count
        numbers = node.numbers()
        return {
            "at": node.site.wall,
            "received": counters.publishes_received,
            "sent": counters.frames_sent,
            "dropped": counters.dropped,
            "connected": numbers["clients/connected"],
            "cpu": numbers["cpu/seconds"],
            "denied": dict(denied),
        }

    async def rows(self) -> dict[str, Any]:
        """The control command `history`: the oldest first, and what is counted now."""
        await self._node.audit.counted()
        return {"rows": [*self._rows, self._row()]}
