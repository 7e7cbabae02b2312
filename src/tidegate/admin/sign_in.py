"""Sign-in: a person shows a password or a token once, or comes back from an OpenID Connect issuer, and has a session of
the node from then on.

- A session is 256 random bits, made anew with every sign-in. Only its SHA-256 is kept, in memory: a restart ends all.
- It ends by age, when its person signs out, and with what is behind it: the user, their password, the role that they
  had when they signed in, the token, or the issuer. That is looked up with every request.
- Which role somebody has, `http.roles` says: the first of admin, operator, auditor that lists them, else `user`.
  Whoever has registered by themselves is a user.
- Passwords are verified as over MQTT: off the loop, and with the same limits against guessing. Whoever is no user of
  the file is asked for in the LDAP directories, off the loop too.
- What an issuer says of somebody counts until the ID token expires. With a refresh token, which is kept beside the
  session, the node asks for a newer one by then: once, however many requests come meanwhile.
- What a directory says of somebody is at most `STALE` seconds old. When it cannot be asked their session is worth
  nothing until it can.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

import structlog

from tidegate.admin.administration import Administration
from tidegate.admin.control_commands import OpenIdBegin, OpenIdFinish, SignIn, SignOut
from tidegate.admin.identities import NodeIdentities
from tidegate.admin.openid_sign_in import OpenIdSignIns
from tidegate.admin.roles import Role
from tidegate.admin.token_administration import TokenAdministration
from tidegate.audit.auditor import Auditor
from tidegate.authentication.authentication import Authentication
from tidegate.authentication.identity_providers import Busy, IdentityProviders
from tidegate.authentication.openid_token import Wrong
from tidegate.authentication.outgoing_request import Unreachable
from tidegate.authentication.passwords import Outcome, Passwords
from tidegate.config import Config
from tidegate.config.administration import AdministrativeRole
from tidegate.config.directory import self_registered
from tidegate.errors import Problem
from tidegate.policy.identities import USER
from tidegate.policy.person import Person
from tidegate.policy.selector import Selector, Term, terms_of
from tidegate.policy.subject import Subject
from tidegate.store.journal.rows import Kind
from tidegate.wire import Reason

PREFIX: Final = "ts_"
MOST: Final = 10_000
"""Sessions; beyond that the oldest goes."""
OWN: Final = 50
"""Of one user; beyond that their oldest goes."""
RULE: Final = "sign-in"
REFRESH: Final = 25.0
"""Seconds after which a directory is asked again, by whoever comes next."""
STALE: Final = 60.0
"""Seconds after which what it has said counts no more."""
EARLY: Final = 30.0
"""Seconds before an ID token expires in which a newer one is asked for, by whoever comes next."""
AGAIN: Final = 5.0
"""Seconds until an issuer that could not be asked is asked again."""
QUIET: Final = 30.0
"""Seconds between two lines of the log about it."""
log = structlog.get_logger("tidegate.node")
_SESSION: Final = re.compile(r"ts_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Who has signed in, and what has to stay as it is."""

    id: str
    """For the audit; it is not the session itself."""
    user: str | None
    identity: str | None
    role: Role
    expires: float
    password: str | None = field(default=None, repr=False)
    """As it is stored."""
    token: str | None = None
    """Its id."""
    signed_in: float | None = None
    """When it was shown that it is them; None: a token was shown."""
    person: Person | None = None
    """Whom an identity provider vouches for."""
    looked: float = math.inf
    """When its directory was asked last, by the steady clock; it is asked again."""
    refresh: str | None = field(default=None, repr=False)
    """What its issuer gives a newer ID token for."""
    tried: float = -math.inf
    """When that was last tried, by the steady clock."""


class SigningNode(Protocol):
    """What is needed of a node."""

    config: Config
    audit: Auditor
    authentication: Authentication
    identities: NodeIdentities
    passwords: Passwords
    providers: IdentityProviders
    administration: Administration | None


