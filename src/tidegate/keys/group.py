"""What a topic key belongs to (semantics, *Protected topics*): the messages that the same readers may read.

A group is an entry of `keys.protect`, the conditions a reader must fulfil, what the owner prefers, and what the
publisher demands. Messages that differ in one of these do not share a key.

Invariants
- The id is a digest of texts: the same in every process, and after a restart.
- An owner without a preference that applies is not part of it, so that such owners share keys.
- Two groups are equal if their ids are. `topic` and `context` are those of some message of the group, a *witness*: by
  these a request for the key is decided, and whether somebody could read what the key protects.

So that any message of a group can be the witness, the conditions must tell apart what the decision tells apart. Give

- how policies are combined, and every read policy that can apply to the topic for some reader, in order;
- the values of those attributes of the message and its publisher (`o`, `p`) that a condition reads, and the topic
  where a filter has placeholders;
- publishers' rules likewise, and for preferences their ids, conditions and what they keep.

A demand that nobody here can meet reaches nobody: deny such a message before a key is made for it.

It does not evaluate anything, and does not know what the texts mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

from tidegate import topics

_SIZE: Final = 16  # bytes of a digest: nobody finds two groups with the same one
_ABSENT: Final = b"\x00"
_THERE: Final = b"\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Messages with one key. Make it with `Group.of`."""

    id: str
    filter: str = field(compare=False)
    """The entry of `keys.protect` that protects them."""
    owner: str | None = field(default=None, compare=False)
    domain: str = field(default="", compare=False)
    demand: str | None = field(default=None, compare=False)
    topic: str = field(default="", compare=False)
    context: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def of(
        cls,
        *,
        filter: str,
        conditions: Iterable[str],
        preferences: Iterable[str] = (),
        owner: str | None = None,
        domain: str = "",
        demand: str | None = None,
        topic: str = "",
        context: bytes = b"",
    ) -> Group:
        """The group of a message; `conditions` and `preferences` as the module says."""
        preferred = tuple(preferences)
        if not preferred:
            owner, domain = None, ""
        id = _digest(
            b"group",
            filter.encode(),
            _digest_of(conditions),
            _digest_of(preferred),
            _optional(owner),
            domain.encode(),
            _optional(demand),
        )
        return cls(id=id.hex(), filter=filter, owner=owner, domain=domain, demand=demand, topic=topic, context=context)

    def sealed_by(self, who: str) -> Group:
        """Those of its messages that one publisher seals by itself, who may not read what others publish."""
        return replace(self, id=_digest(b"alone", self.id.encode(), who.encode()).hex())


def protecting(filters: Iterable[str], topic: str) -> str | None:
    """The entry of `keys.protect` that protects a topic: the first that matches; None if none does."""
    return next((filter for filter in filters if topics.matches(filter, topic)), None)


def _digest_of(texts: Iterable[str]) -> bytes:
    return _digest(b"texts", *(text.encode() for text in texts))


def _digest(purpose: bytes, *parts: bytes) -> bytes:
    digest = blake2b(digest_size=_SIZE, person=b"tidegate1" + purpose)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _optional(text: str | None) -> bytes:
    return _ABSENT if text is None else _THERE + text.encode()
