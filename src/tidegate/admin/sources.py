"""Sources of data: registered, given credentials, renewed and removed.

A source is a user of the directory, so that it can log in over MQTT as well and be named in policies, and a document of
its own. Both are one change of the registry, made whole or not at all.

- Only an administrator makes a source, unless `sources.registration` is open. It renews its own credentials itself.
- With every registration there are a new password, a new token and, with an encryption scheme, a new key. Those made
  before do not count any more.
- A key is stored, sealed, under an id of its own before the document names it: there is no source whose key is not
  there, and none that has the key of another. What is left over if the change cannot be made is removed.
- Passwords come hashed. Keys are told once.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from tidegate.admin.administration import AdministeredNode, Administration
from tidegate.admin.control_commands import RegisterSource, RemoveSource
from tidegate.admin.documents import PASSWORD, RegistryState, RequestedChange, content
from tidegate.admin.roles import Role
from tidegate.bounded import Newest
from tidegate.config import Source
from tidegate.config.administration import SQLITE
from tidegate.config.directory import SELF_REGISTERED, self_registered
from tidegate.config.overlay import entries_in_file
from tidegate.config.sources import Registration
from tidegate.errors import ConfigError, KeysError, Problem
from tidegate.keys.source import SCHEME, SECRET
from tidegate.keyservice.master_keys import MasterKeys, open_master_keys
from tidegate.store.registry import Applied

ROOM: Final = "sources"  # of keys in the registry, and of counters in the store of the node
KIND: Final = "source"
USER: Final = "user"
UNREGISTERED: Final = "unregistered"
"""What topics call those who are not registered, so that no source can be called that."""
KEPT: Final = 10_000  # keys in memory
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_WORDS: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f/+#$][^\x00-\x1f\x7f-\x9f/+#]{0,127}")

log = structlog.get_logger("tidegate.sources")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    id: str
    type: str
    mode: str
    key: str | None  # the id of its key; None: it has no encryption scheme


class Sources:
    def __init__(
        self,
        host: AdministeredNode,
        administration: Administration,
        *,
        master_keys: Callable[[], MasterKeys | None],
        forget: Callable[[str], None],
    ) -> None:
        """`forget` is told the ids of keys that do not count any more."""
        self._host = host
        self._administration = administration
        self._request = administration.threads.request
        self._master_keys = master_keys
        self._forget = forget
        self._keys: Newest[str, bytes] = Newest(KEPT)
        self._registering = asyncio.Lock()  # of two that renew at once, the last has password, token and key

    # -- looking ---------------------------------------------------------------------------------------------------

    def known(self, id: str) -> Registered | None:
        said = self._administration.document_body(KIND, id)
        if said is None or id not in self._host.config.directory.users:
            return None
        return Registered(id=id, type=said["type"], mode=said["mode"], key=said.get("key"))

    async def secret(self, key: str) -> bytes:
        found = self._keys.get(key)
        if found is None:
            found = self._keys[key] = await self._request(self._read, key)
        return found

    def _read(self, key: str) -> bytes:
        kept = self._administration.registry.secrets.get(ROOM, key, at=time.time())
        if kept is None:
            raise Problem("the key of this source is not there any more; register it again", problem="conflict")
        try:
            return self._opened().unseal(kept.value, of=f"{KIND}:{key}")
        except KeysError as error:
            raise Problem(f"the key of this source cannot be opened: {error}", problem="unavailable") from error

    # -- registering -----------------------------------------------------------------------------------------------

    async def register(self, command: RegisterSource) -> dict[str, Any]:
        """Its credentials, which nobody can tell again; in a dry run, what its registration would do."""
        _check(command)
        if self.known(command.id) is None:
            self._administration.tokens.check_room(Role.SOURCE)  # or it would be registered, and had no token
        if command.dry_run:
            return await self._preview(command)
        async with self._registering:
            before = self.known(command.id)
            self._admit(command, exists=self._administration.document_body(KIND, command.id) is not None)
            key, secret = (None, None) if command.scheme is None else await self._made()
            try:
                draft, about = partial(self._draft, command, key), [(KIND, command.id)]
                done = await self._administration.change(command, draft, action="register", about=about)
            except Problem as problem:
                if key is not None and problem.problem != "uncertain":  # then it may yet be needed
                    await self._drop(key)
                raise
            if before is not None and before.key is not None:
                await self._drop(before.key)
            shown_key = None if secret is None else b64encode(secret).decode()
            told = {**done, "audience": self._host.config.node.name, "key": shown_key}
            return {**told, **await self._token(command.id, command.by)}

    async def _preview(self, command: RegisterSource) -> dict[str, Any]:
        """Only an administrator is told what would be decided differently: that is about others, and takes a while."""
        config = self._host.config
        if command.scheme is not None and (config.master_key is not None or config.store != SQLITE):
            await self._request(self._opened)  # else a master key would be made
        key = None if command.scheme is None else secrets.token_hex(8)
        draft = partial(self._draft, command, key)
        return await self._administration.preview(draft, compared=command.role is Role.ADMIN)

    def _admit(self, command: RegisterSource, *, exists: bool) -> None:
        admin = command.role is Role.ADMIN
        own = command.role is Role.SOURCE and command.user == command.id
        if exists and not (admin or own):
            raise _taken(command.id)
        if command.owner is not None and not admin:
            raise Problem("only an administrator says whose a source is; leave `Owner` out", problem="forbidden")
        if not exists and not admin and self._host.config.sources.registration is not Registration.OPEN:
            text = "only an administrator registers a source here; ask one, or set `sources.registration: open`"
            raise Problem(text, problem="forbidden")

    def _draft(
        self, command: RegisterSource, key: str | None, state: RegistryState, source: Source
    ) -> Sequence[RequestedChange]:
        id = command.id
        stored, user = state.documents.get((KIND, id)), state.documents.get((USER, id))
        self._admit(command, exists=stored is not None)
        if id in entries_in_file(source, USER) or (stored is None and user is not None):
            raise _taken(id)
        about: dict[str, Any] = {"type": command.type, "mode": command.mode}
        body = {} if user is None else dict(content(user.body))  # roles that it was given stay
        attributes = {**body.get("attributes", {}), "source": True, **about}
        if command.role is Role.ADMIN:
            attributes.pop(SELF_REGISTERED, None)
        elif stored is None:
            self._administration.check_stranger(id)
            self._check_room()
            attributes[SELF_REGISTERED] = True
        body |= {PASSWORD: command.password, "attributes": attributes}
        if command.owner is not None:
            body["owner"] = command.owner
        if key is not None:
            about |= {"scheme": command.scheme, "key": key}
        return [
            RequestedChange(kind=KIND, id=id, body=about, expected=None if stored is None else stored.sequence),
            RequestedChange(kind=USER, id=id, body=body, expected=None if user is None else user.sequence),
        ]

    def _check_room(self) -> None:
        """Problem if as many sources have registered by themselves as may."""
        most = self._host.config.sources.most
        users = (each.attributes for each in self._host.config.directory.users.values())
        if sum(self_registered(each) and each.get("source") is True for each in users) >= most:
            text = f"{most} sources have registered by themselves, which is the most: ask an administrator to register"
            raise Problem(f"{text} yours, or to raise `sources.most`", problem="full")

    async def _token(self, id: str, by: str) -> dict[str, Any]:
        tokens = self._administration.tokens
        try:
            await tokens.revoke_of([id], by=by)
        except Problem as problem:
            return {"token": None, "trouble": f"it is registered, and no token could be made: {problem}"}
        return await tokens.make_registered(id, Role.SOURCE, by, done="registered")

    async def remove(self, command: RemoveSource) -> dict[str, Any]:
        """The source and its user; its credentials count no more."""
        id = command.id

        def draft(state: RegistryState, source: Source) -> Sequence[RequestedChange]:
            kinds = (KIND, USER) if (USER, id) in state.documents else (KIND,)
            return [RequestedChange(kind=kind, id=id, body=None) for kind in kinds]

        if command.dry_run:
            return await self._administration.preview(draft, compared=command.compared)
        async with self._registering:
            body = self._administration.document_body(KIND, id)
            done = await self._administration.change(command, draft, action="remove", about=[(KIND, id)])
            if body is not None and "key" in body:
                await self._drop(body["key"])
            try:
                await self._administration.tokens.revoke_of([id], by=command.by)
            except Problem as problem:
                # they are of nobody, and so count for nothing
                log.warning("tokens of a source that was removed stay listed", source=id, reason=str(problem))
            return done

    # -- keys ------------------------------------------------------------------------------------------------------

    async def _made(self) -> tuple[str, bytes]:
        key, secret = secrets.token_hex(8), os.urandom(SECRET)
        await self._request(self._write, key, secret)
        self._keys[key] = secret
        return key, secret

    def _write(self, key: str, secret: bytes) -> None:
        sealed = self._opened().seal(secret, of=f"{KIND}:{key}")
        answer = self._administration.registry.secrets.put(ROOM, key, sealed, expected=None, at=time.time())
        if not isinstance(answer, Applied):
            raise Problem("the key of the source could not be stored; try again", problem="conflict")

    async def _drop(self, key: str) -> None:
        """Nobody names it any more. If it cannot be removed now it stays, of no use to anybody."""
        self._keys.pop(key, None)
        self._forget(key)
        put = self._administration.registry.secrets.put
        try:
            await self._request(put, ROOM, key, None, expected=None, at=time.time())
        except Problem as problem:
            log.warning("the old key of a source stays in the registry, unused", key=key, reason=str(problem))

    def _opened(self) -> MasterKeys:
        """The master keys of the node, or those opened for this call; blocks."""
        try:
            return self._master_keys() or open_master_keys(self._host.config)
        except ConfigError as error:
            raise Problem(f"keys of sources cannot be stored: {error}", problem="unavailable") from error


def _check(command: RegisterSource) -> None:
    if not _ID.fullmatch(command.id) or command.id == UNREGISTERED:
        raise _invalid("NodeId", "has 1 to 128 letters, digits, `.`, `_`, `:` or `-`, and begins with one of the first")
    for name, value in (("NodeType", command.type), ("CommunicationMode", command.mode)):
        if not _WORDS.fullmatch(value):
            raise _invalid(name, "is a text of 1 to 128 characters, without `/`, `+`, `#` and a `$` in front")
    if command.scheme not in (None, SCHEME):
        raise _invalid("EncryptionScheme", f"is `{SCHEME}`, or left out")


def _invalid(name: str, text: str) -> Problem:
    return Problem(f"`{name}` {text}", problem="invalid", details=[{"at": name, "error": text}])


def _taken(id: str) -> Problem:
    text = f"there is somebody called {id} already; choose another NodeId, or come with the token of that source"
    return Problem(text, problem="conflict", details=[{"at": "NodeId", "error": "is taken"}])
