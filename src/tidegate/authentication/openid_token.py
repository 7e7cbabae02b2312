"""Tokens of OpenID Connect issuers: a JWS in compact form, and what it has to say to count.

Invariants
- Nothing is believed before a key of this one issuer has verified it. A token cannot bring a key, nor choose an
  algorithm that its key is not for: keys are public, so none of them verifies a MAC, and `none` is no algorithm.
- `iss`, `aud` and `exp` must be there and right, `azp` if it is there, `nonce` where one was sent.
- A person is `sub` at this issuer. No other claim says who somebody is.

It asks nobody, and keeps nothing: see `openid_provider`.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson

from tidegate.errors import ConfigError
from tidegate.lazy import LazyModule
from tidegate.policy.capability.jwk import decoded
from tidegate.policy.capability.token import TYPE as CAPABILITY
from tidegate.policy.person import Person
from tidegate.policy.pointers import parse

if TYPE_CHECKING:
    from joserfc import errors as jose_errors
    from joserfc import jwk, jws

    from tidegate.config.identity_providers import Oidc
else:
    jose_errors = LazyModule("joserfc.errors")
    jwk = LazyModule("joserfc.jwk")
    jws = LazyModule("joserfc.jws")

LONGEST: Final = 16 << 10  # characters
SKEW: Final = 30.0  # seconds that the clock of an issuer may be ahead
MOST_KEYS: Final = 64  # of one issuer
MOST_NAMES: Final = 256  # roles of one person, and as many groups
SMALLEST_RSA: Final = 2048  # bits

_FITTING: Final[Mapping[str, tuple[str, str | None]]] = MappingProxyType(
    {
        **{f"{family}{size}": ("RSA", None) for family in ("RS", "PS") for size in (256, 384, 512)},
        "ES256": ("EC", "P-256"),
        "ES384": ("EC", "P-384"),
        "ES512": ("EC", "P-521"),
        "EdDSA": ("OKP", "Ed25519"),
        "Ed25519": ("OKP", "Ed25519"),
    }
)
"""Each algorithm that counts, with the kind of key that it is for. All of them are asymmetric."""
_PUBLIC: Final = MappingProxyType({"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")})
_ID_TOKEN: Final = frozenset((None, "jwt"))
_BEARER: Final = frozenset((None, "jwt", "at+jwt", "application/at+jwt"))


class Wrong(Exception):
    """What is wrong with a token. Its text repeats nothing that the token says."""


class UnknownSigner(Wrong):
    """None of the known keys of its issuer has signed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerKey:
    """A public key of an issuer."""

    key: jwk.Key
    kind: tuple[str, str | None]
    name: str | None
    algorithm: str | None
    """The only one that it is for, if it says so."""


