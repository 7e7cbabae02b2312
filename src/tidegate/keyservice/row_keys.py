"""The topic keys of rows in the journal: wrapped for the node, and beside what they protect.

A row of a protected topic stays in the journal for longer than its topic key is kept. So its context has that key with
it (`Context.key`), sealed under the master key of the node: whoever has the folder and not the master key reads
nothing. It opens nothing for anybody by itself; whoever is asked for what is in a row decides first whether the reader
may have it, at that moment.

Invariants
- A key is wrapped once, and again when another master key seals; a message costs a look-up.
- What only the key service has, or a publisher with whom it was agreed end to end, is not wrapped: there is no key.
- The context of a message that is routed has none. What is derived from a row must not have it either.

An old master key is needed for as long as there are rows from its time that somebody has to open.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from tidegate.bounded import Bounded
from tidegate.errors import KeysError
from tidegate.keys import key_id
from tidegate.keys.key import SECRET
from tidegate.keyservice.master_keys import MasterKeys
from tidegate.keyservice.topic_keys import TopicKeys
from tidegate.session import Context

CONTEXTS: Final = 10_000
_BEGIN: Final = b'{"keyId":"'  # as the node writes it


class Keys(Protocol):
    """What is needed of the keys of a node."""

    master_keys: MasterKeys | None
    topic_keys: TopicKeys | None


class RowKeys:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._wrapped: Bounded[str, bytes | None] = Bounded(CONTEXTS)
        self._contexts: Bounded[tuple[bytes, str], bytes] = Bounded(CONTEXTS)
        self._current = ""  # the master key that they are under

    def context(self, data: bytes, payload: bytes) -> bytes:
        """The context of a row, by that of the sealed message which is written to it."""
        # hot: for what the node has sealed itself, three look-ups
        keys = self._keys
        if keys.master_keys is None or keys.topic_keys is None:
            return data
        id = _named(payload)
        if id is None:
            return data
        if self._current != keys.master_keys.current:
            self._current = keys.master_keys.current
            self._wrapped.clear()
            self._contexts.clear()
        found = self._contexts.get((data, id))
        if found is None:
            key = self._wrap(keys.topic_keys, keys.master_keys, id)
            found = data if key is None else replace(Context.decode(data), key=key).encode()
            self._contexts[data, id] = found
        return found

    def _wrap(self, topic_keys: TopicKeys, master_keys: MasterKeys, id: str) -> bytes | None:
        if id not in self._wrapped:
            kept = topic_keys.ring.find(id, topic_keys.site.wall)
            name = id.encode()
            self._wrapped[id] = (
                None if kept is None else bytes((len(name),)) + name + master_keys.seal(kept.secret, of=f"row:{id}")
            )
        return self._wrapped[id]

    def unwrapped(self, context: Context) -> tuple[str, bytes]:
        """The id and the secret of the topic key that a row is under, by its context. Decides nothing.

        The payload is opened with `keys.unseal(secret, payload, topic=…)`, where the topic is `context.under`, or that
        of the row. KeysError if the row has no key, or its master key is not here any more.
        """
        blob, master_keys = context.key, self._keys.master_keys
        if not blob:
            raise KeysError("the row has no topic key with it: its publisher has sealed it end to end, or nobody has")
        if master_keys is None:
            raise KeysError("the topic key of the row is wrapped, and there is no master key here; set `master_key`")
        end = 1 + blob[0]
        try:
            id = blob[1:end].decode()
        except UnicodeDecodeError:
            raise KeysError("what is wrapped with the row is no topic key") from None
        secret = master_keys.unseal(blob[end:], of=f"row:{id}")
        if len(secret) != SECRET:
            raise KeysError("what is wrapped with the row is no topic key")
        return id, secret


def _named(payload: bytes) -> str | None:
    """The id of the key that a sealed payload names."""
    if payload.startswith(_BEGIN):
        end = payload.find(b'"', len(_BEGIN), len(_BEGIN) + 65)
        return None if end < 0 else payload[len(_BEGIN) : end].decode(errors="replace")
    return key_id(payload)
