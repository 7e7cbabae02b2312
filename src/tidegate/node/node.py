"""A running node: builds the rooms from a configuration, starts them in the right order, and stops them cleanly.

Nothing listens before everything that decides is ready. On SIGTERM nothing is accepted any more, clients are told
0x8B, what they were sent is flushed, and the store is closed last.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from tidegate.admin.administration import Administration
from tidegate.admin.commands import admin_commands
from tidegate.admin.identities import ROOM as IDENTITIES
from tidegate.admin.identities import NodeIdentities
from tidegate.admin.ingest import Ingest
from tidegate.admin.ingest_journal import Recorder
from tidegate.admin.me.services import OwnDataServices
from tidegate.admin.sources import ROOM as SOURCES
from tidegate.admin.sources import Sources
from tidegate.audit.auditor import FLUSH, Auditor
from tidegate.audit.journals import Journals
from tidegate.audit.logs import configure_logs
from tidegate.authentication import jwks
from tidegate.authentication.authentication import Authentication
from tidegate.authentication.bearer_tokens import BearerTokens
from tidegate.authentication.identity_providers import IdentityProviders
from tidegate.authentication.names import ROOM as NAMES
from tidegate.authentication.names import Names
from tidegate.authentication.passwords import Passwords
from tidegate.authentication.presented_capabilities import Register
from tidegate.config import Config, OverlayDocument, read_source
from tidegate.config.references import mention
from tidegate.errors import ConfigError, TidegateError
from tidegate.keyservice.topic_keys import ROOM as KEYS
from tidegate.net.control_socket import Command
from tidegate.node import backup
from tidegate.node.announcement import announce
from tidegate.node.configuration import check_fixed, registry_of, session_limits, tried_config, verify_tests
from tidegate.node.control_sockets import ControlSockets
from tidegate.node.file_watch import FileWatch
from tidegate.node.flow_commands import FlowCommands
from tidegate.node.guards import Guards
from tidegate.node.http import HttpProcess, tls_context
from tidegate.node.key_service import NodeKeys
from tidegate.node.link_connections import LinkConnections, try_certificates
from tidegate.node.listeners import Listeners, endpoint
from tidegate.node.monitor_commands import MonitorCommands
from tidegate.node.orphaned_state import OrphanedState
from tidegate.node.pipeline import Pipeline
from tidegate.node.preference_signatures import PreferenceSignatures
from tidegate.node.readiness import Readiness
from tidegate.node.revocation import ReadRevocation, RevocationWatch, read_revocation
from tidegate.node.statistics import Publisher, StatusCommands, bounds, numbers
from tidegate.node.threads import Threads
from tidegate.node.turns import Turns
from tidegate.node.versions import Versions
from tidegate.policy.capability import Accepts
from tidegate.policy.identities import USER
from tidegate.scope import Realm, Scope
from tidegate.scope.stored_publisher_rules import ROOM
from tidegate.session import Connection, Message, Origin, Site, Store, StoredSession, Volatile
from tidegate.store import SqliteStore
from tidegate.store.journal import INGEST
from tidegate.wire import Reason

DRAIN = 5.0  # seconds for clients to take what is written to them at shutdown

T = TypeVar("T")

log = structlog.get_logger("tidegate.node")


class Node:
    """One Tidegate process."""

    def __init__(self, config: Config, path: Path | None, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.source = None if config.source is None else config.source.alone
        self.path = path
        self.loop = loop
        self.turns = Turns(loop)
        self.passwords = Passwords(
            self.turns.call,
            workers=config.authentication.workers,
            cache=config.authentication.cache,
            attempts=config.authentication.attempts,
            address_attempts=config.authentication.address_attempts,
        )
        self.providers = IdentityProviders(config)
        self.on_stop: Callable[[], None] = lambda: None
        self.store: SqliteStore | None = None
        self.site: Site
        self.realm: Realm
        self._orphaned: OrphanedState
        self.scopes: dict[str, Scope] = {}
        self.listeners: Listeners
        self.http: HttpProcess | None = None
        self.register: Register
        self.identities: NodeIdentities
        self.authentication: Authentication
        self.journals: Journals
        self.audit: Auditor
        self.ingest: Ingest
        self.recorder: Recorder | None = None
        self.administration: Administration | None = None
        self.versions: Versions
        self.keys = NodeKeys(self, self.turns.guarded)
        self.links = LinkConnections(self)
        self.guards = Guards(self)
        self.readiness = Readiness(self)
        self.stopping = False
        self.started = loop.time()
        self._publishers: dict[str, Publisher] = {}
        self.signatures: PreferenceSignatures
        self.own_data: OwnDataServices
        self.changing = asyncio.Lock()
        self._threads = Threads(loop)
        self._file_watch = None if path is None else FileWatch(path)  # of the file that `config` was read from
        self._issuer_keys = jwks.IssuerKeys()
        self._revocations = RevocationWatch(self)
        self.control = ControlSockets(self)
        self._tasks: list[asyncio.Task[None]] = []
        self._bugs = 0

    # -- starting ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self.config.administered:
            await self._recall()
        config = self.config
        verify_tests(config, str(self.path or ""))
        config.built.rules.prepare()
        accepts = await self.loop.run_in_executor(None, self._issuer_keys.accepted, config)
        sessions: list[StoredSession] = []
        retained: dict[str, list[Message]] = {}
        notes: dict[str, str] = {}
        records: dict[str, dict[str, bytes]] = {}
        store: Store = Volatile()
        origin = Origin(secrets.token_hex(8), 1)
        if config.node.data is not None:
            self.store = store = SqliteStore(
                config.node.data / "tidegate.db",
                call=self.turns.call,
                later=self.turns.later,
                durability=config.durability.value,
            )
            first = next(iter(config.scopes))
            opening = partial(store.open, first=first, now_wall=time.time(), now_mono=self.loop.time())
            snapshot = await self.loop.run_in_executor(None, opening)
            sessions, retained, notes, records = snapshot.sessions, snapshot.retained, snapshot.notes, snapshot.records
            origin = Origin(snapshot.node, secrets.randbits(48))  # a restored backup must not repeat ids
        self.site = site = Site(
            store=store,
            origin=origin,
            limits=session_limits(config),
            on_open=self.turns.opened,
            random_id=lambda: f"auto-{secrets.token_hex(12)}",
        )
        self.turns.drive(site)
        site.open()
        if self.store is not None:
            self.store.start()
        self.register = Register(records, store.keep, site.wall)
        self.register.on_unknown_signer = self._issuer_keys.want
        self.identities = NodeIdentities(config.node.name, records.get(IDENTITIES, {}), store.keep, self.administration)
        taken = await self.identities.take_up(config, changed=True)
        self.identities.adopt(taken)
        named = self.identities.named(config.directory.users) if taken.first else {}
        revocation, people = await self.run_change(partial(read_revocation, config)), self.identities.table
        names = Names(records.get(NAMES, {}), store.keep)
        self.authentication = Authentication(config, self.passwords, self.register, accepts, people, revocation, names)
        self._revocations.loaded(revocation)
        self.versions = Versions(notes)
        rules = self.versions.next(config.built.rules)
        for key, value in self.versions.notes().items():
            store.remember(key, value)
        self.journals = Journals(self.turns.call)
        self.audit = Auditor(site, self.journals, node=config.node.name)
        await self.audit.open(config)
        taking = None if self.administration is None else await self.journals.open(config, INGEST)
        self.ingest = Ingest(self, self.keys.rows, taking, records.get(SOURCES, {}))
        await self._prepare_recording(config)
        topic_keys = await self.keys.open(config, site, records.get(KEYS, {}))
        self.guards.prepare(config)
        self.realm = Realm(
            node=config.node.name,
            site=site,
            authenticator=self.authentication,
            rules=rules,
            audit=self.audit,
            stopwatch=time.perf_counter,
            keyring=topic_keys,
            make_scope=self.guards.make_scope,
        )
        self.scopes = self.audit.scopes = self.realm.scopes
        self.authentication.has_session = self.realm.has_session
        self.authentication.bearers = BearerTokens(providers=self.providers)
        self.realm.observe(config.built.flows, config.built.presences)
        self.audit.configure(config)
        self.audit.changed(rules.version, str(self.path or ""), action="start")
        if self.administration is not None:
            await self.administration.identified(first=taken.first)
        self.realm.publishers.restore(records.get(ROOM, {}), named)
        self.realm.publishers.retire(self.identities.table.retired)
        self.signatures = PreferenceSignatures(self, records)
        self.own_data = OwnDataServices(self, records)
        await self.signatures.open(config)
        self._orphaned = OrphanedState(sessions, retained, records, named)
        for scope in self.scopes.values():
            self._orphaned.recall(scope)
        self._restore(self.scopes)
        self.realm.node_links.begin(records)
        self.realm.open_links(self.versions.links_before())
        for name, (away, kept) in self._orphaned.left().items():
            log.warning(
                "the store has a scope that the configuration does not have; what is in it stays there, unused. "
                "Remedy: name it under `scopes` again to have it back",
                scope=name,
                sessions=away,
                retained=kept,
            )
        self.keys.start(self.realm)
        if self.administration is not None:
            self.ingest.sources = Sources(
                self, self.administration, master_keys=lambda: self.keys.master_keys, forget=self.ingest.forget
            )
        await self._start_control()
        if self.stopping:
            return
        self.listeners = Listeners(site, self.realm, self.loop, self.bug)
        for listener in config.listeners:
            self.listeners.bind(listener)
        if config.http is not None:
            self.http = HttpProcess(config)
            self.http.bind()
            self.http.on_end = self.readiness.look
        self.listeners.start()
        self.links.start()
        self.guards.start()
        self._tasks.append(self.loop.create_task(self._account()))
        self._tasks.append(
            self.loop.create_task(self._issuer_keys.refresh(lambda: self.config, self._take_up_issuer_keys))
        )
        self._tasks.append(self.loop.create_task(self._revocations.run()))
        if config.sys.interval:
            self._tasks.append(self.loop.create_task(self._statistics(config.sys.interval)))
        if config.reload == "watch" and self._file_watch is not None:
            self._tasks.append(self.loop.create_task(self._file_watch.run(self._reload_guarded)))
        self.own_data.start()
        if self.administration is not None:
            self.administration.follow()
            self.passwords.on_rehash = self.administration.rehashing.note
        if self.http is not None:
            self.http.start()

    async def _recall(self) -> None:
        """What was administered counts from the first message on; a node that cannot read it does not start."""
        said = self.config.tokens
        self.administration = Administration(
            self, registry_of(self.config), node=self.config.node.name, valid=said.valid, most=said.most
        )
        if pieces := await self.administration.open():
            try:
                self.config = await self.run_change(partial(self.build_config, pieces))
            except ConfigError:
                remedy = "start with the file as it was, mend over HTTP what is named, then change the file"
                log.error("what was administered does not go with this file", remedy=remedy)
                raise

    async def _prepare_recording(self, config: Config) -> None:
        """What the pipeline takes in can be written down; which messages those are, the rules say."""
        journal = await self.journals.prepare(config)
        if journal is not None and self.recorder is None:
            self.site.journal = self.recorder = Recorder(
                journal, self.site, self.keys.rows, audit=self.audit, sources=lambda: self.ingest.sources
            )

    def _restore(self, names: Iterable[str]) -> None:
        """To each scope what the store kept of it. What belongs to a scope that is not there waits for it."""
        for scope in map(self.realm.scope, names):
            self._orphaned.restore(scope, self.authentication)

    async def _start_control(self) -> None:
        monitors = MonitorCommands(
            self.scopes, lambda what: self.audit.changed(self.audit.version, what, action="reset"), self.stored
        )
        commands: dict[str, Command] = {
            **StatusCommands(self).commands(),
            "readiness": self.readiness.asked,
            **FlowCommands(self).commands(),
            **self.links.commands(),
            "reload": self.reload,
            **backup.commands(self.store),
            "stop": self._stop,
            "audit": self.audit.stream,
            "audit_written": self.audit.written,
            "capability_revoke": self.revoke,
            **monitors.commands(),
            **admin_commands(self, self.administration, self.ingest, self.control.sign_ins),
            **self.keys.commands(),
            **Pipeline(self).commands(),
        }
        await self.control.start(commands)

    def announce(self) -> None:
        """Where everything listens, what is probably not meant, and from then on whether the node is ready."""
        announce(self)
        self._tasks.append(self.loop.create_task(self.readiness.watch()))

    # -- running -----------------------------------------------------------------------------------------------

    def bug(self, connection: Connection, error: BaseException) -> None:
        self._bugs += 1
        log.error("bug", address=connection.address, exc_info=error)

    def numbers(self) -> dict[str, Any]:
        self.site.open()
        return numbers(self.site, self.scopes.values(), self.started, self.turns.longest)

    async def _statistics(self, interval: float) -> None:
        while True:
            values = self.numbers()
            for name, scope in list(self.scopes.items()):
                publisher = self._publishers.get(name)
                if publisher is None or publisher.scope is not scope:
                    publisher = self._publishers[name] = Publisher(scope)
                self.turns.guarded(publisher.publish, values)
            await asyncio.sleep(interval)

    async def _account(self) -> None:
        while True:
            await asyncio.sleep(FLUSH)
            self.turns.guarded(self.audit.flush)

    def status(self) -> dict[str, Any]:
        """For `tidegate status`."""
        return {
            "node": self.config.node.name,
            "pid": os.getpid(),
            "listeners": [one.status() for one in self.listeners.bound.values()],
            "scopes": list(self.scopes),
            **self.links.status(),
            "guards": self.guards.status(),
            "limits": {**bounds(self.site), "refused_connects": self.audit.bound()},
            "bugs": self._bugs,
            "refusing": self.site.store.refusing,
            "rules": self.realm.rules.version,
            "audit": self.audit.state(),
            "ingest": None if self.recorder is None else self.recorder.state(),
            "keys": self.keys.state(),
            "registry": None if self.administration is None else self.administration.status(),
            "http": None if self.http is None else self.http.status(),
            "numbers": self.numbers(),
        }

    def stop(self) -> None:
        """Ends the node, also one that is still starting: then it does not begin to listen."""
        self.stopping = True
        self.on_stop()

    def _stop(self) -> dict[str, Any]:
        self.loop.call_soon(self.stop)
        return {"stopping": True}

    async def stored(self) -> None:
        """Until everything noted so far is on the disk."""
        safe = self.loop.create_future()
        self.site.store.after(safe.set_result, None)
        await safe

    async def revoke(self, id: str) -> dict[str, Any]:
        """For `tidegate capability revoke`: its holders are sent away at once, and it never counts again."""
        self.site.open()
        known = id in self.register.revoked
        self.register.revoke(id)
        dismissed = 0
        for scope in self.scopes.values():
            for session in scope.credential_expiry.holders(id):
                dismissed += 1
                scope.withdrawn_access.disconnect(session, "your capability has been revoked")
        self.keys.rotate()
        self.realm.change(self.realm.rules)  # for those who are away, and their wills
        self.audit.changed(self.audit.version, f"capability {id} revoked", action="revoke")
        await self.stored()
        log.info("capability revoked", id=id, disconnected=dismissed)
        return {"revoked": id, "before": known, "disconnected": dismissed, "kept": self.store is not None}

    # -- reloading ---------------------------------------------------------------------------------------------

    def reload_or_say_why(self) -> None:
        task = self.loop.create_task(self._reload_guarded())
        self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)

    async def _reload_guarded(self) -> None:
        try:
            await self.reload()
        except TidegateError as error:
            log.error("reload refused, the last good configuration stays", reason=str(error))
        except Exception:  # whoever watches the file has to go on
            log.exception("reload failed, the last good configuration stays")

    async def reload(self) -> dict[str, Any]:
        """Reads the file again. All of it takes effect, or none."""
        if self.path is None:
            raise ConfigError("there is no file to read again: the node runs without one")
        async with self.changing:  # one after the other, or each would close what the other has opened
            return await self._reload(self.path)

    async def _reload(self, path: Path) -> dict[str, Any]:
        pieces = [] if self.administration is None else await self.run_change(self.administration.pieces)
        config = await self.run_change(lambda: tried_config(read_source(path), pieces))
        authentication = await self.examine(config)
        version = await self.enforce(config, authentication, what=str(path), action="reload")
        if self.administration is not None:
            self.administration.reloaded()
            await self.administration.tokens.revoke_retired(by="file")
        log.info("reloaded", file=str(path), version=version)
        return {"reloaded": True, "version": version}

    # -- putting a configuration in force: of the file, and of what is administered -----------------------------------

    async def _take_up_issuer_keys(self, config: Config, accepts: Accepts) -> None:
        """Issuers have other keys. Whoever came with a capability that only a removed key has signed has to go."""
        async with self.changing:
            before = self.authentication.accepts
            if self.config is not config or before is None:  # a reload came in between
                self._issuer_keys.want()
                return
            if accepts.issuers.signers == before.issuers.signers:
                return
            self.site.open()
            self.authentication.accepts = accepts
            if before.issuers.signers - accepts.issuers.signers:
                self.keys.rotate()
            self.realm.change(self.realm.rules)
            self.audit.changed(self.audit.version, "keys of issuers", action="refresh")
            log.info("keys of issuers refreshed")

    async def run_change(self, do: Callable[[], T]) -> T:
        """On the thread for what takes long."""
        return await self._threads.change(do)

    async def run_query(self, do: Callable[[], T]) -> T:
        """On another one, for those who only look: no change waits for them."""
        return await self._threads.query(do)

    def mention(self, name: str) -> str | None:
        said = mention(self.config, name) or self.realm.publishers.mention(name)
        return said or ("in use" if self.authentication.taken(name) else None)

    def build_config(self, pieces: Sequence[OverlayDocument], strict: Collection[str] = ()) -> Config:
        """The file as it was read last with documents over it, checked and tried; blocks. `strict`: must be right."""
        assert self.source is not None
        return tried_config(self.source, pieces, strict)

    async def examine(self, config: Config) -> Authentication:
        """Everything that can be found wrong before anything changes."""
        check_fixed(config, self.config)
        accepts = self.authentication.accepts
        if not self._same_file(config):
            accepts = await self.run_change(partial(self._issuer_keys.accepted, config))
        revocation, people = self.authentication.revocation, self.identities.table
        if not self._same_file(config):
            revocation = await self.run_change(partial(read_revocation, config))
        names = self.authentication.names
        authentication = Authentication(config, self.passwords, self.register, accepts, people, revocation, names)
        if not self._same_file(config):
            self.identities.check(config)
        built = config.built
        if opened := self.realm.opened(built.rules, built.flows, built.presences, authentication):
            raise ConfigError(f"who is connected could use a forbidden flow: {opened}; close the way, or wait")
        if self._same_file(config):
            return authentication
        for listener in config.listeners:  # certificates that cannot be loaded refuse the whole change
            if (tls := endpoint(listener).tls) is not None:
                await self.loop.run_in_executor(None, tls.context)
        for read in (partial(tls_context, config.http), partial(try_certificates, config)):
            await self.loop.run_in_executor(None, read)
        return authentication

    def _same_file(self, config: Config) -> bool:
        """Whether only documents have changed: certificates and keys that it names are not read again then."""
        return config.source is not None and config.source.alone is self.source

    async def enforce(
        self, config: Config, authentication: Authentication, *, what: str, action: str, by: str = "file"
    ) -> str:
        """From now on it counts; the version of its rules. ConfigError or StoreError, and nothing has changed."""
        await self.audit.prepare(config)
        await self._prepare_recording(config)
        await self.keys.prepare(config)
        self.guards.prepare(config)
        self.realm.prepare(config.built.rules.space.scopes)
        self._restore(config.built.rules.space.scopes)
        taken = await self.identities.take_up(config, changed=not self._same_file(config))
        abroad = await self.signatures.prepare(config)
        if not self._same_file(config):
            self.listeners.change(config)
        before, self.config = self.config, config
        self.source = None if config.source is None else config.source.alone
        self.site.open()
        news = self.identities.adopt(taken)
        if authentication.revocation.more_than(self.authentication.revocation):
            self.keys.rotate()
        if isinstance(read := authentication.revocation, ReadRevocation) and read is not self.authentication.revocation:
            self._revocations.loaded(read)
        self.providers.change(config)
        self.authentication.replace(authentication, self.site.generation + 1)
        self.site.limits = session_limits(config)
        configure_logs(config.log.format, config.log.level)
        rules = self.versions.next(config.built.rules)
        self.keys.change(before, config, [each.key for each in news if each.retired is not None])
        self.realm.rename({each.id: each.name for each in news if each.kind == USER and each.retired is None})
        if any(each.retired is not None for each in news):
            self.realm.publishers.retire(self.identities.table.retired)
        self.realm.change(rules)
        self.guards.change()
        self.signatures.adopt(config, *abroad)
        for scope in self.scopes.values():
            self._orphaned.recall(scope)
        self.realm.observe(config.built.flows, config.built.presences)
        self.audit.configure(config)
        for key, value in self.versions.notes().items():
            self.site.store.remember(key, value)
        self.audit.changed(rules.version, what, action=action)
        await self.audit.settle()
        if self.http is not None:
            self.http.change(config)
        self.own_data.notices.changed(before, by)
        return rules.version

    # -- stopping ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stops accepting, tells clients 0x8B, drains, and closes the store last."""
        self.stopping = True
        for task in self._tasks:
            task.cancel()
        http = None if self.http is None else self.loop.create_task(self.http.close())
        if hasattr(self, "site"):
            self.site.open()
            self.site.closing = True
            if hasattr(self, "listeners"):
                await self._drain()
            for scope in self.scopes.values():
                scope.path.monitoring.states.finish()
        self.turns.stop()
        if http is not None:
            await http
        await self.control.close()
        if hasattr(self, "own_data"):
            await self.own_data.close()
        await self.keys.close()
        if self.administration is not None:
            await self.administration.close()
        if hasattr(self, "audit"):
            self.audit.close()
        if self.store is not None:
            self.store.close()  # on the loop: nothing else is left to do, and nothing may come in between
        for threads in (self.passwords, self.providers, self._threads):
            threads.close()
        log.info("stopped", node=self.config.node.name)

    async def _drain(self) -> None:
        """Says goodbye to all clients, and gives them some time to take what they were sent."""
        connections = self.listeners.connections
        self.listeners.stop_accepting()
        leaving = self.loop.create_task(self.links.close())
        for shell in connections():
            self.turns.guarded(shell.connection.close, Reason.SERVER_SHUTTING_DOWN)
        deadline = self.loop.time() + DRAIN
        while any(connections()) and self.loop.time() < deadline:  # noqa: ASYNC110 - sockets close by themselves
            await asyncio.sleep(0.005)
        for shell in connections():
            shell.abort()
        await self.guards.close()
        await leaving
