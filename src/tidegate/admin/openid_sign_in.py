"""Signing in at an OpenID Connect issuer: authorization code with PKCE, from the node's side.

The browser is sent to the issuer with a `state`, a `nonce` and the digest of a verifier, and comes back with a code.
What belongs together is kept here, in memory, for `PATIENCE` seconds, under a secret that only that browser has (its
cookie): nobody can be made to finish a sign-in that somebody else has begun. Each is good for one attempt.

The issuer that is asked for the token is the one that the browser was sent to. With several issuers each has to say in
its answer who it is (RFC 9207): otherwise one could have the code of another handed to it (mix-up).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from tidegate.admin.control_commands import OpenIdBegin, OpenIdFinish
from tidegate.authentication.identity_providers import Busy, IdentityProviders
from tidegate.authentication.openid_provider import OpenIdProvider
from tidegate.authentication.openid_token import Wrong
from tidegate.authentication.outgoing_request import Unreachable
from tidegate.bounded import Newest
from tidegate.config import Config
from tidegate.config.identity_providers import callback
from tidegate.errors import Problem
from tidegate.policy.person import Person

PATIENCE: Final = 600.0  # seconds for somebody to sign in there
MOST: Final = 10_000
"""Sign-ins that have begun; beyond that the oldest is forgotten."""
HOME: Final = "/docs"
"""Where somebody goes who wanted to go nowhere in particular."""
_PLACE: Final = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@?%-][A-Za-z0-9._~!$&'()*+,;=:@?%/-]{0,1000})?")
"""A path on this host: neither `//other.example` nor `/\\other.example`."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A sign-in that has begun."""

    provider: OpenIdProvider
    redirect: str
    state: str
    nonce: str
    verifier: str
    next: str
    expires: float


class OpenIdSignIns:
    """Those that have begun at one node."""

    def __init__(self, providers: IdentityProviders) -> None:
        self._providers = providers
        self.begun: Newest[bytes, Begun] = Newest(MOST)

    async def begin(self, command: OpenIdBegin, config: Config) -> dict[str, Any]:
        """Where the browser has to go, and the secret that it has to come back with."""
        provider = self._provider(command.issuer)
        state, nonce, verifier, binding = (_random() for _ in range(4))
        next = HOME if command.next is None else command.next
        if not _PLACE.fullmatch(next):
            raise Problem("`next` is no path on this host; write for example `/docs`", problem="invalid")
        redirect = callback(config, provider.settings)
        challenge = _encoded(hashlib.sha256(verifier.encode()).digest())
        asked = partial(provider.authorization, redirect, state=state, nonce=nonce, challenge=challenge)
        location = await self._ask(provider, asked)
        self.begun[_digest(binding)] = Begun(
            provider=provider,
            redirect=redirect,
            state=state,
            nonce=nonce,
            verifier=verifier,
            next=next,
            expires=time.monotonic() + PATIENCE,
        )
        return {"location": location, "binding": binding, "seconds": PATIENCE}

    async def finish(self, command: OpenIdFinish) -> tuple[Person, str | None, str]:
        """Who has signed in, a refresh token if the issuer gives one, and where they wanted to go; a Problem
        otherwise."""
        begun = self.begun.pop(_digest(command.binding), None)
        if begun is None or begun.expires <= time.monotonic():
            raise _refused("this sign-in was not begun here, is over, or took too long")
        if not hmac.compare_digest(begun.state.encode(), command.state.encode()):
            raise _refused("this is not the answer to the sign-in that was begun (state)")
        provider = begun.provider
        self._check_current(provider)
        there = await self._ask(provider, provider.discovery)
        if command.iss is None and (there.names_itself or len(self._providers.issuers) > 1):
            raise _refused("the answer does not say which issuer it is of (iss)")
        if command.iss is not None and command.iss != provider.settings.issuer:
            raise _refused("the answer is that of another issuer (iss)")
        if command.code is None:
            raise _refused("the issuer did not sign you in")
        asked = partial(
            provider.person_of_code,
            command.code,
            begun.redirect,
            verifier=begun.verifier,
            nonce=begun.nonce,
            now=time.time(),
        )
        person, refresh = await self._ask(provider, asked)
        self._check_current(provider)
        return person, refresh, begun.next

    def _check_current(self, provider: OpenIdProvider) -> None:
        if self._providers.issuers.get(provider.settings.name) is not provider:
            raise _refused("the settings of this issuer have changed meanwhile")

    def _provider(self, name: str | None) -> OpenIdProvider:
        issuers = self._providers.issuers
        if not issuers:
            text = "nobody signs in elsewhere here: `http.oidc` lists no issuer; use a password or a token"
            raise Problem(text, problem="unknown")
        if name is None and len(issuers) > 1:
            raise Problem(
                f"there are several issuers; add `issuer=` and one of {', '.join(issuers)}", problem="invalid"
            )
        provider = next(iter(issuers.values())) if name is None else issuers.get(name)
        if provider is None:
            raise Problem(f"there is no such issuer; use one of {', '.join(issuers)}", problem="unknown")
        return provider

    async def _ask(self, provider: OpenIdProvider, question: Callable[[], T]) -> T:
        try:
            return await self._providers.ask(question)
        except Busy:
            raise Problem("too many are signing in; come again", problem="unavailable") from None
        except Unreachable as error:
            text = f"the issuer `{provider.settings.name}` cannot be used now: {error}"
            raise Problem(f"{text}; tell an administrator, or come again", problem="unavailable") from None
        except Wrong as wrong:
            raise _refused(f"the token of the issuer does not count: {wrong}") from None


def _refused(why: str) -> Problem:
    return Problem(f"{why}; sign in again", problem="unauthenticated")


def _random() -> str:
    """256 bits."""
    return _encoded(secrets.token_bytes(32))


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
