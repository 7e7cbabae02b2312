"""What is measured is what is claimed: so many policies, and they decide."""

from __future__ import annotations

import json
import re

import pytest
from bench.gate.in_process import End, World, read
from bench.load.job import PAYLOAD

from bench.gate import rulebook
from tidegate.monitor import Direction


@pytest.mark.parametrize("dense", [False, True])
def test_everything_has_what_it_says(dense: bool) -> None:
    rules = read(rulebook.everything(20, 250, dense=dense)).rules
    assert rules.policies is not None
    own = [one for one in rules.policies.policies if not one.id.startswith("builtin:")]
    assert len(own) == 250
    assert all(one.when is not None for one in own)
    assert len(rules.preferences) == 20
    assert rules.levels.implied
    assert not rules.brokering.open
    assert [one.direction for one in rules.monitors] == [Direction.IM_PUB, Direction.IM_SUB]
    there = sum(one.topic.text.startswith("bench/") for one in own)
    assert there == (250 if dense else rulebook.HERE)
    assert not read(rulebook.everything(20, monitored=False)).rules.monitors.by_id


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


def said(world: World, end: End, topic: str) -> None:
    world.site.open()
    end.connection.reader.receive(world.frame(topic, b""))
    world.site.close()


def states(world: World) -> dict[str, object]:
    return {
        f"{id} {key.split()[0]}": one.state for (id, key), one in world.scope.path.monitoring.states.instances.items()
    }


def test_monitors_of_every_link_listen_to_the_load_and_do_nothing() -> None:
    world = World(rulebook.everything(20))
    reader, device, other = world.subscriber("s00003", "bench/#"), world.end("p00003"), world.end("p00017")
    frame = world.frame("bench/k03", b"x")
    world.play([device, other], [frame, frame], 1)
    lane = world.gate.lane(device.connection.session.inward, world.version)
    plan = lane.plans[b"bench/k03"]
    assert plan.fast is not None
    assert len(plan.still) == len(plan.hearing) == 1
    assert plan.calm(device.connection.session)
    assert states(world) == {
        f"{id} user:{user}": "running" for id in ("listen", "show") for user in ("s00003", "p00003", "p00017")
    }

    said(world, device, f"{rulebook.STATES}/stop")
    assert {name for name, state in states(world).items() if state == "stopped"} == {
        "listen user:p00003",
        "show user:s00003",
    }
    before = reader.written
    world.play([device, other], [frame, frame], 1)
    assert reader.written == before
    said(world, device, f"{rulebook.STATES}/start")
    before = reader.written
    world.play([device, other], [frame, frame], 1)
    assert reader.written == before + 64 * len(frame)


@pytest.mark.parametrize("name", rulebook.MONITORS)
def test_monitors_see_what_they_claim_and_let_it_pass(name: str) -> None:
    world = World(rulebook.alone(3, more=rulebook.MONITORS[name][1]))
    reader, device = world.subscriber("s00002", "bench/k02"), world.end("p00002")
    frame = world.frame("bench/k02", rulebook.content().encode())
    world.play([device], [frame], 640)
    assert reader.written == 640 * len(frame)
    found = world.scope.path.monitoring.states
    seen = {id: tally.seen for id, tally in found.tallies.items()}
    if name == "calm":
        assert max(seen.values()) <= 1  # before there is a plan
        return
    if name == "acting":
        assert seen == {"turn": 640}
        said(world, device, "bench/k02")
        assert states(world)["turn user:p00002"] == "odd"
        return
    assert seen == {"watch": 640}
    moved = [key.split()[0] for (_, key), one in found.instances.items() if one.state not in (None, "q0")]
    assert moved == {"monitor-payload": [], "rate": ["user:p00002"], "rate-out": ["user:s00002"]}[name]


def test_what_a_monitor_does_not_like_of_the_content() -> None:
    world = World(rulebook.alone(1, more=rulebook.MONITORS["monitor-payload"][1]))
    reader, device = world.subscriber("s00000", "bench/k00"), world.end("p00000")
    world.play([device], [world.frame("bench/k00", b'{"heart":20}')], 64)
    assert reader.written == 0


def test_content_and_views() -> None:
    assert len(rulebook.content().encode()) == PAYLOAD
    world = World(rulebook.alone(1, more=rulebook.views()))
    readers = [world.subscriber(f"s{number:05d}", "bench/k00") for number in range(2)]
    world.play([world.end("p00000")], [world.frame("bench/k00", rulebook.content().encode())], 1)
    assert len({len(text) for text in rulebook.seen()}) == 1
    for reader, text in zip(readers, rulebook.seen(), strict=True):
        assert reader.written == 64 * len(world.frame("bench/k00", text.encode()))
    assert [set(json.loads(text)) for text in rulebook.seen()] == [{"device", "heart"}, {"device", "steps"}]
