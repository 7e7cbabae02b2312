"""Tokens of issuers, and where their keys come from: everything that does not count."""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from joserfc import jwk
from joserfc.errors import SecurityWarning

from issuers import CLIENT, Pretended, SigningKey, claims, pretended
from tidegate.authentication import openid_provider
from tidegate.authentication.openid_provider import OpenIdProvider
from tidegate.authentication.openid_token import UnknownSigner, Wrong, keys_of, looks_like_one, verify
from tidegate.authentication.outgoing_request import Unreachable
from tidegate.config.identity_providers import Claims, Oidc
from tidegate.errors import ConfigError
from tidegate.policy.person import Person

URL = "https://login.example/realms/gym"
RSA, EC, ED, STRANGER = SigningKey(), SigningKey("two", "ES256"), SigningKey("three", "EdDSA"), SigningKey()
GYM = Oidc(name="gym", issuer=URL, client=CLIENT, claims=Claims(attributes={"shift": "/gym/shift"}))
KEYS = keys_of(orjson.dumps({"keys": [RSA.public, EC.public, ED.public]}))


def verified(token: str, *, nonce: str | None = "n", settings: Oidc = GYM) -> Person:
    return verify(token, settings, KEYS, time.time(), nonce=nonce)


def said(**more: Any) -> dict[str, Any]:
    return claims(URL, **{"nonce": "n", **more})


@pytest.mark.parametrize("key", [RSA, EC, ED], ids=lambda key: key.algorithm)
def test_a_token_says_who_somebody_is(key: SigningKey) -> None:
    person = verified(key.sign(said(gym={"shift": "early"}, groups="ops", aud=[CLIENT])))
    assert (person.full_name, person.roles, person.groups) == ("ana@gym", ("trainer",), ("ops",))
    assert person.attributes == {"shift": "early"}


NOW = time.time()  # when the tests are collected, which may be long before they run
DAY = 86_400


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"iss": "https://login.example/realms/other"}, "another issuer"),
        ({"iss": URL + "/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "other"}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": ["other"]}, "aud"),
        ({"aud": {CLIENT: 1}}, "aud"),
        ({"aud": [CLIENT, "other"]}, "azp"),
        ({"azp": "other"}, "azp"),
        ({"exp": NOW - 1}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": "9999999999"}, "no time"),
        ({"exp": True}, "no time"),
        ({"nbf": NOW + DAY}, "not valid yet"),
        ({"iat": NOW + DAY}, "not valid yet"),
        ({"nonce": "m"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"nonce": 7}, "nonce"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": "a\nb"}, "sub"),
        ({"sub": ["ana"]}, "sub"),
        ({"roles": [str(number) for number in range(257)]}, "more than"),
    ],
)
def test_what_a_token_must_say(more: dict[str, Any], why: str) -> None:
    with pytest.raises(Wrong, match=why):
        verified(RSA.sign(said(**more)))


def encoded(data: Any) -> str:
    return urlsafe_b64encode(orjson.dumps(data)).rstrip(b"=").decode()


def forged(header: dict[str, Any], signature: str = "") -> str:
    return f"{encoded(header)}.{encoded(said())}.{signature}"


def mac(secret: bytes) -> str:
    """Signed with what everybody can read."""
    signed = f"{encoded({'alg': 'HS256', 'kid': 'one'})}.{encoded(said())}"
    signature = urlsafe_b64encode(hmac.digest(secret, signed.encode(), "sha256")).rstrip(b"=").decode()
    return f"{signed}.{signature}"


@pytest.mark.parametrize(
    "token",
    [
        forged({"alg": "none"}),
        forged({"alg": "None", "kid": "one"}),
        forged({"kid": "one"}),
        forged({"alg": ["RS256"], "kid": "one"}),
        mac(RSA.key.as_pem(private=False)),
        mac(RSA.key.as_der(private=False)),
        mac(orjson.dumps(RSA.public)),
        STRANGER.sign(said()),
        STRANGER.sign(said(), jwk=STRANGER.public),
        STRANGER.sign(said(), jku="https://evil.example/jwks"),
        EC.sign(said(), kid="one"),
        RSA.sign(said(), alg="RS512"),
        RSA.sign(said(), typ="logout+jwt"),
        RSA.sign(said(), typ="tidegate-capability+jwt"),
        RSA.sign(said(), typ="at+jwt"),
        RSA.sign(said())[:-8] + "AAAAAAAA",
        RSA.sign(said()).replace(".", ".A", 1),
        RSA.sign(said()) + ".x",
        "e30.e30.",
        "",
        "x" * 20_000,
    ],
    ids=range(21),
)
def test_nothing_but_a_key_of_the_issuer_signs(token: str) -> None:
    with pytest.raises(Wrong):
        verified(token)


def test_a_header_that_demands_something_is_not_understood() -> None:
    token = RSA.sign(said())
    header = encoded({"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": False})
    with pytest.raises(Wrong, match="demands"):
        verified(f"{header}.{token.partition('.')[2]}")


