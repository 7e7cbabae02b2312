"""Revoked certificates of a node: read from the files that the configuration names, and read again when they change.

`net/crl.py` says what counts. Here it is taken up: who came with a certificate that counts no more is disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import structlog

from tidegate.audit.auditor import Auditor
from tidegate.authentication.authentication import Authentication
from tidegate.config import Config
from tidegate.errors import ConfigError
from tidegate.net.crl import FAILED, LOOK, log_expired, log_unreadable, read_authorities, read_lists
from tidegate.net.file_stamp import Stamp, stamp
from tidegate.node.key_service import NodeKeys
from tidegate.policy.revocation import Revocation, RevocationLists
from tidegate.scope import Realm
from tidegate.session import Site

log = structlog.get_logger("tidegate.node")


class ReadRevocation(Revocation):
    """What was read from the files, and what those were just before: whoever writes meanwhile is not missed."""

    def __init__(
        self,
        revoked: Iterable[str],
        lists: dict[str, RevocationLists],
        authorities: Mapping[str, frozenset[str]],
        stamps: Mapping[Path, Stamp | None],
    ) -> None:
        super().__init__(revoked, lists, authorities)
        self.stamps = stamps


def read_revocation(config: Config) -> ReadRevocation:
    """What the files say now; blocks. ConfigError if one cannot be relied on."""
    stamps = _stamps(config)
    lists: dict[str, RevocationLists] = {}
    authorities: dict[str, frozenset[str]] = {}
    for listener in config.listeners:
        name, client_ca = str(listener.url), listener.client_ca
        authorities[name] = frozenset() if client_ca is None else read_authorities(client_ca)
        if listener.crl is not None and client_ca is not None:
            lists[name] = read_lists(listener.crl, client_ca)
    if config.node.ca is not None:  # of the connections that this node makes
        authorities["node.ca"] = read_authorities(config.node.ca)
    for link in config.links:
        if link.broker is not None:
            ca = link.broker.ca or config.node.ca
            if ca is not None:
                authorities |= dict.fromkeys(map(str, link.via), read_authorities(ca))
    if (http := config.http) is not None and http.crl is not None and http.client_ca is not None:
        read_lists(http.crl, http.client_ca)  # its process reads them again: here it can still be refused
    return ReadRevocation(config.built.revoked, lists, authorities, stamps)


class RevokingNode(Protocol):
    """What is needed of a node."""

    config: Config
    authentication: Authentication
    site: Site
    realm: Realm
    audit: Auditor
    keys: NodeKeys
    changing: asyncio.Lock


class RevocationWatch:
    """Looks at the files of the configuration in force, and at the clock."""

    def __init__(self, node: RevokingNode) -> None:
        self._node = node
        self._stamps: Mapping[Path, Stamp | None] = {}
        self._expired: frozenset[str] = frozenset()

    def loaded(self, revocation: ReadRevocation) -> None:
        """This was read, and is in force from now on. Whoever did not read the files does not call it: what they have
        become since would be forgotten."""
        self._stamps = revocation.stamps
        self._expired = frozenset()
        self._look_at_clock(revocation)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self._look()
            except Exception:  # whatever it is, the next list has to be seen
                log.exception(FAILED)
                self._expired = frozenset()  # who has to go because a list has expired may still be here

    async def _look(self) -> None:
        stamps = await asyncio.to_thread(_stamps, self._node.config) if self._stamps else {}
        if stamps != self._stamps:
            await self._refresh()
        if self._look_at_clock(self._node.authentication.revocation):
            async with self._node.changing:
                self._take_up(self._node.authentication.revocation)

    async def _refresh(self) -> None:
        """Reads while nothing else changes the configuration: a list that was read is one that is taken up."""
        node = self._node
        async with node.changing:
            stamps = await asyncio.to_thread(_stamps, node.config)
            if stamps == self._stamps:  # a reload came in between, and has read the files
                return
            try:
                revocation = await asyncio.to_thread(read_revocation, node.config)
            except ConfigError as error:
                self._stamps = stamps
                log_unreadable(error)
            else:
                self._take_up(revocation)
                self._stamps = revocation.stamps

    def _take_up(self, revocation: Revocation) -> None:
        """Other certificates are revoked, or a list has expired: who came with such a one has to go."""
        node = self._node
        node.site.open()
        if revocation.more_than(node.authentication.revocation):
            node.keys.rotate()
        node.authentication.revocation = revocation
        node.realm.change(node.realm.rules)
        node.audit.changed(node.audit.version, "revoked certificates", action="refresh")
        log.info("revoked certificates refreshed")

    def _wall(self) -> float:
        self._node.site.open()
        return self._node.site.wall

    def _look_at_clock(self, revocation: Revocation) -> bool:
        """Whether a list has expired since the last look."""
        expired = frozenset(revocation.expired(self._wall()))
        for listener in expired - self._expired:
            log_expired(listener)
        news, self._expired = bool(expired - self._expired), expired
        return news


def _stamps(config: Config) -> dict[Path, Stamp | None]:
    return {listener.crl: stamp(listener.crl) for listener in config.listeners if listener.crl is not None}
