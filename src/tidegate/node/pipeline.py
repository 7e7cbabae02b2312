"""The node's side of the data pipeline: which keys it has, what it may read and write, and where its messages go.

The pipeline is a process of its own and asks over the control socket. It acts as `service:pipeline`: what it writes is
decided by the policies for that, each record by itself, and what it reads under a topic key by steps 7 and 8. What it
publishes has the context of the message that it was made of (`scope.deriving`), and the id that it is given: the same
record has the same id however often it is published, so that receivers can tell.

Invariants
- A request that cannot be understood changes nothing. One that was answered is safe: keys and messages are in the
  store. One that was not may have been carried out, and can be made again.
- Only what is published here has scores, `o.scores` and in the user property `scores`, which all of it has.
- None of it is written to the journal `ingest`, whatever its topic: it came from there.
- A record is taken when the queues of all who receive it with QoS 1 have room. A client with a full queue
  of which less than a tenth has been sent within `pipeline.patience` is not waited for: what it loses is counted.
- No piece of work here holds the loop up for longer than `slices.SLICE`, beside reading the request itself: some
  hundred records at a time are best.

    pipeline_keys     contexts, asks: topic, context (an index), from?, keyIds?, count?
                      -> answers: keyId, secret, seconds | open | denied, why
    pipeline_open     contexts, asks: topic, keyId, context           -> answers: secret | denied, why
    pipeline_publish  contexts, records: id, topic, payload, context, scores, from, at?
                      -> taken, published, denied: index, rule, why; awaited?, lost: client, count
    pipeline_documents                                                -> documents: id, body; version

Bytes are base64. `from` is the topic of the message that something was made of, `at` when that was published, in
seconds. `taken` is how many records were handed on; if that is not all, `awaited` is a client whose queue is full, and
the others are to be sent again. `keyIds` are keys that were given before, `count` is how many messages are going to be
sealed.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, assert_never

import orjson
from cbor2 import CBORDecodeError

from tidegate.admin import slices
from tidegate.bounded import Bounded
from tidegate.errors import KeysError, Problem
from tidegate.gate import Deny, Step
from tidegate.gate.attributes import SCORES
from tidegate.keys import Group, TopicKey
from tidegate.keyservice.topic_keys import TopicKeys
from tidegate.net.control_socket import Command
from tidegate.scope.derived_by_services import ID, Deriving, Number
from tidegate.session import Origin, Session
from tidegate.session.message import OUTPUT_BITS, OUTPUTS
from tidegate.session.publishing import BACKLOG

if TYPE_CHECKING:
    from tidegate.node.node import Node

SERVICE: Final = "pipeline"
KIND: Final = "pipeline"
"""Of its rules among what is administered."""
PATIENCE: Final = 5.0  # seconds for the disk
ORIGINS: Final = 1000
SHARE: Final = 10  # of a full queue a tenth has to leave within `pipeline.patience`, or nobody waits for it
PACKETS: Final = 65_535  # identifiers of packets, which are counted through
FULL: Final = 10_000  # sessions of which it is known since when their queue is full
HANDED: Final = 10_000  # keys of which it is known that the audit has them
_LAST: Final = 1 << 63  # what the store can keep
_FAR: Final = 250_000_000_000.0  # seconds: the year 9892, for calendars end soon after
_ID: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{1,15})-([0-9a-f]{1,15})\.([1-9][0-9]{0,8}(?:\.[1-9][0-9]{0,8})*)")

END_TO_END: Final = Deny(
    step=Step.PROTECT,
    rule="keys",
    error="it is sealed end to end, and only the key service has its keys: publish to a topic of `keys.protect`",
)
ENDED: Final = Deny(step=Step.READ, rule="keys", error="its key was revoked, or is another one than it names")
CLEAR: Final = Deny(step=Step.READ, rule="keys", error="it is under no key of this node")
UNNUMBERED: Final = Deny(
    step=Step.WRITE, rule=ID, error=f"a message is made of at most {OUTPUTS} records: send it in several"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A key that it may have. What is shown when something fails never has the secret."""

    secret: bytes = field(repr=False)
    id: str | None = None
    seconds: float = 0.0
    """For which it may still seal."""


Who = tuple[str, str, str]
"""Scope, user and client of a session."""

Answer = Given | Deny | None
"""None: no key is needed."""


