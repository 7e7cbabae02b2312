"""Rules from texts, as a file writes them, without a configuration around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.policy import Action, Class, Effect, Policy, Preference, Row, Selector, Template, View, plain_filter
from tidegate.policy.levels import DEFAULT_RANKING
from tidegate.predicate import Function, Predicate, compile


def _condition(when: str | None, functions: Mapping[str, Function] | None) -> Predicate | None:
    return None if when is None else compile(when, functions=functions, ranking=DEFAULT_RANKING)


def policy_of(
    *,
    id: str,
    subject: str | Sequence[str],
    topic: str,
    action: str | Sequence[str],
    effect: str = "allow",
    when: str | None = None,
    functions: Mapping[str, Function] | None = None,
) -> Policy:
    return Policy(
        id=id,
        subject=Selector.parse(subject),
        topic=Template.parse(topic),
        action=frozenset(map(Action, (action,) if isinstance(action, str) else action)),
        effect=Effect(effect),
        when=_condition(when, functions),
    )


def preference_of(
    *,
    id: str,
    user: str,
    topic: str,
    to: str | None = None,
    when: str | None = None,
    keep: str | Sequence[str] = "all",
    denies: bool = False,
    expires: float | None = None,
    functions: Mapping[str, Function] | None = None,
) -> Preference:
    return Preference(
        id=id,
        user=user,
        topic=plain_filter(topic),
        to=to,
        when=_condition(when, functions),
        keep=View.parse(keep),
        text=when,
        denies=denies,
        expires=expires,
    )


def row_of(*, id: str, topic: str, subject: str | Sequence[str], keep: str | Sequence[str]) -> Row:
    return Row(id=id, topic=plain_filter(topic), subject=Selector.parse(subject), view=View.parse(keep))


def class_of(*, topic: str, category: str) -> Class:
    return Class(topic=plain_filter(topic), category=category)
