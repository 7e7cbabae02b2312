"""Who is given a topic key (AUPS, transaction REC): steps 7 and 8 hold for them at that moment, for a message under it.

A reader is a user, or a client without one; the key is wrapped for the public key that the directory has of it. It is
asked for over MQTT, on the reader's own connection, or over HTTP, where the request brings the reader's capability. A
denial names its rule and is audited; so is what is handed out.

A publisher that encrypts by itself is given the key that seals what it publishes now, if it may write the topic. One
that may not read what others publish there has a key of its own.

A key that is not here is asked for elsewhere (`exchange`), and only then the answer comes later than the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

import orjson
import structlog

from tidegate.audit.auditor import Auditor
from tidegate.authentication.presented_capabilities import RULE, HttpRequest
from tidegate.bounded import Bounded
from tidegate.config import Config
from tidegate.errors import KeysError, Problem, StoreError
from tidegate.gate import Deny, Known, Step, evaluate
from tidegate.keys import Group, PublicKey, TopicKey, valid_request, wrap
from tidegate.keys.key import valid_id
from tidegate.keyservice.control_commands import GetKey, GetPublishingKey
from tidegate.keyservice.topic_keys import TopicKeys
from tidegate.policy import Directory, Transport
from tidegate.policy.brokering import PLAIN
from tidegate.policy.capability import Capability
from tidegate.policy.control_topics import ANSWER, GET_KEY, PUBLISH_KEY
from tidegate.policy.levels import PLAIN as PLAIN_LEVEL
from tidegate.scope import Realm, Refused, Scope
from tidegate.scope.protection import reader
from tidegate.scope.subjects import service_subject
from tidegate.session import Bucket, Context, Link, Message, Session, Subject
from tidegate.topics import valid_topic
from tidegate.wire import NONE, Properties

RATE, BURST = 200.0, 1000.0
"""Requests that one reader may make a second, and at once: each takes as long as delivering some fifty messages."""
READERS: Final = 10_000  # that are remembered
LONGEST: Final = 4096  # bytes of a request
ASKING: Final = 256  # questions to others at a time
PATIENCE: Final = 5.0  # seconds for an answer of others

Later: TypeAlias = Coroutine[Any, Any, bytes]  # an answer that others are asked for

HTTP: Final = "http"
_ENDED: Final = "there is no such key any more, or never was; ask for the one of a newer message"

log = structlog.get_logger("tidegate.keys")


class KeyService(Protocol):
    """A key service that makes keys whose secrets it does not tell the node."""

    async def grant(self, group: Group, public: PublicKey, *, reader: str, request: str) -> tuple[bytes, str]: ...
    async def wrap(self, id: str, public: PublicKey, *, reader: str, request: str) -> bytes | None: ...
    async def group(self, id: str) -> Group | None: ...
    def rotate(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRequest:
    reader: str
    scope: Scope
    link: Link  # over which they would receive
    request: str


class KeyRelease:
    def __init__(
        self,
        topic_keys: TopicKeys,
        realm: Realm,
        audit: Auditor,
        *,
        config: Callable[[], Config],
        service: Callable[[], KeyService | None],
        capability: Callable[[HttpRequest], Capability | Refused | None],
        turn: Callable[..., Any],
        identity: Callable[[str], str] = lambda user: "",
    ) -> None:
        """`identity`: the id of whoever has a name now."""
        self.topic_keys = topic_keys
        self.realm = realm
        self.audit = audit
        self.handed = self.refused = 0
        self._config = config
        self._capability = capability
        self._turn = turn
        self._identity = identity
        self._service = service
        self._links: Bounded[tuple[str, str, str], Link] = Bounded(READERS)
        self._links_at = -1
        self._buckets: Bounded[str, Bucket] = Bounded(READERS, lambda _: Bucket(RATE, BURST, self.realm.site.now))
        self._tasks: set[asyncio.Task[None]] = set()
        topic_keys.ask = self.ask

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- over MQTT -------------------------------------------------------------------------------------------------

    def ask(self, scope: Scope, session: Session, message: Message) -> int:
        """A request on a control topic (scope.Keyring)."""
        if ANSWER not in (session.subscriptions or {}) or session.connection is None:
            return 0
        mark: str | None = None
        try:
            request = _object(message.payload)
            mark = _text(request, "request")
            asking = KeyRequest(
                reader=reader(session.subject), scope=scope, link=session.outward, request=_marked(mark)
            )
            if message.topic == GET_KEY:
                answer = self._get(asking, _text(request, "keyId"))
            else:
                context = scope.gate.attributes.context(message)
                answer = self._publish(asking, _topic(request), context, message.link)
            if not isinstance(answer, bytes) and len(self._tasks) >= ASKING:
                answer.close()
                raise Problem("too many ask at once; try again", problem="unavailable")
        except Problem as problem:
            answer = _refusal(problem, mark)
        if isinstance(answer, bytes):
            self._tell(scope, session, message, answer)
        else:
            task = asyncio.get_running_loop().create_task(self._answered(scope, session, message, answer, mark))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return 1

    async def _answered(self, scope: Scope, session: Session, message: Message, later: Later, mark: str | None) -> None:
        try:
            answer = await later
        except Problem as problem:
            answer = _refusal(problem, mark)
        self._turn(self._tell, scope, session, message, answer)

    def _tell(self, scope: Scope, session: Session, message: Message, answer: bytes) -> None:
        correlation = message.properties.correlation_data
        properties = NONE if correlation is None else Properties(correlation_data=correlation)
        scope.path.egress.answer(session, self._answer_context(scope), ANSWER, answer, properties)

    def _answer_context(self, scope: Scope) -> bytes:
        """The context of what is answered in a scope."""
        return Context(subject=service_subject(scope, "keys")).encode()

    # -- over HTTP -------------------------------------------------------------------------------------------------

    async def get(self, command: GetKey) -> bytes:
        """The key of a message, for a user; Problem if they may not have it."""
        asking = self._user(command, GET_KEY)
        if not valid_id(command.key):
            raise Problem(_ENDED, problem="unknown")
        answer = self._get(asking, command.key)
        return answer if isinstance(answer, bytes) else await answer

    async def publish(self, command: GetPublishingKey) -> bytes:
        """The key that seals what a user publishes; Problem if they may not."""
        asking = self._user(command, PUBLISH_KEY)
        context = asking.scope.gate.context(Link(asking.link.subject, True, PLAIN.inward))
        answer = self._publish(asking, _topic({"topic": command.topic}), context, PLAIN.inward)
        return answer if isinstance(answer, bytes) else await answer

    def _user(self, command: GetKey | GetPublishingKey, asked_at: str) -> KeyRequest:
        """Who asks over HTTP; `asked_at` is the topic on which it would be asked over MQTT."""
        site = self.realm.site
        site.open()
        scope = next(iter(self.realm.scopes.values()))
        if self._links_at != site.generation:
            self._links_at = site.generation
            self._links.clear()
        key = (command.user, command.level, command.address)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = self._link(scope, *key)
        asking = KeyRequest(reader=f"user:{command.user}", scope=scope, link=link, request=_marked(command.request))
        shown = HttpRequest(
            user=command.user,
            mark=command.request,
            encrypted=command.level != PLAIN_LEVEL,
            capability=command.capability,
            proof=command.proof,
        )
        capability = self._capability(shown)
        if isinstance(capability, Refused):
            step = Step.READ if asked_at == GET_KEY else Step.WRITE
            raise self._denied(asking, asked_at, Deny(step=step, rule=capability.rule, error=capability.text))
        if capability is None:
            return asking
        return replace(asking, link=self._link(scope, *key, capability))

    def _link(self, scope: Scope, user: str, level: str, address: str, capability: Capability | None = None) -> Link:
        directory = self._config().built.directory
        if user not in directory.users:
            raise Problem(f"there is no user {user[:100]!r}", problem="unknown")
        facts = scope.gate.rules.levels.facts_of(Transport.over_http(HTTP, address, level))
        return reading(
            scope,
            directory,
            user=user,
            level=level,
            facts=facts,
            address=address,
            listener=HTTP,
            capability=capability,
            identity=self._identity(user),
        )

    # -- deciding --------------------------------------------------------------------------------------------------

    def _get(self, asking: KeyRequest, id: str) -> bytes | Later:
        """The answer, at once if the key is here."""
        self._slow_down(asking)
        key = self.topic_keys.ring.find(id, self.realm.site.wall)
        if key is None:
            if self.topic_keys.exchange is None or not valid_id(id):
                raise Problem(_ENDED, problem="unknown")
            return self._get_later(asking, id)
        return self._handed(asking, key)

    async def _get_later(self, asking: KeyRequest, id: str) -> bytes:
        exchange, service = self.topic_keys.exchange, self._service()
        assert exchange is not None
        try:
            async with asyncio.timeout(PATIENCE):
                if service is not None and (group := await service.group(id)) is not None:
                    self._decide(asking, group)
                    answer = await service.wrap(id, self._public(asking), reader=asking.reader, request=asking.request)
                    if answer is not None:
                        self._count(asking, group, id)
                        return answer
                key = await exchange.find(id)
        except (StoreError, TimeoutError) as error:
            why = str(error) or "it does not answer"
            raise Problem(f"the key is not here, and others cannot be asked: {why}", problem="unavailable") from error
        if key is None:
            raise Problem(_ENDED, problem="unknown")
        self.topic_keys.took((key,), ())
        if self.topic_keys.ring.find(id, self.realm.site.wall) is None:
            raise Problem(_ENDED, problem="unknown")  # it ended meanwhile
        return self._handed(asking, key)

    def _handed(self, asking: KeyRequest, key: TopicKey) -> bytes:
        self._decide(asking, key.group)
        left = self.topic_keys.ring.left(key.id, self.realm.site.wall)
        return self._wrapped(asking, key, left)

    def _publish(self, asking: KeyRequest, topic: str, context: Context, link: str) -> bytes | Later:
        self._slow_down(asking)
        gate = asking.scope.entrance.gate
        known = Known(topic=topic, context=context, link=link, now=self.realm.site.wall)
        may = evaluate(gate.stages.ingress, known)
        if isinstance(may, Deny):
            raise self._denied(asking, topic, may)
        protection = gate.stages.key_groups.protection(known)
        if isinstance(protection, Deny):
            raise self._denied(asking, topic, protection)
        if protection is None:
            text = f"`{topic[:200]}` is not protected: publish it as it is, or name it in `keys.protect`"
            raise Problem(text, problem="invalid")
        group = protection.group
        if isinstance(asking.scope.gate.stored.readable(group.topic, group.context, asking.link), Deny):
            group = group.sealed_by(asking.reader)
        service = self._service()
        if protection.end_to_end and service is not None:
            return self._granted(asking, group, service)
        key = self.topic_keys.current(group)
        return self._wrapped(asking, key, self.topic_keys.ring.lasts(key.id, self.realm.site.wall))

    async def _granted(self, asking: KeyRequest, group: Group, service: KeyService) -> bytes:
        """From the key service, which alone knows the secret."""
        public = self._public(asking)
        try:
            async with asyncio.timeout(PATIENCE):
                answer, id = await service.grant(group, public, reader=asking.reader, request=asking.request)
        except (StoreError, TimeoutError) as error:
            why = str(error) or "it does not answer"
            raise Problem(f"the key service cannot be asked: {why}", problem="unavailable") from error
        self.topic_keys.elsewhere(id, group, orjson.loads(answer)["validMs"] / 1000)
        self._count(asking, group, id)
        return answer

    def _wrapped(self, asking: KeyRequest, key: TopicKey, seconds: float) -> bytes:
        try:
            answer = wrap(key, self._public(asking), reader=asking.reader, request=asking.request, seconds=seconds)
        except KeysError as error:
            raise Problem(str(error), problem="unknown") from error
        self._count(asking, key.group, key.id)
        return answer

    def _decide(self, asking: KeyRequest, group: Group) -> None:
        may = asking.scope.gate.stored.readable(group.topic, group.context, asking.link)
        if isinstance(may, Deny):
            raise self._denied(asking, group.topic, may, group.context)

    def _public(self, asking: KeyRequest) -> PublicKey:
        public = self._config().built.readers.get(asking.reader)
        if public is None:
            text = f"`{asking.reader}` has no public key for which a topic key could be wrapped; register one"
            raise Problem(text, problem="conflict")
        return public

    def _count(self, asking: KeyRequest, group: Group, id: str) -> None:
        self.handed += 1
        client = asking.link.subject.client
        self.topic_keys.given(id, asking.reader, *((f"client:{client}",) if client else ()))
        self.audit.handed(asking.link, group.topic, id)

    def _denied(self, asking: KeyRequest, topic: str, why: Deny, context: bytes | None = None) -> Problem:
        self.refused += 1
        asking.scope.report("key", asking.link, topic, why, context)
        details = {"rule": why.rule, "stage": why.step.value}
        text = f"denied by {why.rule}" + (f": {why.error}" if why.rule.partition(":")[0] == RULE and why.error else "")
        return Problem(text, problem="denied", details=[details])

    def _slow_down(self, asking: KeyRequest) -> None:
        if not self._buckets[asking.reader].afford(self.realm.site.now):
            raise Problem("too many requests for keys; keep those you have, and try again later", problem="unavailable")


def reading(
    scope: Scope,
    directory: Directory,
    *,
    user: str | None = None,
    client: str = "",
    level: str,
    facts: tuple[str, ...],
    address: str = "",
    listener: str = "",
    capability: Capability | None = None,
    identity: str = "",
) -> Link:
    """Over what somebody of the directory would read who is not connected."""
    known = directory.known(
        user=user,
        client=client or None,
        as_client=bool(client),
        roles=() if capability is None else capability.roles,
        groups=() if capability is None else capability.groups,
    )
    subject = Subject(
        kind="client",
        client=client,
        user=known.user,
        scope=scope.name,
        node=scope.node,
        domain=scope.gate.rules.domain,
        level=level,
        facts=facts,
        address=address,
        listener=listener,
        roles=known.roles,
        groups=known.groups,
        attributes=known.attributes if capability is None else {**capability.attributes, **known.attributes},
        capability=capability,
        identity=identity,
    )
    return Link(subject, False, PLAIN.outward)


def _object(payload: bytes) -> Mapping[str, Any]:
    try:
        request = orjson.loads(payload) if len(payload) <= LONGEST else None
    except orjson.JSONDecodeError:
        request = None
    if not isinstance(request, dict):
        raise Problem("a request is a JSON object with `request` and `keyId` or `topic`", problem="invalid")
    return request


def _text(request: Mapping[str, Any], name: str) -> str:
    text = request.get(name)
    if not isinstance(text, str):
        raise Problem(f"a request has a text `{name}`", problem="invalid")
    return text


def _topic(request: Mapping[str, Any]) -> str:
    topic = _text(request, "topic")
    if not valid_topic(topic) or topic[:1] == "$":
        raise Problem("`topic` is a topic to which clients publish", problem="invalid")
    return topic


def _marked(mark: str) -> str:
    if not valid_request(mark):
        text = "`request` has 16 to 128 letters, digits, `_` and `-`: make a random one each time"
        raise Problem(text, problem="invalid")
    return mark


def _refusal(problem: Problem, mark: str | None) -> bytes:
    rule = next((each["rule"] for each in problem.details if "rule" in each), None)
    return orjson.dumps({"request": mark, "error": str(problem), "rule": rule, "problem": problem.problem})
