"""Tokens of a running node: made, listed, checked and revoked on request, with an audit row for each change."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.admin.change_audit import ChangeAudit
from tidegate.admin.control_commands import MakeToken, RevokeToken
from tidegate.admin.documents import not_found
from tidegate.admin.registry_threads import RegistryThreads
from tidegate.admin.roles import Role
from tidegate.admin.tokens import Token, Tokens
from tidegate.errors import Problem
from tidegate.policy.identities import USER, Identities

if TYPE_CHECKING:
    from tidegate.admin.administration import AdministeredNode

log = structlog.get_logger("tidegate.node")


class TokenAdministration:
    """The tokens of one registry, for those who ask one node."""

    def __init__(self, host: AdministeredNode, tokens: Tokens, threads: RegistryThreads, audit: ChangeAudit) -> None:
        self._host = host
        self._tokens = tokens
        self._threads = threads
        self._audit = audit

    async def load(self) -> None:
        await self._threads.call(self._tokens.load, time.time())

    def administrator_missing(self) -> bool:
        now = time.time()
        return not any(each.role is Role.ADMIN and each.revoked_at is None for each in self._tokens.all(now))

    def check_room(self, role: Role) -> None:
        """Problem if no token of that role can be made."""
        self._tokens.check_room(role, time.time())

    async def make_registered(self, user: str, role: Role, by: str, *, done: str) -> dict[str, Any]:
        """The token of somebody who is `done`; that stands, also if no token can be made."""
        try:
            return {"token": await self.make(MakeToken(role=role, user=user, name="registration", by=by))}
        except Problem as problem:
            return {"token": None, "trouble": f"it is {done}, and no token could be made: {problem}"}

    async def make(self, command: MakeToken) -> dict[str, Any]:
        """A token with its text, which nobody can tell again; in a dry run, what it would be."""
        user, name, now = command.user, command.name, time.time()
        if user is not None and not self._exists(user):
            raise not_found("user", user)
        if command.dry_run:
            expires = now + self._tokens.admitted(command, now)
            return {"role": command.role, "user": user, "name": name, "expires": expires}
        identity = None if user is None else self._identities.id(USER, user) or None
        token, text = await self._threads.request(self._tokens.make, command, now=now, identity=identity)
        about = f"{token.role}{f' of {user}' if user else ''} {name}".rstrip()
        self._audit.token("make", token.id, command.by, f"{about}: {command.why}" if command.why else about)
        return {**token.shown(), "token": text}

    async def revoke(self, command: RevokeToken) -> dict[str, Any]:
        """What is known of it then; in a dry run, now."""
        id, by = command.id, command.by
        if command.dry_run:
            return (await self._threads.request(self._tokens.find, id, time.time())).shown()
        token = await self._threads.request(self._tokens.revoke, id, by=by, now=time.time())
        self._audit.token("revoke", id, by, command.why)
        return token.shown()

    async def bind(self) -> None:
        """Those that name a user belong to whoever has that name now. StoreError if it cannot be stored."""
        users = self._host.config.directory.users
        identities = {name: self._identities.id(USER, name) for name in users}
        await self._threads.call(self._tokens.bind, identities, now=time.time())

    async def revoke_retired(self, *, by: str) -> str | None:
        """Those of identities that are retired count no more; None, or why they could not be listed as revoked."""
        identities = {each.identity for each in self._tokens.all(time.time()) if each.revoked_at is None}
        records = [self._identities.record(identity) for identity in identities if identity is not None]
        retired = frozenset(each.id for each in records if each is not None and each.retired is not None)
        try:
            if retired:
                await self._revoke_of(retired, by=by)
        except Problem as problem:
            log.error("the tokens of users who were removed could not be revoked", reason=str(problem))
            return f"tokens of who was removed are not revoked yet ({problem}): revoke them"
        return None

    async def revoke_of(self, users: Collection[str], *, by: str) -> int:
        """Those of users, by their names; how many there were."""
        identities = filter(None, (self._identities.id(USER, name) for name in users))
        return await self._revoke_of(frozenset(identities), by=by)

    async def _revoke_of(self, identities: frozenset[str], *, by: str) -> int:
        revoked = await self._threads.request(self._tokens.revoke_of, identities, by=by, now=time.time())
        for token in revoked:
            self._audit.token("revoke", token.id, by, f"of {token.user}")
        return len(revoked)

    def list(self) -> list[dict[str, Any]]:
        return [each.shown() for each in self._tokens.all(time.time())]

    def check(self, text: str) -> dict[str, Any]:
        """Whose it is, if it counts: that of somebody who is gone does not, nor of who took the name of another."""
        return self._whose(self._tokens.check(text, time.time()))

    def check_id(self, id: str) -> dict[str, Any]:
        """The same of one that was shown before."""
        return self._whose(self._tokens.counting(id, time.time()))

    def _whose(self, token: Token | None) -> dict[str, Any]:
        user = None if token is None or token.user is None else self._called(token)
        if user is not None and self._host.authentication.displaced(user):
            user = None
        if token is None or (token.user is not None and user is None):
            raise Problem("this token is unknown, expired or revoked; have one made", problem="unknown")
        return {**token.shown(), "user": user}

    @property
    def _identities(self) -> Identities:
        return self._host.identities.table

    def _called(self, token: Token) -> str | None:
        """Whom it acts for, as they are called now; None: they are no more, or it is somebody else who is called so."""
        assert token.user is not None
        if token.identity is None:
            known = self._identities.id(USER, token.user) or not self._exists(token.user)
            return None if known else token.user
        name = self._identities.name(token.identity)
        return None if name is None or not self._exists(name) else name

    def _exists(self, user: str) -> bool:
        config = self._host.config
        return user in config.directory.users or bool(config.authentication.methods)