def test_bearer_tokens_are_for_those_who_are_listed() -> None:
    """An access token for this node, or an ID token; what is for another service is not for this one."""
    token = RSA.sign(said(aud="https://mqtt.example", azp="app"), typ="at+jwt")
    with pytest.raises(Wrong, match="aud"):
        verified(token, nonce=None)
    listed = GYM.model_copy(update={"audience": ("https://mqtt.example",)})
    assert verified(token, nonce=None, settings=listed).name == "ana"
    assert looks_like_one(token.encode())
    assert not looks_like_one(RSA.sign(said(), typ="tidegate-capability+jwt").encode())
    assert not looks_like_one(b"eyJ a password.with.dots")


def test_keys_that_do_not_count() -> None:
    with pytest.warns(SecurityWarning):
        weak = jwk.RSAKey.generate_key(1024)
    secret = {"kty": "oct", "k": encoded("secret"), "alg": "HS256"}
    others = [{**RSA.public, "use": "enc"}, weak.as_dict(private=False), secret, {"kty": "RSA"}, {"kty": ["RSA"]}, 7]
    with pytest.raises(ConfigError, match="no public key"):
        keys_of(orjson.dumps({"keys": others}))
    for content in (b"", b"[]", b'{"keys": 1}', b'{"keys": []}'):
        with pytest.raises(ConfigError):
            keys_of(content)
    assert len(keys_of(orjson.dumps({"keys": [*others, EC.public]}))) == 1


@pytest.fixture
def issuer() -> Iterator[Pretended]:
    with pretended(RSA) as issuer:
        yield issuer


def asking(issuer: Pretended, **settings: Any) -> OpenIdProvider:
    return OpenIdProvider(Oidc(name="gym", issuer=issuer.url, client=CLIENT, **settings))


def test_keys_are_fetched_again_when_another_one_signs(issuer: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not more often than every `PAUSE` seconds, and a key that the issuer has removed does not count any more."""
    provider = asking(issuer)
    old, new = RSA.sign(claims(issuer.url)), EC.sign(claims(issuer.url))
    assert provider.person(old, time.time()).name == "ana"
    issuer.discovers(EC)
    for _ in range(3):
        with pytest.raises(UnknownSigner):
            provider.person(new, time.time())
    assert [path for path, _ in issuer.asked].count("/jwks") == 1
    monkeypatch.setattr(openid_provider, "PAUSE", 0.0)
    assert provider.person(new, time.time()).name == "ana"
    with pytest.raises(UnknownSigner):
        provider.person(old, time.time())
    issuer.pages.clear()
    assert provider.person(new, time.time()).name == "ana", "those that are known count while it is away"
    monkeypatch.setattr(openid_provider, "REFRESH", 0.0)
    monkeypatch.setattr(openid_provider, "STALE", 0.0)
    with pytest.raises(Unreachable):
        provider.person(new, time.time())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"issuer": "http://127.0.0.1:1"}, "another issuer"),
        ({"jwks_uri": "http://localhost:1/jwks"}, "`hosts` does not list"),
        ({"token_endpoint": "https://evil.example/token"}, "`hosts` does not list"),
        ({"authorization_endpoint": "https://evil.example/auth"}, "`hosts` does not list"),
        ({"jwks_uri": "http://listed.example/jwks"}, "not protected"),
        ({"jwks_uri": "file:///etc/passwd"}, "no address"),
        ({"jwks_uri": "https://listed.example@127.0.0.1/jwks"}, "no address"),
        ({"jwks_uri": None}, "no address"),
        ({"token_endpoint": "http://[::1"}, "no address"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
    ],
)
def test_discovery_leads_to_listed_hosts_only(issuer: Pretended, said: dict[str, Any], why: str) -> None:
    issuer.discovers(RSA, **said)
    provider = asking(issuer, hosts=["listed.example"])
    for _ in range(2):  # and it is not asked again at once
        with pytest.raises(Unreachable, match=why):
            provider.discovery()
    if why != "another issuer":
        assert len(issuer.asked) <= 2


def test_keys_of_another_issuer_do_not_count(issuer: Pretended) -> None:
    """Whose tokens it signs is part of what is verified."""
    with pretended(EC) as other:
        with pytest.raises(UnknownSigner):
            asking(issuer).person(EC.sign(claims(issuer.url)), time.time())
        with pytest.raises(Wrong, match="another issuer"):
            asking(other).person(EC.sign(claims(issuer.url)), time.time())


@pytest.mark.parametrize("given", [{}, {"id_token": 7}, [], "x"])
def test_an_issuer_that_gives_no_token(issuer: Pretended, given: Any) -> None:
    issuer.pages["/token"] = given
    with pytest.raises(Unreachable, match="no ID token"):
        asking(issuer).person_of_code("code", "http://127.0.0.1/", verifier="v", nonce="n", now=time.time())
    assert "code_verifier=v" in issuer.asked[-1][1]
