"""Public keys in the directory: parsed once, told with their place when they are wrong."""

from __future__ import annotations

import pytest

from config.samples import HEAD
from tidegate.config import Config, ConfigErrors, parse
from tidegate.keys import Kem, PrivateKey

PAIR = PrivateKey(kem=Kem.X25519, seed=bytes(range(32)))
HYBRID = PrivateKey(kem=Kem.HYBRID, seed=bytes(range(32)))


def config(user: str = "{}", client: str = "{}") -> Config:
    text = f"{HEAD}policies: []\ndirectory:\n  users:\n    mary: {user}\n  clients:\n    tr1: {client}\n"
    return parse(text, "test.yaml")


def wrong(user: str = "{}", client: str = "{}") -> str:
    with pytest.raises(ConfigErrors) as refused:
        config(user, client)
    return str(refused.value)


def test_readers_by_name() -> None:
    found = config(f"{{public_key: '{PAIR.public}'}}", f"{{public_key: '{HYBRID.public}'}}").built.readers
    assert found == {"user:mary": PAIR.public, "client:tr1": HYBRID.public}
    assert config().built.readers == {}


def test_pem() -> None:
    found = config(f"{{public_key: {PAIR.public.pem()!r}}}".replace("'", '"')).built.readers
    assert found == {"user:mary": PAIR.public}


def test_what_was_parsed_before_is_used_again() -> None:
    text = f"{{public_key: '{PAIR.public}'}}"
    assert config(text).built.readers["user:mary"] is config(text).built.readers["user:mary"]


def test_a_key_is_no_policy() -> None:
    with_key = config(f"{{public_key: '{PAIR.public}'}}", f"{{public_key: '{PAIR.public}'}}")
    assert with_key.built.policy_version == config().built.policy_version


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("x", "it is no key of a known kind; write `x25519:…`, `mlkem768-x25519:…`, or an X25519 key in PEM"),
        ("x25519:AAAA", "has 32 bytes, this one has 3; make a pair with `tidegate key pair`"),
        (f"x25519:{'A' * 43}", "no secret can be agreed on with this public key; make a new pair"),
        (PAIR.text(), "it is a private key; keep that, and give away the public one"),
    ],
)
def test_what_is_wrong(written: str, said: str) -> None:
    told = wrong(f"{{public_key: '{written}'}}")
    assert told.startswith("test.yaml:7: `directory.users.mary.public_key` cannot be used: ")
    assert said in told
    assert PAIR.text() not in told


def test_the_key_of_a_client_that_reads_as_its_user() -> None:
    told = wrong(client=f"{{user: mary, public_key: '{PAIR.public}'}}")
    assert told.startswith("test.yaml:9: `directory.clients.tr1.public_key` is never used: the client reads as `mary`")
