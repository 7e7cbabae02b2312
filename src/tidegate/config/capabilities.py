"""Capabilities in the configuration: whose are taken, what they have to prove, which are revoked.

Keys in files are read when the rules are built. Those at an address are fetched by the node (authentication/jwks.py);
here only the address is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo

from tidegate.config.address import is_loopback
from tidegate.config.problems import Finding, refusal
from tidegate.config.section import CheckedSection, FilePath, Identity, OneOrList, Section, as_tuple, beside
from tidegate.config.units import Switch
from tidegate.errors import ConfigError
from tidegate.policy.capability import Accepts, Issuers, Key, Proof
from tidegate.policy.capability import issuers as keys_module
from tidegate.policy.capability.jwk import MAX_KEYS, keys_of_jwks, keys_of_pem

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
    if parts.scheme == "http" and not is_loopback(host):
        raise refusal("could be changed on the way by anybody; write https://")
    return written


class Grants(Section):
    """Roles and groups that an issuer may grant."""

    roles: tuple[Identity, ...] = ()
    """Roles that its tokens may give to their holders."""
    groups: tuple[Identity, ...] = ()
    """Groups that its tokens may put their holders into."""


class Issuer(Section):
    """Somebody whose capabilities are taken."""

    name: Identity
    """Its name, as its tokens say it (`iss`)."""
    keys: OneOrList[FilePath] = ()
    """Files with its public keys (PEM, Ed25519 or P-256)."""
    jwks: Annotated[str, AfterValidator(_where)] | None = None
    """A JSON Web Key Set with its public keys: a file, or an https:// address, which is read when the node starts, when
    it reads its file again, every hour, and when a token was signed by an unknown key."""

    grants: Grants = Field(default_factory=Grants)
    """Roles and groups that its tokens may grant. A token that grants any other is refused."""

    @property
    def files(self) -> tuple[Path, ...]:
        """`keys`, as a list."""
        return as_tuple(self.keys)

    @property
    def address(self) -> str | None:
        """`jwks`, if it has to be fetched."""
        return self.jwks if self.jwks is not None and self.jwks.startswith(ADDRESSES) else None


class Capabilities(CheckedSection):
    """Signed tokens that say what somebody may do at most."""

    issuers: tuple[Issuer, ...] = Field(min_length=1)
    """Whose capabilities are taken."""
    proof: Proof = Proof.NONE
    """What whoever shows one has to prove at least with its confirmation key: `none`: nothing, which counts over TLS
    only. `connect`: the connection. `per-message`: also each message and subscription, which needs MQTT 5."""
    required: Switch = False
    """Whether every client needs one."""
    travel: Switch = False
    """Whether the capabilities of publishers go on to other nodes with their messages, and the proofs of these. Nodes
    that they come to verify both, and refuse what they do not accept."""
    revoked: tuple[Identity, ...] = ()
    """Ids (`jti`) of those that do not count any more."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        names = [issuer.name for issuer in self.issuers]
        for index, issuer in enumerate(self.issuers):
            if issuer.name in names[:index]:
                yield ("issuers", index, "name"), f"is `{issuer.name}` again; list its keys together"
            if not issuer.files and issuer.jwks is None:
                yield ("issuers", index), "has no keys; add `keys` or `jwks`"


def accepts(section: Capabilities) -> Accepts:
    """Which capabilities a node accepts, with the keys that stand in files."""
    keys = {issuer.name: _keys(issuer) for issuer in section.issuers}
    revoked = frozenset(section.revoked)
    grants = {
        issuer.name: keys_module.Grants(roles=frozenset(issuer.grants.roles), groups=frozenset(issuer.grants.groups))
        for issuer in section.issuers
    }
    return Accepts(
        issuers=Issuers(keys),
        proof=section.proof,
        required=section.required,
        travel=section.travel,
        revoked=revoked,
        grants=grants,
    )


def complete(built: Accepts, section: Capabilities, fetched: Mapping[str, bytes]) -> Accepts:
    """The same with the key sets that were fetched, by the name of their issuer."""
    keys = {name: list(those) for name, those in built.issuers.keys.items()}
    for issuer in section.issuers:
        if issuer.name in fetched:
            keys[issuer.name] += _readable(issuer, issuer.jwks or "", fetched[issuer.name])
            _check_count(issuer, keys[issuer.name])
    return replace(built, issuers=Issuers(keys))


def _keys(issuer: Issuer) -> list[Key]:
    keys = [key for file in issuer.files for key in _readable(issuer, str(file), _content(file), pem=True)]
    if issuer.jwks is not None and issuer.address is None:
        keys += _readable(issuer, issuer.jwks, _content(Path(issuer.jwks)))
    _check_count(issuer, keys)
    return keys


def _check_count(issuer: Issuer, keys: list[Key]) -> None:
    if len(keys) > MAX_KEYS:
        raise ConfigError(f"issuer `{issuer.name}` has {len(keys)} keys: {MAX_KEYS} at most, remove old ones")


def _readable(issuer: Issuer, where: str, content: bytes, *, pem: bool = False) -> list[Key]:
    try:
        return keys_of_pem(content) if pem else keys_of_jwks(content)
    except ConfigError as error:
        raise ConfigError(f"issuer `{issuer.name}` has its keys in `{where}`, and {error.args[0]}") from None


def read_named_file(file: Path, most: int) -> bytes:
    """The content of a file that the configuration names; of a larger one, a byte more than `most`."""
    try:
        with file.open("rb") as stream:
            return stream.read(most + 1)
    except OSError as broken:
        text = f"it names `{file}`, which cannot be read ({broken.strerror}): check its name and permissions"
        raise ConfigError(text) from None


def _content(file: Path) -> bytes:
    content = read_named_file(file, MAX_FILE)
    if len(content) > MAX_FILE:
        raise ConfigError(f"it names `{file}`, which is larger than {MAX_FILE >> 20} MiB: write the keys only")
    return content


def thumbprints(built: Accepts) -> Iterator[str]:
    """Of all keys that files name, for the version of the rules."""
    for name, keys in sorted(built.issuers.keys.items()):
        for key in keys:
            yield f"{name} {key.thumbprint}"
