"""What transitions and limits apply to: topic filters, made quick, and conditions.

A leading wildcard leaves topics with `$` alone, as everywhere in MQTT: `#` is everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tidegate import topics
from tidegate.bounded import Bounded
from tidegate.monitor.event import Event
from tidegate.monitor.machine import MonitorFailed
from tidegate.predicate import Predicate, PredicateFailed

EVERYTHING: Final = ("#",)
TOPICS: Final = 1000  # whose answer one matcher keeps: few topics have most of the messages


def matcher(filters: Sequence[str]) -> Callable[[str], bool]:
    """Whether a topic matches one of the filters."""
    plain = frozenset(each for each in filters if "+" not in each and "#" not in each)
    wild = tuple(each for each in filters if each not in plain)
    if not wild:
        return plain.__contains__
    if wild == EVERYTHING and not plain:
        return _everything

    def matches(topic: str) -> bool:
        return topic in plain or any(topics.matches(each, topic) for each in wild)

    return Bounded(TOPICS, matches).__getitem__


def _everything(topic: str) -> bool:
    return topic[:1] != "$"


def hold(conditions: tuple[Predicate, ...], event: Event) -> bool:
    """Whether all are true of the event, asked in order up to the first that is not. Raises `MonitorFailed`."""
    for each in conditions:
        try:
            if not each(event.scene):
                return False
        except PredicateFailed as failed:
            raise MonitorFailed(f"the condition `{each.text}` failed: {failed.reason}") from failed
    return True
