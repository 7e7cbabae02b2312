"""`tidegate pipeline once`, which dies at a chosen step of its second batch: `dying.py STEP FILE`.

The first batch is what an earlier death has left, or any other. The process ends at once, as if it were killed: no
handler runs, nothing is flushed. Before that it says on its standard error in which batch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from tidegate.cli.app import main
from tidegate.pipeline import node_client as node
from tidegate.pipeline.lake import Lake
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.node_client import NodeClient

DEAD = 77
PIECE = 8  # records that are published at a time
STEPS: dict[str, tuple[type, str, bool, int]] = {
    # step: whose method, its name, whether it is still carried out, at which call of it in the batch
    "begun": (Ledger, "begin", True, 1),
    "raw written": (Lake, "write_raw", True, 1),
    "keys given": (NodeClient, "keys", True, 1),
    "keys noted": (Ledger, "keyed", True, 1),
    "records written": (Lake, "write_records", True, 1),
    "half published": (Ledger, "sent", True, 2),
    "half published, not noted": (Ledger, "sent", False, 3),
    "not done": (Ledger, "done", False, 1),
    "done, not committed": (Ledger, "done", True, 1),
}


class Death:
    """Counts batches, and the calls in them."""

    def __init__(self, step: str) -> None:
        kind, self.method, self.carried_out, self.call = STEPS[step]
        self.batches = self.calls = 0
        self.batch = ""
        self._watch(Ledger, "begin", self._begun)
        self._watch(kind, self.method, self._called)

    def _watch(self, kind: type, method: str, watched: Callable[..., Any]) -> None:
        original = getattr(kind, method)
        setattr(kind, method, lambda *given, **named: watched(original, *given, **named))

    def _begun(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        self.batches += 1
        self.calls = 0
        batch = original(*given, **named)
        self.batch = batch.name
        return batch

    def _called(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if self.method == "begin":  # it is this that counts the batches
            result = original(*given, **named)
            self._end(self.batches == 2)
            return result
        self.calls += 1
        now = self.batches == 2 and self.calls == self.call
        self._end(now and not self.carried_out)
        result = original(*given, **named)
        self._end(now)
        return result

    def _end(self, now: bool) -> None:
        if now:
            os.write(2, f"died in {self.batch}\n".encode())
            os._exit(DEAD)


if __name__ == "__main__":
    Death(sys.argv[1])
    node.ASKS = PIECE  # type: ignore[misc]
    sys.argv = ["tidegate", "pipeline", "once", "--json", "-c", sys.argv[2]]
    main()
