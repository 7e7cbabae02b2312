"""An explanation as values that JSON has, for scripts and for HTTP."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tidegate.config import Config
from tidegate.explain.explanation import Explanation, Line
from tidegate.explain.question import Question
from tidegate.explain.what_if import UNKNOWN
from tidegate.gate.verdict import Step
from tidegate.policy import Subject, attributes_of


def document(explanation: Explanation, question: Question, config: Config) -> dict[str, Any]:
    """Everything, as values that JSON has."""
    decided = explanation.decided
    rules = config.built.rules

    def s(subject: Subject) -> Any:
        return plain(attributes_of(subject, rules.domain, rules.domains))

    return {
        "allowed": explanation.allowed,
        "verdict": "allow" if explanation.allowed else "deny",
        "step": None if decided is None else decided.step.value,
        "part": None if decided is None else decided.part or None,
        "rule": explanation.rule or None,
        "action": explanation.action,
        "topic": explanation.topic,
        "as": {
            "subject": question.subject,
            "s": s(explanation.subject),
        },
        "from": None
        if explanation.publisher is None
        else {
            "subject": publisher_of(question),
            "s": s(explanation.publisher),
        },
        "at": moment_of(explanation, config).isoformat(),
        "policy_version": config.built.policy_version,
        "steps": [_step(line, explanation, question) for line in explanation.lines],
        "sees": _seen(explanation),
        "audit": None
        if explanation.denial is None
        else {"step": explanation.denial.step.value, "rule": explanation.denial.rule},
        "notes": list(explanation.notes),
    }


def _step(line: Line, explanation: Explanation, question: Question) -> dict[str, Any]:
    return {
        "step": line.step.value,
        "part": line.part or None,
        "link": line.link or None,
        "about": _about(line, explanation, question),
        "verdict": line.verdict.value,
        "rule": line.rule or None,
        "error": line.error or None,
        "rules": [
            {
                "rule": each.rule,
                "says": each.says,
                "condition": each.condition or None,
                "outcome": each.outcome,
                "error": each.error or None,
            }
            for each in line.considered
        ],
        "knew": {path: plain(value) for path, value in line.knew.items()},
        "absent": list(line.absent),
        "view": line.view.plain,
        "notes": list(line.notes),
    }


def _seen(explanation: Explanation) -> dict[str, Any] | None:
    shown = explanation.shown
    if shown is None:
        return None
    return {
        "payload": text_or_base64(shown.payload),
        "properties": [list(pair) for pair in shown.properties.user_properties],
    }


def text_or_base64(data: bytes) -> str | dict[str, str]:
    """Text where the bytes are UTF-8, otherwise an object with base64, so that nothing is lost."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def plain(value: Any) -> Any:
    """A value of a condition as one that JSON has."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case datetime():
            return value.isoformat()
        case timedelta():
            return f"{value.total_seconds():g}s"
        case bytes():
            return text_or_base64(value)
        case _:
            return str(value)


def publisher_of(question: Question) -> str:
    return question.publisher or f"client:{UNKNOWN}"


def _about(line: Line, explanation: Explanation, question: Question) -> str:
    if line.link:
        return f"link:{line.link}"
    return publisher_of(question) if explanation.action == "read" and line.step is Step.WRITE else question.subject


def moment_of(explanation: Explanation, config: Config) -> datetime:
    return datetime.fromtimestamp(explanation.at, config.built.rules.environment.zone)
