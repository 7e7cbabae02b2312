"""Capabilities for the command line: keys and tokens in files, what they say, and proofs for `pub` and `sub`."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from pydantic import TypeAdapter, ValidationError

from tidegate.cli import terminal
from tidegate.cli.options import attribute
from tidegate.errors import ConfigError, TidegateError
from tidegate.policy.capability import PrivateKey, Unacceptable, sign, unverified
from tidegate.policy.capability import verify as verify_token
from tidegate.policy.capability.jwk import jwk_of, private_key, public_keys
from tidegate.policy.capability.token import MAX, understood

Made = TypeVar("Made")

_TIMES: Final = (("expires", "exp"), ("not_before", "nbf"), ("issued", "iat"))


def make_keys(folder: Path, name: str, *, p256: bool, force: bool) -> tuple[Path, Path]:
    key: PrivateKey = ec.generate_private_key(ec.SECP256R1()) if p256 else Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    for path in (private, public):
        if path.exists() and not force:
            raise TidegateError(f"{path} is there already: choose another name, or say --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        private.unlink(missing_ok=True)  # the mode of an old one would stay
        with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    except OSError as broken:
        raise TidegateError(f"cannot write {broken.filename}: {broken.strerror}") from broken
    return private, public


def issue(
    *,
    issuer: str,
    key: Path,
    subject: str,
    confirm: Path,
    rights: Sequence[str],
    roles: Sequence[str] = (),
    groups: Sequence[str] = (),
    attributes: Sequence[str],
    valid: str,
    proof: str,
    id: str | None,
) -> tuple[dict[str, Any], str]:
    keys = _of_file(confirm, public_keys)
    if len(keys) != 1:
        terminal.usage(f"{confirm} holds {len(keys)} keys, and a capability is confirmed by one")
    now = int(time.time())
    claims: dict[str, Any] = {
        "iss": issuer,
        "sub": subject,
        "jti": id if id is not None else secrets.token_hex(12),
        "iat": now,
        "exp": now + _seconds(valid),
        "cnf": {"jwk": jwk_of(keys[0])},
        "rights": [_right(text) for text in rights],
    }
    claims |= {name: list(names) for name, names in (("roles", roles), ("groups", groups)) if names}
    if attributes:
        claims["attributes"] = dict(map(attribute, attributes))
    if proof != "none":
        claims["proof"] = proof
    try:
        understood(claims)
    except ConfigError as wrong:
        terminal.usage(str(wrong))
    token = sign(claims, load_key(key))
    if len(token) > MAX:
        terminal.fail(f"the token has {len(token)} characters, and {MAX} is the most a node takes: say less")
    return claims, token


def _seconds(written: str) -> int:
    from tidegate.config.units import Duration

    try:
        seconds = float(TypeAdapter(Duration).validate_python(written))
    except ValidationError:
        terminal.usage(f"`{written}` is no time: write for example 30m, 8h or 7d")
    if seconds < 1:
        terminal.usage("--valid is less than a second")
    return int(seconds)


def _right(text: str) -> dict[str, Any]:
    actions, colon, topic = text.partition(":")
    if not colon or not topic:
        terminal.usage(f"`{text}` is no right: write for example read:angina/# or read,write:angina/#")
    listed = actions.split(",")
    return {"action": listed if len(listed) > 1 else listed[0], "topic": topic}


def read(given: str) -> str:
    """A token: as it is, from a file, or from standard input."""
    if given == "-":
        return sys.stdin.read().strip()
    if given.startswith("eyJ") and given.count(".") == 2:
        return given
    return load_token(Path(given))


def load_token(path: Path) -> str:
    return _of_file(path, lambda content: content.decode("ascii", errors="replace").strip())


def load_key(path: Path) -> PrivateKey:
    return _of_file(path, private_key)


def _of_file(path: Path, make: Callable[[bytes], Made]) -> Made:
    try:
        with path.open("rb") as stream:
            content = stream.read(1 << 20)
        return make(content)
    except OSError as broken:
        terminal.fail(f"{path}: {broken.strerror}")
    except ConfigError as wrong:
        terminal.fail(f"{path}: {wrong}")


def shown(token: str) -> dict[str, Any]:
    header, claims = unverified(token)
    about: dict[str, Any] = {"id": claims.get("jti"), "issuer": claims.get("iss"), "subject": claims.get("sub")}
    for name, claim in _TIMES:
        if claim in claims:
            about[name] = _moment(claims[claim])
    about["rights"] = [_words(right) for right in claims.get("rights") or []]
    for name in ("roles", "groups", "attributes"):
        about[name] = claims.get(name) or None
    about["proof"] = claims.get("proof", "none")
    jwk = (claims.get("cnf") or {}).get("jwk") or {}
    about["confirmation_key"] = f"{jwk.get('crv')} {jwk.get('x')}"
    about["signed_with"] = header.get("alg")
    return {name: value for name, value in about.items() if value is not None}


def _words(right: Any) -> str:
    if not isinstance(right, dict):
        return str(right)
    action = right.get("action")
    return f"{', '.join(map(str, action if isinstance(action, list) else [action]))} {right.get('topic')}"


def _moment(value: Any) -> str:
    try:
        at = datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return str(value)
    left = (at - datetime.now(UTC)).total_seconds()
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" + (f" ({_span(left)} from now)" if left > 0 else f" ({_span(-left)} ago)")


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def objection(file: Path, token: str) -> str:
    """Why a node with this configuration would not accept a token; nothing if it would."""
    from dataclasses import replace

    from tidegate.authentication import jwks
    from tidegate.config import load

    accepts = jwks.accepted(load(file))
    if accepts is None:
        return "this node takes no capabilities"
    now = time.time()
    capability = verify_token(token, accepts.issuers, wall=now, steady=now)
    if isinstance(capability, Unacceptable):
        return capability.why
    return accepts.objection(replace(capability, proven=True), proofs=True)
