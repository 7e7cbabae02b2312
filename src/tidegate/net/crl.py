"""Files of certificate revocation lists: read, and read again when they change.

A list that cannot be read refuses whatever names it. If a file changes later and cannot be read, the last good list
stays, until it expires: then every certificate of its authority is refused, and that is logged.

Listeners of MQTT have their lists in the node (`node/revocation.py`); `RevocationFile` is for other services with
mutual TLS: HTTP and `tidegate ktm`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog

from tidegate.errors import ConfigError
from tidegate.net.file_stamp import stamp
from tidegate.policy.revocation import Revocation, RevocationLists, authorities_in

LOOK: Final = 1.0  # seconds between two looks at the files
FAILED: Final = "looking for revoked certificates failed, and is tried again"

log = structlog.get_logger(__name__)


def read_lists(crl: Path, client_ca: Path) -> RevocationLists:
    """What the files say now; blocks. ConfigError if they cannot be relied on."""
    try:
        return RevocationLists(crl.read_bytes(), client_ca.read_bytes())
    except OSError as error:
        text = f"`crl` names {crl}, or `client_ca` a file, which cannot be read: {error.strerror}"
        raise ConfigError(f"{text}; check names and permissions") from error
    except ConfigError as error:
        raise ConfigError(f"`crl` names {crl}, which is no good: {error}") from error


def read_authorities(client_ca: Path) -> frozenset[str]:
    """The fingerprints of the authorities in a file; blocks. ConfigError if it cannot be read."""
    try:
        return authorities_in(client_ca.read_bytes())
    except OSError as error:
        text = f"`client_ca` names {client_ca}, which cannot be read: {error.strerror}"
        raise ConfigError(f"{text}; check the name and permissions") from error


def log_unreadable(error: ConfigError) -> None:
    log.error("a revocation list cannot be read, the last good one stays", reason=str(error))


def log_expired(listener: str) -> None:
    log.error(
        "a revocation list has expired: certificates of its authority are refused",
        listener=listener,
        remedy="write the new list of the authority to the file that `crl` names",
    )


class RevocationFile:
    """Which certificates of one listener are revoked."""

    def __init__(self, listener: str, crl: Path | None, client_ca: Path | None, revoked: Iterable[str] = ()) -> None:
        """`revoked`: fingerprints, or PEM, of certificates that are revoked whatever the lists say. Without `crl` no
        lists are looked up. Blocks; ConfigError if the files cannot be relied on."""
        self._listener = listener
        self._files = None if crl is None or client_ca is None else (crl, client_ca)
        self._revoked = tuple(revoked)
        self._stamp = None if self._files is None else stamp(self._files[0])
        self._revocation = self._read()
        self._expired = False
        self._untold = False  # whoever watches has to be called back
        self._look_at_clock()

    def objection(self, der: bytes | None) -> str:
        """Why the verified certificate of a peer does not count; empty: it does, or there is none."""
        return self._revocation.objection(der, self._listener, time.time())

    async def watch(self, changed: Callable[[], None]) -> None:
        """Calls back when other certificates are revoked, or a list has expired."""
        while self._files is not None:
            await asyncio.sleep(LOOK)
            try:
                await self._look(self._files[0])
                if self._untold:
                    changed()
                    self._untold = False
            except Exception:  # whatever it is, the next list has to be seen
                log.exception(FAILED)

    async def _look(self, crl: Path) -> None:
        now = await asyncio.to_thread(stamp, crl)
        if now != self._stamp:
            try:
                self._revocation = await asyncio.to_thread(self._read)
            except ConfigError as error:
                log_unreadable(error)
            else:
                log.info("revoked certificates refreshed", listener=self._listener)
                self._untold = True
            self._stamp = now
        if self._look_at_clock():
            self._untold = True

    def _read(self) -> Revocation:
        lists = {} if self._files is None else {self._listener: read_lists(*self._files)}
        return Revocation(self._revoked, lists)

    def _look_at_clock(self) -> bool:
        """Whether a list has expired since the last look."""
        before, self._expired = self._expired, any(self._revocation.expired(time.time()))
        if self._expired and not before:
            log_expired(self._listener)
        return self._expired and not before
