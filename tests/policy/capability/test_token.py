"""Tokens: what is taken, and that nothing else is."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from policy.capability.making import ED, HOLDER, ISSUERS, KEYS, NOW, claims, good, judged, key_of, token, why
from tidegate.policy import BUILT_IN, Action
from tidegate.policy.capability import TYPE, Capability, Issuers, Proof, Unacceptable, looks_like_one
from tidegate.policy.capability.jwk import decoded, encoded, jwk_of
from tidegate.policy.capability.proof import signature
from tidegate.policy.capability.token import MAX


def forged(header: dict[str, Any], body: dict[str, Any] | bytes | None = None, key: Any = ED) -> str:
    """A token with any header, signed as JWS says."""
    content = body if isinstance(body, bytes) else json.dumps(claims() if body is None else body).encode()
    signed = f"{encoded(json.dumps(header).encode())}.{encoded(content)}"
    return f"{signed}.{encoded(signature(key, signed.encode()))}"


@pytest.mark.parametrize("algorithm", KEYS)
def test_what_is_signed_is_taken(algorithm: str) -> None:
    found = good(token(KEYS[algorithm], attributes={"ward": 3}, proof="per-message", nbf=NOW - 5, iat=NOW))
    assert (found.id, found.issuer, found.user, found.client) == ("c1", "ward", "mary", None)
    assert found.attributes == {"ward": 3}
    assert (found.begins, found.expires, found.proof) == (NOW - 5, NOW + 100, Proof.PER_MESSAGE)
    assert found.signer == key_of(KEYS[algorithm]).thumbprint
    assert not found.proven


def test_the_newer_name_of_ed25519_is_taken() -> None:
    good(forged({"alg": "Ed25519", "typ": TYPE}))


@given(st.data())
@pytest.mark.parametrize("algorithm", KEYS)
def test_any_bit_flipped_is_refused(algorithm: str, data: st.DataObject) -> None:
    text = _TOKENS[algorithm]
    at = data.draw(st.integers(0, len(text) - 1))
    bit = data.draw(st.integers(0, 6))
    flipped = text[:at] + chr(ord(text[at]) ^ 1 << bit) + text[at + 1 :]
    assert isinstance(judged(flipped), Unacceptable)


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_nothing_that_comes_in_raises(text: str) -> None:
    assert isinstance(judged(text), Unacceptable)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5), st.data())
def test_no_claim_that_is_signed_raises(value: Any, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["sub", "jti", "exp", "nbf", "iat", "cnf", "rights", "attributes", "proof"]))
    body = {**claims(), name: value}
    found = judged(forged({"alg": "EdDSA", "typ": TYPE}, body))
    if isinstance(found, Capability):
        assert name in ("sub", "jti", "iat", "nbf", "rights", "attributes")


_TOKENS = {algorithm: token(key) for algorithm, key in KEYS.items()}


# -- headers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "None", "HS256", "RS256", "ES384", "Ed448", "", "eddsa", None, 1, ["EdDSA"]])
def test_other_algorithms_are_refused(name: Any) -> None:
    assert "algorithm" in why(forged({"alg": name, "typ": TYPE}))


def test_no_signature_is_refused() -> None:
    header = encoded(json.dumps({"alg": "none", "typ": TYPE}).encode())
    assert "algorithm" in why(f"{header}.{encoded(json.dumps(claims()).encode())}.")


def test_a_public_key_is_no_secret() -> None:
    """The classic confusion: HMAC with the text of the public key."""
    pem = ED.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encoded(json.dumps({'alg': 'HS256', 'typ': TYPE}).encode())}.{encoded(json.dumps(claims()).encode())}"
    mac = hmac.new(pem, signed.encode(), hashlib.sha256).digest()
    assert "algorithm" in why(f"{signed}.{encoded(mac)}")


def test_the_algorithm_is_that_of_the_key() -> None:
    """Signed by the Ed25519 key, and said to be ES256."""
    assert "no key" in why(forged({"alg": "ES256", "typ": TYPE}))


@pytest.mark.parametrize("typ", [None, "JWT", "jwt", "at+jwt", TYPE.upper(), 1])
def test_other_types_are_refused(typ: Any) -> None:
    header = {"alg": "EdDSA"} | ({} if typ is None else {"typ": typ})
    assert "type" in why(forged(header))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("crit", ["exp"]),
        ("b64", False),
        ("jwk", jwk_of(HOLDER.public_key())),
        ("jku", "https://evil.example/jwks"),
        ("x5u", "https://evil.example/x5u"),
        ("x5c", ["MII"]),
        ("zip", "DEF"),
    ],
)
def test_headers_that_say_more_are_refused(name: str, value: Any) -> None:
    """Whoever signs with a key of their own and brings it along is not believed, nor whoever asks for more."""
    for key in (HOLDER, ED):
        assert "header" in why(forged({"alg": "EdDSA", "typ": TYPE, name: value}, key=key))


def test_keys_are_found_by_name_where_they_have_one() -> None:
    other = Ed25519PrivateKey.generate()
    issuers = Issuers({"ward": [key_of(other, "old"), key_of(ED, "new")]})
    header = {"alg": "EdDSA", "typ": TYPE}
    good(forged({**header, "kid": "new"}), issuers=issuers)
    good(forged({**header, "kid": "old"}, key=other), issuers=issuers)
    good(forged(header), issuers=issuers)
    assert "no key" in why(forged({**header, "kid": "old"}), issuers=issuers)


# -- who signed ----------------------------------------------------------------------------------------------------


def test_another_key_is_refused() -> None:
    assert "no key of its issuer" in why(token(Ed25519PrivateKey.generate()))


def test_another_issuer_is_refused() -> None:
    assert "issuer" in why(token(iss="other"))
    both = Issuers({**ISSUERS.keys, "other": [key_of(HOLDER)]})
    assert "no key of its issuer" in why(token(iss="other"), issuers=both)


def test_what_nobody_vouched_for_has_no_id() -> None:
    unknown, expired = judged(token(HOLDER)), judged(token(exp=NOW - 1))
    assert isinstance(unknown, Unacceptable)
    assert isinstance(expired, Unacceptable)
    assert (unknown.id, expired.id) == ("", "c1")


def test_a_withdrawn_key_is_told_from_one_that_stays() -> None:
    found = good(token())
    assert ISSUERS.trusts(found.issuer, found.signer)
    assert not Issuers({"ward": [key_of(HOLDER)]}).trusts(found.issuer, found.signer)
    assert not Issuers({"other": [key_of(ED)]}).trusts(found.issuer, found.signer)


# -- claims --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"jti": None}, "jti"),
        ({"jti": ""}, "jti"),
        ({"jti": "a\nb"}, "jti"),
        ({"jti": "x" * 129}, "jti"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"exp": -1}, "exp"),
        ({"nbf": NOW + 100}, "ends before it begins"),
        ({"iat": "then"}, "iat"),
        ({"sub": None}, "sub"),
        ({"sub": "mary"}, "sub"),
        ({"sub": "user:"}, "sub"),
        ({"sub": "client:"}, "sub"),
        ({"sub": "user:mary/client:"}, "sub"),
        ({"sub": "user:mary@elsewhere"}, "sub"),
        ({"sub": "service:pipeline"}, "sub"),
        ({"sub": "user:a\0b"}, "sub"),
        ({"cnf": None}, "confirmation key"),
        ({"cnf": {}}, "confirmation key"),
        ({"cnf": {"jwk": {"kty": "oct", "k": "AAAA"}}}, "confirmation key"),
        ({"cnf": {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}}}, "confirmation key"),
        ({"cnf": {"jwk": {"kty": "OKP", "crv": "X25519", "x": encoded(bytes(32))}}}, "confirmation key"),
        ({"cnf": {"jwk": {"kty": "EC", "crv": "P-256", "x": encoded(bytes(32)), "y": encoded(bytes(32))}}}, "confirm"),
        ({"cnf": {"jwk": {**jwk_of(HOLDER.public_key()), "d": encoded(bytes(32))}}}, "private"),
        ({"cnf": {"jwk": jwk_of(HOLDER.public_key()), "kid": "1"}}, "confirmation key"),
        ({"rights": None}, "rights"),
        ({"rights": {}}, "rights"),
        ({"rights": [{"action": "read"}]}, "right"),
        ({"rights": [{"action": "all", "topic": "a"}]}, "right"),
        ({"rights": [{"action": [], "topic": "a"}]}, "right"),
        ({"rights": [{"action": "read", "topic": "a/#/b"}]}, "filter"),
        ({"rights": [{"action": "read", "topic": ""}]}, "filter"),
        ({"rights": [{"action": "read", "topic": "$share/g/a"}]}, "filter"),
        ({"rights": [{"action": "read", "topic": "a", "when": "false"}]}, "right"),
        ({"attributes": []}, "attributes"),
        ({"attributes": {"a b": 1}}, "attribute"),
        ({"attributes": {"deep": [[[[[[[[[1]]]]]]]]]}}, "deep"),
        ({"proof": "always"}, "proof"),
        ({"aud": "another node"}, "aud"),
    ],
)
def test_claims_that_are_not_understood_are_refused(changed: dict[str, Any], said: str) -> None:
    assert said in why(token(**changed))


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_no_attribute_shadows_a_built_in_one(name: str) -> None:
    assert f"`{name}`" in why(token(attributes={"fine": 1, name: "admin"}))


@pytest.mark.parametrize(
    ("sub", "user", "client"),
    [
        ("user:mary", "mary", None),
        ("client:tr1", None, "tr1"),
        ("user:mary/client:tr1", "mary", "tr1"),
        ("client:a/b:c", None, "a/b:c"),
        ("user:mary/client:a/client:b", "mary", "a/client:b"),
    ],
)
def test_subjects(sub: str, user: str | None, client: str | None) -> None:
    found = good(token(sub=sub))
    assert (found.user, found.client, found.subject) == (user, client, sub)


def test_size_is_bounded() -> None:
    assert f"{MAX}" in why(token(attributes={"long": "x" * MAX}))


def test_nested_without_end_is_refused() -> None:
    body = b'{"iss":"ward","attributes":{"a":' + b"[" * 2500 + b"]" * 2500 + b"}}"
    assert isinstance(judged(forged({"alg": "EdDSA", "typ": TYPE}, body)), Unacceptable)


# -- rights --------------------------------------------------------------------------------------------------------


def test_rights() -> None:
    found = good(token())
    assert found.permits(Action.READ, "angina")
    assert found.permits(Action.READ, "angina/a/b")
    assert not found.permits(Action.WRITE, "angina/a")
    assert found.permits(Action.WRITE, "ward/1/bed")
    assert not found.permits(Action.READ, "ward/1")
    assert found.overlaps(Action.READ, "#")
    assert found.overlaps(Action.READ, "+/+/bed")
    assert not found.overlaps(Action.WRITE, "angina/#")
    assert not found.overlaps(Action.READ, "other/#")


@pytest.mark.parametrize("filter", ["#", "+/#", "+/a"])
def test_wildcards_leave_dollar_topics_alone(filter: str) -> None:
    found = good(token(rights=[{"action": ["read", "write"], "topic": filter}]))
    assert not found.permits(Action.READ, "$SYS/a")
    assert not found.overlaps(Action.READ, "$SYS/#")


# -- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wall", "steady", "said"),
    [
        (99, 99, ""),
        (100, 100, "expired"),
        (101, 50, "expired"),
        (50, 101, "expired"),  # the wall clock was put back
        (-11, -11, "not valid yet"),
        (-11, 50, "not valid yet"),
        (50, -11, "not valid yet"),  # the wall clock was put forward
        (-10, -10, ""),
    ],
)
def test_both_clocks_have_to_agree(wall: float, steady: float, said: str) -> None:
    text = token(nbf=NOW - 10)
    if said:
        assert said in why(text, wall=NOW + wall, steady=NOW + steady)
    else:
        good(text, wall=NOW + wall, steady=NOW + steady)


# -- what is taken for one -----------------------------------------------------------------------------------------


def test_passwords_are_told_from_tokens() -> None:
    assert looks_like_one(token().encode())
    for password in (b"", b"secret", b"a.b.c", b"eyJhbGc", "eyJ.ä.b".encode()):
        assert not looks_like_one(password)


@given(st.binary(max_size=70))
def test_base64url_has_one_form(data: bytes) -> None:
    text = encoded(data)
    assert decoded(text) == data
    assert decoded(text + "=") is None
    assert decoded(f" {text}") is None


def test_keys_of_other_kinds_are_not_taken() -> None:
    from tidegate.errors import ConfigError
    from tidegate.policy.capability.jwk import keys_of_jwks, keys_of_pem, public_keys

    form = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for key in (
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP384R1()),
        ed448.Ed448PrivateKey.generate(),
    ):
        with pytest.raises(ConfigError, match="Ed25519 or P-256"):
            public_keys(key.public_key().public_bytes(*form))
    pem = b"".join(key.public_key().public_bytes(*form) for key in KEYS.values())
    assert [one.algorithms for one in keys_of_pem(pem)] == [("EdDSA", "Ed25519"), ("ES256",)]
    listed = [{**jwk_of(key.public_key()), "kid": name, "use": "sig"} for name, key in KEYS.items()]
    text = json.dumps({"keys": [*listed, {"kty": "RSA", "n": "AQAB", "e": "AQAB"}, {**listed[0], "use": "enc"}]})
    assert [one.name for one in keys_of_jwks(text.encode())] == list(KEYS)
    for broken in (b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "OKP", "crv": "Ed25519"}]}'):
        with pytest.raises(ConfigError):
            keys_of_jwks(broken)
