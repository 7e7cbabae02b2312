"""What is measured is what is claimed: so many policies, and they decide."""

from __future__ import annotations

import json
import re

import pytest

from tidegate.bench.gate import rulebook
from tidegate.bench.gate.indoors import World, read
from tidegate.bench.job import PAYLOAD


@pytest.mark.parametrize("dense", [False, True])
def test_everything_has_what_it_says(dense: bool) -> None:
    rules = read(rulebook.everything(20, 250, dense=dense)).rules
    assert rules.policies is not None
    own = [one for one in rules.policies.policies if not one.id.startswith("builtin:")]
    assert len(own) == 250
    assert all(one.when is not None for one in own)
    assert len(rules.preferences) == 20
    assert rules.levels.implied
    there = sum(one.topic.text.startswith("bench/") for one in own)
    assert there == (250 if dense else rulebook.HERE)


def test_another_edition_is_another_version_and_decides_alike() -> None:
    first, second = (read(rulebook.everything(3, 100, edition=number)) for number in (0, 1))
    assert first.policy_version != second.policy_version


def test_no_two_conditions_are_the_same() -> None:
    conditions = re.findall('when: "([^"]+)"', rulebook.everything(10, 1000))
    assert len(conditions) == len(set(conditions)) == 1010


def test_who_may_what() -> None:
    world = World(rulebook.everything(20))
    reader, guest = world.subscriber("s00003", "bench/#"), world.subscriber("b00000", "#")
    frame = world.frame("bench/k03", b"x")
    world.play([world.end("p00003"), world.end("p00017")], [frame, frame], 1)
    assert reader.written == 64 * len(frame)
    world.play([world.end("p00004")], [frame], 1)  # it is not its line
    assert reader.written == 64 * len(frame)
    assert guest.written == 0


def test_content_and_views() -> None:
    assert len(rulebook.content().encode()) == PAYLOAD
    world = World(rulebook.alone(1, more=rulebook.views()))
    readers = [world.subscriber(f"s{number:05d}", "bench/k00") for number in range(2)]
    world.play([world.end("p00000")], [world.frame("bench/k00", rulebook.content().encode())], 1)
    assert len({len(text) for text in rulebook.seen()}) == 1
    for reader, text in zip(readers, rulebook.seen(), strict=True):
        assert reader.written == 64 * len(world.frame("bench/k00", text.encode()))
    assert [set(json.loads(text)) for text in rulebook.seen()] == [{"device", "heart"}, {"device", "steps"}]
