"""Topic names and topic filters: which are valid, and how filters relate to names and to each other.

A *topic* names one message (`gym/1/speed`). A *filter* describes a set of topics: `+` stands for exactly one
level, `#` for the parent and everything below it. A level may be empty: `/` is a topic of two empty levels.
A *shared* filter is `$share/group/filter`.

Invariants
- Everything is linear in the length of its arguments and nothing recurses: 65,535 bytes of `/` are harmless.
- The `valid_*` functions answer for every `str`. The others expect what these accept, and `matches`, `covers`
  and `overlaps` expect plain filters: take the group off with `share` first.
- `covers` and `overlaps` speak about the topics that may be published, so the empty topic does not count:
  `/+/#` covers `/#`, and `+` does not overlap `/#`. They ignore the limit of 65,535 bytes, which can only
  make `covers` too strict and `overlaps` too lenient, and only for filters of nearly that size.

What it will not do: normalise (levels are compared exactly, with case), or forbid topics that begin with `$`
(who may publish those is policy).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX: Final = 65535
"""Bytes of UTF-8 that a topic or filter may have. [MQTT-4.7.3-3]"""

_SHARE: Final = "$share/"


def valid_topic(topic: str) -> bool:
    """Whether a message may be published to `topic`."""
    return _fits(topic) and "+" not in topic and "#" not in topic


def valid_filter(filter: str) -> bool:
    """Whether `filter` may be subscribed to, shared or not.

    What follows the group of a shared filter is read as a plain filter, so a second `$share` is an ordinary
    level, as for any filter that is not shared.
    """
    if not _fits(filter):
        return False
    if filter.startswith(_SHARE):
        # [MQTT-4.8.2-1] [MQTT-4.8.2-2] a group has a character and no wildcard, and a filter follows it
        group, _, filter = filter[len(_SHARE) :].partition("/")
        if not group or not filter or "+" in group or "#" in group:
            return False
    return _wildcards_stand_alone(filter)


def share(filter: str) -> tuple[str | None, str]:
    """The group (None if not shared) and the plain filter."""
    if filter.startswith(_SHARE):
        group, slash, inner = filter[len(_SHARE) :].partition("/")
        if slash:
            return group, inner
    return None, filter


def matches(filter: str, topic: str) -> bool:
    """Whether `topic` is one of the topics that `filter` describes."""
    if filter == topic:
        return True
    if "+" not in filter and "#" not in filter:
        return False
    if topic[:1] == "$" and filter[:1] in ("+", "#"):
        return False  # [MQTT-4.7.2-1] leading wildcards leave $-topics alone
    wanted = filter.split("/")
    levels = topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        # MQTT 5, 4.7.1.2: the parent counts, so one level less than the filter has is enough
        if len(levels) < len(wanted):
            return False
    elif len(levels) != len(wanted):
        return False
    return agree(wanted, levels)


def agree(wanted: Sequence[str], levels: Sequence[str]) -> bool:
    """Whether levels of a filter (without `#`) and of a topic agree as far as both go. `$` means nothing here."""
    for want, level in zip(wanted, levels, strict=False):  # noqa: SIM110  a generator takes twice as long
        if want not in ("+", level):
            return False
    return True


def covers(outer: str, inner: str) -> bool:
    """Whether every topic that matches `inner` matches `outer`."""
    if outer == inner:
        return True
    if inner[:1] == "$" and outer[:1] in ("+", "#"):
        return False
    wide = outer.split("/")
    narrow = inner.split("/")
    for i, level in enumerate(wide):
        if level == "#":
            return True
        if i == len(narrow):
            return False
        if narrow[i] == "#":
            # The parent of `#` has fewer levels than `outer` asks for, unless that parent is no topic at all:
            # above `#` there is nothing, above `/#` only the empty topic.
            return (i == 0 or inner == "/#") and wide[i:] == ["+", "#"]
        if level not in ("+", narrow[i]):
            return False
    return len(wide) == len(narrow)


def overlaps(a: str, b: str) -> bool:
    """Whether some topic matches both."""
    if a == b:
        return True
    if (a[:1] == "$" and b[:1] in ("+", "#")) or (b[:1] == "$" and a[:1] in ("+", "#")):
        return False
    if {a, b} == {"+", "/#"}:
        return False  # they meet only in the empty topic, which does not exist
    left = a.split("/")
    right = b.split("/")
    for x, y in zip(left, right, strict=False):
        if x == "#" or y == "#":
            return True
        if x not in ("+", y) and y != "+":
            return False
    # One has ended; the other may go on only with a `#`, because that includes its parent.
    rest = left[len(right) :] or right[len(left) :]
    return not rest or rest == ["#"]


def intersection(a: str, b: str) -> str | None:
    """The filter that matches exactly the topics that both filters match; None if there are none."""
    if not overlaps(a, b):
        return None
    one, other = a.split("/"), b.split("/")
    levels: list[str] = []
    for at in range(max(len(one), len(other))):
        x = one[at] if at < len(one) else None
        y = other[at] if at < len(other) else None
        if x == "#":
            return "/".join((*levels, *other[at:]))
        if y == "#":
            return "/".join((*levels, *one[at:]))
        assert x is not None
        assert y is not None
        levels.append(y if x == "+" else x)
    return "/".join(levels)


def _fits(text: str) -> bool:
    """Whether `text` is neither empty nor too long and can be sent as an MQTT string at all."""
    if not text or len(text) > MAX or "\0" in text:
        return False  # [MQTT-4.7.3-1] [MQTT-4.7.3-2]
    if text.isascii():
        return True
    try:
        return len(text.encode()) <= MAX
    except UnicodeEncodeError:
        return False  # [MQTT-1.5.4-1] a lone surrogate has no UTF-8


def _wildcards_stand_alone(filter: str) -> bool:
    """Whether `#` is only the whole last level and `+` only a whole level. [MQTT-4.7.1-1] [MQTT-4.7.1-2]"""
    at = filter.find("#")
    if at >= 0 and (at != len(filter) - 1 or (at > 0 and filter[at - 1] != "/")):
        return False
    return filter.split("/").count("+") == filter.count("+")
