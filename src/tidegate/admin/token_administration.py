"""Tokens of a running node: made, listed, checked and revoked on request, with an audit row for each change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from functools import partial
from typing import Any, Final, Protocol

import structlog

from tidegate.admin.change_audit import ChangeAudit
from tidegate.admin.documents import not_found
from tidegate.admin.registry_threads import RegistryThreads
from tidegate.admin.roles import Role
from tidegate.admin.tokens import FirstToken, Token, Tokens
from tidegate.config import Config
from tidegate.errors import Problem

SHOWING: Final = 4.0  # seconds after which a node that has not shown the first token is taken for dead

log = structlog.get_logger("tidegate.node")


class Configured(Protocol):
    """Has a configuration in force."""

    config: Config


class TokenAdministration:
    """The tokens of one registry, for those who ask one node."""

    def __init__(self, node: Configured, tokens: Tokens, threads: RegistryThreads, audit: ChangeAudit) -> None:
        self._node = node
        self._tokens = tokens
        self._threads = threads
        self._audit = audit

    async def load(self) -> None:
        """Reads all tokens from the registry again."""
        await self._threads.call(self._tokens.load, time.time())

    async def show_first(self) -> None:
        """Makes the first token for an administrator, and shows it this once.

        The registry names it before it is shown, and says afterwards that one was. A node that finds the token of
        another one named waits: that one shows it soon, or is dead and never will. Then the node makes another, and
        those before do not count any more.
        """
        created: tuple[Token, str] | None = None
        last_note, until = None, 0.0
        while not (note := await self._threads.call(self._tokens.first, time.time())).shown:
            if note != last_note:
                ours = not note.named or (created is not None and note.named[-1] == created[0].id)
                last_note, until = note, time.monotonic() + (0.0 if ours else SHOWING)
            if time.monotonic() < until:
                await asyncio.sleep(SHOWING / 50)
                continue
            if created is None:
                make = partial(self._tokens.make, role=Role.ADMIN, user=None, name="first", seconds=None, by="node")
                created = await self._threads.call(make, now=time.time())
            begun = time.monotonic()
            named = await self._threads.call(self._tokens.name_first, created[0].id, note, time.time())
            if named is not None and time.monotonic() - begun < SHOWING / 2:  # or others may take us for dead
                await self._show(*created, named)
                return
        if created is not None:
            await self._threads.call(self._tokens.discard, created[0], time.time())  # nobody has seen it

    async def _show(self, token: Token, text: str, named: FirstToken) -> None:
        self._audit.token("make", token.id, "node", "the first one")
        log.warning("the first token of an administrator, shown only this once", token=text, id=token.id)
        others = await self._threads.call(self._tokens.shown_first, named, time.time())
        if others is None:
            log.warning("another node shows the first token: the one shown here does not count", id=token.id)
        for each in others or ():
            self._audit.token("revoke", each, "node", "made first, and perhaps never shown")

    async def make(
        self, *, role: str, user: str | None, name: str, seconds: float | None, by: str, why: str = ""
    ) -> dict[str, Any]:
        self._check_user(user)
        make = partial(self._tokens.make, role=role, user=user, name=name, seconds=seconds, by=by, now=time.time())
        token, text = await self._threads.request(make)
        about = f"{token.role}{f' of {user}' if user else ''} {name}".rstrip()
        self._audit.token("make", token.id, by, f"{about}: {why}" if why else about)
        return {**token.shown(), "token": text}

    def preview(self, *, role: str, user: str | None, name: str, seconds: float | None) -> dict[str, Any]:
        """What a token would be, if it can be made. None is made."""
        self._check_user(user)
        now = time.time()
        expires = now + self._tokens.admitted(role=role, user=user, name=name, seconds=seconds, now=now)
        return {"role": role, "user": user, "name": name, "expires": expires}

    async def revoke(self, id: str, *, by: str, why: str = "", dry_run: bool = False) -> dict[str, Any]:
        """What is known of it then; in a dry run, now."""
        if dry_run:
            return (await self._threads.request(self._tokens.find, id, time.time())).shown()
        token = await self._threads.request(partial(self._tokens.revoke, id, by=by, now=time.time()))
        self._audit.token("revoke", id, by, why)
        return token.shown()

    async def revoke_of(self, users: Collection[str], *, by: str) -> int:
        """How many there were."""
        revoked = await self._threads.request(partial(self._tokens.revoke_of, frozenset(users), by=by, now=time.time()))
        for token in revoked:
            self._audit.token("revoke", token.id, by, f"of {token.user}")
        return len(revoked)

    def list(self) -> list[dict[str, Any]]:
        return [each.shown() for each in self._tokens.all(time.time())]

    def check(self, text: str) -> dict[str, Any]:
        """Whose it is, if it counts: that of somebody who is gone does not."""
        token = self._tokens.check(text, time.time())
        if token is None or (token.user is not None and not self._exists(token.user)):
            raise Problem("this token is unknown, expired or revoked; have one made", problem="unknown")
        return token.shown()

    def _check_user(self, user: str | None) -> None:
        if user is not None and not self._exists(user):
            raise not_found("user", user)

    def _exists(self, user: str) -> bool:
        config = self._node.config
        return user in config.directory.users or bool(config.authentication.methods)