def keys_of(content: bytes) -> tuple[IssuerKey, ...]:
    """The keys of a JSON Web Key Set that verify signatures; ConfigError if there are none."""
    try:
        listed = orjson.loads(content)["keys"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise ConfigError('it is no JSON Web Key Set: that is `{"keys": [...]}`') from None
    written = listed if isinstance(listed, list) else []
    keys = tuple(key for each in written[:MOST_KEYS] if (key := _key(each)) is not None)
    if not keys:
        raise ConfigError("it holds no public key for signatures: RSA, ECDSA and Ed25519 are taken")
    return keys


def _key(written: object) -> IssuerKey | None:
    """One that is not understood, or for something else, is passed over."""
    if not isinstance(written, dict) or written.get("use", "sig") != "sig":
        return None
    kind = written.get("kty")
    names = _PUBLIC.get(kind) if isinstance(kind, str) else None
    if names is None:  # `oct` above all: what everybody can read is no secret
        return None
    curve = None if kind == "RSA" else written.get("crv")
    if (kind, curve) not in _FITTING.values():
        return None
    modulus = written.get("n")
    if kind == "RSA" and not (isinstance(modulus, str) and len(decoded(modulus) or b"") * 8 >= SMALLEST_RSA):
        return None
    public: dict[str, Any] = {name: written.get(name) for name in ("kty", *names)}
    try:
        key = jwk.import_key(public)
    except (jose_errors.JoseError, ValueError, TypeError):
        return None
    name, algorithm = written.get("kid"), written.get("alg")
    return IssuerKey(
        key=key,
        kind=(str(kind), curve),
        name=name if isinstance(name, str) else None,
        algorithm=algorithm if isinstance(algorithm, str) else None,
    )


def looks_like_one(text: bytes) -> bool:
    """Whether a password is meant as such a token: a JWS that is no capability."""
    if not (text.startswith(b"eyJ") and text.count(b".") == 2 and text.isascii()):
        return False
    try:
        return _parts(text.decode())[0].get("typ") != CAPABILITY
    except Wrong:
        return False


def issuer_of(token: str) -> str | None:
    """Whose it says it is: nobody has verified that."""
    try:
        issuer = _parts(token)[1].get("iss")
    except Wrong:
        return None
    return issuer if isinstance(issuer, str) else None


def verify(
    token: str,
    issuer: Oidc,
    keys: Iterable[IssuerKey],
    now: float,
    *,
    nonce: str | None = None,
    renewed: bool = False,
) -> Person:
    """Whom a token of this issuer is about; Wrong if it does not count. With a `nonce` it is the ID token of a
    sign-in, `renewed` one that the issuer gave for a refresh token, else a bearer token."""
    header, claims = _parts(token)
    signing_in = renewed or nonce is not None
    type = header.get("typ")
    if (type.lower() if isinstance(type, str) else type) not in (_ID_TOKEN if signing_in else _BEARER):
        raise Wrong("it is a token of another type")
    _check_signature(token, header, keys)
    if claims.get("iss") != issuer.issuer:
        raise Wrong("another issuer made it")
    audiences = frozenset((issuer.client,)) if signing_in else issuer.audiences
    _check_audience(claims, issuer.client, audiences, signing_in=signing_in)
    expires = _moment(claims, "exp")
    if expires is None or expires <= now:
        raise Wrong("it has expired")
    for name in ("nbf", "iat"):
        begins = _moment(claims, name)
        if begins is not None and begins > now + SKEW:
            raise Wrong("it is not valid yet")
    if nonce is not None:
        said = claims.get("nonce")
        if not isinstance(said, str) or not hmac.compare_digest(said.encode(), nonce.encode()):
            raise Wrong("it is not the answer to this sign-in (nonce)")
    return _person(claims, issuer, expires)


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(token) > LONGEST:
        raise Wrong(f"it has more than {LONGEST} characters")
    segments = token.split(".") if token.isascii() else []
    parts = [decoded(segment) for segment in segments]
    if len(parts) != 3 or parts[0] is None or parts[1] is None:
        raise Wrong("it is no token")
    try:
        header, claims = orjson.loads(parts[0]), orjson.loads(parts[1])
    except orjson.JSONDecodeError:
        raise Wrong("it is no token") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise Wrong("it is no token")
    return header, claims


@cache
def _registry() -> jws.JWSRegistry:
    """Knows asymmetric algorithms only, and does not warn of the older name for Ed25519."""

    class Registry(jws.JWSRegistry):  # type: ignore[misc,unused-ignore]
        max_header_length = LONGEST

        def get_alg(self, name: str) -> Any:
            if name not in _FITTING:
                raise jose_errors.UnsupportedAlgorithmError(name)
            return self.algorithms[name]

    return Registry(algorithms=list(_FITTING), strict_check_header=False)


def _check_signature(token: str, header: Mapping[str, Any], keys: Iterable[IssuerKey]) -> None:
    algorithm, name = header.get("alg"), header.get("kid")
    kind = _FITTING.get(algorithm) if isinstance(algorithm, str) else None
    if kind is None:
        raise Wrong("its algorithm does not count here")
    if "crit" in header:
        raise Wrong("its header demands what is not understood")
    for each in keys:
        if each.kind != kind or (each.algorithm is not None and each.algorithm != algorithm):
            continue
        if name is not None and each.name is not None and each.name != name:
            continue
        try:
            jws.deserialize_compact(token, each.key, registry=_registry())
        except (jose_errors.JoseError, ValueError):
            continue
        return
    raise UnknownSigner("no key of its issuer has signed it")


def _check_audience(claims: Mapping[str, Any], client: str, audiences: frozenset[str], *, signing_in: bool) -> None:
    said = claims.get("aud")
    those = said if isinstance(said, list) else [said]
    if not any(isinstance(each, str) and each in audiences for each in those):
        raise Wrong("it is for somebody else (aud)")
    party = claims.get("azp")
    if signing_in and (party is not None or len(those) > 1) and party != client:
        raise Wrong("it was made for another client (azp)")


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Wrong(f"its `{name}` is no time")
    return float(value)


def _person(claims: Mapping[str, Any], issuer: Oidc, expires: float) -> Person:
    where = issuer.claims
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= 255 or not subject.isprintable():
        raise Wrong("its `sub` is no text of 1 to 255 printable characters")
    attributes = {name: found for name, claim in where.attributes.items() if (found := _at(claims, claim)) is not None}
    return Person(
        provider=issuer.name,
        place=issuer.issuer,
        name=subject,
        roles=_names(claims, where.roles),
        groups=_names(claims, where.groups),
        attributes=MappingProxyType(attributes),
        expires=expires,
    )


def _names(claims: Mapping[str, Any], claim: str) -> tuple[str, ...]:
    found = _at(claims, claim)
    listed = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    names = [each for each in listed if isinstance(each, str) and 0 < len(each) <= 255 and each.isprintable()]
    if len(names) > MOST_NAMES:
        raise Wrong(f"it names more than {MOST_NAMES} roles or groups")
    return tuple(dict.fromkeys(names))


def _at(claims: Mapping[str, Any], claim: str) -> Any:
    """What a claim says; None: there is none."""
    value: Any = claims
    for step in parse(claim) if claim.startswith("/") else (claim,):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value
