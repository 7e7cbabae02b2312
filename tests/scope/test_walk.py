"""What the engine delivers through several scopes is what a walk from link to link says, message for message.

Between messages everybody may come, go and subscribe, and the rules may change with all scopes, links and monitors.
Some of the engines have room for almost no plan, so that plans are made and let go of all the time.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from scope.settings import Pick
from scope.sidebyside import Both

DATA = st.data()
HISTORIES = 160
STEPS = 50


def picking(data: st.DataObject) -> Pick:
    return lambda choices: data.draw(st.sampled_from(choices))


class Together(RuleBasedStateMachine):
    """Short histories, which shrink."""

    both: Both

    @initialize(data=DATA)
    def begin(self, data: st.DataObject) -> None:
        self.both = Both(picking(data))

    @rule(data=DATA)
    def publish(self, data: st.DataObject) -> None:
        self.both.publish(picking(data))

    @rule(data=DATA)
    def publish_again(self, data: st.DataObject) -> None:
        self.both.publish(picking(data))

    @rule(data=DATA)
    def subscribe(self, data: st.DataObject) -> None:
        self.both.subscribe(picking(data))

    @rule(data=DATA)
    def unsubscribe(self, data: st.DataObject) -> None:
        self.both.unsubscribe(picking(data))

    @rule(data=DATA)
    def come(self, data: st.DataObject) -> None:
        self.both.come(picking(data))

    @rule(data=DATA)
    def go(self, data: st.DataObject) -> None:
        self.both.go(picking(data))

    @rule(data=DATA)
    def change(self, data: st.DataObject) -> None:
        self.both.change(picking(data))


class TestTogether(Together.TestCase):  # type: ignore[valid-type,misc]
    settings = settings(
        max_examples=60,
        stateful_step_count=15,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def lived(seed: int, steps: int) -> int:
    """A long history; how much was delivered in it."""
    rng = Random(seed)
    both = Both(rng.choice)
    acts = (
        [both.publish] * 12 + [both.subscribe] * 3 + [both.come] * 3 + [both.go] * 2 + [both.unsubscribe, both.change]
    )
    for _ in range(steps):
        rng.choice(acts)(rng.choice)
    return both.delivered


@pytest.mark.parametrize("part", range(8))
def test_long_histories(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if part % 2:  # a subscription that reaches three plans makes the gate forget all of them
        monkeypatch.setattr("tidegate.gate.plan_cache.WHOLESALE", 3)
    delivered = [lived(seed, STEPS) for seed in range(part, HISTORIES, 8)]
    assert sum(delivered) > 5 * HISTORIES


@pytest.mark.soak
def test_many_long_histories() -> None:
    for seed in range(1_000_000, 1_020_000):
        lived(seed, 3 * STEPS)
