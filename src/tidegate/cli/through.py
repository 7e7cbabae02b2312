"""What two nodes say of a message that crosses a link between them, as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.terminal import harmless

_COLOURS = {"allow": "green", "deny": "bold red"}


def report(found: Mapping[str, Any]) -> RenderableType:
    """Both verdicts, the publisher's end first, and the steps of this end."""
    verdict = found["verdict"]
    parts: list[RenderableType] = [
        Text(verdict.upper(), style="bold green" if verdict == "allow" else "bold red"),
        Text(harmless(f"{found['topic']} over {found['link']}", lines=False)),
    ]
    for end in ("here", "there") if found["published"] == "here" else ("there", "here"):
        parts.append(Text(""))
        parts += _end(found[end], end, found["node"] if end == "here" else found["other"])
    return Group(*parts)


def _end(said: Mapping[str, Any] | None, end: str, node: str) -> Iterator[RenderableType]:
    title = Text.assemble((harmless(f"{node} ({'this node' if end == 'here' else 'the other node'})"), "bold"), ": ")
    if said is None:
        yield title.append("not asked", style="dim")
        return
    place = ", ".join(word for word in (said.get("step"), said.get("part")) if word)
    text = said["verdict"]
    if said.get("rule"):
        text += f" by {said['rule']}"
    if place:
        text += f" ({place})"
    yield title.append(harmless(text, lines=False), style=_COLOURS[said["verdict"]])
    if steps := said.get("steps"):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for column in ("step", "verdict", "rule"):
            table.add_column(column, no_wrap=column != "rule", overflow="fold")
        table.add_column("notes", overflow="fold")
        for step in steps:
            table.add_row(*(Text(harmless(cell, lines=False)) for cell in _cells(step)))
        yield table
    yield from (Text.assemble(("note: ", "yellow"), harmless(note)) for note in said.get("notes", ()) if note)


def _cells(step: Mapping[str, Any]) -> tuple[str, ...]:
    link = f"link {step['link']}" if step["link"] else None
    place = ", ".join(word for word in (link, step["step"], step["part"]) if word)
    return place, step["verdict"], step["rule"] or "", "; ".join((*filter(None, [step["error"]]), *step["notes"]))
