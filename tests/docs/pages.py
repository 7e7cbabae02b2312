"""The pages of the documentation, and what stands in their fences.

Every fenced block of `sh`, `yaml`, `python` and `js` says in its info string what a test does with it:

| fence | meaning |
|---|---|
| `sh run` | runs to its end, with exit code 0 |
| `sh fails` | runs to its end, with exit code 1 |
| `sh node` | starts a node that runs until the next such block, or to the end of the page |
| `sh beside` | starts another process that runs to the end of the page, such as `tidegate ktm` |
| `sh listen` | starts a command that goes on, such as `tidegate sub -v`; awaited until it has subscribed |
| `sh export` | sets `TIDEGATE_TOKEN`, which later blocks have |
| `sh shown` | is not run; only commands that `SHOWN` lists |
| `yaml check [FILE]` | `tidegate check` accepts it without a warning; kept as FILE for later blocks |
| `yaml plain [FILE]` | the same, but for warnings of passwords that are written in plain, so that they can be read |
| `yaml warned [FILE]` | the same, with warnings |
| `yaml part` | accepted once the keys that every file needs are added |
| `yaml refuse` | `tidegate check` refuses it |
| `yaml rules [FILE]` | the pipeline accepts it as a rules file; kept as FILE for later blocks |
| `yaml misrule` | the pipeline refuses it as a rules file |
| `python run` | runs to its end, with exit code 0 |
| `python module FILE` | is kept as FILE, for later blocks |
| `python shown` | is not run; only on the pages that `QUOTING` lists |
| `js run` | runs to its end, with exit code 0 |
| `text run`, `text listen`, `text node` | every line was printed by the last such block, in this order |

The `tests` of a configuration are run too. In what was printed, `…` stands for anything, and a time of day, also with
a date before it, for any other. Fences of any other language, and `text` without a second word, are only shown. The
blocks of a page run in order, in one empty folder.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SHOWN: Final = ("make ", "source .venv/bin/activate", "sudo ", "pip install ")
QUOTING: Final = {"docs/design/hot-path.md": 1}
MARKERS: Final = {
    "sh": {"run", "fails", "node", "beside", "listen", "export", "shown"},
    "yaml": {"check", "plain", "warned", "part", "refuse", "rules", "misrule"},
    "python": {"run", "module", "shown"},
    "js": {"run"},
    "text": {"", "run", "listen", "node"},
}

_FENCE: Final = re.compile(r"(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<info>[^`]*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fence."""

    page: str
    line: int
    language: str
    marker: str
    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Everything that is written for people."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    return list(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    opened: re.Match[str] | None = None
    begun = 0
    inside: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        found = _FENCE.match(line)
        if opened is None:
            if found is not None:
                opened, begun, inside = found, number, []
        elif found is not None and found["ticks"].startswith(opened["ticks"]) and not found["info"].strip():
            language, marker, file, *_ = [*str(opened["info"]).split(), "", "", ""]
            text = textwrap.dedent("\n".join(inside)) + "\n"
            yield Block(page=name(page), line=begun, language=language, marker=marker, file=file, text=text)
            opened = None
        else:
            inside.append(line)
    assert opened is None, f"{name(page)}:{begun}: the fence is never closed"


def prose(page: Path) -> str:
    """The page without its fences and its code spans."""
    text = re.sub(r"^( *)(`{3,}|~{3,}).*?^\1\2 *$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", "`code`", text)
