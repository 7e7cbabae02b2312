"""What clients publish under `pipeline.ingest`, written to the journal `ingest` before it is acknowledged (step 5).

- What is written is what is routed: each event that monitors let pass or make, sealed if its topic is protected, with
  its context. Retained messages and wills, too.
- Once, where a message enters the node, under the topic that it has there. What another scope makes of it, and what the
  pipeline itself publishes, is not written.
- What came over HTTP is written whatever its topic, all records of a request together (`RequestJournal`).
- The bodies of sources with an encryption scheme are written as they came.
- `registered` and what is said of a source come from the registry at that moment.

Nothing here waits. Who has to wait for the disk, and what becomes of what cannot be written, is decided in
`session.publishing`. A message without an acknowledgement that finds no room is counted in `lost`, and delivered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from tidegate.admin.sources import Registered, Sources
from tidegate.gate.attributes import FLOOR
from tidegate.keys.source import JSON
from tidegate.keyservice.row_keys import RowKeys
from tidegate.session import Context, Message, Site, Subject
from tidegate.store.journal import INGEST, Writer, ingest_row
from tidegate.store.journal.rows import Row

CONTEXTS: Final = 10_000
SILENCE: Final = 10.0  # seconds between complaints

log = structlog.get_logger("tidegate.journal")


class Versions(Protocol):
    """Who knows which rules are in force."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """What rows say of whoever has published what they hold."""

    source: Registered | None
    client: str
    user: str | None
    level: str
    sealed: bool
    """The payload is under a topic key."""


class Recorder:
    """Writes to one journal (session.Journal)."""

    takes_all = False

    def __init__(
        self, journal: Writer, site: Site, keys: RowKeys, *, versions: Versions, sources: Callable[[], Sources | None]
    ) -> None:
        self.rows = 0
        self.lost = 0
        self._journal = journal
        self._site = site
        self._keys = keys
        self._versions = versions
        self._sources = sources
        self._known: dict[bytes, Publisher] = {}  # by context
        self._generation = -1
        self._silent_until = 0.0

    @property
    def refusing(self) -> bool:
        # Rows of requests may have been withdrawn, so that nobody tries any more: then the next one does.
        journal = self._journal
        return journal.trouble is not None and journal.backlog > 0

    @property
    def full(self) -> bool:
        return self._journal.full or self.refusing

    def write(self, message: Message) -> bool:
        # hot: one row, and two look-ups if its publisher is known
        site, context = self._site, message.context
        if self._generation != site.generation or len(self._known) >= CONTEXTS:
            self._generation = site.generation
            self._known.clear()
        by = self._known.get(context)
        if by is None:
            by = self._known[context] = self._publisher(context)
        source = by.source
        properties = message.properties
        pairs = properties.user_properties
        if pairs and pairs[-1][0] == FLOOR:
            pairs = pairs[:-1]  # that is the node's own
        row = ingest_row(
            site.wall,
            message.id,
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            properties.content_type,
            pairs or None,
            None if source is None else source.id,
            None if source is None else source.type,
            source is not None,
            None if source is None else source.mode,
            by.client,
            by.user,
            by.level,
            by.level,  # it has crossed one link
            self._keys.context(context, message.payload) if by.sealed else context,
            self._versions.version,
        )
        if self._journal.append(row):
            self.rows += 1
            return True
        self._lose()
        return False

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        self._journal.after(callback, *args)

    def _publisher(self, data: bytes) -> Publisher:
        context = Context.decode(data)
        subject, sources = context.subject, self._sources()
        return Publisher(
            source=None if sources is None or subject.user is None else sources.known(subject.user),
            client=subject.client,
            user=subject.user,
            level=subject.level,
            sealed=context.sealed,
        )

    def _lose(self) -> None:
        self.lost += 1
        if time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + SILENCE
            log.error(
                "a message for the pipeline was not written: there is no room. Remedy: free some space, or mend the "
                "disk",
                all=self.lost,
                trouble=self._journal.trouble,
            )

    def state(self) -> dict[str, Any]:
        """For `tidegate status`."""
        journal = self._journal
        return {
            "rows": self.rows,
            "lost": self.lost,
            "next": journal.next,
            "waiting": journal.backlog,
            "bytes": journal.size,
            "trouble": journal.trouble,
        }


class RequestJournal:
    """The rows of one request over HTTP, collected to be written together (session.Journal)."""

    takes_all = True
    refusing = False
    full = False

    def __init__(
        self,
        *,
        first: int,
        count: int,
        source: Registered | None,
        subject: Subject,
        context: bytes,
        site: Site,
        keys: RowKeys,
        version: str,
    ) -> None:
        """`first`, `count`: the numbers of its records. `context`: of what its sender publishes."""
        self.rows: list[Row] = []
        self.weight = 0
        self.messages: list[Message] = []
        """What is delivered when the rows are safe."""
        self._source = source
        self._subject = subject
        self._context = context
        self._site = site
        self._keys = keys
        self._version = version
        self._prefix = f"{site.origin.node}-{site.origin.boot:x}-"
        self.ids = {"first": f"{self._prefix}{first:x}", "last": f"{self._prefix}{first + count - 1:x}"}

    def write(self, message: Message) -> bool:
        context = message.context
        if context != self._context and Context.decode(context).sealed:
            context = self._keys.context(context, message.payload)
        self._add(message.id, message.topic, message.payload, message.qos, message.retain, context)
        self.messages.append(message)
        return True

    def write_data(self, number: int, payload: bytes) -> None:
        """A record that is not published."""
        self._add(f"{self._prefix}{number:x}", None, payload, None, None, self._context)

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        raise AssertionError("a request waits for the journal itself")

    def _add(
        self, id: str, topic: str | None, payload: bytes, qos: int | None, retain: bool | None, context: bytes
    ) -> None:
        source, subject = self._source, self._subject
        row = ingest_row(
            self._site.wall,
            id,
            topic,
            payload,
            qos,
            retain,
            JSON,
            None,
            None if source is None else source.id,
            None if source is None else source.type,
            source is not None,
            None if source is None else source.mode,
            subject.client,
            subject.user,
            subject.level,
            subject.level,  # it has crossed one link
            context,
            self._version,
        )
        self.rows.append(row)
        self.weight += INGEST.weigh(row)
