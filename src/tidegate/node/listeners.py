"""The listeners of a node: bound from the configuration, and changed with it without turning anybody away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from tidegate.config import Config
from tidegate.config import Listener as ListenerConfig
from tidegate.errors import ConfigError
from tidegate.net import ConnectionShell, Endpoint, Listener, Tls
from tidegate.scope import Realm
from tidegate.session import Connection, Site
from tidegate.wire import Reason


class Listeners:
    """All listeners of a node, by the URL that the configuration has."""

    def __init__(
        self,
        site: Site,
        realm: Realm,
        loop: asyncio.AbstractEventLoop,
        on_bug: Callable[[Connection, BaseException], None],
    ) -> None:
        self.bound: dict[str, Listener] = {}
        self._site = site
        self._realm = realm
        self._loop = loop
        self._on_bug = on_bug

    def bind(self, listener: ListenerConfig, older: Listener | None = None) -> None:
        address = endpoint(listener)
        host = self._realm.scope(listener.scope)
        bound = Listener(address, site=self._site, host=host, loop=self._loop, on_bug=self._on_bug)
        if older is None:
            bound.bind()
        else:
            bound.inherit(older)
        self.bound[address.name] = bound

    def change(self, config: Config) -> None:
        """Listeners that are new are bound before any that is gone is closed; the rest take up new certificates.

        One that changed hands its socket and its connections to its successor.
        """
        wanted = {endpoint(listener).name: listener for listener in config.listeners}
        before = self.bound
        gone = {
            name: one
            for name, one in before.items()
            if name not in wanted
            or endpoint(wanted[name]) != one.endpoint
            or one.host is not self._realm.scope(wanted[name].scope)
        }
        self.bound = {name: one for name, one in before.items() if name not in gone}
        kept = set(self.bound)
        try:
            for name, listener in wanted.items():
                if name not in kept:
                    self.bind(listener, gone.get(name))
            for bound in self.bound.values():
                bound.start()
        except (ConfigError, OSError):
            for name, bound in self.bound.items():
                if name not in kept:
                    bound.stop_accepting()
            self.bound = before
            raise
        for name, one in gone.items():
            if name in wanted and self.bound[name].host is one.host:
                self.bound[name].adopt(one)
                one.stop_accepting()
                continue
            one.stop_accepting()
            why = "this listener is of another scope now" if name in wanted else "this listener is closed"
            for shell in list(one.connections):
                shell.connection.close(Reason.ADMINISTRATIVE_ACTION, why)

    def start(self) -> None:
        for listener in self.bound.values():
            listener.start()

    def stop_accepting(self) -> None:
        for listener in self.bound.values():
            listener.stop_accepting()

    def connections(self) -> Iterator[ConnectionShell]:
        for listener in self.bound.values():
            yield from list(listener.connections)


def endpoint(listener: ListenerConfig) -> Endpoint:
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
        certificate_user=listener.certificate_user.value,
        loopback=listener.url.loopback,
        proxy=listener.proxy,
        max_connections=listener.max_connections,
        address_connections=listener.address_connections,
        handshakes=listener.handshakes,
        address_handshakes=listener.address_handshakes,
        connect_rate=listener.connect_rate,
        connect_timeout=listener.connect_timeout,
        max_packet=listener.max_packet,
        max_connect=listener.max_connect,
        publish_rate=rate,
        publish_burst=float(listener.publish_burst or rate or 1.0),
    )
