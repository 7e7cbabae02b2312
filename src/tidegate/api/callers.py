"""Who calls: the bearer token of a request, as the node knows it.

A token that was found to count does so for `TRUSTED` seconds without asking again; a revoked one is refused after
that. What was refused is never remembered, and each refusal costs the address it came from, so that guessing is slow.
Tokens are kept here by their hash only.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.types import Scope

from tidegate.admin.control_commands import CheckToken
from tidegate.admin.roles import Role
from tidegate.api.access import ALLOWED, PUBLIC
from tidegate.api.channel import CREDENTIAL, URGENT
from tidegate.api.problems import Kind, Problem
from tidegate.api.session_cookies import SessionCookies
from tidegate.bounded import Newest

if TYPE_CHECKING:
    from tidegate.api.channel import Channel
    from tidegate.api.limits import Rates

TRUSTED: Final = 0.5  # seconds
REMEMBERED: Final = 1000  # tokens
_LONGEST: Final = 512
_OFTEN: Final = frozenset({("POST", "/keys/request"), ("POST", "/data")})
"""Routes that change nothing for others, and are used so often that a second question would be felt."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    token: str
    """The id of the token, for the audit; not the token itself."""
    role: Role
    user: str | None = None
    """Whom it acts for, if it is for somebody."""
    identity: str | None = None
    """The id of that user."""
    expires: float | None = None

    @property
    def by(self) -> str:
        """As it stands in the history."""
        return f"token:{self.token}"


class Callers:
    def __init__(
        self,
        channel: Channel,
        rates: Rates,
        free: Collection[tuple[str, str]] = (),
        sessions: SessionCookies | None = None,
        *,
        allowed: Mapping[tuple[str, str], frozenset[Role]] = ALLOWED,
    ) -> None:
        """`free`: routes that can be used without a token, but not with a wrong one."""
        self._free = free
        self._allowed = allowed
        self.sessions = SessionCookies((), secure=False) if sessions is None else sessions
        self._channel = channel
        self._rates = rates
        self._known: Newest[bytes, tuple[float, Caller]] = Newest(REMEMBERED)

    async def authorise(self, request: Request, path: str) -> Caller | None:
        """Whoever may use the route of that path; a Problem otherwise. None: nobody asked, it is public."""
        roles = self._allowed[request.method, path]
        if roles is PUBLIC or ((request.method, path) in self._free and not self._shows_something(request)):
            return None
        caller = await self.caller(request)
        if caller.user is not None and request.method != "GET" and (request.method, path) not in _OFTEN:
            # what is changed is changed for whoever has the token now: the name may be another's since the last look
            caller = await self.caller(request, fresh=True)
        URGENT.set(caller.role is Role.ADMIN)
        CREDENTIAL.set(self._credential(request))
        self._rates.token(caller.token)
        if caller.role not in roles:
            needed = ", ".join(sorted(roles))
            raise Problem(
                Kind.FORBIDDEN,
                f"the role {caller.role} may not do this",
                f"use a token with one of the roles: {needed}",
            )
        return caller

    def _shows_something(self, request: Request) -> bool:
        return "authorization" in request.headers or self.sessions.of(request) is not None

    def _credential(self, request: Request) -> str:
        """What the caller shows: a token, or else the session that they have signed in for."""
        if "authorization" not in request.headers and (session := self.sessions.of(request)) is not None:
            self.sessions.check(request)
            return session
        return _bearer(request)

    def forget(self, credential: str) -> None:
        """It does not count any more."""
        self._known.pop(hashlib.sha256(credential.encode()).digest(), None)

    async def administers(self, scope: Scope) -> bool:
        """Whether a request that there is no room for comes from an administrator: those are heard all the same."""
        try:
            return (await self.caller(Request(scope))).role is Role.ADMIN
        except Problem:
            return False

    async def caller(self, request: Request, *, fresh: bool = False) -> Caller:
        token = self._credential(request)
        digest = hashlib.sha256(token.encode()).digest()
        now = time.monotonic()
        known = self._known.get(digest)
        if known is not None and known[0] > now and not fresh:
            return known[1]
        address = request.client.host if request.client else ""
        if known is None:
            self._rates.guess(address)
        try:
            with self._channel.urgent():  # who it is decides what it may have
                said = await self._channel.ask(CheckToken(token=token))
        except Problem as problem:
            if problem.kind is Kind.UNKNOWN:
                self._known.pop(digest, None)
                raise _unauthenticated("this token is unknown, expired or revoked") from None
            raise
        if known is None:
            self._rates.guess.give_back(address)
        caller = Caller(
            token=str(said["id"]),
            role=Role(said["role"]),
            user=said.get("user"),
            identity=said.get("identity"),
            expires=said.get("expires"),
        )
        self._known[digest] = (now + TRUSTED, caller)
        return caller


def _bearer(request: Request) -> str:
    given = request.headers.getlist("authorization")
    if not given:
        raise _unauthenticated("there is no token in the request, and nobody has signed in")
    scheme, _, token = given[0].partition(" ")
    token = token.strip()
    if len(given) > 1 or scheme.lower() != "bearer" or len(token) > _LONGEST or not _TOKEN.fullmatch(token):
        raise _unauthenticated("the header Authorization is not a bearer token")
    return token


def _unauthenticated(detail: str) -> Problem:
    remedy = "send `Authorization: Bearer TOKEN`; an administrator makes tokens with `tidegate token make`"
    return Problem(Kind.UNAUTHENTICATED, detail, remedy, headers=_CHALLENGE)
