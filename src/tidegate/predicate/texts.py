"""What texts are looked at for: a part, a beginning, an end, a pattern, a topic filter.

None of it is quicker than the text is long, and some is slower at worst, so each says before it begins what it may
come to. What is constant but for the text is prepared once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tidegate import topics
from tidegate.lazy import re2
from tidegate.predicate.failure import CelError, PredicateFailed
from tidegate.predicate.values import refuse, short
from tidegate.predicate.work import LONG, Meter

MAX_PATTERN: Final = 1024
"""Characters that a regular expression may have."""
MAX_PROGRAM: Final = 1 << 16
"""Bytes for the program of a regular expression and for the states it is in: a few thousand instructions."""

MAX_CLASSES: Final = 8
"""Unicode classes (`\\pL`) that a regular expression may have: each is hundreds of ranges."""

_COMPILED: Final = 500
"""Operations to compile any regular expression, ..."""
_CHARACTER: Final = 15
"""... for each character of it, ..."""
_CLASS: Final = 1500
"""... and for each Unicode class."""
_STEPS: Final = 16
"""Instructions of a regular expression that are one operation."""
_FREE: Final = 256
"""Instructions that the call itself pays for."""


@lru_cache(512)
def pattern(text: str) -> tuple[Callable[[str], object], int]:
    """The search of a regular expression, compiled once, and the size of its program.

    RE2: at worst each character is looked at once by each instruction of the program. The bound on memory is a bound
    on the program, which a short text can make long: `\\pL{99}`.
    """
    _classes(text)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM
    options.never_capture = True
    try:
        expression = re2.compile(text, options)
    except (re2.error, UnicodeEncodeError) as error:
        if "too large" in str(error):
            raise PredicateFailed(f"a regular expression that is too large: {short(text)}") from error
        raise CelError(f"no regular expression: {short(text)}: {error}") from error
    return expression.search, expression.programsize


def _classes(text: str) -> int:
    """Unicode classes in a pattern, at most; both it and they are within bounds."""
    if len(text) > MAX_PATTERN:
        raise CelError(f"a regular expression of more than {MAX_PATTERN} characters")
    classes = text.count("\\p") + text.count("\\P")
    if classes > MAX_CLASSES:
        raise CelError(f"a regular expression of more than {MAX_CLASSES} Unicode classes")
    return classes


def _compiled(work: Meter, wanted: str) -> tuple[Callable[[str], object], int]:
    """A pattern that is not known before: it costs the same whether or not it was compiled before."""
    work.spend(_COMPILED + _CHARACTER * len(wanted) + _CLASS * _classes(wanted))
    search, program = pattern(wanted)
    work.spend(4 * program)
    return search, program


def _looked(text: str, program: int) -> int:
    """Operations to look at a text with a program, at worst."""
    return len(text) * program * (1 if text.isascii() else 4) // _STEPS


def prepare_matches(work: Meter, wanted: object) -> Callable[..., bool]:
    if not isinstance(wanted, str):
        refuse("matches", wanted)
    search, program = _compiled(work, wanted)
    free = _FREE // program

    def run(work: Meter, text: object) -> bool:
        if not isinstance(text, str):
            refuse("matches", text, wanted)
        if len(text) > free:
            work.spend(_looked(text, program))
        try:
            return search(text) is not None
        except UnicodeEncodeError as error:
            raise CelError("a string that is not Unicode") from error

    return run


def _searched(length: int, part: int) -> int:
    """Operations to look for a part in a text, at worst.

    Python looks in linear time only where text and part are long; where both are short, and at the last 2,000
    places for a part nearly as long as the text, it may compare the part at every place.
    """
    places = max(length - part + 1, 0)
    if length >= 2500 and part >= 6 and (part >= 100 or length >= 30_000):
        places = 0 if part // 4 * 3 < length // 4 else min(places, 2000)
    return length // 24 + places * part // 320


def _prepare_find(
    name: str, test: Callable[[str, str], bool], price: Callable[[int, int], int]
) -> Callable[..., Callable[..., bool]]:
    """`test(text, part)` with a part that is known; `price` is what it costs for texts of these lengths."""

    def prepare(work: Meter, part: object) -> Callable[..., bool]:
        if not isinstance(part, str):
            refuse(name, part)

        def run(work: Meter, text: object) -> bool:
            if not isinstance(text, str):
                refuse(name, text, part)
            if len(text) > LONG or len(part) > LONG:
                work.spend(price(len(text), len(part)))
            return test(text, part)

        return run

    return prepare


def _compared(length: int, part: int) -> int:
    """Operations to compare a part with the beginning or the end of a text."""
    return part // LONG


@lru_cache(1024)
def topic_filter(text: str) -> str:
    """A filter without its `$share/group/`."""
    if not topics.valid_filter(text):
        raise CelError(f"no topic filter: {short(text)}")
    return topics.share(text)[1]


def _filter(work: Meter, wanted: str) -> str:
    if len(wanted) > topics.MAX:
        raise CelError(f"no topic filter: {short(wanted)}")
    if len(wanted) > 16:
        work.spend(_levels(wanted))
    return topic_filter(wanted)


def _matches_filter(work: Meter, topic: str, wanted: str) -> bool:
    if len(topic) > topics.MAX:
        raise CelError(f"no topic: {short(topic)}")
    if len(topic) > 16:
        work.spend(_levels(topic))
    if not topics.valid_topic(topic):
        raise CelError(f"no topic: {short(topic)}")
    return topics.matches(wanted, topic)


def _levels(text: str) -> int:
    """Operations to take a topic or filter apart."""
    return text.count("/") + len(text) // 16


def prepare_filter(work: Meter, wanted: object) -> Callable[..., bool]:
    if not isinstance(wanted, str):
        refuse("matchesFilter", wanted)
    plain = _filter(work, wanted)

    def run(work: Meter, topic: object) -> bool:
        if not isinstance(topic, str):
            refuse("matchesFilter", topic, wanted)
        return _matches_filter(work, topic, plain)

    return run


def _unprepared(name: str, prepare: Callable[..., Callable[..., bool]]) -> Callable[..., bool]:
    """The same function of two texts of which neither is known before."""

    def run(work: Meter, text: object, other: object) -> bool:
        if not isinstance(text, str) or not isinstance(other, str):
            refuse(name, text, other)
        return prepare(work, other)(work, text)

    return run


prepare_contains: Final = _prepare_find("contains", str.__contains__, _searched)
prepare_starts_with: Final = _prepare_find("startsWith", str.startswith, _compared)
prepare_ends_with: Final = _prepare_find("endsWith", str.endswith, _compared)

matches: Final = _unprepared("matches", prepare_matches)
contains: Final = _unprepared("contains", prepare_contains)
starts_with: Final = _unprepared("startsWith", prepare_starts_with)
ends_with: Final = _unprepared("endsWith", prepare_ends_with)
matches_filter: Final = _unprepared("matchesFilter", prepare_filter)
