"""Which links are asked about a message that their clients have not subscribed to."""

from __future__ import annotations

from typing import Any

import pytest
from bench.gate.in_process import World

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
