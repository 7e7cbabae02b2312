"""Administration while the node runs: where it is kept, where it is reached over HTTP, and who may come with a token.

A password in the address of a database comes from the environment (`${NAME}`); nothing here tells it again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, ValidationInfo

from tidegate.config.address import HttpAddress
from tidegate.config.identity_providers import LdapDirectories, OidcIssuers
from tidegate.config.listeners import certificate_problems
from tidegate.config.problems import Finding, requires
from tidegate.config.section import CheckedSection, FilePath, Section
from tidegate.config.units import Count, Duration, Rate, Size
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.config.model import Config

SQLITE: Final = "sqlite"
DATABASE: Final = "admin.db"
"""The file of the embedded store, in the data folder."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST: Final = 65536  # bytes of a file with master keys


StorePlace = Annotated[
    str,
    requires(
        lambda place: place == SQLITE or place.startswith("postgresql://"),
        "must be `sqlite` or `postgresql://…`; write for example `postgresql://node@127.0.0.1/tidegate`",
    ),
]
Variable = Annotated[
    str, requires(_VARIABLE.fullmatch, "must be the name of an environment variable; write it without `$`")
]


class AdministrativeRole(StrEnum):
    """What somebody who signs in may be, besides a user."""

    ADMIN = "admin"
    OPERATOR = "operator"
    AUDITOR = "auditor"


Somebody = Annotated[
    str,
    requires(
        re.compile(r"(?:user|role|group):\S(?:.*\S)?").fullmatch,
        "must be a user, a role or a group; write for example `user:mary` or `group:ops`",
    ),
]
HostName = Annotated[
    str,
    requires(
        re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?").fullmatch,
        "must be the name of a host, without a port; write for example `node.example`",
    ),
]


class Http(Section):
    """The HTTP interface: a process of its own."""

    url: HttpAddress = Field(default="http://127.0.0.1:8080", validate_default=True)
    """`http://` or `https://`, host and port (default 8080, 8443). Port 0: any free port."""
    cert: FilePath | None = None
    """Certificate chain (PEM) for https://."""
    key: FilePath | None = None
    """Private key (PEM) for https://. Default: the one in the file of the certificate."""
    client_ca: FilePath | None = None
    """Certificates (PEM) of the authorities, one of which must have signed the certificate of whoever comes. Default:
    certificates are not asked for."""
    crl: FilePath | None = None
    """Certificate revocation lists (PEM or DER) of those authorities. The file is read again when it changes. A
    certificate of an authority without a list, or whose list has expired, is refused. Default: none are looked up."""
    metrics: HttpAddress | None = None
    """Where `/metrics` alone is served, unencrypted and without a token, such as `http://127.0.0.1:9101`. Default: only
    at `url`, with a token."""
    roles: Mapping[AdministrativeRole, tuple[Somebody, ...]] = Field(default_factory=dict)
    """Who signs in as `admin`, `operator` or `auditor`: lists of `user:…`, `role:…` and `group:…`. The first of the
    three that lists somebody counts. Everybody else is a `user`, and may do what is about their own data."""
    hosts: tuple[HostName, ...] = ()
    """Names, besides that in `url`, by which browsers reach it. Who has signed in is refused under any other name.
    Addresses and `localhost` always count."""
    session: Duration = Field(default=12 * 3600.0, ge=60, le=30 * 86400)
    """How long somebody who has signed in stays so."""
    oidc: OidcIssuers = ()
    """OpenID Connect issuers whose people sign in here: one, or a list."""
    ldap: LdapDirectories = ()
    """LDAP directories whose people sign in here with their password there: one, or a list."""
    max_connections: Count = Field(default=512, ge=1, le=100_000)
    """Connections at a time, also those in a TLS handshake. Health checks and administrators are let in all the
    same."""
    address_connections: Count = Field(default=128, ge=1, le=100_000)
    """Connections at a time from one address, also those in a TLS handshake. Health checks and administrators are let
    in all the same."""
    rate: Rate = Field(default=50.0, gt=0, le=1e6)
    """Requests per second with one token; more are refused for a while."""
    address_rate: Rate = Field(default=100.0, gt=0, le=1e6)
    """Requests per second from one address; more are refused for a while."""
    max_body: Size = Field(default=512 << 10, ge=1 << 10, le=64 << 20)
    """Largest request accepted."""
    timeout: Duration = Field(default=30.0, gt=0, le=3600)
    """Time that a request may take to arrive, and to be answered."""


class MasterKey(CheckedSection):
    """Where the keys are under which secrets are stored: 32 random bytes each as base64 or 64 hexadecimal digits, one a
    line. The first seals; the others only open what was sealed before."""

    file: FilePath | None = None
    """A file that only the node's user can read."""
    environment: Variable | None = None
    """Or the name of an environment variable."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if (self.file is None) == (self.environment is None):
            yield (), "needs either `file` or `environment`; write one of the two"

    def text(self) -> str:
        """The keys as text. Raises ConfigError with the remedy if they cannot be read, and never shows the text."""
        if self.environment is not None:
            text = os.environ.get(self.environment)
            if not text:
                raise ConfigError(f"the environment variable `{self.environment}` of `master_key` is not set: set it")
            return text
        assert self.file is not None
        return _private(self.file)


def _private(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(_MOST + 1)
    except OSError as error:
        text = f"`master_key.file` names `{file}`, which cannot be read ({error.strerror}): check name and permissions"
        raise ConfigError(text) from None
    if mode & 0o077:
        raise ConfigError(f"others than its owner may open `{file}` of `master_key.file`: chmod 600 it")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise ConfigError(f"`{file}` of `master_key.file` is no text: write each key on a line of its own") from None


class Tokens(Section):
    """Bearer tokens for the HTTP interface."""

    valid: Duration = Field(default=90 * 86400.0, ge=60, le=10 * 366 * 86400)
    """How long a token is valid at most, and unless it was made for less."""
    most: Count = Field(default=10_000, ge=1, le=1_000_000)
    """Tokens of each role at a time: sources that register leave room for those of administrators."""


def problems(config: Config) -> Iterator[Finding]:
    """Contradictions between the HTTP interface, the store and other sections."""
    http = config.http
    if config.store == SQLITE and "store" in config.model_fields_set and config.node.data is None:
        yield ("store",), "is a file in the data folder, and there is none; set `node.data`"
    if http is None:
        return
    if not config.administered:
        yield ("http",), "has nothing to keep changes in; set `node.data`, or name a database with `store`"
    for key, text in certificate_problems(http, http.url):
        yield ("http", key), text
    if http.url.tls and http.crl is not None and http.client_ca is None:
        yield ("http", "crl"), "has no effect while no certificate is asked for; add `client_ca`"
    taken = {(one.url.host, one.url.port): f"listener {index}" for index, one in enumerate(config.listeners)}
    for key, url in (("url", http.url), ("metrics", http.metrics)):
        if url is None:
            continue
        if url.port and (other := taken.get((url.host, url.port))):
            yield ("http", key), f"takes the same address as {other}; choose another port"
        taken[url.host, url.port] = f"`http.{key}`"
    if http.metrics is not None and http.metrics.tls:
        yield ("http", "metrics"), "is unencrypted; write `http://`, or read `/metrics` at `http.url` with a token"


def warnings(config: Config) -> Iterator[Finding]:
    """An HTTP interface that shows tokens to the network."""
    if config.http is not None and not config.http.url.tls and not config.http.url.loopback:
        yield ("http", "url"), "carries tokens unencrypted over the network; use https://"
