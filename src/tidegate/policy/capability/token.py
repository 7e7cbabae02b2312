"""The signed form of a capability: a JWS in compact form, EdDSA (Ed25519) or ES256.

    header  {"alg": "EdDSA", "typ": "tidegate-capability+jwt"}       and `kid`; nothing else
    claims  iss, sub, jti, exp, cnf {jwk}, rights [{action, topic}]; also nbf, iat, roles [], groups [], attributes {},
            proof

Invariants
- Nothing that a token says is believed before a configured key of its issuer has verified it, and the algorithm is
  that of the key: a token cannot choose it, nor bring a key.
- Anything in a header that is not known is refused. So are claims that cannot be understood: a capability that was
  half understood might permit more than its issuer meant.
- Whatever comes in, the answer is a `Capability` or an `Unacceptable`, never an exception.

It does not know what is revoked, nor who shows it: see the node's authentication.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson

from tidegate.errors import ConfigError
from tidegate.lazy import LazyModule
from tidegate.policy.access_policies import Action
from tidegate.policy.capability.capability import Capability, Proof, Right
from tidegate.policy.capability.issuers import Issuers
from tidegate.policy.capability.jwk import Key, PrivateKey, decoded, native, public_jwk
from tidegate.policy.subject import BUILT_IN
from tidegate.topics import valid_filter

if TYPE_CHECKING:
    from joserfc import errors as jose_errors
    from joserfc import jwk, jws
    from joserfc.jwa import JWSAlgModel
else:
    jose_errors = LazyModule("joserfc.errors")
    jwk = LazyModule("joserfc.jwk")
    jws = LazyModule("joserfc.jws")

TYPE: Final = "tidegate-capability+jwt"
METHOD: Final = "tidegate-capability"
"""The name of the method in MQTT 5's enhanced authentication."""
PROPERTY: Final = "capability"
"""The user property of CONNECT that shows one in clear."""
MAX: Final = 8192  # characters
MAX_ID: Final = 128
MAX_RIGHTS: Final = 256
MAX_GRANTS: Final = 32  # roles, and as many groups
MAX_DEPTH: Final = 8  # of attributes
FAR: Final = 253_402_300_799.0  # the end of the year 9999
ALGORITHMS: Final = ("EdDSA", "Ed25519", "ES256")
_HEADER: Final = frozenset(("alg", "typ", "kid"))
_CLAIMS: Final = frozenset(
    ("iss", "sub", "jti", "exp", "nbf", "iat", "cnf", "rights", "roles", "groups", "attributes", "proof")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unacceptable:
    """Why a token is none that counts."""

    why: str
    id: str = ""
    """Its `jti`, if its issuer really signed it."""
    unknown_signer: bool = False
    """Whether none of the known keys of its issuer has signed it."""


class _Wrong(Exception):
    """What is wrong with a token."""


class _UnknownSigner(_Wrong):
    """None of the known keys of its issuer has signed it."""


@cache
def _registry() -> jws.JWSRegistry:
    """Knows three names, and does not warn of the older one for Ed25519."""

    class Registry(jws.JWSRegistry):
        def get_alg(self, name: str) -> JWSAlgModel:
            if name not in ALGORITHMS:
                raise jose_errors.UnsupportedAlgorithmError(name)
            return self.algorithms[name]

    return Registry(algorithms=ALGORITHMS)


def looks_like_one(text: bytes) -> bool:
    """Whether a password is meant as a token: what it begins with is `{"` in base64url."""
    return text.startswith(b"eyJ") and text.count(b".") == 2 and text.isascii()


def verify(token: str, issuers: Issuers, *, wall: float, steady: float) -> Capability | Unacceptable:
    """The capability of a token, if a configured issuer signed it and it is valid now."""
    id = ""
    try:
        header, claims = _parts(token)
        issuer = claims.get("iss")
        keys = issuers.keys.get(issuer) if isinstance(issuer, str) else None
        if keys is None:
            raise _Wrong("its issuer is not known here")
        signer = _signer(token, header, keys)
        id = _id(claims)
        capability = _capability(claims, id, signer)
        if capability.left(wall, steady) <= 0:
            raise _Wrong("it has expired")
        if capability.ahead(wall, steady) > 0:
            raise _Wrong("it is not valid yet")
    except _Wrong as wrong:
        return Unacceptable(why=str(wrong), id=id, unknown_signer=isinstance(wrong, _UnknownSigner))
    return capability


def unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a token says, whether it is true or not; ConfigError if it cannot be read."""
    try:
        return _parts(token.strip())
    except _Wrong as wrong:
        raise ConfigError(f"it is no capability ({wrong}): check that all of it is there") from None


def sign(claims: Mapping[str, Any], key: PrivateKey) -> str:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    signing: jwk.OKPKey | jwk.ECKey
    if isinstance(key, Ed25519PrivateKey):
        algorithm, signing = "EdDSA", jwk.OKPKey(key, key)
    else:
        algorithm, signing = "ES256", jwk.ECKey(key, key)
    header = {"alg": algorithm, "typ": TYPE}
    return jws.serialize_compact(header, orjson.dumps(dict(claims)), signing, registry=_registry())


def understood(claims: Mapping[str, Any]) -> None:
    """ConfigError if these claims would not make a capability."""
    try:
        _capability(dict(claims), _id(claims), "")
    except _Wrong as wrong:
        raise ConfigError(f"{wrong}: write it otherwise") from None


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(token) > MAX:
        raise _Wrong(f"it has more than {MAX} characters")
    segments = token.split(".") if token.isascii() else []
    parts = [decoded(segment) for segment in segments]
    if len(parts) != 3 or parts[0] is None or parts[1] is None or parts[2] is None:
        raise _Wrong("it is no token")
    try:
        header, claims = orjson.loads(parts[0]), orjson.loads(parts[1])
    except orjson.JSONDecodeError:
        raise _Wrong("it is no token") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise _Wrong("it is no token")
    if header.keys() - _HEADER:  # not named: nobody has vouched for it yet, and this is told in the audit
        raise _Wrong("its header says more than `alg`, `typ` and `kid`")
    if header.get("typ") != TYPE:
        raise _Wrong(f"its type is not `{TYPE}`")
    if header.get("alg") not in ALGORITHMS:
        raise _Wrong("its algorithm is neither EdDSA (Ed25519) nor ES256")
    if not isinstance(header.get("kid", ""), str):
        raise _Wrong("the name of its key is no text")
    return header, claims


def _signer(token: str, header: Mapping[str, Any], keys: tuple[Key, ...]) -> str:
    """The thumbprint of the key that signed it."""
    for key in keys:
        if header["alg"] not in key.algorithms:
            continue
        if "kid" in header and key.name is not None and key.name != header["kid"]:
            continue
        try:
            jws.deserialize_compact(token, key.jwk, registry=_registry())
        except (jose_errors.JoseError, ValueError):
            continue
        return key.thumbprint
    raise _UnknownSigner("no key of its issuer has signed it")


def _id(claims: Mapping[str, Any]) -> str:
    id = claims.get("jti")
    if not isinstance(id, str) or not 0 < len(id) <= MAX_ID or not id.isprintable():
        raise _Wrong(f"its `jti` is not a text of 1 to {MAX_ID} printable characters")
    return id


def _capability(claims: dict[str, Any], id: str, signer: str) -> Capability:
    if unknown := sorted(claims.keys() - _CLAIMS):
        raise _Wrong(f"it claims `{unknown[0][:40]}`, which is not understood")
    issuer = claims.get("iss")
    if not isinstance(issuer, str) or not issuer:
        raise _Wrong("its `iss` is no text")
    user, client = _subject(claims.get("sub"))
    begins, expires = _moment(claims, "nbf", 0.0), _moment(claims, "exp", None)
    _moment(claims, "iat", 0.0)
    if expires <= begins:
        raise _Wrong("it ends before it begins")
    confirmation = claims.get("cnf")
    try:
        if not isinstance(confirmation, dict) or confirmation.keys() != {"jwk"}:
            raise ConfigError("it is not `{jwk: …}`")
        key = native(public_jwk(confirmation["jwk"]))
    except ConfigError as wrong:
        raise _Wrong(f"its confirmation key is not taken ({wrong.args[0]})") from None
    try:
        proof = Proof(claims.get("proof", Proof.NONE.value))
    except ValueError:
        raise _Wrong("its `proof` is none of `none`, `connect`, `per-message`") from None
    return Capability(
        id=id,
        issuer=issuer,
        signer=signer,
        subject=claims["sub"],
        user=user,
        client=client,
        key=key,
        rights=_rights(claims.get("rights")),
        roles=_names(claims, "roles"),
        groups=_names(claims, "groups"),
        attributes=_attributes(claims.get("attributes", {})),
        begins=begins,
        expires=expires,
        proof=proof,
    )


def _subject(subject: object) -> tuple[str | None, str | None]:
    """The user and the client that it is for."""
    if not isinstance(subject, str) or len(subject) > MAX or not subject.isprintable():
        raise _Wrong("its `sub` is no text")
    if subject.startswith("user:"):
        # a user's name has no slash here, a client's identifier may
        user, slash, client = subject.removeprefix("user:").partition("/client:")
        if user and "@" not in user and (client or not slash):
            return user, client or None
    elif subject.startswith("client:") and subject != "client:":
        return None, subject.removeprefix("client:")
    raise _Wrong("its `sub` is not `user:NAME`, `client:ID` or `user:NAME/client:ID`")


def _moment(claims: Mapping[str, Any], name: str, default: float | None) -> float:
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _Wrong(f"its `{name}` is {'missing' if value is None else 'no time'}")
    if not 0 <= value <= FAR:
        raise _Wrong(f"its `{name}` is no time")
    return float(value)


def _rights(rights: object) -> tuple[Right, ...]:
    if not isinstance(rights, list) or len(rights) > MAX_RIGHTS:
        raise _Wrong(f"its `rights` are no list of at most {MAX_RIGHTS}")
    return tuple(_right(right) for right in rights)


def _names(claims: Mapping[str, Any], claim: str) -> tuple[str, ...]:
    names = claims.get(claim, [])
    if not isinstance(names, list) or len(names) > MAX_GRANTS:
        raise _Wrong(f"its `{claim}` are no list of at most {MAX_GRANTS}")
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_ID or not name.isprintable() or "@" in name:
            raise _Wrong(f"its `{claim}` are no names: 1 to {MAX_ID} printable characters, without `@`")
    return tuple(dict.fromkeys(names))


def _right(right: object) -> Right:
    if not isinstance(right, dict) or right.keys() != {"action", "topic"}:
        raise _Wrong("a right is not `{action, topic}`")
    written, topic = right["action"], right["topic"]
    try:
        action = frozenset(Action(name) for name in (written if isinstance(written, list) else [written]))
    except ValueError:
        raise _Wrong("a right is neither to `read` nor to `write`") from None
    if not action or not isinstance(topic, str) or not valid_filter(topic) or topic.startswith("$share/"):
        raise _Wrong("the topic of a right is no topic filter")
    return Right(action=action, topic=topic)


def _attributes(attributes: object) -> Mapping[str, Any]:
    if not isinstance(attributes, dict):
        raise _Wrong("its `attributes` are no mapping")
    for name, value in attributes.items():
        if name in BUILT_IN:
            raise _Wrong(f"it sets the attribute `{name}`, which only the node itself sets")
        if not name.isidentifier():
            raise _Wrong("it sets an attribute that cannot be read: names have letters, digits and `_`")
        if _depth(value) > MAX_DEPTH:
            raise _Wrong(f"its attributes are nested more than {MAX_DEPTH} deep")
    return MappingProxyType(attributes)


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                below += each.values()
            elif isinstance(each, list):
                below += each
        level = below
    return depth
