"""What other rules would decide differently: the last recorded decisions, asked again of both.

Each decision is made into a question and put to both configurations, as `tidegate explain` would. A record does not say
everything that was looked at, so the answer also says what it does not cover. Nothing is changed. Takes long: belongs
on a thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.audit.query import iso
from tidegate.config import Config, Operation, Record
from tidegate.errors import ConfigError
from tidegate.explain.explanation import Explanation
from tidegate.explain.question import Question
from tidegate.explain.what_if import CONNECT, WhatIf
from tidegate.gate import FORWARD, Step
from tidegate.store.journal.rows import AuditRow, Kind
from tidegate.topics import share

DECISIONS: Final = 1000  # rows that are asked again
SHOWN: Final = 100
REASONS: Final = 5
_SCOPE: Final = "scope:"
_ALWAYS: Final = (
    "what depends on the content, size, QoS or properties of messages: they are tried empty, with QoS 0",
    "levels, addresses and listeners: everybody is tried as if connected to the first listener, from this machine",
    "rules that publishers sent to `$tidegate/rules`, capabilities, and what monitors remember",
)


@dataclass(slots=True, kw_only=True)
class _CountedQuestion:
    question: Question
    count: int = 0
    last: float = 0.0


def compare(before: Config, after: Config, rows: Sequence[AuditRow], most: int = DECISIONS) -> dict[str, Any]:
    """What is different, over the last decisions among `rows`, the newest last."""
    taken = [row for row in rows if _decision(row)][-most:]
    questions = _questions(taken, before)
    old, new = WhatIf(before), WhatIf(after)
    gone = before.directory.users.keys() - after.directory.users.keys()
    different: list[dict[str, Any]] = []
    reasons: dict[str, int] = {}
    for counted in questions:
        try:
            was = old.explain(counted.question)
            if (name := _gone(counted.question, gone)) is not None:
                if was.allowed:
                    headline = f"DENY by {CONNECT} (there is no user `{name}` any more)"
                    different.append(_difference(counted, was, headline, allowed=False))
                continue
            would = new.explain(counted.question)
        except ConfigError as error:
            reasons[str(error)] = reasons.get(str(error), 0) + counted.count
            continue
        if (was.allowed, _seen(was)) != (would.allowed, _seen(would)):
            different.append(_difference(counted, was, would.headline, allowed=would.allowed))
    return {
        "decisions": len(taken),
        "since": iso(taken[0].at) if taken else None,
        "questions": len(questions),
        "different": len(different),
        "changes": different[:SHOWN],
        "undecided": sum(reasons.values()),
        "undecided_because": list(reasons)[:REASONS],
        "not_covered": [*_uncovered(before, most)],
    }


def _uncovered(config: Config, most: int) -> Iterable[str]:
    yield f"decisions before the last {most} that this node remembers, and those of other nodes"
    if config.record is Record.OFF:
        yield "what was allowed: only denials are recorded unless `record` is `decisions` or `traffic`"
    yield from _ALWAYS


def _decision(row: AuditRow) -> bool:
    decided = row.kind in (Kind.DENY.value, Kind.ALLOWED.value) and bool(row.topic)
    return decided and row.action in (FORWARD, *Operation)


def _questions(rows: Iterable[AuditRow], config: Config) -> list[_CountedQuestion]:
    by_key: dict[tuple[str, str, str, str | None], _CountedQuestion] = {}
    for row in rows:
        assert row.topic is not None
        subject, scope = _subject(row)
        action = _operation(row)
        topic = share(row.topic)[1] if action is Operation.SUBSCRIBE else row.topic
        publisher = _publisher(row) if action is Operation.READ or row.action == FORWARD else None
        key = (subject, action.value, topic, publisher)
        counted = by_key.get(key)
        if counted is None:
            elsewhere = len(config.scopes) > 1 and scope in config.scopes and subject.partition(":")[0] != "link"
            counted = by_key[key] = _CountedQuestion(
                question=Question(
                    subject=subject,
                    action=action,
                    topic=topic,
                    publisher=publisher,
                    at=row.at,
                    overrides={"s.scope": scope} if elsewhere else {},
                )
            )
        counted.count += row.count
        counted.last = max(counted.last, row.at)
    return list(by_key.values())


def _subject(row: AuditRow) -> tuple[str, str]:
    """Who acted, as on the command line, and in which scope."""
    source, _, target = (row.link or "").partition("->")
    if source.startswith(_SCOPE) and target.startswith(_SCOPE):
        names = f"{source.removeprefix(_SCOPE)}->{target.removeprefix(_SCOPE)}"
        return f"link:{names}", ""
    entity, scope = (target, source) if source.startswith(_SCOPE) else (source, target)
    if row.user is not None:
        entity = f"user:{row.user}/{entity}"
    return entity, scope.removeprefix(_SCOPE)


def _operation(row: AuditRow) -> Operation:
    """What was tried; a link that forwards writes out of the one scope, and reads into the other."""
    if row.action == FORWARD:
        return Operation.WRITE if row.stage == Step.WRITE.value else Operation.READ
    return Operation(row.action or "")


def _publisher(row: AuditRow) -> str | None:
    """Who published it; None if nobody knows, or several did: then it counts as undecided where it matters."""
    return None if row.publisher is None or ", " in row.publisher else row.publisher


def _gone(question: Question, gone: Collection[str]) -> str | None:
    """Who of those that a question is about is not in the directory any more; such a one is not let in."""
    for subject in (question.subject, question.publisher or ""):
        for name in gone:
            if subject == f"user:{name}" or subject.startswith(f"user:{name}/client:"):
                return name
    return None


def _seen(explanation: Explanation) -> object:
    if not explanation.allowed:
        return None
    return [line.view.plain for line in explanation.lines if not line.view.shows_all]


def _difference(counted: _CountedQuestion, was: Explanation, would: str, *, allowed: bool) -> dict[str, Any]:
    question = counted.question
    return {
        "as": question.subject,
        "action": question.action.value,
        "topic": question.topic,
        "from": question.publisher,
        "before": was.headline,
        "after": would,
        "allowed_before": was.allowed,
        "allowed_after": allowed,
        "count": counted.count,
        "last": iso(counted.last),
    }
