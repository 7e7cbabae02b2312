"""The master keys of a process: where they come from, how they change while it runs, and how old secrets are renewed.

They are in what `master_key` names. Without that, one is made once in the data folder (`master.key`, for its owner
only); nodes that share a registry need the same ones, so there `master_key` must be set.

To change the master key of several nodes without a pause, write the new one
1. as the second line of every node's file, and reload each: now all can open what is sealed under it;
2. as the first line everywhere, and reload each: it seals from then on, and what is stored is renewed under it;
3. and when each node has logged that all secrets are under its first master key, remove the old line everywhere.
Whoever skips the first step loses nothing: what a node cannot open it leaves alone, says so, and opens it later.

`MasterKeys` may be used by several threads. Nothing here logs or tells a key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import cbor2
import structlog

from tidegate.config import Config, MasterKey
from tidegate.config.administration import SQLITE
from tidegate.errors import ConfigError, KeysError
from tidegate.keys import MasterKeySet, TopicKey, decode_key, encode_key, new_master
from tidegate.store.disk import create_once
from tidegate.store.registry import Applied, Secrets

FILE: Final = "master.key"
KEY: Final = "key"  # what a sealed topic key is a secret of: `key:{id}`
PIECE: Final = 32  # secrets that are renewed at a time: others get their turn in between

_MAKE: Final = "make one with `tidegate key master`, keep it in a file of mode 600, and name that with `master_key`"

log = structlog.get_logger("tidegate.key_set")


# runs what blocks elsewhere
Aside: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]


class MasterKeys:
    """The master keys of a process; `reread` replaces them while they are in use."""

    def __init__(self, master_key: MasterKey | None, data: Path | None) -> None:
        self.generation = 0  # how often the master keys have changed
        self._data = data
        self._text = self._read(master_key)
        self._set = MasterKeySet.parse(self._text, entropy=os.urandom)

    @property
    def current(self) -> str:
        """The id of the master key that seals."""
        return self._set.current

    def seal(self, secret: bytes, *, of: str) -> bytes:
        """As `MasterKeySet.seal`."""
        return self._set.seal(secret, of=of)

    def unseal(self, blob: bytes, *, of: str) -> bytes:
        """As `MasterKeySet.unseal`."""
        return self._set.unseal(blob, of=of)

    def renewed(self, blob: bytes, *, of: str) -> bytes | None:
        """As `MasterKeySet.renewed`."""
        return self._set.renewed(blob, of=of)

    def seal_key(self, key: TopicKey) -> bytes:
        """A topic key as a row of a store has it."""
        return self.seal(cbor2.dumps([encode_key(key), key.secret]), of=f"{KEY}:{key.id}")

    def open_key(self, id: str, row: bytes) -> TopicKey:
        """The topic key again; KeysError if it cannot be read."""
        match cbor2.loads(self.unseal(row, of=f"{KEY}:{id}")):  # only a holder of the master key can have written it
            case [bytes() as known, bytes() as secret]:
                return decode_key(known, secret)
            case _:
                raise KeysError("a key in the store cannot be read: it is from a newer version")

    def reread(self, master_key: MasterKey | None) -> bool:
        """Takes the master keys as they are now; whether another one seals. ConfigError, and nothing has changed.

        Blocks. If it answers yes, renew what is stored; if `generation` is another one, try again what could not be
        opened.
        """
        text = self._read(master_key)
        if text == self._text:
            return False
        before, key_set = self._set, MasterKeySet.parse(text, entropy=os.urandom)
        self._text, self._set = text, key_set
        self.generation += 1
        return before.current != key_set.current

    def _read(self, master_key: MasterKey | None) -> str:
        if master_key is None:
            if self._data is None:
                raise ConfigError(f"secrets are to be stored, and there is no master key: {_MAKE}")
            master_key = MasterKey(file=_made(self._data))
        return master_key.text()


def open_master_keys(config: Config) -> MasterKeys:
    """The master keys of a node; blocks. ConfigError with the remedy if there is no master key that it could use."""
    if config.master_key is None and config.store != SQLITE:
        raise ConfigError(f"nodes that share secrets over PostgreSQL need the same master key: {_MAKE} on each node")
    return MasterKeys(config.master_key, config.node.data)


def old(secrets: Secrets, room: str, master_keys: MasterKeys, *, at: float) -> list[str]:
    """Which secrets of a room are not sealed under the current master key."""
    return [each.key for each in secrets.all(room, at=at) if _master(each.value) not in (None, master_keys.current)]


def renew(
    secrets: Secrets, room: str, keys: list[str], master_keys: MasterKeys, *, of: str, at: float
) -> tuple[int, int]:
    """Seals some secrets again: how many were, and how many could not be opened.

    What somebody changes or removes meanwhile is left to them.
    """
    done = closed = 0
    for key in keys:
        kept = secrets.get(room, key, at=at)
        if kept is None:
            continue
        try:
            blob = master_keys.renewed(kept.value, of=f"{of}:{key}")
        except KeysError:
            closed += 1
            continue
        if blob is not None:
            answer = secrets.put(room, key, blob, expected=kept.version, at=at, expires=kept.expires)
            done += isinstance(answer, Applied)
    return done, closed


async def renew_all(secrets: Secrets, room: str, master_keys: MasterKeys, *, of: str, aside: Aside) -> None:
    """All of a room, in pieces; what they are secrets of is `{of}:{key}`. StoreError if the registry is away."""
    keys: list[str] = await aside(partial(old, secrets, room, master_keys, at=time.time()))
    done = closed = 0
    for begin in range(0, len(keys), PIECE):
        piece = keys[begin : begin + PIECE]
        some, few = await aside(partial(renew, secrets, room, piece, master_keys, of=of, at=time.time()))
        done, closed = done + some, closed + few
    if closed:
        remedy = "add their master keys behind the first one, and reload"
        log.warning("secrets under other master keys stay as they are", room=room, count=closed, remedy=remedy)
    else:
        log.info("all secrets are under the first master key", room=room, master=master_keys.current, renewed=done)


def _master(blob: bytes) -> str | None:
    try:
        return MasterKeySet.master_of(blob)
    except KeysError:
        return None


def _made(data: Path) -> Path:
    """The file of the data folder; it appears whole, and whoever comes second takes that of the first."""
    path = data / FILE
    try:
        data.mkdir(parents=True, exist_ok=True)
        # it is on the disk first: what is sealed under it must not outlive it
        if path.exists() or not create_once(path, new_master(os.urandom).encode() + b"\n"):
            return path
    except OSError as error:
        text = f"cannot make a master key in {data}: {error.strerror}; {_MAKE}"
        raise ConfigError(text) from error
    log.warning(
        "made a master key: without it nobody can read the secrets that are stored; keep a copy", file=str(path)
    )
    return path
