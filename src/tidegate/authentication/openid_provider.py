"""An OpenID Connect issuer, as a node asks it: its discovery, its keys, and what it gives for a code.

- The file names the issuer and the hosts. Whatever discovery says leads to one of these hosts, over TLS or on this
  machine, or it does not count.
- Discovery and keys are kept for `REFRESH` seconds. Keys are fetched again, at most every `PAUSE` seconds, when a token
  was signed by one that is not known. What could not be fetched is tried again after `RETRY`.
- A refresh token, if the issuer gives one, is kept with the session alone, and only ever sent to this issuer.
- An issuer that cannot be reached lets nobody in. Keys that were fetched before count until they are `STALE` seconds
  old, so that a moment without it disconnects nobody.

Everything here that asks blocks, and is called in a thread; `known_keys` never does.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import orjson

from tidegate.authentication import openid_token
from tidegate.authentication.openid_token import IssuerKey, UnknownSigner, Wrong
from tidegate.authentication.outgoing_request import Failed, OutgoingRequest, Unreachable
from tidegate.config.address import is_loopback
from tidegate.config.identity_providers import Oidc
from tidegate.errors import ConfigError
from tidegate.policy.person import Person

ALTOGETHER: Final = 10.0  # seconds for one answer
REFRESH: Final = 3600.0
PAUSE: Final = 30.0
RETRY: Final = 5.0
STALE: Final = 6 * 3600.0
_WELL_KNOWN: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Where things are at an issuer."""

    authorization: str
    token: str
    keys: str
    names_itself: bool
    """Whether it says in its answers to browsers who it is (RFC 9207)."""
    posts_secret: bool
    """Whether it takes the secret only as part of the form."""