class Record:
    """What is published, as it was read."""

    __slots__ = ("at", "before", "context", "number", "payload", "said", "topic")

    def __init__(self, said: Mapping[str, Any], context: bytes, number: Number | None) -> None:
        self.context = context
        self.number = number
        self.topic: str = said["topic"]
        self.payload = b64decode(said["payload"], validate=True)
        self.before: str | None = said.get("from")
        self.at: float | None = said.get("at")
        self.said = ((ID, said["id"]), (SCORES, _scores(said.get("scores"))))
        if not isinstance(self.topic, str) or not isinstance(self.before, str | None):
            raise TypeError("`topic` is a text, `from` is one or null")
        if self.at is not None and not 0 <= self.at < _FAR:
            raise ValueError("`at` is in seconds since 1970")


class Pipeline:
    """Answers the pipeline."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._services: dict[str, Deriving] = {}
        self._origins: Bounded[tuple[str, str], Origin] = Bounded(ORIGINS)
        self._handed: Bounded[str, None] = Bounded(HANDED)
        self._full: Bounded[Who, tuple[float, int]] = Bounded(FULL)  # since when, and its packet then

    def commands(self) -> dict[str, Command]:
        return {
            "pipeline_keys": self.keys,
            "pipeline_open": self.open,
            "pipeline_publish": self.publish,
            "pipeline_documents": self.documents,
        }

    # -- keys ----------------------------------------------------------------------------------------------------

    async def keys(self, contexts: Any, asks: Any) -> dict[str, Any]:
        """Whether it may write somewhere, and under which key."""
        said = await self._contexts(contexts)
        answers: list[Answer] = []

        def answer(index: int) -> None:
            ask, data = _asked(asks[index], index, said, "topic")
            ids, count, before = ask.get("keyIds", ()), ask.get("count", 1), ask.get("from")
            if not isinstance(ids, list | tuple) or not isinstance(count, int) or not isinstance(before, str | None):
                raise _wrong(index, "`keyIds` is a list, `count` a number, and `from` a topic")
            answers.append(self._key(data, before, ask["topic"], ids, max(1, count)))

        await slices.each(self._node.realm.site, len(_list(asks, "asks")), answer)
        await self._safe()  # what is under a key outlives a crash only if the key does
        return {"answers": [_told(each) for each in answers]}

    def _key(self, data: bytes, before: str | None, topic: str, ids: Collection[str], count: int) -> Answer:
        service = self._service(data)
        if isinstance(service, Deny):
            return self._first.refused(data, topic, service)
        found = service.planned(data, before, topic)
        if isinstance(found, Deny):
            return service.refused(data, topic, found)
        _, plan = found
        if plan.refusal is not None:
            return service.refused(data, topic, plan.refusal)
        if plan.sealing is None:
            return None
        if plan.sealing.end_to_end and self._node.config.keys.ktm is not None:
            return service.refused(data, topic, END_TO_END)
        topic_keys, wall = self._topic_keys, self._node.realm.site.wall
        key = self._before(ids, plan.sealing.group)
        if key is None:
            key = topic_keys.current(plan.sealing.group)
            count -= 1
        topic_keys.ring.use(key.id, count)
        self._tell(service, topic, key.id)
        return Given(secret=key.secret, id=key.id, seconds=topic_keys.ring.lasts(key.id, wall))

    def _before(self, ids: Collection[str], group: Group) -> TopicKey | None:
        """Of keys that were given before the one that is of this group, if it is still there."""
        ring, wall = self._topic_keys.ring, self._node.realm.site.wall
        found = (ring.find(id, wall) for id in ids if isinstance(id, str))
        return next((key for key in found if key is not None and key.group.id == group.id), None)

    async def open(self, contexts: Any, asks: Any) -> dict[str, Any]:
        """The keys of messages that it may read, which came in under one."""
        said = await self._contexts(contexts)
        answers: list[Answer] = []

        def answer(index: int) -> None:
            ask, data = _asked(asks[index], index, said, "topic", "keyId")
            answers.append(self._opened(data, ask["topic"], ask["keyId"]))

        await slices.each(self._node.realm.site, len(_list(asks, "asks")), answer)
        return {"answers": [_told(each) for each in answers]}

    def _opened(self, data: bytes, topic: str, id: str) -> Answer:
        service = self._service(data)
        if isinstance(service, Deny):
            return self._first.refused(data, topic, service, "key")
        found = self._readable(service, data, topic, id)
        if isinstance(found, Deny):
            return service.refused(data, topic, found, "key")
        self._tell(service, topic, id)
        return found

    def _readable(self, service: Deriving, data: bytes, topic: str, id: str) -> Given | Deny:
        context = service.scope.gate.attributes.decoded(data)
        if not context.sealed:
            return CLEAR
        if isinstance(may := service.readable(topic, data), Deny):
            return may
        ring = self._topic_keys.ring
        key = ring.find(id, self._node.realm.site.wall)
        if key is not None:
            may = service.readable(key.group.topic, key.group.context)
            return may if isinstance(may, Deny) else Given(secret=key.secret)
        if ring.revoked(id):
            return ENDED
        try:
            named, secret = self._node.keys.rows.unwrapped(context)
        except KeysError as error:
            return replace(ENDED, error=f"its key has ended here, and {error}")
        return Given(secret=secret) if named == id else ENDED

    def _tell(self, service: Deriving, topic: str, id: str) -> None:
        """The audit has once that it was given a key; it asks again with every batch."""
        if id not in self._handed:
            self._handed[id] = None
            self._node.audit.handed(service.outward, topic, id)

    # -- publishing ----------------------------------------------------------------------------------------------

    async def publish(self, contexts: Any, records: Any) -> dict[str, Any]:
        """Publishes records, in their order, until a queue is full; answered when all of that is safe."""
        site = self._node.realm.site
        site.open()
        if site.store.refusing:
            raise _unavailable("the disk is full or broken")
        if site.store.backlog > BACKLOG:
            await self._safe()
        said = await self._contexts(contexts)
        read: list[Record] = []
        denied: list[dict[str, Any]] = []
        lost: Counter[str] = Counter()
        losing: list[str] = []  # the record in hand
        taken = 0
        held: Session | None = None

        def understand(index: int) -> None:
            read.append(self._record(records[index], index, said))

        def awaited(session: Session) -> bool:
            if self._awaited(session):
                return True
            losing.append(session.client)
            return False

        def publish(index: int) -> None:
            nonlocal held, taken
            if held is not None:
                return
            losing.clear()
            record = read[index]
            service = self._service(record.context)
            if isinstance(service, Deny):
                answer: Deny | Session | int = self._first.refused(record.context, record.topic, service)
            elif record.number is None:
                answer = service.refused(record.context, record.topic, UNNUMBERED)
            else:
                answer = service.publish(
                    record.context,
                    record.before,
                    record.topic,
                    record.payload,
                    number=record.number,
                    said=record.said,
                    at=record.at,
                    awaited=awaited,
                )
            if isinstance(answer, Session):
                held = answer
                return
            taken += 1
            if not isinstance(answer, Deny):
                lost.update(losing)
            else:
                denied.append({"index": index, "rule": answer.rule, "why": answer.error})

        count = len(_list(records, "records"))
        await slices.each(site, count, understand)
        await slices.each(site, count, publish)
        await self._safe()
        answer = {"taken": taken, "published": taken - len(denied), "denied": denied, "lost": dict(lost)}
        return answer if held is None else {**answer, "awaited": held.client}

    def _awaited(self, session: Session) -> bool:
        """Whether records wait for a session whose queue is full: it has been sent enough of it lately."""
        pipeline, now = self._node.config.pipeline, self._node.realm.site.now
        patience = 0.0 if pipeline is None else pipeline.patience
        who = (session.home, session.principal, session.client)
        since, sent = self._full.get(who, (now, session.pid))
        if (session.pid - sent) % PACKETS >= min(max(session.queued // SHARE, 1), PACKETS // 2):
            since, sent = now, session.pid
        self._full[who] = (since, sent)
        return now - since < patience

    def _record(self, record: Any, index: int, contexts: Sequence[bytes]) -> Record:
        record, data = _asked(record, index, contexts, "id", "topic", "payload")
        try:
            return Record(record, data, self._number(record["id"], index))
        except (NoBase64, TypeError, ValueError) as error:
            raise _wrong(index, str(error)) from None

    def _number(self, id: str, index: int) -> Number | None:
        """What an id says; None if it is one of more than can be told apart."""
        found = _ID.fullmatch(id)
        if found is None:
            raise _wrong(index, f"{id[:100]!r} is no id of an output: that is `<node>-<boot>-<number>.<output>`")
        node, boot, number, outputs = found.groups()
        origin = self._origins.get((node, boot))
        if origin is None:
            origin = self._origins[node, boot] = Origin(node, int(boot, 16))
        output = 0
        for each in outputs.split("."):
            if (part := int(each)) > OUTPUTS:
                return None
            output = output << OUTPUT_BITS | part
        return (origin, int(number, 16), output) if output < _LAST else None

    # -- rules ---------------------------------------------------------------------------------------------------

    async def documents(self) -> dict[str, Any]:
        """Its rules that are administered over HTTP."""
        administration = self._node.administration
        return {"documents": [], "version": 0} if administration is None else await administration.documents_of(KIND)

    # -- what all of them need -----------------------------------------------------------------------------------

    async def _contexts(self, written: Any) -> list[bytes]:
        """Contexts that can be read."""
        found: list[bytes] = []

        def read(index: int) -> None:
            try:
                data = b64decode(written[index], validate=True)
                self._first.scope.gate.attributes.decoded(data)
            except (NoBase64, CBORDecodeError, TypeError, ValueError, AttributeError) as error:
                raise Problem(f"context {index} is none of a message: {error}", problem="invalid") from None
            found.append(data)

        await slices.each(self._node.realm.site, len(_list(written, "contexts")), read)
        return found

    def _service(self, data: bytes) -> Deriving | Deny:
        """Itself in the scope that a message was published in."""
        name = self._first.scope.gate.attributes.decoded(data).subject.scope
        if name not in self._node.realm.scopes:
            why = f"there is no scope {name[:100]!r} any more" if name else "nobody knows who published it"
            return Deny(step=Step.WRITE, rule="scope", error=why)
        return self._in(name)

    @property
    def _first(self) -> Deriving:
        """Itself where nothing else is known."""
        return self._in(next(iter(self._node.realm.scopes)))

    def _in(self, name: str) -> Deriving:
        scope = self._node.realm.scopes[name].entrance
        found = self._services.get(name)
        if found is None or found.scope is not scope or found.rules is not scope.gate.rules:
            found = self._services[name] = Deriving(scope, SERVICE, scores=True)
        return found

    @property
    def _topic_keys(self) -> TopicKeys:
        assert self._node.keys.topic_keys is not None
        return self._node.keys.topic_keys

    async def _safe(self) -> None:
        """When this returns everything noted so far is."""
        try:
            await slices.stored(self._node.realm.site, PATIENCE)
        except TimeoutError:
            raise _unavailable("the disk is too slow, or full") from None


def _scores(said: Any) -> str:
    """As subscribers are told: those that there are."""
    if said is None:
        return "{}"
    if not isinstance(said, dict):
        raise TypeError("`scores` is an object, or null")
    found = {name: score for name, score in said.items() if score is not None}
    if not all(0 <= score <= 1 for score in found.values()):
        raise ValueError("a score is between 0 and 1, or null")
    return orjson.dumps(found).decode()


def _list(written: Any, name: str) -> list[Any]:
    if not isinstance(written, list):
        raise Problem(f"`{name}` is a list", problem="invalid")
    return written


def _asked(ask: Any, index: int, contexts: Sequence[bytes], *texts: str) -> tuple[Mapping[str, Any], bytes]:
    """What is asked for, and the context that it names."""
    if not isinstance(ask, dict) or not all(isinstance(ask.get(name), str) for name in texts):
        raise _wrong(index, f"is an object with the texts {', '.join(f'`{name}`' for name in texts)}")
    at = ask.get("context")
    if not isinstance(at, int) or not 0 <= at < len(contexts):
        raise _wrong(index, "`context` is the index of one of the contexts")
    return ask, contexts[at]


def _wrong(index: int, why: str) -> Problem:
    return Problem(f"number {index}: {why}; nothing was done", problem="invalid", details=[{"at": index, "error": why}])


def _told(answer: Answer) -> dict[str, Any]:
    match answer:
        case None:
            return {"open": True}
        case Deny():
            return {"denied": answer.rule, "why": answer.error or f"denied by {answer.rule}"}
        case Given():
            secret = b64encode(answer.secret).decode()
            return (
                {"secret": secret, "keyId": answer.id, "seconds": answer.seconds} if answer.id else {"secret": secret}
            )
        case _:
            assert_never(answer)


def _unavailable(why: str) -> Problem:
    return Problem(f"it is not certain that anything was kept: {why}; ask again later", problem="unavailable")
