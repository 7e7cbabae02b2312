"""A running node: builds the rooms from a configuration, starts them in the right order, and stops them cleanly.

Nothing listens before everything that decides is ready. On SIGTERM nothing is accepted any more, clients are told
0x8B, what they were sent is flushed, and the store is closed last.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import secrets
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import structlog
import uvloop

from tidegate.admin.administration import PATIENCE, Administration
from tidegate.admin.commands import AdminCommands
from tidegate.admin.ingest import Ingest
from tidegate.admin.ingest_journal import Recorder
from tidegate.admin.sources import ROOM as SOURCES
from tidegate.admin.sources import Sources
from tidegate.audit.auditor import FLUSH, Auditor
from tidegate.audit.journals import Journals, check_installed, journal_warning
from tidegate.audit.logs import configure_logs
from tidegate.authentication import jwks
from tidegate.authentication.authentication import Authentication, load_method
from tidegate.authentication.capabilities import Register
from tidegate.authentication.passwords import Passwords
from tidegate.config import Config, ConfigErrors, OverlayDocument, Source, build_config, read_source, with_documents
from tidegate.config import Listener as ListenerConfig
from tidegate.config.administration import DATABASE, SQLITE
from tidegate.config.deferred_free import free_configs
from tidegate.config.overlay import closed_preference
from tidegate.errors import ConfigError, StoreError, TidegateError
from tidegate.flow.presence import Presence
from tidegate.net import Connection, Endpoint, Listener, Tls
from tidegate.net.control_socket import Command, Control
from tidegate.node.flows import flow_document
from tidegate.node.http import HttpProcess, tls_context
from tidegate.node.key_service import ROOM as KEYS
from tidegate.node.key_service import NodeKeys
from tidegate.node.monitors import MonitorCommands
from tidegate.node.orphaned_state import OrphanedState
from tidegate.node.pipeline import Pipeline
from tidegate.node.statistics import Publisher, numbers
from tidegate.node.turns import Turns
from tidegate.node.versions import Versions
from tidegate.scope import Realm, Scope
from tidegate.scope.publisher_rules import ROOM
from tidegate.session import Full, Limits, Message, Origin, Peer, Site, Store, StoredSession, Volatile
from tidegate.store import SqliteStore
from tidegate.store.journal import INGEST
from tidegate.store.registry import Registry, registry
from tidegate.wire import Reason

DRAIN = 5.0  # seconds for clients to take what is written to them at shutdown
WATCH = 1.0  # seconds between looks at the file with `reload: watch`
_FIXED = ("node", "durability", "reload", "sys", "authentication", "store", "tokens", "http", "keys")
"""What no reload changes, or not all of it."""

T = TypeVar("T")

log = structlog.get_logger("tidegate.node")


def run(config: Config, path: Path | None) -> int:
    """Runs a node until it is told to stop; the exit code."""
    configure_logs(config.log.format, config.log.level)
    _raise_file_limit()
    sys.setswitchinterval(0.0005)  # the store's writer thread waits this long for a busy loop, not 5 ms
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_main(config, path))


async def _main(config: Config, path: Path | None) -> int:
    loop = asyncio.get_running_loop()
    node = Node(config, path, loop)
    stop = asyncio.Event()
    node.on_stop = stop.set
    loop.set_exception_handler(_unhandled)
    try:
        await node.start()
    except (ConfigError, StoreError) as error:
        log.error("cannot start", reason=str(error))
        await node.close()
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, node.reload_or_say_why)
    node.announce()
    # what is there now stays; the collector need not look at it again and again, nor stop the loop for it
    gc.freeze()
    gc.enable()
    gc.set_threshold(5_000, 20, 100)
    await stop.wait()
    await node.close()
    return 0


def _unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Nothing should come here; what does is a bug of ours or of the transport, and is written down."""
    error = context.get("exception")
    if isinstance(error, ConnectionError | TimeoutError) or context.get("message", "").startswith("SSL"):
        log.debug("connection failed", reason=str(error or context.get("message")))
    else:
        log.error("unhandled", message=context.get("message"), exc_info=error)


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
        )
        self.on_stop = lambda: None
        self.store: SqliteStore | None = None
        self.site: Site
        self.realm: Realm
        self._orphaned: OrphanedState
        self.scopes: dict[str, Scope] = {}
        self.listeners: dict[str, Listener] = {}
        self.http: HttpProcess | None = None
        self.register: Register
        self.authentication: Authentication
        self.journals: Journals
        self.audit: Auditor
        self.ingest: Ingest
        self.recorder: Recorder | None = None
        self.administration: Administration | None = None
        self.versions: Versions
        self.keys = NodeKeys(self, self.turns.guarded)
        self.started = loop.time()
        self._publishers: dict[str, Publisher] = {}
        self.changing = asyncio.Lock()
        self._change_thread = ThreadPoolExecutor(1, thread_name_prefix="change", initializer=_give_way)
        self._query_thread = ThreadPoolExecutor(1, thread_name_prefix="query", initializer=_give_way)
        self._seen = None if path is None else _stamp(path)  # of the file that `config` was read from
        self._control: Control | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._bugs = 0

    # -- starting ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self.config.administered:
            await self._recall()
        config = self.config
        _verify_tests(config, str(self.path or ""))
        config.built.rules.prepare()
        accepts = await self.loop.run_in_executor(None, jwks.accepted, config)
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
            sessions, retained, notes = snapshot.sessions, snapshot.retained, snapshot.notes
            records = snapshot.records
            origin = Origin(snapshot.node, snapshot.boot)
        self.site = site = Site(
            store=store,
            origin=origin,
            limits=_limits(config),
            on_open=self.turns.opened,
            random_id=lambda: f"auto-{secrets.token_hex(12)}",
        )
        self.turns.drive(site)
        site.open()
        if self.store is not None:
            self.store.start()
        self.register = Register(records, store.keep, site.wall)
        self.authentication = Authentication(config, self.passwords, self.register, accepts)
        self.versions = Versions(notes)
        rules = self.versions.next(config.built.rules)
        for key, value in self.versions.notes().items():
            store.remember(key, value)
        self.journals = Journals(self.turns.call)
        self.audit = Auditor(site, self.journals, node=config.node.name)
        await self.audit.open(config)
        taking = None if self.administration is None else await self.journals.open(config, INGEST)
        self.ingest = Ingest(self, taking, records.get(SOURCES, {}))
        await self._prepare_recording(config)
        topic_keys = await self.keys.open(config, site, records.get(KEYS, {}))
        self.realm = Realm(
            node=config.node.name,
            site=site,
            authenticator=self.authentication,
            rules=rules,
            audit=self.audit,
            stopwatch=time.perf_counter,
            keyring=topic_keys,
        )
        self.scopes = self.audit.scopes = self.realm.scopes
        self.realm.observe(config.built.flows, config.built.presences)
        self.audit.configure(config)
        self.audit.changed(rules.version, str(self.path or ""), action="start")
        self.realm.publishers.restore(records.get(ROOM, {}))
        self._orphaned = OrphanedState(sessions, retained, records)
        for scope in self.scopes.values():
            self._orphaned.recall(scope)
        self._restore(self.scopes)
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
        for listener in config.listeners:
            self._bind(listener)
        if config.http is not None:
            self.http = HttpProcess(config)
            self.http.bind()
        for bound in self.listeners.values():
            await bound.start()
        self._tasks.append(self.loop.create_task(self._account()))
        if config.sys.interval:
            self._tasks.append(self.loop.create_task(self._statistics(config.sys.interval)))
        if config.reload == "watch" and self.path is not None:
            self._tasks.append(self.loop.create_task(self._watch(self.path)))
        if self.administration is not None:
            if config.http is not None:
                await self.administration.tokens.show_first()
            self.administration.follow()
        if self.http is not None:
            self.http.start()

    async def _recall(self) -> None:
        """What was administered counts from the first message on; a node that cannot read it does not start."""
        said = self.config.tokens
        self.administration = Administration(
            self, _registry(self.config), node=self.config.node.name, valid=said.valid, most=said.most
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
                journal, self.site, self.keys.rows, versions=self.audit, sources=lambda: self.ingest.sources
            )

    def _restore(self, names: Iterable[str]) -> None:
        """To each scope what the store kept of it. What belongs to a scope that is not there waits for it."""
        for scope in map(self.realm.scope, names):
            self._orphaned.restore(scope)
            for restored in scope.sessions.values():
                if restored.peer is None and not self.authentication.known(restored.principal):
                    scope.drop_will(restored)

    async def _start_control(self) -> None:
        monitors = MonitorCommands(
            self.scopes, lambda what: self.audit.changed(self.audit.version, what, action="reset"), self.stored
        )
        commands: dict[str, Command] = {
            "status": self.status,
            "flow": self.presences,
            "flows": self.flows,
            "reload": self.reload,
            "stop": self._stop,
            "audit": self.audit.told,
            "audit_written": self.audit.written,
            "capability_revoke": self.revoke,
            "monitor_list": monitors.list,
            "monitor_state": monitors.state,
            "monitor_reset": monitors.reset,
            **AdminCommands(self, self.administration, self.metrics, self.ingest).commands(),
            **self.keys.commands(),
            **Pipeline(self).commands(),
        }
        control = Control(self.config.control_socket, commands)
        await control.start()
        self._control = control

    def _bind(self, listener: ListenerConfig, older: Listener | None = None) -> None:
        endpoint = _endpoint(listener)
        host = self.realm.scope(listener.scope)
        bound = Listener(endpoint, site=self.site, host=host, loop=self.loop, on_bug=self._bug)
        if older is None:
            bound.bind()
        else:
            bound.inherit(older)
        self.listeners[endpoint.name] = bound

    def announce(self) -> None:
        """Where everything listens, and what to try next."""
        config = self.config
        for name, listener in self.listeners.items():
            log.info("listening", url=name, port=listener.port, anonymous=listener.anonymous)
        if self.http is not None and config.http is not None:
            log.info("listening", url=str(config.http.url), port=self.http.port)
        for line, text in config.warnings():
            log.warning(text, file=str(self.path or ""), line=line)
        if (missing := journal_warning(config)) is not None:
            log.warning(missing)
        if config.node.data is None:
            log.warning("nothing survives a restart: `node.data` is not set")
        if self.path is None:
            log.warning("policies: open, anybody on this machine may publish and subscribe to everything")
        mqtt = next((one for one in self.listeners.values() if one.endpoint.path is None), None)
        if mqtt is not None and mqtt.endpoint.tls is None:
            log.info("ready", try_next=f"tidegate sub -v -p {mqtt.port} -t '#'", node=config.node.name)
        else:
            log.info("ready", node=config.node.name)

    # -- running -----------------------------------------------------------------------------------------------

    def _bug(self, peer: Peer, error: BaseException) -> None:
        self._bugs += 1
        log.error("bug", address=peer.address, exc_info=error)

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

    async def presences(self) -> AsyncIterator[list[dict[str, Any]]]:
        """The control command `flow`: who is connected, and where, in pieces that hold nobody up."""
        there = [(scope, one) for scope in self.scopes.values() for one in scope.sessions.values()]
        for at in range(0, len(there), 100):
            yield [asdict(scope.presence(one.subject)) for scope, one in there[at : at + 100] if one.peer is not None]

    async def flows(
        self, source: str | None = None, target: str | None = None, paths: bool = False, live: bool = False
    ) -> dict[str, Any]:
        """Who can reach whom, of those in the directory or of those who are connected."""
        there = self.config.built.presences
        if live:
            there = tuple([Presence(**one) async for piece in self.presences() for one in piece])
        wanted = partial(flow_document, source=source, target=target, paths=paths, live=live)
        return await self.run_query(partial(wanted, self.config, there))

    def status(self) -> dict[str, Any]:
        """For `tidegate status`."""
        return {
            "node": self.config.node.name,
            "pid": os.getpid(),
            "listeners": [
                {"url": name, "port": one.port, "connections": len(one.connections), "turned_away": one.turned_away}
                for name, one in self.listeners.items()
            ],
            "scopes": list(self.scopes),
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

    def metrics(self) -> dict[str, Any]:
        """The control command `metrics`: `status`, and the numbers of each scope."""
        scopes = {
            name: {
                "sessions": len(scope.sessions),
                "connected": scope.connected,
                "subscriptions": len(scope.subscriptions) + len(scope.shares),
                "retained": len(scope.retained),
                "plans": len(scope.gate.cache),
            }
            for name, scope in self.scopes.items()
        }
        return {**self.status(), "scopes": scopes}

    def _stop(self) -> dict[str, Any]:
        self.loop.call_soon(self.on_stop)
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
            for session in scope.validity.holders(id):
                dismissed += 1
                scope.validity.dismiss(session, "your capability has been revoked")
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
        config = await self.run_change(lambda: _tried(read_source(path), pieces))
        authentication = await self.examine(config)
        version = await self.enforce(config, authentication, what=str(path), action="reload")
        if self.administration is not None:
            self.administration.reloaded()
        log.info("reloaded", file=str(path), version=version)
        return {"reloaded": True, "version": version}

    # -- putting a configuration in force: of the file, and of what is administered -----------------------------------

    async def run_change(self, do: Callable[[], T]) -> T:
        """On the thread for what takes long."""
        return await self.loop.run_in_executor(self._change_thread, do)

    async def run_query(self, do: Callable[[], T]) -> T:
        """On another one, for those who only look: no change waits for them."""
        return await self.loop.run_in_executor(self._query_thread, do)

    def build_config(self, pieces: Sequence[OverlayDocument], strict: Collection[str] = ()) -> Config:
        """The file as it was read last with documents over it, checked and tried; blocks. `strict`: must be right."""
        assert self.source is not None
        return _tried(self.source, pieces, strict)

    async def examine(self, config: Config) -> Authentication:
        """Everything that can be found wrong before anything changes."""
        for name in _FIXED:
            if _fixed(config, name) != _fixed(self.config, name):
                raise ConfigError(f"`{name}` cannot change while the node runs; restart it")
        accepts = self.authentication.accepts
        if not self._same_file(config):
            accepts = await self.run_change(partial(jwks.accepted, config))
        authentication = Authentication(config, self.passwords, self.register, accepts)
        built = config.built
        if opened := self.realm.opened(built.rules, built.flows, built.presences, authentication):
            raise ConfigError(f"who is connected could use a forbidden flow: {opened}; close the way, or wait")
        if self._same_file(config):
            return authentication
        for listener in config.listeners:  # certificates that cannot be loaded refuse the whole change
            if (tls := _endpoint(listener).tls) is not None:
                await self.loop.run_in_executor(None, tls.context)
        await self.loop.run_in_executor(None, tls_context, config.http)
        return authentication

    def _same_file(self, config: Config) -> bool:
        """Whether only documents have changed: certificates and keys that it names are not read again then."""
        return config.source is not None and config.source.alone is self.source

    async def enforce(self, config: Config, authentication: Authentication, *, what: str, action: str) -> str:
        """From now on it counts; the version of its rules. ConfigError or StoreError, and nothing has changed."""
        await self.audit.prepare(config)
        await self._prepare_recording(config)
        await self.keys.prepare(config)
        self.realm.prepare(config.built.rules.space.scopes)
        self._restore(config.built.rules.space.scopes)
        if not self._same_file(config):
            await self._relisten(config)
        before, self.config = [self.config], config
        self.source = None if config.source is None else config.source.alone
        self.site.open()
        self.authentication.replace(authentication, self.site.generation + 1)
        self.site.limits = _limits(config)
        configure_logs(config.log.format, config.log.level)
        rules = self.versions.next(config.built.rules)
        self.keys.change(before[0], config)
        self.realm.change(rules)
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
        self.loop.run_in_executor(self._change_thread, free_configs, before)
        return rules.version

    async def _relisten(self, config: Config) -> None:
        """Listeners that are new are bound before any that is gone is closed; the rest take up new certificates.

        One that changed hands its socket and its connections to its successor.
        """
        wanted = {_endpoint(one).name: one for one in config.listeners}
        before = self.listeners
        gone = {
            name: one
            for name, one in before.items()
            if name not in wanted
            or _endpoint(wanted[name]) != one.endpoint
            or one.host is not self.realm.scope(wanted[name].scope)
        }
        self.listeners = {name: one for name, one in before.items() if name not in gone}
        kept = set(self.listeners)
        try:
            for name, listener in wanted.items():
                if name not in kept:
                    self._bind(listener, gone.get(name))
            for bound in self.listeners.values():
                await bound.start()
        except (ConfigError, OSError):
            for name, bound in self.listeners.items():
                if name not in kept:
                    bound.stop_accepting()
            self.listeners = before
            raise
        for name, one in gone.items():
            one.stop_accepting()
            if name in wanted and self.listeners[name].host is one.host:
                self.listeners[name].adopt(one)
                continue
            why = "this listener is of another scope now" if name in wanted else "this listener is closed"
            for connection in list(one.connections):
                connection.peer.close(Reason.ADMINISTRATIVE_ACTION, why)

    async def _watch(self, path: Path) -> None:
        while True:
            await asyncio.sleep(WATCH)
            now = _stamp(path)
            if now != self._seen and now is not None:
                self._seen = now
                await self._reload_guarded()

    # -- stopping ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stops accepting, tells clients 0x8B, drains, and closes the store last."""
        for task in self._tasks:
            task.cancel()
        http = None if self.http is None else self.loop.create_task(self.http.close())
        for listener in self.listeners.values():
            listener.stop_accepting()
        if hasattr(self, "site"):
            self.site.open()
            self.site.closing = True
            for connection in self._connections():
                self.turns.guarded(connection.peer.close, Reason.SERVER_SHUTTING_DOWN)
            deadline = self.loop.time() + DRAIN
            while any(self._connections()) and self.loop.time() < deadline:  # noqa: ASYNC110 - sockets close by themselves
                await asyncio.sleep(0.005)
            for connection in self._connections():
                connection.abort()
            for scope in self.scopes.values():
                scope.path.monitoring.states.finish()
        self.turns.stop()
        if http is not None:
            await http
        if self._control is not None:
            await self._control.close()
        await self.keys.close()
        if hasattr(self, "ingest") and self.ingest.sources is not None:
            self.ingest.sources.close()
        if self.administration is not None:
            await self.administration.close()
        if hasattr(self, "audit"):
            self.audit.close()
        if self.store is not None:
            self.store.close()  # on the loop: nothing else is left to do, and nothing may come in between
        self.passwords.close()
        for executor in (self._change_thread, self._query_thread):
            executor.shutdown(wait=False, cancel_futures=True)
        log.info("stopped", node=self.config.node.name)

    def _connections(self) -> Iterator[Connection]:
        for listener in self.listeners.values():
            yield from list(listener.connections)


def verify(config: Config) -> None:
    """What `tidegate check` can try without starting: certificates, authentication methods and extras are there."""
    check_installed(config)
    for listener in config.listeners:
        if (tls := _endpoint(listener).tls) is not None:
            tls.context()
    tls_context(config.http)
    for name, place in config.authentication.methods.items():
        load_method(name, place)
    jwks.accepted(config)


def _give_way() -> None:
    """A thread that reads files leaves the processor to the loop, also while that is in the kernel."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 15)


def _tried(source: Source, pieces: Sequence[OverlayDocument], strict: Collection[str] = ()) -> Config:
    """The file with documents over it, checked and tried.

    Users write preferences themselves, and must not be able to keep the node from starting, or from being changed: one
    that was right once and is not with this file is closed, so that nobody receives what it is about. Those in `strict`
    are being written, and must be right.
    """
    try:
        return _whole(source, pieces)
    except ConfigErrors as broken:
        wrong = {problem.file for problem in broken.problems}
        if not wrong <= {piece.name for piece in pieces if piece.kind == "preference" and piece.name not in strict}:
            raise
        log.error("preferences that cannot be kept are closed: nobody receives what they are about", reason=str(broken))
        return _whole(source, [closed_preference(piece) if piece.name in wrong else piece for piece in pieces])


def _whole(source: Source, pieces: Sequence[OverlayDocument]) -> Config:
    """In a thread: nothing here may stop the loop for long.

    What is made stays, and nothing of it needs the collector, which would hold everybody up to look at it.
    """
    gc.disable()
    try:
        config = build_config(with_documents(source, pieces) if pieces else source)
        _verify_tests(config, source.file)
        config.built.rules.prepare()
    finally:
        gc.freeze()
        gc.enable()
    return config


def _verify_tests(config: Config, file: str) -> None:
    if config.tests:
        from tidegate.explain.file_tests import verify_tests

        verify_tests(config, file=file)


def _registry(config: Config) -> Registry:
    if config.store != SQLITE:
        return registry(config.store, patience=PATIENCE)
    assert config.node.data is not None
    return registry(f"sqlite:///{quote(str(config.node.data / DATABASE))}", patience=PATIENCE)


def _raise_file_limit() -> None:
    """Each connection is a file; the soft limit is often far below what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _limits(config: Config) -> Limits:
    limits = config.limits
    return Limits(
        inflight=limits.inflight,
        receive_maximum=limits.receive_maximum,
        queue_messages=limits.queue.messages,
        queue_bytes=limits.queue.bytes,
        full=Full(limits.queue.full.value),
        topic_aliases=limits.topic_aliases,
        max_keep_alive=None if limits.max_keep_alive is None else int(limits.max_keep_alive),
        session_expiry=None if limits.session_expiry is None else int(limits.session_expiry),
        retained=limits.retained,
        retained_bytes=limits.retained_bytes,
        subscriptions=limits.subscriptions,
        shares=limits.shares,
        held=limits.held,
        topic_levels=limits.topic_levels,
        max_qos=limits.max_qos,
        retain=limits.retain,
        wildcards=limits.wildcard_subscriptions,
        shared=limits.shared_subscriptions,
        disconnect_denied_311=config.denied_publish_311.value == "disconnect",
        explain=config.explain,
    )


def _fixed(config: Config, name: str) -> Any:
    value = getattr(config, name)
    if name == "http":  # everything but the address can change
        return None if value is None else value.url
    if name == "keys":  # everything but where they are kept
        return value.ktm
    # the methods are loaded again with every reload; the pool that verifies passwords is made once
    return value.model_copy(update={"methods": {}}) if name == "authentication" else value


def _endpoint(listener: ListenerConfig) -> Endpoint:
    url = listener.url
    tls = None
    if url.tls:
        assert listener.cert is not None
        tls = Tls(
            cert=listener.cert,
            key=listener.key or listener.cert,
            client_ca=listener.client_ca,
            client_cert=listener.client_cert.value,
            minimum=listener.tls_min.value,
        )
    rate = listener.publish_rate
    return Endpoint(
        name=str(url),
        host=url.host,
        port=url.port,
        path=url.path if url.websocket else None,
        origins=listener.origins,
        tls=tls,
        anonymous=listener.anonymous,
        max_connections=listener.max_connections,
        connect_rate=listener.connect_rate,
        connect_timeout=listener.connect_timeout,
        max_packet=listener.max_packet,
        publish_rate=rate,
        publish_burst=float(listener.publish_burst or rate or 1.0),
    )


def _stamp(path: Path) -> tuple[int, int, int] | None:
    with contextlib.suppress(OSError):
        stat = path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
    return None
