"""Monitors proposed from what was observed, as the configuration writes them, each with its evidence.

None would have suppressed anything of what was seen. Sequences are those of `sequences`; of rates and ranges more is
allowed than was seen: `SLACK` times the burst, and a tenth of the width of a range on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from tidegate.learn.observed import PACES, WHOLE, Numbers, Observed, Scene
from tidegate.learn.propose import Proposal
from tidegate.learn.sequences import find_sequences
from tidegate.learn.table import WRITE
from tidegate.learn.templates import ANY, has_placeholder
from tidegate.topics import matches

SLACK: Final = 2.0
_TENTH: Final = 0.1
_LEAST: Final = 1e-6
"""The slack that a range has at least."""
_MESSAGES: Final = 50
"""Messages of one client that a rate needs."""
_NUMBERS: Final = 20
"""Numbers that a range needs."""
_BURST: Final = 10.0
"""Seconds of its pace that may come at once; a pace that needs more is too slow."""

ProposedMonitor = tuple[dict[str, Any], tuple[str, ...]]
"""An entry of `monitors`, and the evidence for it."""


def propose_monitors(observed: Observed, policies: Sequence[Proposal]) -> list[ProposedMonitor]:
    found: list[ProposedMonitor] = []
    taken: set[str] = {each.id for each in policies}
    for name, scene in sorted(observed.scopes.items()):
        for entry, evidence in (*_sequences(name, scene), *_rate(name, scene), *_ranges(name, scene, policies)):
            id = base = entry["id"]
            number = 1
            while id in taken:
                number += 1
                id = f"{base}-{number}"
            taken.add(id)
            found.append((entry | {"id": id}, evidence))
    return found


def _sequences(scope: str, scene: Scene) -> Iterator[ProposedMonitor]:
    for each in find_sequences(scene.order):
        entry: dict[str, Any] = {"id": _slug("only", each.only), "scope": scope, "direction": "im_pub", "each": "scope"}
        entry |= {"only": each.only, "after": list(each.after)}
        evidence = [f"{each.cases:,} cases, no counter-example"]
        if each.reset is not None:
            entry["reset"] = each.reset
            evidence.append(f"after `{each.reset}`, which came {each.resets:,} times meanwhile, it began anew")
        if scene.cut:
            evidence.append(f"looked at the first {len(scene.order):,} events alone")
        yield entry, tuple(evidence)


def _rate(scope: str, scene: Scene) -> Iterator[ProposedMonitor]:
    """One for all clients: the slowest pace that needs no large burst for any of them."""
    busy = {who: pace for who, pace in scene.paces.items() if pace.count >= _MESSAGES}
    if not busy:
        return
    for number, pace in enumerate(PACES):
        peak, count, who = max(
            ((each.peaks[number], each.count, client or "") for (_, client), each in scene.paces.items())
        )
        if peak <= max(_BURST * pace, 5.0):
            burst = math.ceil(peak * SLACK)
            written = f"{pace:g}/s" if pace >= 1 else f"{round(pace * 60)}/m"
            entry = {"id": _slug("pace", scope), "scope": scope, "direction": "im_pub", "each": "client"}
            evidence = (
                f"{sum(each.count for each in scene.paces.values()):,} messages of {len(scene.paces):,} clients",
                f"at this pace no more than {peak:.0f} came at once (client:{who}, of {count:,}); twice that may come",
            )
            yield {**entry, "rate": written, "burst": burst}, evidence
            return


def _ranges(scope: str, scene: Scene, policies: Iterable[Proposal]) -> Iterator[ProposedMonitor]:
    """For the topics of each policy that lets somebody publish: fields that were always numbers, and present."""
    filters = dict.fromkeys(_filter(each) for each in policies if WRITE in each.actions and each.used)
    done: set[str] = set()
    for filter in filters:
        topics = [topic for topic in scene.messages if topic not in done and matches(filter, topic)]
        done.update(topics)
        messages = sum(scene.messages[topic] for topic in topics)
        conditions: list[str] = []
        evidence: list[str] = []
        for name in sorted({name for topic in topics for each, name in scene.fields if each == topic}):
            numbers = [each for topic in topics if (each := scene.fields.get((topic, name))) is not None]
            count = sum(each.count for each in numbers)
            if count < _NUMBERS or count < messages or any(each.others for each in numbers):
                continue
            if name != WHOLE and not name.isidentifier():
                continue
            low, high = _slackened(numbers)
            value = f"o.payload.{name}" if name else "o.payload"
            conditions.append(f"{value} >= {low} && {value} <= {high}")
            seen = f"{_number(min(each.low for each in numbers))} to {_number(max(each.high for each in numbers))}"
            evidence.append(f"`{name or 'the payload'}` was {seen} in {count:,} cases")
        if conditions:
            entry = {"id": _slug("range", filter), "scope": scope, "direction": "im_pub"}
            yield {**entry, "only": filter, "payload": " && ".join(conditions)}, tuple(evidence)


def _filter(proposal: Proposal) -> str:
    """The topics of a policy, whoever publishes them."""
    levels = (ANY if has_placeholder(level) else level for level in proposal.topic.split("/"))
    return "/".join(levels).replace("{{", "{").replace("}}", "}")


def _slackened(numbers: Sequence[Numbers]) -> tuple[str, str]:
    low, high = min(each.low for each in numbers), max(each.high for each in numbers)
    slack = max((high - low) * _TENTH or abs(high) * _TENTH or 1.0, _LEAST)
    if all(each.whole for each in numbers):
        lower, upper = math.floor(low - slack), math.ceil(high + slack)
        return str(max(lower, 0) if low >= 0 else lower), str(upper)
    unit = 10.0 ** math.floor(math.log10(slack))
    lower_, upper_ = math.floor((low - slack) / unit) * unit, math.ceil((high + slack) / unit) * unit
    return _number(max(lower_, 0.0) if low >= 0 else lower_), _number(upper_)


def _number(value: float) -> str:
    return repr(round(value, 9)) if isinstance(value, float) else str(value)


def _slug(word: str, topic: str) -> str:
    levels = [level for level in topic.split("/") if level not in (ANY, "#")]
    text = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in "-".join(levels[-2:]))
    return f"{word}-{text.strip('-')}"[:60].rstrip("-")
