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
from dataclasses import replace
from typing import Any, Final

import structlog

from tidegate.admin.sources import Registered, Sources
from tidegate.audit.auditor import Auditor
from tidegate.bounded import Bounded
from tidegate.gate.attributes import FLOOR
from tidegate.keys.source import JSON
from tidegate.keyservice.row_keys import RowKeys
from tidegate.session import Context, Message, Site, Subject
from tidegate.session.carried_proof import without_proof
from tidegate.store.journal import INGEST, Writer, ingest_row
from tidegate.store.journal.rows import Row

CONTEXTS: Final = 10_000
SILENCE: Final = 10.0  # seconds between complaints

log = structlog.get_logger("tidegate.journal")


Columns = tuple[str | None, str | None, bool, str | None, str, str | None, str, str]
"""What rows say of whoever has published what they hold: from `source` to `floor`."""


def columns_of(source: Registered | None, subject: Subject, floor: str | None = None) -> Columns:
    """`floor`: the lowest level of its way, if it has crossed more than one link."""
    client, user, level = subject.client, subject.user, subject.level
    if source is None:
        return None, None, False, None, client, user, level, floor or level
    return source.id, source.type, True, source.mode, client, user, level, floor or level


class Recorder:
    """Writes to one journal (session.Journal)."""

    takes_all = False

    def __init__(
        self, journal: Writer, site: Site, keys: RowKeys, *, audit: Auditor, sources: Callable[[], Sources | None]
    ) -> None:
        self.rows = 0
        self.lost = 0
        self._journal = journal
        self._site = site
        self._keys = keys
        self._audit = audit
        self._sources = sources
        # by context: the columns of its publisher, and whether its payload is under a topic key
        self._known: Bounded[bytes, tuple[Columns, bool]] = Bounded(CONTEXTS)
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
        if self._generation != site.generation:
            self._generation = site.generation
            self._known.clear()
        known = self._known.get(context)
        if known is None:
            known = self._known[context] = self._publisher(context)
        columns, sealed = known
        properties = without_proof(message.properties)
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
            *columns,
            self._keys.context(context, message.payload) if sealed else context,
            self._audit.version,
        )
        if self._journal.append(row):
            self.rows += 1
            return True
        self._lose()
        return False

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        self._journal.after(callback, *args)

    def _publisher(self, data: bytes) -> tuple[Columns, bool]:
        context = Context.decode(data)
        subject, sources = context.subject, self._sources()
        if context.path:  # of another node: whoever has that name here is somebody else
            user = subject.user and f"{subject.user}@{subject.domain}"
            return columns_of(None, replace(subject, user=user), context.level), context.sealed
        source = None if sources is None or subject.user is None else sources.known(subject.user)
        return columns_of(source, subject), context.sealed

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

    def __init__(self, site: Site, keys: RowKeys, version: str, *, sender: Columns, context: bytes, count: int) -> None:
        """`sender` and `context`: of who sends it. `count`: how many records it has; each is given a number."""
        self.rows: list[Row] = []
        self.weight = 0
        self.messages: list[Message] = []  # what is delivered when the rows are safe
        self._columns = sender
        self._context = context
        self._site = site
        self._keys = keys
        self._version = version
        self._prefix = f"{site.origin.node}-{site.origin.boot:x}-"
        self.first = site.number + 1
        site.number += count
        self.ids = {"first": f"{self._prefix}{self.first:x}", "last": f"{self._prefix}{site.number:x}"}

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
        wall, version = self._site.wall, self._version
        row = ingest_row(wall, id, topic, payload, qos, retain, JSON, None, *self._columns, context, version)
        self.rows.append(row)
        self.weight += INGEST.weigh(row)