class SignIns:
    """The sessions of one node."""

    def __init__(self, node: SigningNode) -> None:
        self._node = node
        self._sessions: dict[bytes, Session] = {}  # by digest, the oldest first
        self.elsewhere = OpenIdSignIns(node.providers)
        self._untold_until = 0.0
        self._renewing: dict[bytes, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    # -- signing in and out --------------------------------------------------------------------------------------------

    async def sign_in(self, command: SignIn) -> dict[str, Any]:
        """A new session and its text, which nobody can tell again."""
        if command.replaces is not None:
            self._sessions.pop(_digest(command.replaces), None)
        self._check_protected()
        now = time.time()
        if command.token is not None:
            session = self._by_token(command.token, now)
        elif command.user is not None and command.password is not None:
            if self._password(command.user) is None and self._node.providers.directories:
                person = await self._person(command.user, command.password, command.address)
                session = self._by_person(person, looked=monotonic())
            else:
                session = await self._by_password(command.user, command.password, command.address, now)
        else:
            raise Problem("sign in with `user` and `password`, or with `token`", problem="invalid")
        return self._begun(session, command.address)

    async def openid_begin(self, command: OpenIdBegin) -> dict[str, Any]:
        """Where a browser has to go to sign in at an issuer."""
        self._check_protected()
        return await self.elsewhere.begin(command, self._node.config)

    async def openid_finish(self, command: OpenIdFinish) -> dict[str, Any]:
        """A new session of whoever has signed in there, and where they wanted to go."""
        if command.replaces is not None:
            self._sessions.pop(_digest(command.replaces), None)
        self._check_protected()
        try:
            person, refresh, next = await self.elsewhere.finish(command)
        except Problem as problem:
            if problem.problem == "unauthenticated":
                self._refused(command.address, "", str(problem))
            raise
        return {**self._begun(self._by_person(person, refresh=refresh), command.address), "next": next}

    def _begun(self, session: Session, address: str) -> dict[str, Any]:
        text = PREFIX + urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        self._make_room(session)
        self._sessions[_digest(text)] = session
        self._written(session, "sign in", f"from {address}")
        return {**self._shown(session), "session": text}

    def sign_out(self, command: SignOut) -> dict[str, Any]:
        """It does not count any more; whoever has it may say so."""
        session = self._sessions.pop(_digest(command.session), None)
        if session is not None:
            self._written(session, "sign out", "")
        return {"ended": session is not None}

    def _check_protected(self) -> None:
        http = self._node.config.http
        if http is not None and not http.url.tls and not http.url.loopback:
            text = "nobody signs in here: `http.url` is neither https:// nor of this machine alone; use https://"
            raise Problem(text, problem="forbidden")

    def _by_token(self, text: str, now: float) -> Session:
        token = _known(lambda: self._tokens.check(text))
        role, user = Role(token["role"]), token["user"]
        expires = min(now + self._longest, token["expires"])
        return Session(
            id=secrets.token_hex(8),
            user=user,
            identity=token["identity"],
            role=role,
            expires=expires,
            token=token["id"],
        )

    async def _by_password(self, user: str, password: str, address: str, now: float) -> Session:
        node = self._node
        stored, identity = self._password(user), node.identities.table.id(USER, user)
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        node.passwords.verify(user, password.encode(), stored, address, answered.set_result)
        outcome = await answered
        same = self._password(user) == stored and node.identities.table.id(USER, user) == identity
        match outcome:
            case Outcome.ACCEPTED if same and not node.authentication.displaced(user):
                pass
            case Outcome.BUSY:
                raise Problem("too many are signing in; come again", problem="unavailable")
            case Outcome.LIMITED:
                raise Problem("too many wrong passwords; wait a minute", problem="too-many")
            case _:
                self._refused(address, user, "wrong user name or password")
                raise Problem("wrong user name or password; try again", problem="unauthenticated")
        expires, role = now + self._longest, self._role(user)
        return Session(
            id=secrets.token_hex(8),
            user=user,
            identity=identity or None,
            role=role,
            expires=expires,
            password=stored,
            signed_in=now,
        )

    async def _person(self, user: str, password: str, address: str) -> Person:
        """Whom a directory knows by that name and password: `NAME`, or `NAME@DIRECTORY`."""
        providers, passwords = self._node.providers, self._node.passwords
        name, _, domain = user.rpartition("@")
        asked = [providers.directories[domain]] if name and domain in providers.directories else []
        for directory in asked or list(providers.directories.values()):
            if passwords.turns_away(user, address):
                raise Problem("too many wrong passwords; wait a minute", problem="too-many")
            try:
                return await self._ask(partial(directory.verify, name if asked else user, password))
            except Wrong:
                passwords.failed(user, address)
        self._refused(address, user, "wrong user name or password")
        raise Problem("wrong user name or password; try again", problem="unauthenticated")

    async def _ask(self, question: Callable[[], Person]) -> Person:
        try:
            return await self._node.providers.ask(question)
        except Busy:
            raise Problem("too many are signing in; come again", problem="unavailable") from None
        except Unreachable as error:
            self._tell(str(error))
            text = "the directory cannot be asked now; tell an administrator, or come again"
            raise Problem(text, problem="unavailable") from None

    def _tell(self, why: str) -> None:
        """To the log, and not to whoever signs in."""
        now = monotonic()
        if now >= self._untold_until:
            self._untold_until = now + QUIET
            log.warning("an LDAP directory cannot be asked: its people cannot sign in", reason=why)

    async def refresh(self, text: str) -> None:
        """Asks the directory again who has a session, if that was a while ago; or its issuer, if its token ends."""
        digest = _digest(text)
        session = self._sessions.get(digest)
        if session is None or session.person is None:
            return
        if session.refresh is not None:
            await self._renew(digest, session, session.person)
            return
        if monotonic() - session.looked < REFRESH:
            return
        directory = self._node.providers.directories.get(session.person.provider)
        if directory is None:
            return
        looked = monotonic()
        try:
            person = await self._ask(partial(directory.person, session.person.name))
        except Wrong:
            self._sessions.pop(digest, None)
        except Problem:
            return  # what is known counts until it is too old
        else:
            if self._sessions.get(digest) is session:
                self._sessions[digest] = replace(session, person=person, looked=looked)

    async def _renew(self, digest: bytes, session: Session, person: Person) -> None:
        """Has the issuer make a newer ID token, if the one that there is ends soon."""
        task = self._renewing.get(digest)
        if task is None:
            soon = time.time() >= person.expires - EARLY and monotonic() - session.tried >= AGAIN
            if not soon or session.expires <= time.time():
                return
            task = asyncio.get_running_loop().create_task(self._renewed(digest, session, person))
            self._renewing[digest] = task
            task.add_done_callback(lambda _: self._renewing.pop(digest, None))
        await asyncio.shield(task)  # a refresh token counts once: whoever hangs up must not lose the next one

    async def _renewed(self, digest: bytes, session: Session, person: Person) -> None:
        provider = self._node.providers.issuers.get(person.provider)
        if provider is None or provider.settings.issuer != person.place or session.refresh is None:
            return  # it ends for that: see `_counts`
        newer = replace(session, tried=monotonic())
        question = partial(provider.renewed, person, session.refresh, time.time())
        try:
            renewed, refresh = await self._node.providers.ask(question)
            newer = replace(newer, person=renewed, refresh=refresh)
        except Wrong as wrong:
            if self._sessions.get(digest) is session:
                self._written(session, "session ended", str(wrong))
                del self._sessions[digest]
        except (Busy, Unreachable) as error:
            log.warning("an issuer cannot be asked: sessions of its people may end", reason=str(error))
        if self._sessions.get(digest) is session:
            self._sessions[digest] = newer

    def _by_person(self, person: Person, looked: float = math.inf, refresh: str | None = None) -> Session:
        return Session(
            id=secrets.token_hex(8),
            user=person.full_name,
            identity=None,
            role=self._role_of_person(person),
            expires=min(time.time() + self._longest, math.inf if refresh is not None else person.expires),
            person=person,
            looked=looked,
            refresh=refresh,
        )

    def _refused(self, address: str, user: str, why: str) -> None:
        audit = self._node.audit
        audit.site.open()
        audit.log.refused(address, "", user or None, Reason.BAD_USER_NAME_OR_PASSWORD, why, RULE)

    def _make_room(self, session: Session) -> None:
        now = time.time()
        for digest in [digest for digest, each in self._sessions.items() if each.expires <= now]:
            del self._sessions[digest]
        own = [digest for digest, each in self._sessions.items() if each.user == session.user]
        for digest in own[: len(own) - OWN + 1] if len(own) >= OWN else ():
            del self._sessions[digest]
        while len(self._sessions) >= MOST:
            del self._sessions[next(iter(self._sessions))]

    # -- looking -------------------------------------------------------------------------------------------------------

    def check(self, text: str) -> dict[str, Any]:
        """Whose it is, if it still counts; a Problem otherwise."""
        digest = _digest(text)
        session = self._sessions.get(digest) if _SESSION.fullmatch(text) else None
        if session is not None and monotonic() - session.looked >= STALE:
            raise Problem("the directory of this person cannot be asked now; come again", problem="unavailable")
        if session is not None and session.refresh is not None and session.person is not None:
            now = time.time()
            if session.person.expires <= now < session.expires:
                raise Problem("the issuer of this person cannot be asked now; come again", problem="unavailable")
        if session is None or not self._counts(session):
            self._sessions.pop(digest, None)
            raise Problem("this session has ended; sign in again", problem="unknown")
        return self._shown(session)

    def _counts(self, session: Session) -> bool:
        if session.expires <= time.time():
            return False
        if session.token is not None:
            try:
                token = self._tokens.check_id(session.token)
            except Problem:
                return False
            return bool(token["role"] == session.role and token["identity"] == session.identity)
        if session.person is not None:
            known = self._node.providers.place(session.person.provider) == session.person.place
            return known and self._role_of_person(session.person) is session.role
        user = session.user or ""
        return (
            session.password is not None
            and self._password(user) == session.password
            and (self._node.identities.table.id(USER, user) or None) == session.identity
            and not self._node.authentication.displaced(user)
            and self._role(user) is session.role
        )

    @property
    def _tokens(self) -> TokenAdministration:
        administration = self._node.administration
        if administration is None:
            raise Problem("there are no tokens here: set `http` in the file of the node", problem="unauthenticated")
        return administration.tokens

    def _password(self, user: str) -> str | None:
        entry = self._node.config.directory.users.get(user)
        return None if entry is None else entry.password

    def _role(self, user: str) -> Role:
        """What somebody may do over HTTP, by the configuration in force."""
        config = self._node.config
        entry = config.directory.users.get(user)
        if config.http is None or entry is None or self_registered(entry.attributes):
            return Role.USER
        domain = config.built.rules.domain
        terms = {Term("user", user, domain)}
        terms |= {Term("role", role, domain) for role in entry.roles}
        terms |= {Term("group", group, domain) for group in entry.groups}
        return self._listed(terms)

    def _role_of_person(self, person: Person) -> Role:
        """The same for somebody of an identity provider."""
        rules = self._node.config.built.rules
        subject = Subject(
            kind="client",
            client="",
            user=person.name,
            scope="",
            node="",
            domain=person.provider,
            roles=person.roles,
            groups=person.groups,
        )
        return self._listed(terms_of(subject, rules.domain, rules.domains))

    def _listed(self, terms: Collection[Term]) -> Role:
        config = self._node.config
        domain = config.built.rules.domain
        for role in (Role.ADMIN, Role.OPERATOR, Role.AUDITOR):
            listed = () if config.http is None else config.http.roles.get(AdministrativeRole(role), ())
            if listed and not Selector.parse(list(listed)).within(domain).terms.isdisjoint(terms):
                return role
        return Role.USER

    @property
    def _longest(self) -> float:
        http = self._node.config.http
        return 43200.0 if http is None else http.session

    def _shown(self, session: Session) -> dict[str, Any]:
        shown = {"id": session.id, "role": session.role.value, "user": session.user, "identity": session.identity}
        return {**shown, "expires": session.expires, "by": _by(session), "signed_in": session.signed_in}

    def _written(self, session: Session, action: str, detail: str) -> None:
        audit = self._node.audit
        audit.site.open()
        columns: dict[str, Any] = {"user": _by(session), "action": action, "rule": RULE}
        audit.sink.write(audit.log.row(Kind.CHANGE, **columns, detail=f"{session.role} {detail}".rstrip()))


def _known(check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return check()
    except Problem as problem:
        raise Problem(str(problem), problem="unauthenticated") from None


def _by(session: Session) -> str:
    """As it stands in the history."""
    return f"user:{session.user}" if session.user is not None else f"session:{session.id}"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
