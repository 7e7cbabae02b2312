"""Capabilities in the configuration: whose are taken, what they have to prove, which are revoked.

Keys in files are read when the rules are built. Those at an address are fetched by the node when it starts and when
it reads its file again; here only the address is looked at.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo, model_validator

from tidegate.config.checks import Finding
from tidegate.config.policies import combined_problems
from tidegate.config.section import LIST, ONE, FilePath, Identity, Section, beside, shape
from tidegate.config.units import Switch, refusal
from tidegate.errors import ConfigError
from tidegate.policy.capability import Accepts, Issuers, Key, Proof
from tidegate.policy.capability.keys import MAX_KEYS, keys_of_jwks, keys_of_pem

MAX_FILE: Final = 1 << 20
ADDRESSES: Final = ("https://", "http://")


def _where(written: str, info: ValidationInfo) -> str:
    """A file beside this one, or an address from which nobody can put keys in between."""
    if not written.startswith(ADDRESSES):
        return str(beside(Path(written), info))
    try:
        parts = urlsplit(written)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host:
        raise refusal("is no address; write for example `https://issuer.example/jwks.json`")
    if parts.scheme == "http" and not _loopback(host):
        raise refusal("could be changed on the way by anybody; write https://")
    return written


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Issuer(Section):
    """Somebody whose capabilities are taken."""

    name: Identity
    """Its name, as its tokens say it (`iss`)."""
    keys: Annotated[
        Annotated[FilePath, Tag(ONE)] | Annotated[tuple[FilePath, ...], Tag(LIST)],
        Discriminator(shape),
    ] = ()
    """Files with its public keys (PEM, Ed25519 or P-256)."""
    jwks: Annotated[str, AfterValidator(_where)] | None = None
    """A JSON Web Key Set with its public keys: a file, or an https:// address, which is read when the node starts and
    when it reads its file again."""

    @property
    def files(self) -> tuple[Path, ...]:
        """`keys`, as a list."""
        return self.keys if isinstance(self.keys, tuple) else (self.keys,)

    @property
    def address(self) -> str | None:
        """`jwks`, if it has to be fetched."""
        return self.jwks if self.jwks is not None and self.jwks.startswith(ADDRESSES) else None


class Capabilities(Section):
    """Signed tokens that say what somebody may do at most."""

    issuers: tuple[Issuer, ...] = Field(min_length=1)
    """Whose capabilities are taken."""
    proof: Proof = Proof.NONE
    """What whoever shows one has to prove at least with its confirmation key: `none`: nothing, which counts over TLS
    only. `connect`: the connection. `per-message`: also each message and subscription, which needs MQTT 5."""
    required: Switch = False
    """Whether every client needs one."""
    revoked: tuple[Identity, ...] = ()
    """Ids (`jti`) of those that do not count any more."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        found: list[Finding] = []
        names = [issuer.name for issuer in self.issuers]
        for index, issuer in enumerate(self.issuers):
            if issuer.name in names[:index]:
                found.append((("issuers", index, "name"), f"is `{issuer.name}` again; list its keys together"))
            if not issuer.files and issuer.jwks is None:
                found.append((("issuers", index), "has no keys; add `keys` or `jwks`"))
        if found:
            raise combined_problems(found)
        return self


def accepts(said: Capabilities) -> Accepts:
    """What a node takes, as far as files say it."""
    keys = {issuer.name: _keys(issuer) for issuer in said.issuers}
    return Accepts(issuers=Issuers(keys), proof=said.proof, required=said.required, revoked=frozenset(said.revoked))


def complete(built: Accepts, said: Capabilities, fetched: Mapping[str, bytes]) -> Accepts:
    """The same with the key sets that were fetched, by the name of their issuer."""
    keys = {name: list(those) for name, those in built.issuers.keys.items()}
    for issuer in said.issuers:
        if issuer.name in fetched:
            keys[issuer.name] += _readable(issuer, issuer.jwks or "", fetched[issuer.name])
            _few(issuer, keys[issuer.name])
    return replace(built, issuers=Issuers(keys))


def _keys(issuer: Issuer) -> list[Key]:
    found: list[Key] = []
    for file in issuer.files:
        found += _readable(issuer, str(file), _content(file), pem=True)
    if issuer.jwks is not None and issuer.address is None:
        found += _readable(issuer, issuer.jwks, _content(Path(issuer.jwks)))
    _few(issuer, found)
    return found


def _few(issuer: Issuer, keys: list[Key]) -> None:
    if len(keys) > MAX_KEYS:
        raise ConfigError(f"issuer `{issuer.name}` has {len(keys)} keys: {MAX_KEYS} at most, remove old ones")


def _readable(issuer: Issuer, where: str, content: bytes, *, pem: bool = False) -> list[Key]:
    try:
        return keys_of_pem(content) if pem else keys_of_jwks(content)
    except ConfigError as error:
        raise ConfigError(f"issuer `{issuer.name}` has its keys in `{where}`, and {error.args[0]}") from None


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE + 1)
    except OSError as broken:
        text = f"it names `{file}`, which cannot be read ({broken.strerror}): check its name and permissions"
        raise ConfigError(text) from None
    if len(content) > MAX_FILE:
        raise ConfigError(f"it names `{file}`, which is larger than {MAX_FILE >> 20} MiB: write the keys only")
    return content


def thumbprints(built: Accepts) -> Iterator[str]:
    """Of all keys that files name, for the version of the rules."""
    for name, keys in sorted(built.issuers.keys.items()):
        for key in keys:
            yield f"{name} {key.thumbprint}"
