"""What the rules of a publisher say of one of its messages and a reader (semantics, *Publisher rules*).

Of the rules that are about both, those whose condition is true speak: one that denies denies, else one that allows
allows, else they say nothing. A condition that fails counts as false.

Invariant: `said` with a part of the environment, and its residual with all of it, have the effect that `said` with all
of it has.

It knows nothing of policies: they come first, and what they deny is not asked about here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from tidegate import topics
from tidegate.policy.access import Effect, earliest
from tidegate.policy.actor import Paths, paths_below
from tidegate.policy.publisher_rules import Rule
from tidegate.policy.selector import Terms
from tidegate.predicate import Env, Predicate, PredicateFailed


class Voice:
    """One rule that counts, with its condition understood; `broken` says why that is not."""

    __slots__ = ("allows", "broken", "expires", "id", "over", "publisher", "rule", "terms", "topic", "when")

    def __init__(self, rule: Rule, publisher: str, domain: str, when: Predicate | str | None) -> None:
        self.rule = rule
        self.publisher = publisher
        self.id = f"rule:{publisher}/{rule.id}"
        self.topic = rule.topic
        self.terms: Terms = rule.subject.within(domain).terms
        self.allows = rule.allows
        self.expires = rule.expires
        self.over = False  # it has been seen to expire, and does not speak again whatever the clock does
        self.when = when if isinstance(when, Predicate) else None
        self.broken = when if isinstance(when, str) else None

    def asked(self, known: Env) -> bool | Predicate | PredicateFailed:
        """How its condition turns out, as far as `known` decides it."""
        if self.broken is not None:
            return PredicateFailed(self.broken)
        return True if self.when is None else self.when.partial(known)


class Voices:
    """The rules of one publisher that count. `revision` is another number whenever they are others."""

    __slots__ = ("paths", "revision", "voices")

    def __init__(self, voices: Sequence[Voice], revision: int) -> None:
        self.voices = tuple(voices)
        self.revision = revision
        reads: frozenset[str] = frozenset().union(*(each.when.reads for each in voices if each.when is not None))
        self.paths: Paths = paths_below("p", reads)

    def about(self, topic: str, published: str) -> list[Voice]:
        """Those that speak of a message that is delivered under `topic` and was published under `published`.

        A monitor may have changed the topic. What is denied under either is denied; what is opened is what is
        delivered under a topic that may be opened.
        """
        return [
            each
            for each in self.voices
            if topics.matches(each.topic, topic) or (not each.allows and topics.matches(each.topic, published))
        ]


@dataclass(frozen=True, slots=True)
class Word:
    """What rules say of one delivery: `effect` is None if nothing."""

    effect: Effect | None = None
    rule: str = ""
    errors: tuple[tuple[str, str], ...] = ()
    """Conditions that counted as false because they failed, with what went wrong."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """Not said by what is known: ask again with everything, for each message."""

    residual: Callable[[Env], Word]
    reads: frozenset[str]
    volatile: bool
    until: Callable[[Env], datetime | None]
    """As of `Open`."""


_Hit = tuple[Voice, bool | Predicate | PredicateFailed]


def said(voices: Sequence[Voice], known: Env) -> Word | Undecided:
    """What rules that are about a message and its reader say, as far as `known` decides it."""
    hits: list[_Hit] = []
    for voice in voices:
        left = voice.asked(known)
        if left is True and not voice.allows:
            return Word(Effect.DENY, voice.id)
        if left is not False:
            hits.append((voice, left))
    asked = [(voice, left) for voice, left in hits if isinstance(left, Predicate)]
    allowed = any(left is True for _, left in hits)
    if not asked or (allowed and all(voice.allows for voice, _ in asked)):
        return _Residual(tuple((voice, False if isinstance(left, Predicate) else left) for voice, left in hits))({})
    predicates = [left for _, left in asked]
    return Undecided(
        _Residual(tuple(hits)),
        frozenset().union(*(left.reads for left in predicates)),
        any(left.volatile for left in predicates),
        lambda env: earliest(left.until(env) for left in predicates),
    )


class _Residual:
    """What is left to ask for each message."""

    __slots__ = ("_hits",)

    def __init__(self, hits: tuple[_Hit, ...]) -> None:
        self._hits = tuple(sorted(hits, key=lambda hit: hit[0].allows))  # those that deny first

    def __call__(self, env: Env) -> Word:
        errors: tuple[tuple[str, str], ...] = ()
        for voice, left in self._hits:
            try:
                true = left(env) if isinstance(left, Predicate) else left
            except PredicateFailed as failed:
                true = failed
            if isinstance(true, PredicateFailed):
                errors += ((voice.id, true.reason),)
            elif true:
                return Word(Effect.ALLOW if voice.allows else Effect.DENY, voice.id, errors)
        return Word(errors=errors)
