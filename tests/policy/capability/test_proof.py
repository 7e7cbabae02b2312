"""Proofs: of just this, by just this key, once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.capability.making import HOLDERS, good, token
from tidegate.policy.capability import BEFORE, NOTHING, Capability, Ledger, Shown
from tidegate.policy.capability.keys import jwk_of
from tidegate.policy.capability.ledger import RECENT
from tidegate.policy.capability.proof import (
    CONNECT,
    HIGHEST,
    READ,
    WRITE,
    filters_of,
    objection,
    proof,
    response,
    shown_by,
    signature,
    statement,
    verified,
)


def held(kind: str = "Ed25519", **changed: Any) -> Capability:
    return good(token(cnf={"jwk": jwk_of(HOLDERS[kind].public_key())}, **changed))


def by(capability: Capability, counter: int, topic: str = "t", payload: bytes = b"x", kind: str = "Ed25519") -> Shown:
    """What its holder shows for a message."""
    return Shown((proof(HOLDERS[kind], capability.id, capability.subject, WRITE, topic, payload, counter),))


@pytest.mark.parametrize("kind", HOLDERS)
def test_what_is_proven_passes_once(kind: str) -> None:
    capability = held(kind)
    shown = by(capability, 1, kind=kind)
    assert objection(capability, shown, WRITE, "t", b"x") == ""
    assert "used before" in objection(capability, shown, WRITE, "t", b"x")
    assert objection(capability, by(capability, 2, kind=kind), WRITE, "t", b"x") == ""


@given(st.data())
@pytest.mark.parametrize("kind", HOLDERS)
def test_any_bit_flipped_is_refused(kind: str, data: st.DataObject) -> None:
    capability = held(kind)
    (text,) = by(capability, 12345, kind=kind).texts
    at = data.draw(st.integers(0, len(text) - 1))
    bit = data.draw(st.integers(0, 6))
    flipped = text[:at] + chr(ord(text[at]) ^ 1 << bit) + text[at + 1 :]
    assert objection(capability, Shown((flipped,)), WRITE, "t", b"x") != ""
    assert capability.ledger.highest == 0


def test_it_is_of_just_this() -> None:
    capability = held()
    for action, topic, payload in ((READ, "t", b"x"), (CONNECT, "t", b"x"), (WRITE, "u", b"x"), (WRITE, "t", b"y")):
        assert "not of this" in objection(capability, by(capability, 1), action, topic, payload)
    for other in (held(jti="c2"), held(sub="user:eve"), held("P-256")):
        assert "not of this" in objection(other, by(capability, 1), WRITE, "t", b"x")
    assert objection(capability, by(capability, 1), WRITE, "t", b"x") == ""


def test_no_two_statements_are_the_same() -> None:
    """What is joined cannot be parted otherwise."""
    assert statement("a", "bc", WRITE, "t", b"", 1) != statement("ab", "c", WRITE, "t", b"", 1)
    assert statement("a", "b", "writ", "et", b"", 1) != statement("a", "b", WRITE, "t", b"", 1)
    assert filters_of(["a", "b"]) != filters_of(["a/b"]) != filters_of(["b", "a"])


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ((), "no proof"),
        (("1.a", "2.b"), "several"),
        (("",), "COUNTER"),
        (("1",), "COUNTER"),
        (("0." + "A" * 86,), "COUNTER"),
        (("01." + "A" * 86,), "COUNTER"),
        (("-1." + "A" * 86,), "COUNTER"),
        (("\u0661." + "A" * 86,), "COUNTER"),
        ((f"{HIGHEST + 1}." + "A" * 86,), "COUNTER"),
        (("1." + "A" * 85 + "B",), "COUNTER"),
        (("1." + "A" * 86,), "not of this"),
    ],
)
def test_what_is_no_proof(texts: tuple[str, ...], said: str) -> None:
    assert said in objection(held(), Shown(texts), WRITE, "t", b"x")


def test_counters_only_grow() -> None:
    capability = held()
    assert objection(capability, by(capability, 10), WRITE, "t", b"x") == ""
    assert "used before" in objection(capability, by(capability, 9), WRITE, "t", b"x")
    assert objection(capability, by(capability, 1000), WRITE, "t", b"x") == ""
    assert objection(capability, by(capability, HIGHEST), WRITE, "t", b"x") == ""


def test_a_repetition_is_no_replay() -> None:
    capability = held()
    first = by(capability, 1)
    assert objection(capability, first, WRITE, "t", b"x") == ""
    assert objection(capability, by(capability, 2), WRITE, "t", b"x") == ""
    again = replace(first, repeated=True)
    assert objection(capability, again, WRITE, "t", b"x") == ""
    changed = replace(by(capability, 1, payload=b"y"), repeated=True)
    assert "used before" in objection(capability, changed, WRITE, "t", b"y")
    skipped = Ledger(5)
    assert not skipped.take(3, b"d", repeated=True)
    assert not skipped.take(5, b"d", repeated=True)  # of before a restart


def test_the_window_of_repetitions_is_bounded() -> None:
    ledger = Ledger()
    for counter in range(1, RECENT + 2):
        assert ledger.take(counter, b"%d" % counter)
    assert not ledger.take(1, b"1", repeated=True)
    assert ledger.take(2, b"2", repeated=True)


@given(st.lists(st.tuples(st.integers(1, 12), st.sampled_from([b"a", b"b"]), st.booleans()), max_size=40))
def test_nothing_counts_twice(tries: list[tuple[int, bytes, bool]]) -> None:
    """A statement that does not say that it is a repetition passes only with a counter above all before it."""
    told: list[int] = []
    ledger = Ledger(note=told.append)
    passed: dict[int, bytes] = {}
    for counter, digest, repeated in tries:
        expected = counter > max(passed, default=0) or (repeated and passed.get(counter) == digest)
        assert ledger.take(counter, digest, repeated=repeated) is expected
        if expected:
            passed.setdefault(counter, digest)
    assert told == sorted(passed)


def test_what_was_proven_before_is_not_asked_again() -> None:
    assert objection(held(), BEFORE, WRITE, "t", b"x") == ""


def test_it_is_found_among_user_properties() -> None:
    assert shown_by([("a", "b")]) == NOTHING
    assert shown_by([("proof", "1"), ("a", "b")], repeated=True) == Shown(("1",), True)


@pytest.mark.parametrize("kind", HOLDERS)
def test_a_response_is_for_one_challenge_and_client(kind: str) -> None:
    key = HOLDERS[kind]
    signed = signature(key, response("c1", "user:mary", "tr1", b"nonce"))
    assert len(signed) == 64
    assert verified(key.public_key(), signed, response("c1", "user:mary", "tr1", b"nonce"))
    assert not verified(key.public_key(), signed, response("c1", "user:mary", "tr1", b"other"))
    assert not verified(key.public_key(), signed, response("c1", "user:mary", "tr2", b"nonce"))
    assert not verified(key.public_key(), b"", b"")
    assert not verified(key.public_key(), bytes(64), b"")
