"""Rules that contradict the protection of a topic, which `check` refuses (semantics, *Protected topics*).

Whoever has the key sees everything that is sealed with it, and nobody else on the way sees anything. So no view, no
payload condition, and no condition on what differs from message to message can hold for a protected topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tidegate import policy, topics
from tidegate.config.problems import Finding
from tidegate.gate.key_groups import of_each
from tidegate.monitor.automaton import Automaton

if TYPE_CHECKING:
    from tidegate.config.model import Config
    from tidegate.monitor import Attachment
    from tidegate.monitor.machine import Machine

_BETWEEN: Final = frozenset(("scope", "link"))


def conflicts(
    config: Config,
    policies: Sequence[policy.Policy],
    preferences: Sequence[policy.Preference],
    views: Sequence[policy.Row],
    monitors: Sequence[Attachment],
) -> Iterator[Finding]:
    """Rules that cannot hold for protected topics. They are those of the file, in its order."""
    filters = (*config.keys.protect, *config.keys.end_to_end)
    if not filters:
        return
    for index, rule in enumerate(policies):
        hit = _hit(filters, "/".join(rule.topic.levels))
        if hit is None or rule.when is None:
            continue
        if policy.Action.READ in rule.action:
            if path := of_each(rule.when.reads):
                yield ("policies", index, "when"), _each(path, hit)
        elif _payload(rule.when.reads) and any(term.sort in _BETWEEN for term in rule.subject.terms):
            yield ("policies", index, "when"), _unseen(hit)
    for index, preference in enumerate(preferences):
        hit = _hit(filters, preference.topic)
        if hit is None:
            continue
        if not preference.keep.shows_all:
            yield ("preferences", index, "keep"), f"cannot show parts of what `{hit}` protects; {_WHOLE}"
        reads = frozenset[str]() if preference.when is None else preference.when.reads
        if preference.to is not None and _payload(reads):
            yield ("preferences", index, "when"), _unseen(hit)
        elif preference.to is None and (path := of_each(reads)):
            yield ("preferences", index, "when"), _each(path, hit)
    for index, row in enumerate(views):
        if hit := _hit(filters, row.topic):
            yield ("views", index, "topic"), f"speaks of what `{hit}` protects, which nobody can look into; {_WHOLE}"
    for index, written in enumerate(config.monitors):
        if not _payload(monitors[index].monitor.reads):
            continue
        leaves = written.direction is not None and written.direction.value != "im_pub"
        joins = written.link is not None and written.link.partition("->")[0].strip() in config.scopes
        hit = _heard(filters, monitors[index].monitor)
        if hit and (leaves or joins):
            yield ("monitors", index), f"reads the payload of what `{hit}` protects, after it was sealed; {_NARROW}"


_WHOLE: Final = "who has the key reads it whole: remove it, or do not protect that topic"
_NARROW: Final = "name other topics, or let it act where clients publish (`im_pub`)"


def _each(path: str, hit: str) -> str:
    why = f"the key of what `{hit}` protects is for all of them: name other topics, or leave that out"
    return f"reads `{path}`, which differs from message to message; {why}"


def _unseen(hit: str) -> str:
    return f"reads the payload of what `{hit}` protects, which nobody can look into; name other topics"


def _hit(filters: Sequence[str], topic: str) -> str | None:
    return next((filter for filter in filters if topics.overlaps(filter, topic)), None)


def _payload(reads: frozenset[str]) -> bool:
    return any(path in ("o", "o.payload") or path.startswith("o.payload.") for path in reads)


def _heard(filters: Sequence[str], machine: Machine) -> str | None:
    """The filter that protects something whose payload a machine reads."""
    if not isinstance(machine, Automaton):
        samples = {filter: re.sub("[+#]", "x", filter) for filter in filters}
        return next((filter for filter, topic in samples.items() if machine.hears(topic)), None)
    asking = (
        topic
        for transitions in machine.states.values()
        for each in transitions
        if any(_payload(when.reads) for when in each.when)
        for topic in each.on
    )
    return next((hit for topic in asking if (hit := _hit(filters, topic)) is not None), None)
