"""An explanation as people read it: the verdict first, then every step with what it looked at."""

from __future__ import annotations

import json
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.terminal import harmless
from tidegate.config import Config
from tidegate.explain.as_json import moment_of, plain, publisher_of, text_or_base64
from tidegate.explain.explanation import ConsideredRule, Explanation, Line, Verdict
from tidegate.explain.question import Question

LONG: Final = 160
"""Characters of a value that are shown to people."""
_COLOURS: Final = {
    Verdict.ALLOW: "green",
    Verdict.DENY: "bold red",
    Verdict.SILENT: "dim",
    Verdict.UNASKED: "dim",
}
_DOES: Final = {"read": "reads", "write": "writes", "subscribe": "subscribes to"}


def report(found: Explanation, question: Question, config: Config) -> RenderableType:
    colour = "green" if found.allowed else "red"
    asked = f"{question.subject} {_DOES[found.action]} {found.topic}"
    if found.publisher is not None:
        asked += f" published by {publisher_of(question)}"
    parts: list[RenderableType] = [
        Text(harmless(found.headline), style=f"bold {colour}"),
        Text(harmless(asked, lines=False)),
    ]
    when = moment_of(found, config).isoformat(sep=" ", timespec="seconds")
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
        payload = text_or_base64(found.shown.payload)
        content = payload if isinstance(payload, str) else f"{len(found.shown.payload):,} bytes that are no text"
        parts.append(Text.assemble(("receives ", "bold"), _cut(content)))
        for name, value in found.shown.properties.user_properties:
            parts.append(Text.assemble(("property ", "bold"), _cut(f"{name}={value}")))
    parts += [Text.assemble(("note: ", "yellow"), harmless(note)) for note in found.notes]
    return Group(*parts)


def _looked_at(line: Line) -> Text:
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


def _rule(each: ConsideredRule) -> Text:
    colour = {"true": "green", "error": "red"}.get(each.outcome, "yellow")
    said = f"{each.rule}: {each.says}"
    if each.condition:
        said += f" when {' '.join(each.condition.split())}"
    outcome = f"{each.outcome}: {each.error}" if each.error else each.outcome
    return Text.assemble(harmless(said, lines=False), " → ", (harmless(outcome, lines=False), colour))


def _cut(text: str) -> str:
    text = harmless(text, lines=False)
    return text if len(text) <= LONG else f"{text[: LONG - 1]}…"
