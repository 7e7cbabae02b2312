"""Tokens of OpenID Connect issuers over MQTT: as a password, or by the method OAUTHBEARER (RFC 7628) of MQTT 5.

A token counts over TLS, or on this machine; whoever has it needs nothing else. It says who somebody is. With it comes
no user name, or `SUB`, `SUB@NAME`, or the `name` of the issuer in the file. By the method a client can show a newer one
in time (AUTH with 0x19); when one expires, the connection ends.

Keys that are known are looked up at once. Others are asked for in a thread, and CONNECT waits for that; the method
cannot wait, and tells the client to try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegate.authentication import openid_token
from tidegate.authentication.identity_providers import Busy, IdentityProviders
from tidegate.authentication.openid_provider import OpenIdProvider
from tidegate.authentication.openid_token import UnknownSigner, Wrong
from tidegate.authentication.outgoing_request import Unreachable
from tidegate.config.address import is_loopback
from tidegate.policy import Transport
from tidegate.policy.capability import PROPERTY
from tidegate.policy.levels import Levels
from tidegate.policy.person import Person
from tidegate.scope import Accepted, Identity, Refused
from tidegate.wire import Connect, Reason

if TYPE_CHECKING:
    from tidegate.session import Connection

METHOD: Final = "OAUTHBEARER"
PRINCIPAL: Final = "person:"
"""Before `SUB@NAME`, the principal."""
RULE: Final = "token"
_LATER: Final = "the keys of its issuer are being asked for; try again"

Found = Person | Refused


def token_in(packet: Connect, providers: IdentityProviders) -> str | None:
    """The token that CONNECT shows as its password; None: it shows none, or nobody's would count."""
    password = packet.password or b""
    if not providers.bearing or not openid_token.looks_like_one(password):
        return None
    return password.decode("ascii")


def refusal(why: str, reason: Reason = Reason.BAD_USER_NAME_OR_PASSWORD) -> Refused:
    return Refused(reason=reason, text=f"the token is not accepted: {why}", rule=RULE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerTokens:
    """Those that clients show to one node."""

    providers: IdentityProviders

    def find(self, connection: Connection, packet: Connect, token: str, answer: Callable[[Found], None]) -> None:
        """Calls `answer` with whom it is about: at once if the keys are known, else on the loop later."""
        found = self._known(connection, packet, token)
        if not isinstance(found, OpenIdProvider):
            answer(found)
            return
        provider, loop = found, asyncio.get_running_loop()

        async def ask() -> None:
            try:
                person = await self.providers.ask(partial(provider.person, token, connection.site.wall))
            except Wrong as wrong:
                answer(refusal(str(wrong)))
            except (Busy, Unreachable):
                answer(refusal("its issuer cannot be asked for its keys; try again", Reason.SERVER_BUSY))
            else:
                answer(_named(packet, person))

        self.providers.keep(loop.create_task(ask()))

    def _known(self, connection: Connection, packet: Connect, token: str) -> Found | OpenIdProvider:
        """Whom it is about, if that is known; else the provider that has to be asked for its keys."""
        if connection.certificate is None and not _local(connection):
            return refusal("without TLS anybody could read it")
        if any(name == PROPERTY for name, _ in packet.properties.user_properties):
            return refusal("it is shown beside a capability")
        provider = self.providers.issuer_at(openid_token.issuer_of(token))
        if provider is None:
            return refusal("its issuer is not known here")
        keys = provider.known_keys()
        if keys is None:
            return provider
        if provider.due:
            self.providers.refresh(provider)
        try:
            person = openid_token.verify(token, provider.settings, keys, connection.site.wall)
        except UnknownSigner:
            return provider
        except Wrong as wrong:
            return refusal(str(wrong))
        return _named(packet, person)

    def counts(self, person: Person) -> bool:
        """Whether the file still takes the tokens of whoever vouches for somebody."""
        provider = self.providers.issuers.get(person.provider)
        return provider is not None and provider.settings.mqtt and provider.settings.issuer == person.place


@dataclass(slots=True, eq=False, kw_only=True)
class Bearer:
    """One run of the method: the client says everything at once."""

    tokens: BearerTokens
    connection: Connection
    packet: Connect

    def step(self, data: bytes | None) -> Accepted | Refused:
        token = token_of(data or b"")
        if token is None:
            return refusal("the data is not that of RFC 7628", Reason.NOT_AUTHORIZED)
        found = self.tokens._known(self.connection, self.packet, token)
        if isinstance(found, OpenIdProvider):
            self.tokens.providers.refresh(found)
            return refusal(_LATER, Reason.SERVER_BUSY)
        if isinstance(found, Refused):
            return found
        return Accepted(identity=Identity(principal=principal_of(found), user=found.name, person=found))


def token_of(data: bytes) -> str | None:
    """The token in the client's response: `n,,^Aauth=Bearer TOKEN^A^A`, perhaps with more pairs."""
    header, *pairs = data.split(b"\x01")
    if not header.startswith(b"n,") or not header.endswith(b",") or pairs[-2:] != [b"", b""]:
        return None
    shown = [value for name, _, value in (pair.partition(b"=") for pair in pairs) if name == b"auth"]
    scheme, _, token = shown[0].partition(b" ") if len(shown) == 1 else (b"", b"", b"")
    return token.decode() if scheme.lower() == b"bearer" and token.isascii() else None


def identity(person: Person, transport: Transport, levels: Levels) -> Identity:
    """Nothing that the directory here says is about them."""
    tls = (
        {}
        if transport.tls_version is None
        else {"version": transport.tls_version, "cipher": transport.tls_cipher or ""}
    )
    return Identity(
        principal=principal_of(person),
        user=person.name,
        roles=person.roles,
        groups=person.groups,
        attributes=person.attributes,
        level=levels.level_of(transport),
        facts=levels.facts_of(transport),
        tls=tls,
        person=person,
    )


def principal_of(person: Person) -> str:
    return f"{PRINCIPAL}{person.full_name}"


def _named(packet: Connect, person: Person) -> Found:
    if packet.username and packet.username not in (person.name, person.full_name, person.provider):
        return refusal("it is for another user than the user name says")
    return person


def _local(connection: Connection) -> bool:
    """Whether nobody but this machine can see it."""
    return is_loopback(connection.address) and bool(getattr(connection.listener, "loopback", False))
