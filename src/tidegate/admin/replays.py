"""A replay of the recorded traffic that somebody has asked for: the node keeps the one, the pipeline's process does it.

The pipeline takes it over the control socket (`replay_take`), says how far it is (`replay_tell`) and hears from the
answer whether it is still wanted. One at a time: a second one is refused until the first is over or cancelled. What is
tried is what stands in the file with all documents over it, once as they are and once with the changes of a draft.
Nothing of it is in force.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

import orjson
from annotated_types import Ge, Le
from pydantic import Strict

from tidegate.admin.administration import Administration
from tidegate.admin.control_commands import Changes
from tidegate.audit.auditor import Auditor
from tidegate.config import Config, Record
from tidegate.config.overlay import OverlayDocument
from tidegate.errors import Problem
from tidegate.net.control_command import ControlCommand, Counter, Text, command, typed
from tidegate.net.control_socket import Command
from tidegate.store.journal.rows import Kind

SILENT: Final = 60.0
"""Seconds without a word of the pipeline after which it is taken to have ended."""
LARGEST: Final = 700_000
"""Bytes of all documents together: an answer of the node is one line."""
_OVER: Final = ("done", "failed", "cancelled")


@command("replay_begin")
class BeginReplay(ControlCommand):
    """What these changes would have decided differently, of the last so many seconds."""

    changes: Changes
    seconds: Annotated[float, Strict(), Ge(1), Le(31 * 86_400)] = 86_400.0
    by: Text


@command("replay_show")
class ShowReplay(ControlCommand):
    """The one that is asked for, or was last."""


@command("replay_cancel")
class CancelReplay(ControlCommand):
    by: Text


@command("replay_take")
class TakeReplay(ControlCommand):
    """The pipeline asks what there is to do."""


@command("replay_tell")
class TellReplay(ControlCommand):
    """How far it is; with a report or a trouble it is over."""

    id: Text
    done: Counter = 0
    all: Counter = 0
    report: dict[str, Any] | None = None
    trouble: str | None = None


class ReplayingNode(Protocol):
    """What is needed of a node."""

    config: Config
    audit: Auditor
    administration: Administration | None


@dataclass(slots=True, kw_only=True)
class Replay:
    """One request, and what has become of it."""

    id: str
    by: str
    about: list[str]
    since: float
    until: float
    before: Sequence[OverlayDocument]
    after: Sequence[OverlayDocument]
    heard: float
    state: str = "waiting"
    done: int = 0
    all: int = 0
    report: dict[str, Any] | None = None
    trouble: str | None = None


class Replays:
    """The replay of one node."""

    def __init__(self, node: ReplayingNode) -> None:
        self._node = node
        self._replay: Replay | None = None

    def commands(self) -> dict[str, Command]:
        return dict(
            (
                typed(BeginReplay, self.begin),
                typed(ShowReplay, lambda _: self.shown()),
                typed(CancelReplay, self.cancel),
                typed(TakeReplay, lambda _: self.take()),
                typed(TellReplay, self.tell),
            )
        )

    # -- for people ------------------------------------------------------------------------------------------------

    async def begin(self, command: BeginReplay) -> dict[str, Any]:
        config, administration = self._node.config, self._node.administration
        if config.record is not Record.TRAFFIC or config.pipeline is None or administration is None:
            text = "a replay needs recorded traffic and the pipeline: set `record: traffic` and `pipeline`"
            raise Problem(text, problem="unavailable")
        self._check_free()
        after = await administration.pieces_with(command.changes)
        before = administration.pieces()
        if len(orjson.dumps([_plain(before), _plain(after)])) > LARGEST:
            raise Problem("there are too many documents: use `tidegate replay`", problem="too-large")
        self._check_free()  # somebody else may have been faster
        now = time.time()
        self._replay = Replay(
            id=secrets.token_hex(8),
            by=command.by,
            about=[f"{each.kind}/{each.id}" for each in command.changes],
            since=now - command.seconds,
            until=now,
            before=before,
            after=after,
            heard=time.monotonic(),
        )
        self._audit(command.by, "replay", f"of {', '.join(self._replay.about)}")
        return self.shown()

    def _check_free(self) -> None:
        current = self._current()
        if current is not None and current.state not in _OVER:
            raise Problem(f"a replay of {current.by} is under way; wait for it, or cancel it", problem="conflict")

    def shown(self) -> dict[str, Any]:
        replay = self._current()
        if replay is None:
            return {"replay": None}
        names = ("id", "by", "about", "since", "until", "state", "done", "all", "report", "trouble")
        return {"replay": {name: getattr(replay, name) for name in names}}

    def cancel(self, command: CancelReplay) -> dict[str, Any]:
        replay = self._current()
        if replay is not None and replay.state not in _OVER:
            replay.state = "cancelled"
            self._audit(command.by, "cancel replay", f"of {', '.join(replay.about)}")
        return self.shown()

    def _current(self) -> Replay | None:
        replay = self._replay
        if replay is not None and replay.state == "running" and time.monotonic() - replay.heard > SILENT:
            replay.state, replay.trouble = "failed", "the pipeline says nothing any more; look whether it runs"
        return replay

    def _audit(self, by: str, action: str, detail: str) -> None:
        audit = self._node.audit
        audit.sink.write(audit.log.row(Kind.CHANGE, user=by, action=action, detail=detail[:500]))

    # -- for the pipeline ------------------------------------------------------------------------------------------

    def take(self) -> dict[str, Any]:
        replay = self._current()
        if replay is None or replay.state != "waiting":
            return {"replay": None}
        replay.state, replay.heard = "running", time.monotonic()
        documents = {"before": _plain(replay.before), "after": _plain(replay.after)}
        return {"replay": {"id": replay.id, "since": replay.since, "until": replay.until, **documents}}

    def tell(self, command: TellReplay) -> dict[str, Any]:
        """Whether it is still wanted."""
        replay = self._replay
        if replay is None or replay.id != command.id or replay.state != "running":
            return {"wanted": False}
        replay.heard, replay.done, replay.all = time.monotonic(), command.done, command.all
        if command.report is not None:
            replay.state, replay.report = "done", command.report
        elif command.trouble is not None:
            replay.state, replay.trouble = "failed", command.trouble[:1000]
        return {"wanted": True}


def _plain(pieces: Sequence[OverlayDocument]) -> list[dict[str, Any]]:
    return [{"kind": each.kind, "id": each.id, "body": dict(each.body)} for each in pieces]
