"""The guarded scopes of a node: what the configuration says of them, and their sockets."""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from tidegate.config import Config
from tidegate.config.address import Scheme
from tidegate.config.brokering import link_types
from tidegate.config.scopes import EnvelopeForm
from tidegate.config.scopes import Guards as Several
from tidegate.config.scopes import Scope as ScopeConfig
from tidegate.errors import ConfigError
from tidegate.guard import GuardedScope, Settings
from tidegate.guard.abilities import KINDS
from tidegate.guard.settings import BridgeSettings
from tidegate.net import client_context
from tidegate.policy.brokering import UNTYPED
from tidegate.policy.scopes import ScopeLink, TopicMapping
from tidegate.scope import Scope
from tidegate.wire import V5, V311

if TYPE_CHECKING:
    from tidegate.guard.upstream import Upstream
    from tidegate.node.node import Node

CONNECTING: Final = 10.0  # seconds for a connection to the broker
ENVELOPE: Final = 64 * 1024  # bytes that a message may have more than a client could send
LARGEST: Final = 2**20  # bytes of a packet, without a listener

NO_NAMES: Final = "it takes any name with any password: its clients are nobody in particular"

log = structlog.get_logger("tidegate.guard")


class Guards:
    """Makes scopes, guarded ones among them, and opens their connections."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._config = node.config  # the one that is in force, or about to be
        self._dialing: set[asyncio.Task[None]] = set()
        self._keys: dict[str, bytes] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._started = False

    # -- the scopes --------------------------------------------------------------------------------------------

    def prepare(self, config: Config) -> None:
        """Other rules are about to be in force; ConfigError if they cannot be. Certificates are read anew."""
        contexts: dict[str, ssl.SSLContext] = {}
        for name, scope in config.scopes.items():
            known = self._node.scopes.get(name)
            if known is not None and isinstance(known, GuardedScope) != (scope.backend is not None):
                raise ConfigError(
                    f"scopes.{name}: whether it guards a broker cannot change while the node runs; restart it"
                )
            if scope.backend is not None:
                self._settings(name, scope, config)
                if scope.backend.tls:
                    contexts[str(scope.backend)] = self._context(config)
        self._config, self._contexts = config, contexts

    def make_scope(self, **parts: Any) -> Scope:
        """As `Scope`; one that guards a broker if the configuration says so."""
        name = parts["name"]
        scope = self._config.scopes.get(name)
        if scope is None or scope.backend is None:
            return Scope(**parts)
        guarded = GuardedScope(
            settings=self._settings(name, scope, self._config), dial=self._dial, on_bug=self._node.bug, **parts
        )
        if self._started:
            guarded.service.start()
        return guarded

    def change(self) -> None:
        """Other rules are in force."""
        for scope in self._guarded():
            section = self._config.scopes.get(scope.name)
            if section is None or section.backend is None:
                scope.service.close()
                continue
            before, scope.settings = scope.settings, self._settings(scope.name, section, self._config)
            if before != scope.settings:
                scope.renew()
                scope.service.renew()

    def start(self) -> None:
        """The node is ready: the brokers are spoken to from now on."""
        self._started = True
        for scope in self._guarded():
            scope.service.start()

    async def close(self) -> None:
        for scope in self._guarded():
            scope.service.close()
        for task in self._dialing:
            task.cancel()

    # -- what is told ------------------------------------------------------------------------------------------

    def status(self) -> list[dict[str, Any]]:
        """What `tidegate status` and the metrics tell of each guarded scope."""
        return [self._row(scope) for scope in self._guarded()]

    def _row(self, scope: GuardedScope) -> dict[str, Any]:
        service, settings = scope.service, scope.settings
        opened = service.upstream is not None and service.upstream.opened
        return {
            "scope": scope.name,
            "backend": str(settings.address),
            "state": "connected" if opened else "gone",
            "version": {V5: "5", V311: "3.1.1"}[service.version],
            "level": scope.target.subject.level,
            "clients": sum(session.upstream is not None for session in scope.owners.values()),
            "waiting": service.session.owed,
            "gone": settings.gone.value,
            "enforce": scope.enforcing,
            "unknown_publishers": scope.passed.unknown,
            "error": service.error or (NO_NAMES if scope.name_proof.proves is False else None),
        }

    def _guarded(self) -> list[GuardedScope]:
        return [scope for scope in self._node.scopes.values() if isinstance(scope, GuardedScope)]

    # -- settings ----------------------------------------------------------------------------------------------

    def _settings(self, name: str, scope: ScopeConfig, config: Config) -> Settings:
        assert scope.backend is not None
        types = link_types(config) if scope.bridges else {}
        return Settings(
            address=scope.backend,
            abilities=KINDS[scope.kind],
            several=scope.guards is Several.SEVERAL,
            authenticate=scope.authenticate,
            unenveloped=scope.unenveloped,
            as_property=scope.envelope is EnvelopeForm.PROPERTY,
            level=scope.level,
            gone=scope.gone,
            username=scope.username,
            password=None if scope.password is None else scope.password.encode(),
            key=self._key(name, scope, config),
            bridges={
                bridge.user: BridgeSettings(
                    environment=environment,
                    key=bridge.secret.encode(),
                    into=_crossing(environment, name, types, bridge.crossings(into=True)),
                    out=_crossing(name, environment, types, bridge.crossings(into=False)),
                )
                for environment, bridge in scope.bridges.items()
            },
            max_age=config.limits.session_expiry if scope.max_age is None else scope.max_age,
            max_packet=max((each.max_packet for each in config.listeners), default=LARGEST) + ENVELOPE,
        )

    def _key(self, name: str, scope: ScopeConfig, config: Config) -> bytes:
        """What envelopes are authenticated with: from the configuration, or made once and kept in the data folder."""
        if scope.secret is not None:
            return scope.secret.encode()
        key = self._keys.get(name)
        if key is None:
            folder = config.node.data
            key = self._keys[name] = secrets.token_bytes(32) if folder is None else _kept(folder / f"guard-{name}.key")
        return key

    @staticmethod
    def _context(config: Config) -> ssl.SSLContext:
        node = config.node
        if node.ca is None:
            raise ConfigError("`node.ca` is missing, which a broker behind `mqtts://` needs")
        return client_context(cert=node.cert, key=node.key, ca=node.ca)

    # -- sockets -----------------------------------------------------------------------------------------------

    def _dial(self, upstream: Upstream) -> None:
        task = self._node.loop.create_task(self._open(upstream))
        self._dialing.add(task)
        task.add_done_callback(self._dialing.discard)

    async def _open(self, upstream: Upstream) -> None:
        settings = upstream.scope.settings
        address = settings.address
        context = self._contexts.get(str(address)) if address.tls else None
        try:
            async with asyncio.timeout(CONNECTING):
                if address.scheme is Scheme.UNIX:
                    await self._node.loop.create_unix_connection(lambda: upstream, address.path)
                else:
                    await self._node.loop.create_connection(lambda: upstream, address.host, address.port, ssl=context)
        except TimeoutError:
            upstream.failed(f"no answer from the broker in {CONNECTING:g} s")
        except OSError as error:
            upstream.failed(error.strerror if error.strerror and not isinstance(error, ssl.SSLError) else str(error))


def _crossing(
    source: str, target: str, types: Mapping[str, str | None], shares: tuple[TopicMapping, ...]
) -> ScopeLink | None:
    """What crosses a bridge in one direction."""
    if not shares:
        return None
    return ScopeLink(source=source, target=target, type=types.get(f"{source}->{target}") or UNTYPED, shares=shares)


def _kept(path: Path) -> bytes:
    """A secret of a file, which is made if it is not there."""
    try:
        return bytes.fromhex(path.read_text())
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        raise ConfigError(f"{path}: is no secret of a guard; restore it, or remove it to have another made") from error
    key = secrets.token_bytes(32)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "w") as file:
        file.write(key.hex())
        file.flush()
        os.fsync(file.fileno())
    return key
