"""The directory in the configuration: users, clients, roles and groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field, JsonValue, ValidationInfo

from tidegate.config.problems import Finding, refusal, requires, unknown
from tidegate.config.section import CheckedSection, Identity, Person, Section
from tidegate.errors import KeysError
from tidegate.keys import PublicKey
from tidegate.policy import BUILT_IN

if TYPE_CHECKING:
    from tidegate.config.model import Config

ARGON2: Final = re.compile(r"\$argon2id\$v=\d+\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+")
MOSQUITTO: Final = re.compile(
    r"\$(?:6|7\$[1-9]\d{0,5})\$(?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/]{2,4}={0,2}\$[A-Za-z0-9+/]{86}=="
)
"""A hash of Mosquitto's password file: `$6$SALT$HASH`, or `$7$ITERATIONS$SALT$HASH`, in base64."""
PLAIN: Final = "plain:"
SELF_REGISTERED: Final = "self_registered"
"""The attribute of users who registered without an administrator, until one registers them or removes it."""


def self_registered(attributes: Mapping[str, JsonValue]) -> bool:
    return attributes.get(SELF_REGISTERED) is True


def _password(written: str) -> str:
    if written.startswith(PLAIN):
        if written == PLAIN:
            raise refusal("is empty after `plain:`; write the password, or leave the key out for no password")
        return written
    if not (ARGON2.fullmatch(written) or MOSQUITTO.fullmatch(written)):
        raise refusal("is neither an argon2id hash nor `plain:…`; make a hash with `tidegate passwd`")
    return written


@lru_cache(maxsize=1 << 17)
def parsed_key(written: str) -> PublicKey:
    """The public key of a text, or KeysError. Cached: parsing a key takes half as long as wrapping for it, and a
    configuration that is read again has mostly the same keys."""
    return PublicKey.parse(written)


def _public_key(written: str) -> str:
    try:
        parsed_key(written)
    except KeysError as error:
        what, _, remedy = str(error).partition(": ")
        raise refusal(f"cannot be used: {what}; {remedy or 'make a pair with `tidegate key pair`'}") from None
    return written


PublicKeyText = Annotated[str, AfterValidator(_public_key)]
AttributeName = Annotated[
    str,
    requires(
        lambda name: name not in BUILT_IN, "is set by the node itself and nobody else; call the attribute otherwise"
    ),
    requires(str.isidentifier, "cannot be read as `s.{written}`; name it with letters, digits and `_`"),
]
Attributes = Mapping[AttributeName, JsonValue]


class User(Section):
    """Somebody who can connect."""

    id: Identity | None = None
    """Who it is, whatever the name: an id of your own that nobody had before. Write it to keep sessions, tokens and
    preferences when you rename the user. Default: one is made when the name first stands in the file."""
    password: Annotated[str, AfterValidator(_password)] | None = Field(default=None, repr=False)
    """An argon2id hash as `tidegate passwd` prints it; or one of Mosquitto's password file, `$7$…` or `$6$…`, which
    becomes argon2id at the first login of a user who was made over HTTP; or `plain:…`, which is warned about. Without
    one the user can only connect with a certificate."""
    roles: tuple[Identity, ...] = ()
    """Roles, the main one first: `s.role` is the first, `s.roles` are all."""
    groups: tuple[Identity, ...] = ()
    """Groups the user belongs to: `s.groups`."""
    attributes: Attributes = Field(default_factory=dict)
    """Anything else that is known about the user; conditions read `shift` as `s.shift`."""
    public_key: PublicKeyText | None = None
    """The key for which topic keys are wrapped when the user asks for them: `x25519:…`, `mlkem768-x25519:…`, or an
    X25519 key in PEM."""
    owner: str | None = None
    """Of a device, a source or an application: the user whose it is. What that user says of their own data holds for
    what it publishes, too, and they can ask about it. Default: it is its own."""


class Client(CheckedSection):
    """A device or application, by its client identifier. Its entry applies only to a connection that is
    authenticated for it: by its user, or by a certificate in its name."""

    id: Identity | None = None
    """Who it is, whatever the name, as for users."""
    user: str | None = None
    """The user it belongs to; the entry applies only when that user connects with this client identifier."""
    roles: tuple[Identity, ...] = ()
    """Roles it has in addition to those of its user."""
    groups: tuple[Identity, ...] = ()
    """Groups it belongs to in addition to those of its user."""
    attributes: Attributes = Field(default_factory=dict)
    """Anything that is known about the client. They win over those of its user."""
    scopes: tuple[str, ...] | None = Field(default=None, min_length=1)
    """The scopes that it may connect to, and whoever else uses its name. Default: all."""
    public_key: PublicKeyText | None = None
    """The key for which topic keys are wrapped when it asks for them, of a client without a user."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.public_key is not None and self.user is not None:
            yield ("public_key",), f"is never used: the client reads as `{self.user}`; write it there, or remove `user`"


class Role(Section):
    """What everybody with a role has."""

    attributes: Attributes = Field(default_factory=dict)
    """Attributes of everybody who has the role. Those of a group, a user or a client win over them."""


class Group(Section):
    """What everybody in a group has."""

    attributes: Attributes = Field(default_factory=dict)
    """Attributes of everybody in the group. Those of a user or a client win over them."""


class Directory(Section):
    """Who there is."""

    users: Mapping[Person, User] = Field(default_factory=dict)
    """Users by name."""
    clients: Mapping[Identity, Client] = Field(default_factory=dict)
    """Known clients by client identifier. Others may connect too."""
    roles: Mapping[Identity, Role] = Field(default_factory=dict)
    """Roles that have attributes. Others need not be listed."""
    groups: Mapping[Identity, Group] = Field(default_factory=dict)
    """Groups that have attributes. Others need not be listed."""


def has_other_authentication(config: Config) -> bool:
    """Whether somebody else than the directory may vouch for users."""
    asked = any(scope.asks_broker for scope in config.scopes.values())
    elsewhere = config.http is not None and bool(config.http.oidc or config.http.ldap)
    return asked or elsewhere or bool(config.authentication.methods) or config.capabilities is not None


def problems(config: Config) -> Iterator[Finding]:
    """Ids that two have, and clients of users that do not exist."""
    for kind in ("users", "clients"):
        taken: dict[str, str] = {}
        for name, entry in getattr(config.directory, kind).items():
            if entry.id is not None and taken.setdefault(entry.id, name) != name:
                text = f"is `{entry.id}`, as that of `{taken[entry.id]}` is; no two have the same"
                yield ("directory", kind, name, "id"), text
    users = config.directory.users
    for name, user in users.items():
        if user.owner is None:
            continue
        if user.owner not in users:
            yield ("directory", "users", name, "owner"), unknown("user", user.owner, users, "directory.users")
        elif user.owner == name or users[user.owner].owner is not None:
            text = f"is `{user.owner}`, which has an owner itself, or is the same; write the person whose it is"
            yield ("directory", "users", name, "owner"), text
    for name, client in config.directory.clients.items():
        if client.user is not None and client.user not in users:
            yield ("directory", "clients", name, "user"), unknown("user", client.user, users, "directory.users")
