"""What a reader with a client of its own needs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keys.making import FLOWERS, entropy, sealed
from tidegate.errors import KeysError
from tidegate.keys import Kem, Keychain, PrivateKey, ReadKey, Ring, open_message, read_key, wrap

REQUEST = "a-random-request-1"


@pytest.mark.parametrize("kem", Kem)
def test_receiving_as_aups_does(kem: Kem) -> None:
    """AUPS, figure 5: no key yet, it is asked for, and then it is enough for the next messages."""
    ring, private, chain = Ring(entropy=entropy()), PrivateKey.generate(entropy("mary"), kem), Keychain()
    first = sealed(ring, FLOWERS, b"red", topic="flowers/1", now=1000)
    with pytest.raises(KeysError, match="ask for it") as told:
        open_message(first, "flowers/1", chain, now=5)
    missing = told.value.missing
    assert missing == json.loads(first)["keyId"]
    key = ring.find(missing, 1001)
    assert key is not None
    answer = wrap(key, private.public, reader="user:mary", request=REQUEST, seconds=ring.left(key.id, 1001))
    chain.put(read_key(answer.decode(), private.text(), reader="user:mary", request=REQUEST), now=6)
    assert open_message(first, "flowers/1", chain, now=6) == b"red"
    second = sealed(ring, FLOWERS, b"blue", topic="flowers/2", now=1200)
    assert open_message(second, "flowers/2", chain, now=205) == b"blue"
    with pytest.raises(KeysError, match="ask for it") as told:
        open_message(second, "flowers/2", chain, now=6 + 329)
    assert told.value.missing == missing, "it has ended"


def test_a_message_that_was_changed_is_not_one_whose_key_is_missing() -> None:
    ring, chain = Ring(entropy=entropy()), Keychain()
    message = sealed(ring, FLOWERS, b"red", topic="flowers/1", now=0)
    key = ring.current(FLOWERS, 0)
    chain.put(ReadKey(id=key.id, secret=key.secret, seconds=10), now=0)
    for payload, topic in ((message, "flowers/2"), (message[:-6] + b'AA=="}', "flowers/1"), (b"21.5", "flowers/1")):
        with pytest.raises(KeysError) as told:
            open_message(payload, topic, chain, now=1)
        assert told.value.missing is None


def test_an_answer_is_read_with_the_key_in_pem() -> None:
    private = PrivateKey.generate(entropy("mary"))
    key = Ring(entropy=entropy()).current(FLOWERS, 0)
    answer = wrap(key, private.public, reader="user:mary", request=REQUEST, seconds=1)
    assert read_key(answer, private.pem(), reader="user:mary", request=REQUEST).secret == key.secret
    with pytest.raises(KeysError, match="another request"):
        read_key(answer, private, reader="user:mary", request="a-random-request-2")


@given(st.text(st.characters(codec=None)))
def test_whatever_is_answered_raises_nothing_else(answer: str) -> None:
    with pytest.raises(KeysError):
        read_key(answer, PrivateKey.generate(entropy()), reader="user:mary", request=REQUEST)


def test_a_chain_is_bounded_and_forgets() -> None:
    chain = Keychain(limit=3)
    for number in range(5):
        chain.put(ReadKey(id=f"k{number}", secret=bytes(32), seconds=10 + number), now=0)
    assert [chain.get(f"k{number}", now=0) is not None for number in range(5)] == [False, False, True, True, True]
    assert chain.get("k2", now=11.9) is not None
    assert chain.get("k2", now=12) is None
    chain.put(ReadKey(id="k3", secret=bytes(32), seconds=1), now=12)
    assert chain.get("k3", now=13) is None
    chain.put(ReadKey(id="k9", secret=bytes(32), seconds=1), now=20)
    assert len(chain) == 1


def test_a_clock_that_is_set_back_keeps_no_key() -> None:
    chain = Keychain()
    chain.put(ReadKey(id="k", secret=bytes(32), seconds=10), now=1000)
    assert chain.get("k", now=500) is not None
    assert chain.get("k", now=510) is None