class OpenIdProvider:
    """One issuer."""

    def __init__(self, settings: Oidc) -> None:
        self.settings = settings
        self._hosts = frozenset(each.lower() for each in (settings.host, *settings.hosts))
        self._lock = threading.Lock()  # one asks, the others wait for its answer
        self._discovery: tuple[float, Discovery] | None = None
        self._keys: tuple[float, tuple[IssuerKey, ...]] | None = None
        self._tried = -RETRY
        self._trouble = ""

    # -- signing in ----------------------------------------------------------------------------------------------------

    def authorization(self, redirect: str, *, state: str, nonce: str, challenge: str) -> str:
        """Where a browser is sent to sign in; Unreachable if that cannot be found out. Blocks."""
        there = self.discovery()
        asked = {
            "response_type": "code",
            "client_id": self.settings.client,
            "redirect_uri": redirect,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(there.authorization).query else "?"
        return f"{there.authorization}{joint}{urlencode(asked)}"

    def person_of_code(
        self, code: str, redirect: str, *, verifier: str, nonce: str, now: float
    ) -> tuple[Person, str | None]:
        """Who has signed in, and what to ask for a newer token with; Wrong or Unreachable. Blocks."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
        }
        token, refresh = self._tokens(form, "its code")
        if token is None:
            raise Unreachable("it gave no ID token")
        return self.person(token, now, nonce=nonce), refresh

    def renewed(self, person: Person, refresh: str, now: float) -> tuple[Person, str]:
        """The same person as the issuer knows them now, and what to ask with the next time; Wrong or Unreachable.
        Blocks."""
        token, newer = self._tokens({"grant_type": "refresh_token", "refresh_token": refresh}, "its refresh token")
        if token is None:  # OpenID Connect Core, 12.2, leaves it the choice
            raise Wrong("the issuer gives no newer ID token")
        renewed = self.person(token, now, renewed=True)
        if renewed.name != person.name:
            raise Wrong("it is about somebody else (sub)")
        return renewed, newer or refresh

    def _tokens(self, form: dict[str, str], what: str) -> tuple[str | None, str | None]:
        """The ID token and the refresh token that the issuer gives for something, if it gives them."""
        there, settings = self.discovery(), self.settings
        user = None
        if settings.secret is None or there.posts_secret:
            form["client_id"] = settings.client
        if settings.secret is not None and there.posts_secret:
            form["client_secret"] = settings.secret
        elif settings.secret is not None:
            user = (quote(settings.client, safe=""), quote(settings.secret, safe=""))  # RFC 6749, 2.3.1
        try:
            content = OutgoingRequest(there.token, form=form, user=user, ca=settings.ca).send(ALTOGETHER)
            answer = orjson.loads(content)
            given = [answer.get(name) for name in ("id_token", "refresh_token")]
        except Failed as failed:
            if str(failed) in ("it answers 400", "it answers 401"):
                raise Wrong(f"the issuer did not take {what}") from None
            raise Unreachable(f"asking for the token: {failed}") from None
        except (orjson.JSONDecodeError, AttributeError):
            raise Unreachable("it gave no ID token") from None
        token, refresh = (
            each if isinstance(each, str) and 0 < len(each) <= openid_token.LONGEST else None for each in given
        )
        return token, refresh

    # -- tokens --------------------------------------------------------------------------------------------------------

    def person(self, token: str, now: float, *, nonce: str | None = None, renewed: bool = False) -> Person:
        """Whom a token is about, asking for newer keys if none that is known has signed it; Wrong or Unreachable.
        Blocks."""
        keys = self.keys()
        verified = partial(openid_token.verify, token, self.settings, now=now, nonce=nonce, renewed=renewed)
        try:
            return verified(keys=keys)
        except UnknownSigner:
            newer = self.keys(besides=keys)
            if newer is keys:
                raise
            return verified(keys=newer)

    def known_keys(self) -> tuple[IssuerKey, ...] | None:
        """Those that count now without asking; None: they have to be asked for."""
        known = self._keys
        return known[1] if known is not None and time.monotonic() - known[0] < STALE else None

    @property
    def due(self) -> bool:
        """Whether its keys should be asked for again."""
        return self._keys is None or time.monotonic() - self._keys[0] >= REFRESH

    # -- asking --------------------------------------------------------------------------------------------------------

    def discovery(self) -> Discovery:
        with self._lock:
            return self._discovered()

    def _discovered(self) -> Discovery:
        now = time.monotonic()
        if self._discovery is None or now - self._discovery[0] >= REFRESH:
            self._discovery = (now, self._read(self._asked(self.settings.issuer.rstrip("/") + _WELL_KNOWN)))
        return self._discovery[1]

    def keys(self, besides: tuple[IssuerKey, ...] | None = None) -> tuple[IssuerKey, ...]:
        """Its keys. `besides`: none of these is the one; the same come back if it is too early to ask again."""
        with self._lock:
            known, now = self._keys, time.monotonic()
            if known is not None and known[1] is not besides and now - known[0] < REFRESH:
                return known[1]
            if known is not None and known[1] is besides and now - known[0] < PAUSE:
                return known[1]
            try:
                content = self._asked(self._discovered().keys)
                self._keys = (time.monotonic(), openid_token.keys_of(content))
            except ConfigError as error:
                self._trouble = f"its keys: {error}"
            except Unreachable:
                pass
            else:
                return self._keys[1]
            if known is not None and now - known[0] < STALE:
                return known[1]
            raise Unreachable(self._trouble)

    def _asked(self, address: str) -> bytes:
        """What is at an address; the lock is held."""
        if self._trouble and time.monotonic() - self._tried < RETRY:
            raise Unreachable(self._trouble)
        self._trouble = ""
        try:
            return OutgoingRequest(address, ca=self.settings.ca).send(ALTOGETHER)
        except Failed as failed:
            self._tried, self._trouble = time.monotonic(), f"{address}: {failed}"
            raise Unreachable(self._trouble) from None

    def _read(self, content: bytes) -> Discovery:
        try:
            said: Any = orjson.loads(content)
        except orjson.JSONDecodeError:
            said = None
        if not isinstance(said, dict):
            raise self._refused("its discovery is no JSON object")
        if said.get("issuer") != self.settings.issuer:
            raise self._refused("its discovery is that of another issuer")
        if "S256" not in said.get("code_challenge_methods_supported", ["S256"]):
            raise self._refused("it does not support PKCE with S256")
        methods = said.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return Discovery(
            authorization=self._place(said, "authorization_endpoint"),
            token=self._place(said, "token_endpoint"),
            keys=self._place(said, "jwks_uri"),
            names_itself=said.get("authorization_response_iss_parameter_supported") is True,
            posts_secret="client_secret_basic" not in methods,
        )

    def _place(self, said: dict[str, Any], name: str) -> str:
        """An address of discovery, if it may be asked."""
        written = said.get(name)
        try:
            parts = urlsplit(written if isinstance(written, str) else "")
            host, _ = (parts.hostname or "").lower(), parts.port
        except ValueError:
            host = ""
        if not host or not isinstance(written, str) or parts.username is not None or parts.fragment:
            raise self._refused(f"its `{name}` is no address")
        if host not in self._hosts:
            raise self._refused(f"its `{name}` is at `{host[:100]}`, which `hosts` does not list")
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
            raise self._refused(f"its `{name}` is not protected by TLS")
        return written

    def _refused(self, why: str) -> Unreachable:
        self._tried, self._trouble = time.monotonic(), why
        return Unreachable(why)
