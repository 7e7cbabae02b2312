"""Which links are asked about a message that their clients have not subscribed to."""

from __future__ import annotations

from typing import Any

import pytest
from bench.gate.in_process import World, read

from bench.gate import rulebook


def test_links_in_whose_monitors_nothing_happens_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first message of each publisher would otherwise cost a decision for every client there is."""
    world = World(rulebook.everything(20))
    world.subscriber("s00003", "bench/k03")
    others = [world.subscriber(f"s{number:05d}", "bench/k05") for number in range(4, 14)]
    asked: list[str] = []
    gate = world.scope.gate
    decide = gate.decide

    def watching(message: Any, session: Any, *more: Any) -> Any:
        asked.append(session.client)
        return decide(message, session, *more)

    monkeypatch.setattr(gate, "decide", watching)
    device = world.end("p00003")
    world.play([device], [world.frame("bench/k03", b"x")], 1)
    assert asked == []  # the plan has decided who gets it; nothing happens in the monitors of the others

    stopped = others[0].connection.session
    (instance,) = stopped.leaving
    world.site.open()
    world.scope.path.monitoring.states.move(instance, "stopped", (), at_once=False)
    world.site.close()
    world.site.open()
    device.connection.reader.receive(world.frame("bench/k03", b"x"))
    world.site.close()
    assert asked == [stopped.client]  # it may read it, so its monitor is shown it; nobody else's is


def other_rules(world: World, rules: str, edition: int) -> None:
    """Another edition of the rules, which reads differently; nobody has been looked at since."""
    world.site.open()
    world.scope.change(read(rulebook.everything(20, edition=edition)).rules if not rules else read(rules).rules)
    world.site.opened = False


def test_a_change_of_policies_asks_no_link_about_monitors_in_which_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took a look at every client with each message until all of them had been reviewed."""
    world = World(rulebook.everything(20))
    there = world.subscriber("s00003", "bench/k03")
    device = world.end("p00003")
    world.play([device], [world.frame("bench/k03", b"x")], 1)
    states = world.scope.path.monitoring.states
    monkeypatch.setattr(states, "listening", lambda post: pytest.fail("somebody was asked"))
    other_rules(world, "", 1)
    there.written = 0
    world.site.open()
    device.connection.reader.receive(world.frame("bench/k03", b"x"))
    world.site.close()
    assert there.written


@pytest.mark.parametrize("renamed", [False, True])
def test_a_monitor_that_waits_is_asked_at_once_after_a_change(renamed: bool) -> None:
    """Also before its client has been reviewed, and every client is counted once when all have been."""
    world = World(rulebook.everything(20))
    world.subscriber("s00003", "bench/k03")
    ends = [world.subscriber(f"s{number:05d}", "bench/k05") for number in range(4, 8)]
    device = world.end("p00003")
    stopped = ends[0].connection.session
    states = world.scope.path.monitoring.states
    for edition in (1, 2):
        world.site.open()
        states.move(stopped.leaving[0], "stopped", (), at_once=False)
        world.site.close()
        if renamed:
            states.renamed()
        other_rules(world, "", edition)
        world.site.open()
        device.connection.reader.receive(world.frame(f"{rulebook.STATES}/start", b"x"))
        world.site.close()
        assert [one.connection.session.leaving[0].state for one in ends] == ["running"] * 4
        for _ in range(50):
            world.rest()
        (post,) = world.gate.compiler.mode_counts
        assert post.modes == {"running": len(post.sessions)}


def test_another_monitor_of_the_same_name_is_asked_about_everybody() -> None:
    """Its states may mean anything: whoever is watched is found out first."""
    world = World(rulebook.everything(20))
    world.subscriber("s00003", "bench/k03")
    device = world.end("p00003")
    world.play([device], [world.frame("bench/k03", b"x")], 1)
    text = rulebook.everything(20).replace("start: running", "start: stopped")
    other_rules(world, text, 0)
    (session,) = [one for one in world.scope.sessions.values() if one.client == "s00003"]
    before = session.leaving[0].state
    world.site.open()
    device.connection.reader.receive(world.frame(f"{rulebook.STATES}/stop", b"x"))
    world.site.close()
    assert (before, session.leaving[0].state) == ("running", "stopped")
