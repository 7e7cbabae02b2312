"""In random worlds: what was seen is allowed, as the gate decides; what stays denied is denied; order means nothing."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from learn.worlds import Judge, World, learned, worlds
from tidegate.learn.as_yaml import to_yaml
from tidegate.learn.propose import Options, propose
from tidegate.learn.table import PERSON, Table, rows, tabulate
from tidegate.session import Subject


def people(world: World) -> dict[tuple[str | None, str], Subject]:
    return {(each.user, each.client): each for each in world.people}


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_what_was_seen_is_allowed(world: World) -> None:
    proposals, config = learned(world)
    judge = Judge(config.built.rules)
    known = people(world)
    left = {(each.person.who, each.action, each.topic) for each, _ in proposals.not_expressed}
    for user, client, action, topic, _, rule, _, _, first, _ in world.rows:
        if action != PERSON and not rule and ((user, client), action, topic) not in left:
            assert judge.allows(known[user, client], action, topic, first), (user, client, action, topic)


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_what_stays_denied_is_denied(world: World) -> None:
    proposals, config = learned(world)
    judge = Judge(config.built.rules)
    known = people(world)
    for each, _ in proposals.denied:
        assert not judge.allows(known[each.person.who], each.action, each.topic, each.first)


@settings(max_examples=40, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_rows_means_nothing(world: World, rng: random.Random) -> None:
    shuffled = list(world.rows)
    rng.shuffle(shuffled)
    halves = [tabulate(shuffled[::2]), tabulate(shuffled[1::2])]  # as parts of a journal are added up
    joined = Table(people=world.table().people)
    for half in halves:
        for *use, count, first, last in rows(half.uses):
            joined.add(type(next(iter(half.uses)))(*use), count, first, last)
    joined.people = world.table().people
    assert to_yaml(propose(joined), []) == to_yaml(propose(world.table()), [])


@settings(max_examples=20, deadline=None)
@given(worlds())
def test_including_what_was_denied(world: World) -> None:
    proposals, config = learned(world, Options(include_denied=True))
    judge = Judge(config.built.rules)
    known = people(world)
    left = {(each.person.who, each.action, each.topic) for each, _ in proposals.not_expressed}
    for user, client, action, topic, _, _, _, _, first, _ in world.rows:
        if action != PERSON and ((user, client), action, topic) not in left:
            assert judge.allows(known[user, client], action, topic, first)
