"""The values of the registry: documents, changes of them, what was answered, and the limits.

A version is the number of the change that wrote it. It is never used again, not even by a document that is deleted and
made anew: whoever saw version 7 of something can be sure that 7 means just that.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

from tidegate.errors import ConfigError

Body: TypeAlias = Mapping[str, Any]

FEWEST: Final = 2  # versions of a document that are kept at least, so that its newest change can be taken back


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    kind: str
    id: str
    body: Body | None  # None deletes it
    expected: int | None = None
    """The version that the caller saw. None: there is no such document yet; for a deletion: whatever it is."""
    restores: bool = False
    """It puts back what was deleted: a user or a client is then the same one as before, not another of that name."""
    group: str | None = None
    """Documents of this kind whose ids begin so share a bound, their history included: `Limits.group`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Who changes something, when, why, and what the change is called."""

    id: str
    by: str
    why: str
    at: float

    @classmethod
    def of(cls, *, by: str, why: str, at: float, id: str = "") -> Signature:
        """Without an id, the change is given one."""
        return cls(id=id or secrets.token_hex(16), by=by, why=why, at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One version of a document (a policy, a user, a source), and the change that wrote it."""

    sequence: int  # the number of the change, and the version of the document since. Changes made together share it
    kind: str
    id: str
    body: Body | None  # None: the change deleted it
    at: float
    by: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything, as it was after the change `sequence`; by kind and id."""

    sequence: int
    documents: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    room: str
    key: str
    value: bytes = field(repr=False)
    version: int
    expires: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    sequence: int  # its number, and the version of everything that it wrote
    id: str  # what it is called in `outcome`


class Reason(Enum):
    EXISTS = "exists already"
    MISSING = "does not exist"
    CHANGED = "was changed in the meantime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Nothing was done: this document, or secret, is not what the caller took it for."""

    kind: str  # for a secret: its room
    id: str
    reason: Reason
    version: int | None  # what there is now; None: nothing

    def __str__(self) -> str:
        version = "" if self.version is None else f" (version {self.version})"
        return f"{self.kind} {self.id} {self.reason.value}{version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was done, and it would not help to ask again: what is wrong, and what would be right."""

    what: str
    full: bool = False  # there is no room for more


Answer: TypeAlias = Applied | Conflict | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a registry takes. A limit that was lowered holds for what comes; nothing is thrown away for it."""

    body: int = 256 * 1024  # bytes of a document as JSON
    documents: int = 100_000
    changes: int = 1000  # that are made together
    history: int = 100  # versions kept of each document, the current one among them
    deleted: int = 10_000  # deleted documents whose history is kept
    group: int = 2 << 20  # characters of all versions of the documents of a group; the oldest go first
    secret: int = 128 * 1024  # bytes of a secret
    secrets: int = 1_000_000

    def __post_init__(self) -> None:
        if self.history < FEWEST:
            raise ConfigError(f"history of {self.history}: keep at least {FEWEST} versions of a document")
        if min(self.body, self.documents, self.changes, self.secret, self.secrets) < 1 or self.deleted < 0:
            raise ConfigError("a limit of the registry is below 1: nothing could be stored")
