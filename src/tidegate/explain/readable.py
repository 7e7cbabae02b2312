"""Whether somebody can read something: yes, no, or if what is not known yet turns out so; several answers as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Can(StrEnum):
    """Whether somebody can read."""

    YES = "yes"
    NO = "no"
    IF = "if"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """Whether somebody can read, and by which rules. `when`: what is left to be true; `parts`: if it is not all."""

    can: Can
    rules: tuple[str, ...] = ()
    when: str | None = None
    parts: tuple[str, ...] | None = None


ASKED: Final = Readable(can=Can.YES)
"""Nothing objects."""


def both(steps: Sequence[Readable]) -> Readable:
    """What several steps say one after the other: each may object, and each may show less."""
    if (refused := next((step for step in steps if step.can is Can.NO), None)) is not None:
        return Readable(can=Can.NO, rules=refused.rules)
    rules = tuple(dict.fromkeys(rule for step in steps for rule in step.rules))
    shown = [step.parts for step in steps if step.parts is not None]
    parts = tuple(sorted(set(shown[0]).intersection(*shown[1:]))) if shown else None
    left = list(dict.fromkeys(step.when for step in steps if step.when is not None))
    if not left:
        return Readable(can=Can.YES, rules=rules, parts=parts)
    when = " && ".join(f"({each})" if " || " in each and len(left) > 1 else each for each in left)
    return Readable(can=Can.IF, rules=rules, when=when, parts=parts)
