"""An explanation as people and scripts read it: the verdict first, then every step with what it looked at."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tidegate.cli.terminal import harmless
from tidegate.config import Config
from tidegate.gate.explanation import Considered, Explanation, Line, Verdict
from tidegate.gate.verdict import Step
from tidegate.node.trial import UNKNOWN, Question
from tidegate.policy import attributes_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

LONG: Final = 160
"""Characters of a value that are shown to people."""
_COLOURS: Final = {
    Verdict.ALLOW: "green",
    Verdict.DENY: "bold red",
    Verdict.SILENT: "dim",
    Verdict.UNASKED: "dim",
}
_DOES: Final = {"read": "reads", "write": "writes", "subscribe": "subscribes to"}


# -- for scripts -----------------------------------------------------------------------------------------------------


def document(found: Explanation, question: Question, config: Config) -> dict[str, Any]:
    """Everything, as values that JSON has."""
    decided = found.decided
    domain = config.built.rules.domain
    return {
        "allowed": found.allowed,
        "verdict": "allow" if found.allowed else "deny",
        "step": None if decided is None else decided.step.value,
        "part": None if decided is None else decided.part or None,
        "rule": found.rule or None,
        "action": found.action,
        "topic": found.topic,
        "as": {"subject": question.subject, "s": plain(attributes_of(found.subject, domain))},
        "from": None
        if found.publisher is None
        else {"subject": _publisher(question), "s": plain(attributes_of(found.publisher, domain))},
        "at": _when(found, config).isoformat(),
        "policy_version": config.built.policy_version,
        "steps": [_step(line, found, question) for line in found.lines],
        "sees": _seen(found),
        "audit": None if found.told is None else {"step": found.told.step.value, "rule": found.told.rule},
        "notes": list(found.notes),
    }


def _step(line: Line, found: Explanation, question: Question) -> dict[str, Any]:
    return {
        "step": line.step.value,
        "part": line.part or None,
        "link": line.link or None,
        "about": _about(line, found, question),
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


def _seen(found: Explanation) -> dict[str, Any] | None:
    shown = found.shown
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


# -- for people ------------------------------------------------------------------------------------------------------


def report(found: Explanation, question: Question, config: Config) -> RenderableType:
    """The verdict, the question, and a row for every step."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    colour = "green" if found.allowed else "red"
    parts: list[RenderableType] = [
        Text(harmless(found.headline), style=f"bold {colour}"),
        Text(_asked(found, question)),
    ]
    when = _when(found, config).isoformat(sep=" ", timespec="seconds")
    parts.append(Text(f"at {when}, policy version {config.built.policy_version}", style="dim"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in ("step", "verdict", "rule"):
        table.add_column(title, no_wrap=title != "rule", overflow="fold")
    table.add_column("what it looked at", overflow="fold")
    for line in found.lines:
        table.add_row(
            Text(line.place),
            Text(line.verdict.value, style=_COLOURS[line.verdict]),
            Text(harmless(line.rule, lines=False)),
            _looked_at(line),
        )
    parts.append(table)
    if found.shown is not None:
        parts.append(Text.assemble(("receives ", "bold"), _cut(_content(found.shown.payload))))
        for name, value in found.shown.properties.user_properties:
            parts.append(Text.assemble(("property ", "bold"), _cut(f"{name}={value}")))
    parts += [Text.assemble(("note: ", "yellow"), harmless(note)) for note in found.notes]
    return Group(*parts)


def _asked(found: Explanation, question: Question) -> str:
    text = f"{question.subject} {_DOES[found.action]} {found.topic}"
    if found.publisher is not None:
        text += f" published by {_publisher(question)}"
    return harmless(text, lines=False)


def _looked_at(line: Line) -> Text:
    from rich.text import Text

    rows: list[Text] = [_rule(each) for each in line.considered]
    known = [f"{path} = {_cut(json.dumps(plain(value), ensure_ascii=False))}" for path, value in line.knew.items()]
    known += [f"{path} is not there" for path in line.absent]
    if known:
        rows.append(Text(harmless(", ".join(known), lines=False), style="dim"))
    if line.error and not any(each.error for each in line.considered):
        rows.append(Text(harmless(f"error: {line.error}", lines=False), style="red"))
    if not line.view.shows_all:
        rows.append(Text(harmless(f"leaves {', '.join(line.view.plain) or 'nothing'}", lines=False)))
    rows += [Text(harmless(note, lines=False)) for note in line.notes]
    return Text("\n").join(rows)


def _rule(each: Considered) -> Text:
    from rich.text import Text

    colour = {"true": "green", "error": "red"}.get(each.outcome, "yellow")
    said = f"{each.rule}: {each.says}"
    if each.condition:
        said += f" when {' '.join(each.condition.split())}"
    outcome = f"{each.outcome}: {each.error}" if each.error else each.outcome
    return Text.assemble(harmless(said, lines=False), " → ", (harmless(outcome, lines=False), colour))


def _content(payload: bytes) -> str:
    said = text_or_base64(payload)
    return said if isinstance(said, str) else f"{len(payload):,} bytes that are no text"


def _cut(text: str) -> str:
    text = harmless(text, lines=False)
    return text if len(text) <= LONG else f"{text[: LONG - 1]}…"


# -- both ------------------------------------------------------------------------------------------------------------


def _publisher(question: Question) -> str:
    return question.publisher or f"client:{UNKNOWN}"


def _about(line: Line, found: Explanation, question: Question) -> str:
    if line.link:
        return f"link:{line.link}"
    return _publisher(question) if found.action == "read" and line.step is Step.WRITE else question.subject


def _when(found: Explanation, config: Config) -> datetime:
    return datetime.fromtimestamp(found.at, config.built.rules.environment.zone)
