"""Who else vouches for people: OpenID Connect issuers and LDAP directories (`http.oidc`, `http.ldap`).

Their people belong to a domain of their own, as those of another node do: `name@domain`, never a user of this node.
`roles` and `groups` say which of theirs are which of ours, as `trust.domains` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field

from tidegate.config.address import LdapAddress, is_loopback
from tidegate.config.directory import AttributeName
from tidegate.config.problems import Finding, refusal, requires
from tidegate.config.section import FilePath, Identity, Name, OneOrMore, Section, listed
from tidegate.config.units import Switch
from tidegate.policy.domains import Domain
from tidegate.policy.pointers import parse

if TYPE_CHECKING:
    from tidegate.config.model import Config

CALLBACK: Final = "/oidc/callback"


def _parts(written: str) -> SplitResult | None:
    """Of an address that browsers and nodes may be sent to: protected, and nothing in it but host, port and path."""
    try:
        parts = urlsplit(written)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return None
    strange = parts.username is not None or parts.query or parts.fragment or not written.isprintable() or " " in written
    if strange or not host or parts.scheme not in ("https", "http"):
        return None
    if parts.scheme == "http" and not is_loopback(host):
        raise refusal("could be read and changed on the way by anybody; write https://")
    return parts


def _issuer(written: str) -> str:
    if _parts(written) is None:
        raise refusal("is no address of an issuer; write for example `https://login.example/realms/gym`")
    return written


def _redirect(written: str) -> str:
    parts = _parts(written)
    if parts is None or parts.path != CALLBACK:
        raise refusal(f"is not where browsers come back to; write for example `https://node.example{CALLBACK}`")
    return written


def _claim(written: str) -> str:
    if written.startswith("/"):
        try:
            parse(written)
        except ValueError as error:
            raise refusal(f"cannot be read ({error}); write for example `/realm_access/roles`") from None
    return written


Text = Annotated[str, requires(lambda text: text and text.isprintable(), "must be one line of text; write it so")]
ClaimName = Annotated[Text, AfterValidator(_claim)]
Host = Annotated[
    Text, requires(lambda host: not {"/", "@", " "} & set(host), "must be a host; write for example `login.example`")
]


class Provider(Section):
    """Somebody else who vouches for people."""

    name: Name
    """The domain of its people: they are `NAME@DOMAIN` here, in policies, in the audit, and in `http.roles`."""
    ca: FilePath | None = None
    """Certificates (PEM) of the authorities that sign those of its servers. Default: those that the system knows."""
    groups: Mapping[Identity, Identity] = Field(default_factory=dict)
    """Groups there, each with the group here that it is. Default: they are `group@domain` here."""
    roles: Mapping[Identity, Identity] = Field(default_factory=dict)
    """Roles there, each with the role here that it is. Default: they are `role@domain` here."""

    @property
    def given(self) -> tuple[str, ...]:
        """Attributes of its people that conditions see."""
        raise NotImplementedError

    @property
    def domain(self) -> Domain:
        """What is believed of its people."""
        return Domain(roles=self.roles, groups=self.groups, attributes=self.given, provider=True)


class Claims(Section):
    """Where a token says what. A claim by its name, or a JSON pointer such as `/realm_access/roles`."""

    roles: ClaimName = "roles"
    """The roles of somebody: a list, or one."""
    groups: ClaimName = "groups"
    """Their groups: a list, or one."""
    attributes: Mapping[AttributeName, ClaimName] = Field(default_factory=dict)
    """Attributes that conditions read as `s.NAME`, each with the claim that holds it."""


class Oidc(Provider):
    """An OpenID Connect issuer."""

    issuer: Annotated[str, AfterValidator(_issuer)]
    """Its address, exactly as its tokens say it (`iss`). Where everything else is, its discovery says."""
    hosts: tuple[Host, ...] = ()
    """Hosts, besides that of `issuer`, that its discovery may name. No others are asked, and no browser is sent to
    others."""
    client: Text
    """What this node is called there (`client_id`)."""
    secret: Text | None = Field(default=None, repr=False)
    """The secret of that client, from `${NAME}`. Default: it is a public client, which PKCE alone protects."""
    scopes: tuple[Text, ...] = ("openid",)
    """What is asked for, such as `[openid, groups]`."""
    claims: Claims = Field(default_factory=Claims)
    """Where its tokens say what."""
    audience: tuple[Text, ...] = ()
    """For whom tokens may be that are shown over MQTT (`aud`): one of these. Default: `client`."""
    mqtt: Switch = False
    """Whether its tokens are taken over MQTT too, as a password or by the method OAUTHBEARER. Default: its people only
    sign in over HTTP."""
    redirect: Annotated[str, AfterValidator(_redirect)] | None = None
    """Where it sends browsers back to, as it is registered there. Default: `/oidc/callback` at `http.url`."""

    @property
    def host(self) -> str:
        return urlsplit(self.issuer).hostname or ""

    @property
    def audiences(self) -> frozenset[str]:
        return frozenset(self.audience or (self.client,))

    @property
    def given(self) -> tuple[str, ...]:
        return tuple(self.claims.attributes)


class LdapBind(Section):
    """As whom the directory is searched."""

    dn: Text
    """The name of an account that may search it."""
    password: Text = Field(repr=False)
    """Its password, from `${NAME}`."""


class LdapPeople(Section):
    """Where people are in the directory."""

    base: Text
    """Below which entry."""
    filter: Annotated[Text, requires(lambda text: "{name}" in text, "must hold `{name}`; write it so")] = "(uid={name})"
    """Which entry is that of somebody: `{name}` stands for what they type, escaped. It must find one at most."""
    name: Text = "uid"
    """The attribute that holds their name."""
    attributes: Mapping[AttributeName, Text] = Field(default_factory=dict)
    """Attributes that conditions read as `s.NAME`, each with that of the entry that holds it."""


class LdapMemberships(Section):
    """Where groups are in the directory."""

    base: Text
    """Below which entry."""
    filter: Annotated[
        Text, requires(lambda text: "{dn}" in text or "{name}" in text, "must hold `{dn}` or `{name}`")
    ] = "(member={dn})"
    """Which groups somebody is in: `{dn}` stands for their entry, `{name}` for their name, both escaped."""
    name: Text = "cn"
    """The attribute that holds the name of a group."""


class Ldap(Provider):
    """An LDAP directory, whose people sign in with their password there."""

    url: LdapAddress
    """`ldaps://`, or `ldap://`, which begins TLS with StartTLS. Its certificate must be for that name."""
    bind: LdapBind
    """As whom it is searched."""
    people: LdapPeople
    """Where people are."""
    memberships: LdapMemberships | None = None
    """Where their groups are. `roles` says which of them are roles here. Default: they have none."""

    @property
    def given(self) -> tuple[str, ...]:
        return tuple(self.people.attributes)


OidcIssuers = OneOrMore[Oidc]
LdapDirectories = OneOrMore[Ldap]


def providers(config: Config) -> Iterator[tuple[tuple[str | int, ...], Provider]]:
    """All of them, each with its place."""
    if config.http is not None:
        for below, issuer in listed(config.http.oidc):
            yield ("http", "oidc", *below), issuer
        for below, directory in listed(config.http.ldap):
            yield ("http", "ldap", *below), directory


def domains(config: Config) -> dict[str, Domain]:
    """What is believed of the people of each."""
    return {provider.name: provider.domain for _, provider in providers(config)}


def callback(config: Config, issuer: Oidc) -> str:
    """Where it sends browsers back to."""
    assert config.http is not None
    return issuer.redirect or str(config.http.url).rstrip("/") + CALLBACK


def problems(config: Config) -> Iterator[Finding]:
    """Domains that somebody else has, and an address that no browser can come back to."""
    http = config.http
    if http is None:
        return
    trusted = {} if config.trust is None else config.trust.domains
    taken: dict[str, str] = {config.node.domain: "the domain of this node"}
    taken |= {name: "another domain of `trust.domains`" for name in trusted if name != config.node.domain}
    issuers: set[str] = set()
    for place, provider in providers(config):
        if other := taken.get(provider.name):
            yield (*place, "name"), f"is `{provider.name}`, {other}; its people need one of their own"
        taken[provider.name] = "that of another one here"
        if isinstance(provider, Ldap) and find_spec("ldap3") is None:
            yield place, "needs the library ldap3, which is not installed; run `pip install 'tidegate[ldap]'`"
        if not isinstance(provider, Oidc):
            continue
        if provider.issuer in issuers:
            yield (*place, "issuer"), f"is `{provider.issuer}` again; a person there can be one person here only"
        issuers.add(provider.issuer)
        if "openid" not in provider.scopes:
            yield (*place, "scopes"), "lacks `openid`, without which no ID token comes; add it"
        if provider.redirect is None and (http.url.everywhere or http.url.port == 0):
            text = f"is missing, and `http.url` is no address to come back to; write `https://NAME{CALLBACK}`"
            yield (*place, "redirect"), text
        elif provider.redirect is not None:
            host = (urlsplit(provider.redirect).hostname or "").lower()
            known = {"localhost", http.url.host.lower(), *(each.lower() for each in http.hosts)}
            if host not in known and not _is_address(host):
                text = f"leads to `{host}`, which is not how this node is called; add it to `http.hosts`"
                yield (*place, "redirect"), text


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()
