"""Proofs: of just this, by just this key, once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.capability.making import HOLDERS, good, token
from tidegate.policy.capability import BEFORE, NOTHING, Capability, Shown
from tidegate.policy.capability.jwk import jwk_of
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


def signed(capability: Capability, counter: int, action: str) -> Shown:
    return Shown((proof(HOLDERS["Ed25519"], capability.id, capability.subject, action, "t", b"", counter),))


def test_messages_may_come_late_and_nothing_else() -> None:
    """Whoever kept a CONNECT from the node must not come with it later."""
    capability = held()
    assert objection(capability, by(capability, 10), WRITE, "t", b"x") == ""
    for action in (CONNECT, READ):
        assert "too old" in objection(capability, signed(capability, 8, action), action, "t")
        assert "used before" in objection(capability, signed(capability, 10, action), action, "t")
    assert objection(capability, by(capability, 9), WRITE, "t", b"x") == ""
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


def test_what_was_proven_before_is_not_asked_again() -> None:
    capability = held()
    assert objection(capability, by(capability, 1), WRITE, "t", b"x") == ""
    assert capability.ledger.used is not None
    assert objection(capability, BEFORE, WRITE, "t", b"x") == ""
    assert capability.ledger.used is None


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
