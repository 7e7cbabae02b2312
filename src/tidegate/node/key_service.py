"""The keys of a node put together: topic keys, key exchange, master keys, and the release of keys to readers.

Keys are there from the first time on that the configuration protects something. Where they are shared is settled then:
with a key service (`keys.ktm`), over PostgreSQL if that is the registry, or with nobody.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from tidegate.admin.sources import KIND as SOURCE
from tidegate.admin.sources import ROOM as SOURCES
from tidegate.config import Config
from tidegate.config.administration import SQLITE
from tidegate.errors import Problem, StoreError
from tidegate.gate import Allow
from tidegate.keys.key import valid_id
from tidegate.keyservice.control_commands import GetKey, GetPublishingKey, ListKeys, RevokeKey, RotateKeys
from tidegate.keyservice.exchange import REVOKED, KeyExchange, RegistryExchange
from tidegate.keyservice.exchange import ROOM as SHARED
from tidegate.keyservice.master_keys import MasterKeys, open_master_keys, renew_all
from tidegate.keyservice.release import KeyRelease, KeyService, reading
from tidegate.keyservice.row_keys import RowKeys
from tidegate.keyservice.topic_keys import TIDY, TopicKeys
from tidegate.net.control_command import typed
from tidegate.net.control_socket import Command
from tidegate.policy import Directory
from tidegate.policy.identities import USER
from tidegate.scope import Realm
from tidegate.session import Site
from tidegate.store.registry import Applied

if TYPE_CHECKING:
    from tidegate.node.node import Node

ROTATED: Final = "keys.rotated"
"""The room that changes when somebody rotates by hand: whoever shares the registry does the same."""
ASKED: Final = 500
"""Groups of which it is asked one by one whether somebody could read them; of more, all count as read."""
PIECE: Final = 64
"""Keys that are renewed in one turn."""

log = structlog.get_logger("tidegate.keys")


class NodeKeys:
    """The keys of one node."""

    def __init__(self, node: Node, turn: Callable[..., Any]) -> None:
        self._node = node
        self._turn = turn
        self.master_keys: MasterKeys | None = None
        self.topic_keys: TopicKeys | None = None
        self.rows = RowKeys(self)
        """Of rows in the journal."""
        self._exchange: KeyExchange | None = None
        self._service: KeyService | None = None
        self._release: KeyRelease | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    # -- starting and stopping -------------------------------------------------------------------------------------

    async def open(self, config: Config, site: Site, rows: Mapping[str, bytes]) -> TopicKeys:
        """The keys that the store kept; ConfigError with the remedy if there is no master key."""
        if config.keys.any or rows:
            await self._equip(config)
        topic_keys = self.topic_keys = TopicKeys(site, config.keys, self.master_keys, self._exchange)
        if rows:
            topic_keys.restore(rows)
        return topic_keys

    def start(self, realm: Realm) -> None:
        """From now on requests are answered, and keys shared."""
        assert self.topic_keys is not None
        self._release = KeyRelease(
            self.topic_keys,
            realm,
            self._node.audit,
            config=lambda: self._node.config,
            service=lambda: self._service,
            capability=lambda request: self._node.authentication.capability_of(request, realm.site),
            turn=self._turn,
            identity=lambda user: self._node.identities.table.id(USER, user),
        )
        self._tidying = asyncio.get_running_loop().create_task(self._tidy())
        if self._exchange is not None:
            self._share(self._exchange)

    async def close(self) -> None:
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.wait((self._tidying,))
        if self._release is not None:
            await self._release.close()
        if self._exchange is not None:
            await self._exchange.close()

    async def _equip(self, config: Config) -> None:
        """Master keys and exchange, as the configuration says."""
        shares = config.keys.ktm is not None or config.store != SQLITE
        if self.master_keys is None and (config.node.data is not None or shares):
            self.master_keys = await asyncio.get_running_loop().run_in_executor(None, open_master_keys, config)
        if self._exchange is not None or not config.keys.any:
            return
        administration = self._node.administration
        if config.keys.ktm is not None:
            from tidegate.keyservice.ktm import KtmExchange

            self._exchange = self._service = KtmExchange(config.keys.ktm)
        elif config.store != SQLITE and administration is not None:
            assert self.master_keys is not None
            exchange = self._exchange = RegistryExchange(administration.registry.secrets, self.master_keys)
            administration.on_secrets_changed[SHARED] = administration.on_secrets_changed[REVOKED] = exchange.notice
            administration.on_secrets_changed[ROTATED] = partial(self._turn, self.rotate)

    def _share(self, exchange: KeyExchange) -> None:
        assert self.topic_keys is not None
        topic_keys = self.topic_keys
        exchange.start(lambda keys, revoked: self._turn(topic_keys.took, keys, revoked))

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY)
            if self.topic_keys is not None:
                self._turn(self.topic_keys.tidy)

    # -- changing --------------------------------------------------------------------------------------------------

    async def prepare(self, config: Config) -> None:
        """Before another configuration is put in force; ConfigError, and nothing has changed."""
        topic_keys, before = self.topic_keys, self._exchange
        assert topic_keys is not None
        if config.keys.any:
            await self._equip(config)
        if self.master_keys is not None and topic_keys.master_keys is self.master_keys:
            loop = asyncio.get_running_loop()
            generation = self.master_keys.generation
            if await loop.run_in_executor(None, self.master_keys.reread, config.master_key):
                stored = topic_keys.stored()
                for start in range(0, len(stored), PIECE):
                    self._turn(topic_keys.renew, stored[start : start + PIECE])
                    await asyncio.sleep(0)  # everybody else has their turn
                self._renewing = loop.create_task(self._renew_sources(self.master_keys))
            if self.master_keys.generation != generation:
                self._turn(topic_keys.reopen)
            if isinstance(self._exchange, RegistryExchange):
                self._exchange.renew()
        topic_keys.master_keys, topic_keys.exchange = self.master_keys, self._exchange
        if before is None and self._exchange is not None and self._release is not None:
            self._share(self._exchange)

    async def _renew_sources(self, master_keys: MasterKeys) -> None:
        """The keys of sources are sealed under the first master key again."""
        administration = self._node.administration
        if administration is not None:
            secrets, loop = administration.registry.secrets, asyncio.get_running_loop()
            try:
                await renew_all(
                    secrets, SOURCES, master_keys, of=SOURCE, aside=lambda do: loop.run_in_executor(None, do)
                )
            except StoreError as error:
                log.warning("keys of sources stay under the old master key; reload again", reason=str(error))

    def change(self, before: Config, after: Config, retired: Collection[Who] = ()) -> None:
        """Just before other rules are in force: whoever loses a right reads nothing new under the keys they have.

        `retired`: who is no more, even if there is another one of that name.
        """
        assert self.topic_keys is not None
        self.topic_keys.change(after.keys)
        if not len(self.topic_keys.ring) and self._service is None:
            return
        lost = losing(before.built.directory, after.built.directory)
        if lost is None or lost or retired:
            self._rotate(None if lost is None else self.topic_keys.had_by(_names({*lost, *retired})))

    def rotate(self) -> None:
        """Somebody lost a right, and nobody knows what they could read."""
        self._rotate(None)

    def _rotate(self, groups: Collection[str] | None) -> int:
        assert self.topic_keys is not None
        if self._service is not None:
            self._service.rotate()
        return self.topic_keys.rotate(groups)

    # -- control commands ------------------------------------------------------------------------------------------

    def commands(self) -> dict[str, Command]:
        return dict(
            (
                typed(GetKey, self.get),
                typed(GetPublishingKey, self.publish),
                typed(ListKeys, self.list_all),
                typed(RotateKeys, self.rotated_everywhere),
                typed(RevokeKey, self.revoked),
            )
        )

    async def get(self, command: GetKey) -> dict[str, Any]:
        answer = await self._there.get(command)
        return {"answer": answer.decode()}

    async def publish(self, command: GetPublishingKey) -> dict[str, Any]:
        answer = await self._there.publish(command)
        return {"answer": answer.decode()}

    def list_all(self, command: ListKeys) -> dict[str, Any]:
        self._there.realm.site.open()
        return {"keys": self._there.topic_keys.listed(command.after, command.limit)}

    def rotated(self, command: RotateKeys) -> dict[str, Any]:
        """Rotates the keys of this node. A dry run only counts the groups."""
        filter, user, why = command.filter, command.user, command.why
        there, topic_keys = self._there, self._there.topic_keys
        there.realm.site.open()
        config = self._node.config
        groups: Collection[str] | None = None
        what = "all"
        if filter is not None:
            known = (*config.keys.protect, *config.keys.end_to_end)
            if filter not in known:
                raise Problem(f"`{filter[:200]}` protects nothing; there is: {', '.join(known)}", problem="unknown")
            groups = {each.id for each in topic_keys.groups() if each.filter == filter}
            what = filter
        if user is not None:
            if user not in config.built.directory.users:
                raise Problem(f"there is no user {user[:100]!r}", problem="unknown")
            who = {("user", user)}
            has = topic_keys.had_by(_names(who))  # also by where they came from, or with which client
            few = len(topic_keys.ring.groups()) <= ASKED
            found = has | readable_by(there.realm, config, who, topic_keys) if few and has is not None else None
            if found is not None:
                groups = found if groups is None else found & set(groups)
            what = f"{what}, what {user} could read"
        if command.dry_run:
            sealing = {each["group"] for each in topic_keys.listed() if each["seals"]}
            return {"groups": len(sealing if groups is None else sealing.intersection(groups))}
        count = self._rotate(groups)
        text = f"{count} keys by {command.by[:200]}: {what}" + (f": {why[:200]}" if why else "")
        self._node.audit.changed(self._node.audit.version, text, action="key rotate")
        return {"groups": count}

    async def rotated_everywhere(self, command: RotateKeys) -> dict[str, Any]:
        """The same, and the other nodes of the registry rotate all that they have."""
        done = self.rotated(command)
        administration = self._node.administration
        if not command.dry_run and isinstance(self._exchange, RegistryExchange) and administration is not None:
            now, row = time.time(), os.urandom(8).hex()
            put = partial(
                administration.registry.secrets.put, ROTATED, row, b"1", expected=None, at=now, expires=now + 60
            )
            try:
                answer = await asyncio.get_running_loop().run_in_executor(None, put)
            except StoreError as error:
                raise _untold(str(error)) from error
            if not isinstance(answer, Applied):
                raise _untold(str(answer))
        return done

    async def revoked(self, command: RevokeKey) -> dict[str, Any]:
        """It is never handed out again, and its group gets another key: no crash brings it back.

        A dry run tells which key it would be, unless only the key service has it.
        """
        id, why, topic_keys = command.id, command.why, self._there.topic_keys
        self._there.realm.site.open()
        found = topic_keys.told(id)
        if found is None and not await self._elsewhere(id):
            raise _unknown(id)
        if command.dry_run:
            return {"revoked": id, "key": found}
        self._there.realm.site.open()
        if not topic_keys.revoke(id):
            if self._service is None:
                raise _unknown(id)  # it ended just now
            topic_keys.revoke_elsewhere(id)
        text = f"key {id} by {command.by[:200]}" + (f": {why[:200]}" if why else "")
        self._node.audit.changed(self._node.audit.version, text, action="key revoke")
        await self._node.stored()
        return {"revoked": id}

    async def _elsewhere(self, id: str) -> bool:
        """Whether the key service has a key that is not here."""
        if self._service is None or not valid_id(id):
            return False
        try:
            return await self._service.group(id) is not None
        except StoreError as error:
            text = f"the key is not here, and the key service cannot be asked: {error}"
            raise Problem(text, problem="unavailable") from error

    def state(self) -> dict[str, Any] | None:
        """For `tidegate status`; None if nothing is protected."""
        if (
            self.topic_keys is None
            or self._release is None
            or not (self._node.config.keys.any or len(self.topic_keys.ring))
        ):
            return None
        return {**self.topic_keys.state(), "handed": self._release.handed, "refused": self._release.refused}

    @property
    def _there(self) -> KeyRelease:
        if self._release is None:
            raise Problem("the node is starting; try again", problem="unavailable")
        return self._release


def _untold(why: str) -> Problem:
    text = f"other keys seal on this node; the other nodes could not be told, rotate again: {why}"
    return Problem(text, problem="unavailable")


def _unknown(id: str) -> Problem:
    return Problem(f"there is no key {id[:100]!r} any more, or never was", problem="unknown")


Who = tuple[str, str]  # `user` or `client`, and the name


def losing(before: Directory, after: Directory) -> set[Who] | None:
    """Who may have lost a right by another directory: who is gone, or somebody else now. None: it may be anybody."""
    if before is after:
        return set()
    if before.roles != after.roles or before.groups != after.groups:
        return None
    found: set[Who] = {("user", name) for name, entry in before.users.items() if after.users.get(name) != entry}
    return found | {("client", name) for name, entry in before.clients.items() if after.clients.get(name) != entry}


def _names(who: Collection[Who]) -> set[str]:
    return {f"{sort}:{name}" for sort, name in who}


def readable_by(realm: Realm, config: Config, who: Collection[Who], topic_keys: TopicKeys) -> set[str]:
    """The groups whose key one of these could have had, under the rules in force."""
    scope = next(iter(realm.scopes.values()))
    levels, directory = scope.gate.rules.levels, config.built.directory
    best: dict[str, Any] = {"level": levels.highest, "facts": levels.facts}  # over the best connection
    links = [reading(scope, directory, **{**best, sort: name}) for sort, name in who]
    return {
        group.id
        for group in topic_keys.ring.groups()
        if any(isinstance(scope.gate.stored.readable(group.topic, group.context, link), Allow) for link in links)
    }
