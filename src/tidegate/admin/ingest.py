"""What sources send over HTTP: decided, written to the journal `ingest`, and only then acknowledged and published.

- All records of a request or none: they are one batch of the journal. What was not acknowledged in time is withdrawn.
- With `sources.topic` each record takes the steps of `scope.path` as a write of its source. First all are tried: one
  that is denied refuses the request. Then monitors see each, it is sealed if its topic is protected, and what is
  left of it is written to the journal. When that is safe it is delivered, by the rules that are in force then.
- A sealed body counts once: its counter is safe before its records are. So one that was not acknowledged is sealed
  again, under the next counter; it is never taken twice.
- No piece of work here holds the loop up for longer than `slices.SLICE`.

Records come here as they were sent, checked already: JSON objects, with `MARK` between them, which no JSON has.
"""

from __future__ import annotations

import asyncio
import re
import time
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from tidegate.addresses import network
from tidegate.admin import slices
from tidegate.admin.control_commands import AddData, OpenSealed, PutData
from tidegate.admin.http_subjects import HTTP, http_subject
from tidegate.admin.identities import NodeIdentities
from tidegate.admin.ingest_journal import RequestJournal, columns_of
from tidegate.admin.sources import KIND, ROOM, UNREGISTERED, Registered, Sources
from tidegate.audit.auditor import Auditor
from tidegate.authentication.authentication import Authentication
from tidegate.authentication.presented_capabilities import HttpRequest
from tidegate.bounded import Bounded
from tidegate.config import Config
from tidegate.config.sources import Unregistered
from tidegate.errors import KeysError, Problem
from tidegate.gate import Deny
from tidegate.keys.source import JSON, SealedBody
from tidegate.keyservice.row_keys import RowKeys
from tidegate.policy import Transport
from tidegate.policy.capability import Capability
from tidegate.policy.levels import PLAIN as PLAIN_LEVEL
from tidegate.scope import Realm, Scope
from tidegate.scope.authenticator import Refused
from tidegate.session import Link, Message, Subject
from tidegate.session.packet_costs import Payer
from tidegate.store.journal import Together, Writer
from tidegate.store.journal.rows import Row
from tidegate.store.journal.schema import REMEDY, installed
from tidegate.wire import Properties

MARK: Final = b"\x1e"  # between records (RFC 7464)
SKEW: Final = 300.0  # seconds that the clock of a source may be wrong
PATIENCE: Final = 5.0  # seconds for the disk
TROUBLED: Final = 0.5  # the same while it is known to be in trouble
GRACE: Final = 5.0  # more seconds, if they are just being written and cannot be withdrawn
LOOK: Final = 0.05
PARTS: Final = 128 << 20  # bytes of requests that are not complete
ABANDONED: Final = 60.0  # seconds after which they are forgotten
LINKS: Final = 10_000
UNKNOWN: Final = "unknown"
_PROPERTIES: Final = Properties(content_type=JSON)
_UPLOAD: Final = re.compile(r"[0-9a-f]{32}")

log = structlog.get_logger("tidegate.sources")


class IngestingNode(Protocol):
    config: Config
    authentication: Authentication
    realm: Realm
    audit: Auditor
    identities: NodeIdentities


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    source: Registered | None
    address: str
    level: str
    token: str | None
    """Of its capability."""


