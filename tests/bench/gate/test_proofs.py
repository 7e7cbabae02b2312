"""Proofs without sockets: what is timed is verified, once each."""

from __future__ import annotations

import pytest
from bench.gate.in_process import World
from bench.gate.steps import Cost, Pace

from bench.gate import proofs_in_process
from tidegate.policy.capability import PrivateKey
from tidegate.policy.capability.proof import Asked, proof


@pytest.fixture(scope="module")
def found() -> list[Cost]:
    told: list[str] = []
    made = proofs_in_process.measure(Pace(seconds=0.01), told.append)
    assert told == ["proof: Ed25519", "proof: ES256"]
    return made


def test_every_figure_is_there_once(found: list[Cost]) -> None:
    groups = [*(f"proof {way}" for way in proofs_in_process.WAYS.values()), "proof alone"]
    assert sorted((one.group, one.name) for one in found) == sorted(
        (group, name) for group in groups for name in proofs_in_process.KEYS
    )


def test_verifying_is_most_of_it(found: list[Cost]) -> None:
    cost = {(one.group, one.name): one.nanos.median for one in found}
    for name in proofs_in_process.KEYS:
        assert cost["proof alone", name] < cost["proof proven each", name]
        assert cost["proof proven each", name] > 2 * cost["proof proven when connecting", name]


def test_what_is_not_proven_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_something_else(
        key: PrivateKey, id: str, subject: str, action: str, topic: str, payload: bytes, counter: int, asked: Asked
    ) -> str:
        return proof(key, id, subject, action, topic, payload + b"!", counter, asked)

    monkeypatch.setattr(proofs_in_process, "proof", of_something_else)
    with pytest.raises(AssertionError, match="was not delivered"):
        proofs_in_process.measure(Pace(seconds=0.01), lambda _: None)


def test_nobody_waits_for_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a turn are verified in it; otherwise its time would be that of another."""
    seen: list[int] = []

    class Watching(World):
        def rest(self) -> None:
            seen.append(len(self.site.unfinished))
            super().rest()

    monkeypatch.setattr(proofs_in_process, "World", Watching)
    monkeypatch.setattr(proofs_in_process, "KEYS", dict(list(proofs_in_process.KEYS.items())[:1]))
    proofs_in_process.measure(Pace(seconds=0.01), lambda _: None)
    assert seen
    assert not any(seen)