class Ingest:
    """Takes what sources send. `journal` is None where nothing can be kept."""

    def __init__(
        self, host: IngestingNode, row_keys: RowKeys, journal: Writer | None, counters: Mapping[str, bytes]
    ) -> None:
        """`counters` are those that the store has kept, by the id of the key."""
        self.sources: Sources | None = None
        self._host = host
        self._row_keys = row_keys
        self._journal = journal
        self._counters = {key: int.from_bytes(value, "big") for key, value in counters.items()}
        self._uploads: dict[str, tuple[float, list[bytes]]] = {}
        self._links: Bounded[tuple[str | None, str, str, str | None], tuple[Scope, Link]] = Bounded(LINKS)
        self._links_at = -1
        self._payers: Bounded[str, Payer] = Bounded(LINKS, lambda _: Payer())
        self._waiting = 0

    # -- sealed bodies ---------------------------------------------------------------------------------------------

    async def open(self, command: OpenSealed) -> dict[str, Any]:
        """What is inside a sealed body, and the key it was sealed with. It counts once `put` is told its counter."""
        source = self._source(command.user)
        assert source is not None
        if source.key is None:
            raise Problem("this source has no encryption scheme; register it again with one", problem="invalid")
        secret = await self._there.secret(source.key)
        node = self._host.config.node.name

        def opened() -> tuple[SealedBody, bytes]:
            try:
                body = SealedBody.parse(command.sealed.encode())
            except KeysError as error:
                raise Problem(str(error), problem="invalid") from None
            if body.source != source.id:
                raise Problem("`NodeId` is not the source that the token is of; use its own", problem="forbidden")
            try:
                return body, body.opened(secret, audience=node)
            except KeysError as error:
                raise Problem(str(error), problem="forbidden") from None

        body, inside = await asyncio.to_thread(opened)
        if abs(body.time / 1000 - time.time()) > SKEW:
            text = f"its time is more than {SKEW:g} s from now, which is {int(time.time() * 1000)}; set the clock"
            raise Problem(text, problem="forbidden")
        self._check_counter(source.key, body.counter)
        return {"body": b64encode(inside).decode(), "key": source.key}

    def _check_counter(self, key: str, counter: int) -> None:
        last = self._counters.get(key, -1)
        if counter <= last:
            text = f"the counter {counter} was used already, the last one is {last}; seal it again with a greater one"
            raise Problem(
                text, problem="conflict", details=[{"at": "counter", "error": "is not greater than the last"}]
            )

    def _spend(self, key: str, counter: int) -> None:
        """From now on it counts no more, whatever comes."""
        self._check_counter(key, counter)
        self._counters[key] = counter
        site = self._host.realm.site
        site.open()
        site.store.keep(ROOM, key, counter.to_bytes(8, "big"))

    def forget(self, key: str) -> None:
        """It is a key of nobody any more."""
        if self._counters.pop(key, None) is not None:
            site = self._host.realm.site
            site.open()
            site.store.keep(ROOM, key, None)

    # -- taking ----------------------------------------------------------------------------------------------------

    def add(self, command: AddData) -> dict[str, Any]:
        """A piece of a request that is too long for one line; `put` brings the last."""
        if not _UPLOAD.fullmatch(command.upload):
            raise Problem("`upload` is 32 hexadecimal digits", problem="invalid")
        now = time.monotonic()
        for name, (until, _) in list(self._uploads.items()):
            if until < now:
                del self._uploads[name]
        data = _decoded(command.part)
        if sum(len(each) for _, parts in self._uploads.values() for each in parts) + len(data) > PARTS:
            raise _unavailable("too much is being sent at once")
        _, parts = self._uploads.get(command.upload, (0.0, []))
        parts.append(data)
        self._uploads[command.upload] = (now + ABANDONED, parts)
        return {}

    async def put(self, command: PutData) -> dict[str, Any]:
        """Takes the records of a request: when this returns they are safe."""
        key, counter = command.key, command.counter
        if (key is None) != (counter is None):
            raise Problem("`key` and `counter` belong together, and a counter is a whole number", problem="invalid")
        _, parts = self._uploads.pop(command.upload or "", (0.0, []))
        source, token = self._source(command.user), command.capability
        sender = Sender(source=source, address=command.address, level=command.level, token=token)
        journal = self._ready()
        _check_sealed(sender.source, key)
        parts = [*parts, _decoded(command.part)]
        if len(parts) == 1:
            payloads = parts[0].split(MARK)
        else:
            payloads = await asyncio.to_thread(lambda: b"".join(parts).split(MARK))
        topic = self._topic(sender)
        if topic is not None:
            await self._decide(sender, topic, payloads)
        request, protected = await self._enter(sender, topic, payloads)
        if key is not None and counter is not None:
            _check_sealed(self._source(command.user), key)  # it may have been renewed meanwhile
            self._spend(key, counter)
        if key is not None or protected:
            try:  # the store has what the records need first: the counter, the topic keys that they are under
                await slices.stored(self._host.realm.site, PATIENCE)
            except TimeoutError:
                raise _unavailable("the store is too slow") from None
        if request.rows:
            await self._written(journal, request.rows, request.weight)
        await self._deliver(sender, request.messages)
        return {"accepted": len(payloads), "ids": request.ids}

    def _source(self, user: str | None) -> Registered | None:
        if user is None:
            if self._host.config.sources.unregistered is not Unregistered.ACCEPT:
                raise Problem(
                    "only registered sources send data here; register, and send the token", problem="forbidden"
                )
            return None
        found = self._there.known(user)
        if found is None:
            raise Problem("this token is of no source; register one, and use its token", problem="forbidden")
        return found

    @property
    def _there(self) -> Sources:
        if self.sources is None:
            raise Problem("there are no sources here: set `http` in the file of the node", problem="unavailable")
        return self.sources

    def _ready(self) -> Writer:
        """The journal, if there is hope."""
        journal = self._journal
        if journal is None:
            remedy = "set `node.data` in the file of the node" if installed() else f"pyarrow is missing, run {REMEDY}"
            raise Problem(f"data cannot be kept here: {remedy}", problem="unavailable")
        if journal.full:
            raise _unavailable("the disk is too slow")
        if self._host.realm.site.store.refusing or (journal.trouble is not None and self._waiting):
            raise _unavailable("the disk is full or broken")  # one tries, the others need not wait for it
        return journal

    # -- deciding --------------------------------------------------------------------------------------------------

    def _topic(self, sender: Sender) -> str | None:
        topic, source = self._host.config.sources.topic, sender.source
        if topic is None:
            return None
        id, type = (UNREGISTERED, UNKNOWN) if source is None else (source.id, source.type)
        return topic.replace("{source}", id).replace("{type}", type)

    async def _decide(self, sender: Sender, topic: str, payloads: Sequence[bytes]) -> None:
        """Problem if one of them must not be written."""

        def decide(index: int) -> None:
            scope, link = self._link(sender)
            plan, message = scope.plans.message(link, topic, payloads[index], qos=1, properties=_PROPERTIES)
            if (denied := scope.path.tried(plan, message, link)) is not None:
                raise _denied(f"record {index}", topic, denied)

        await self._each(sender, len(payloads), decide)

    async def _enter(self, sender: Sender, topic: str | None, payloads: Sequence[bytes]) -> tuple[RequestJournal, bool]:
        """Steps 1 to 5 for the records of a request, and whether topic keys have to be kept before they are written.

        The rows of all of them are written together, by `_written`.
        """
        site = self._host.realm.site
        site.open()
        scope, link = self._link(sender)
        request = RequestJournal(
            site,
            self._row_keys,
            self._host.audit.version,
            sender=columns_of(sender.source, link.subject),
            context=scope.gate.context(link).encode(),
            count=len(payloads),
        )
        protected = False

        def enter(index: int) -> None:
            nonlocal protected
            if topic is None:
                request.write_data(request.first + index, payloads[index])
                return
            scope, link = self._link(sender)
            plan, message = scope.plans.message(link, topic, payloads[index], qos=1, properties=_PROPERTIES)
            message.number = request.first + index
            if (denied := scope.path.write(plan, message, link)) is not None:
                raise _denied("a record", topic, denied)
            events, denied = scope.path.enter(plan, message, link, None, request)
            if denied is not None and not denied.suppressed:
                raise _denied("a record", topic, denied)
            protected = protected or any(way.sealing is not None for way, _ in events)

        await self._each(sender, len(payloads), enter)
        return request, protected

    def _link(self, sender: Sender) -> tuple[Scope, Link]:
        """Where it is published, and over what; by the directory and the rules in force."""
        site = self._host.realm.site
        if self._links_at != site.generation:
            self._links_at = site.generation
            self._links.clear()
        key = (None if sender.source is None else sender.source.id, sender.address, sender.level, sender.token)
        found = self._links.get(key)
        if found is None:
            found = self._links[key] = self._linked(sender)
        return found

    def _linked(self, sender: Sender) -> tuple[Scope, Link]:
        realm = self._host.realm
        rules, capability = realm.rules, self._capability(sender)
        if sender.source is None:
            scope = realm.scope(self._host.config.listeners[0].scope)
            subject = Subject(
                kind="service",
                client=HTTP,
                user=None,
                scope=scope.name,
                node=scope.node,
                domain=rules.domain,
                level=sender.level,
                facts=rules.levels.facts_of(Transport.over_http(HTTP, sender.address, sender.level)),
                address=sender.address,
                listener=HTTP,
            )
            return scope, Link(subject, True, rules.brokering.types(subject).inward)
        id = sender.source.id
        scope, subject = http_subject(
            self._host, id, client=id, address=sender.address, level=sender.level, capability=capability
        )
        entrance = scope.entrance
        return entrance, Link(subject, True, rules.brokering.types(subject).inward, scope=entrance.name)

    def _capability(self, sender: Sender) -> Capability | None:
        """What it shows. What is not written to a topic is bounded by none, and none is needed for it."""
        if self._topic(sender) is None:
            return None
        user = "" if sender.source is None else sender.source.id
        encrypted = sender.level != PLAIN_LEVEL
        request = HttpRequest(user=user, mark="", encrypted=encrypted, capability=sender.token)
        found = self._host.authentication.capability_of(request, self._host.realm.site)
        if isinstance(found, Refused):
            raise Problem(found.text, problem="denied", details=[{"rule": found.rule, "stage": "connect"}])
        return found

    # -- writing ---------------------------------------------------------------------------------------------------

    async def _written(self, journal: Writer, rows: Sequence[Row], weight: int) -> None:
        """When this returns they are safe. A Problem: they are not, and never will be, unless it is uncertain."""
        together = journal.append_all(rows, weight)
        if together is None:
            raise _unavailable("the disk is too slow")
        self._waiting += 1
        try:
            await self._settled(journal, together)
        finally:
            self._waiting -= 1
        if not together.written:
            raise Problem("the records could not be written; the log says why", problem="failed")

    async def _settled(self, journal: Writer, together: Together) -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        journal.after(done.set)
        wait = PATIENCE if journal.trouble is None else TROUBLED
        last = loop.time() + wait + GRACE
        while not done.is_set():
            try:
                async with asyncio.timeout(wait):
                    await done.wait()
            except TimeoutError:
                if together.withdraw():
                    raise _unavailable(journal.trouble or "the disk is too slow") from None
                if loop.time() > last:
                    text = "the disk does not say whether the records are written; look whether they are"
                    raise Problem(text, problem="uncertain") from None
                wait = LOOK

    async def _deliver(self, sender: Sender, messages: Sequence[Message]) -> None:
        """Steps 6 to 11, by the rules of now; a denial is audited."""

        def deliver(index: int) -> None:
            scope, link = self._link(sender)
            scope.path.deliver_later(messages[index], link)

        try:
            await self._each(sender, len(messages), deliver)
        except Problem as problem:
            # The sender has lost its access. Its records are in the journal, which is what was promised.
            log.warning("data was recorded and not all of it published", reason=str(problem))

    async def _each(self, sender: Sender, count: int, do: Callable[[int], None]) -> None:
        """Each source pays for itself, and who is not registered for their address."""
        payer = self._payers[network(sender.address) if sender.source is None else f"{KIND}:{sender.source.id}"]
        await slices.each(self._host.realm.site, count, do, payer)


def _denied(what: str, topic: str, why: Deny) -> Problem:
    text = f"{what} may not be written to {topic}: denied by {why.rule}"
    return Problem(text, problem="denied", details=[{"rule": why.rule, "stage": why.step.value}])


def _check_sealed(source: Registered | None, key: str | None) -> None:
    """A source with a key sends nothing in clear, and nothing under a key that it had before."""
    own = None if source is None else source.key
    if own == key:
        return
    if key is None:
        raise Problem("this source has agreed on an encryption scheme; send sealed bodies only", problem="forbidden")
    raise Problem("the key of this source was renewed; seal it again with the new one", problem="conflict")


def _decoded(part: str) -> bytes:
    try:
        return b64decode(part, validate=True)
    except (NoBase64, ValueError):
        raise Problem("records come as base64", problem="invalid") from None


def _unavailable(why: str) -> Problem:
    return Problem(f"nothing was taken: {why}; send it again later", problem="unavailable")
