"""The pipeline's client of the node: it requests keys and documents, and publishes records.

Requests go over the control socket, in pieces that fit its lines. If the node is unreachable, the client waits: nothing
is decided without the node.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from tidegate.errors import PipelineError, Problem, TidegateError
from tidegate.net.control_socket import ask
from tidegate.pipeline import decrypt, protect
from tidegate.pipeline.ledger import Place
from tidegate.pipeline.protect import Wanted
from tidegate.session.context import Context

ASKS: Final = 500  # questions at a time
ROOM: Final = 700_000  # bytes of base64 at a time
TOO_LARGE: Final = "too-large"  # stands for a rule where a record does not fit into a request
PATIENCE: Final = 30.0  # seconds for an answer
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
FULL_PAUSE: Final = 0.2  # seconds, while the queue of a subscriber is full
NAMED: Final = 100  # subscribers that lost records, by name
OTHERS: Final = "others"
FRESH: Final = 30.0  # seconds for which an answer about a key counts at most
REMEMBERED: Final = 100_000  # answers
KEYS: Final = "keys"  # the rule that denies what is under a key that is not there any more

log = structlog.get_logger("tidegate.pipeline")
T = TypeVar("T")
K = TypeVar("K", "Wanted", decrypt.KeyRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    place: Place
    id: str
    topic: str
    payload: bytes
    context: bytes = field(repr=False)
    origin: str | None  # the topic of the message that it was made of
    at: float  # when that was received
    scores: Mapping[str, float]

    @property
    def weight(self) -> int:
        return (len(self.payload) + len(self.context)) * 4 // 3 + 6 * len(self.topic) + 500


@dataclass(slots=True)
class Outcome:
    """What became of some records: how many the node took, and how many each rule denied."""

    published: int = 0
    denied: Counter[str] = field(default_factory=Counter)


class StaleKeys(PipelineError):
    """The keys that records were sealed with are not there any more: they have to be sealed again."""


class NodeClient:
    """Client of one node. Calls `waiting` with the reason while it waits, and with None afterwards.

    `lost`: how many records subscribers have lost that the node did not wait for any longer.
    """

    def __init__(
        self,
        socket: Path,
        *,
        waiting: Callable[[str | None], None] = lambda why: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._socket = socket
        self._waiting = waiting
        self._stopped = stopped
        self.lost: Counter[str] = Counter()
        self._known: dict[Wanted, tuple[float, protect.Answer]] = {}

    def keys(self, wanted: Mapping[Wanted, int], *, again: Iterable[str] = ()) -> list[protect.Answer]:
        """For each: the key that seals it, and how often it will. `again`: keys of a first attempt."""
        now = time.monotonic()
        missing = [each for each in wanted if (known := self._known.get(each)) is None or known[0] < now]
        ids = list(again)

        def question(each: Wanted) -> dict[str, Any]:
            known = {"keyIds": ids} if ids else {}
            return {"topic": each.target, "from": each.origin or None, "count": wanted[each], **known}

        for each, answer in self._answers("pipeline_keys", missing, question, lambda each: each.target + each.origin):
            self._known[each] = (now + min(FRESH, answer.get("seconds", FRESH)), _key(each, answer))
        answers = [self._known[each][1] for each in wanted]
        # What has ended is asked for again anyway, and a secret is in memory no longer than it must be.
        self._known = {each: known for each, known in self._known.items() if known[0] >= now}
        if len(self._known) > REMEMBERED:
            self._known.clear()
        return answers

    def forget(self) -> None:
        self._known.clear()

    def open(self, key_requests: Sequence[decrypt.KeyRequest]) -> list[decrypt.Answer]:
        def question(each: decrypt.KeyRequest) -> dict[str, Any]:
            return {"topic": each.topic, "keyId": each.key_id}

        answers = []
        for each, answer in self._answers("pipeline_open", key_requests, question, lambda each: each.topic):
            under = Context.decode(each.context).under or each.topic
            secret = answer.get("secret")
            denied = None if secret else f"{answer.get('why') or 'its key is not here'} ({answer.get('denied')})"
            answers.append(
                decrypt.Answer(asked=each, under=under, secret=b64decode(secret) if secret else None, denied=denied)
            )
        return answers

    def _answers(
        self, command: str, items: Iterable[K], question: Callable[[K], dict[str, Any]], names: Callable[[K], str]
    ) -> Iterator[tuple[K, Mapping[str, Any]]]:
        """Asks about all of them, a few at a time. `names`: the texts of unknown length in a question."""
        for piece in _pieces(items, lambda each: 6 * len(names(each)) + 2 * len(each.context) + 300):
            contexts = _Contexts()
            asks = [{**question(each), "context": contexts.index(each.context)} for each in piece]
            reply = self._ask(command, contexts=contexts.texts, asks=asks)
            yield from zip(piece, reply["answers"], strict=True)

    def publish(self, records: Iterable[Outgoing]) -> Iterator[tuple[Sequence[Outgoing], Outcome]]:
        """Publishes them in order; each piece is told when it is safe with the node.

        While the queue of a subscriber is full it waits, as long as the node does.
        """
        for piece in _pieces(records, lambda record: record.weight):
            if piece[0].weight > ROOM:  # it is alone
                yield piece, Outcome(denied=Counter({TOO_LARGE: 1}))
                continue
            left, full = piece, False
            while left:
                reply = self._published(left)
                denied = Counter(each["rule"] for each in reply["denied"])
                if KEYS in denied:
                    raise StaleKeys("the keys of this batch are not there any more")
                self._count(reply["lost"])
                taken, left = left[: reply["taken"]], left[reply["taken"] :]
                if taken:
                    yield taken, Outcome(published=reply["published"], denied=denied)
                if left:
                    full = True
                    why = f"the queue of the subscriber {reply['awaited']} is full"
                    self._waiting(why)
                    self._pause(FULL_PAUSE, why)
            if full:
                self._waiting(None)

    def _published(self, records: Sequence[Outgoing]) -> Any:
        contexts = _Contexts()
        said = [
            {
                "id": record.id,
                "topic": record.topic,
                "payload": b64encode(record.payload).decode(),
                "context": contexts.index(record.context),
                "scores": dict(record.scores) or None,
                "from": record.origin,
                "at": record.at,
            }
            for record in records
        ]
        return self._ask("pipeline_publish", records=said, contexts=contexts.texts)

    def _count(self, lost: Mapping[str, int]) -> None:
        for client, count in lost.items():
            name = client if client in self.lost or len(self.lost) < NAMED else OTHERS
            if name not in self.lost:
                log.warning(
                    "a subscriber loses records: its queue has been full for longer than `pipeline.patience`",
                    client=name,
                    remedy="let it read faster, or end its session if nobody needs it",
                )
            self.lost[name] += count

    def documents(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Rules that are administered over HTTP. TidegateError if the node is away."""
        reply = ask(self._socket, "pipeline_documents", timeout=PATIENCE)
        return [(document["id"], document["body"]) for document in reply["documents"]]

    def _ask(self, command: str, **arguments: Any) -> Any:
        """The answer, whenever it comes. PipelineError if the node says that this cannot be, or we are to stop."""
        pause = FIRST_PAUSE
        while True:
            try:
                reply = ask(self._socket, command, timeout=PATIENCE, **arguments)
            except Problem as problem:
                if problem.problem not in ("unavailable", "uncertain"):
                    raise PipelineError(f"the node refused {command}: {problem}") from problem
                why = str(problem)
            except TidegateError as error:
                why = str(error)
            else:
                if pause > FIRST_PAUSE:
                    self._waiting(None)
                return reply
            if pause == FIRST_PAUSE:
                log.warning("waiting for the node", reason=why)
            self._waiting(why)
            self._pause(pause, why)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _pause(self, seconds: float, why: str) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._stopped():
                raise PipelineError(f"stopped while waiting for the node: {why}")
            time.sleep(0.05)


class _Contexts:
    """Contexts of a request, each said once."""

    def __init__(self) -> None:
        self._indexes: dict[bytes, int] = {}

    def index(self, context: bytes) -> int:
        return self._indexes.setdefault(context, len(self._indexes))

    @property
    def texts(self) -> list[str]:
        return [b64encode(context).decode() for context in self._indexes]


def _key(wanted: Wanted, answer: Mapping[str, Any]) -> protect.Answer:
    if "denied" in answer:
        return protect.Answer(wanted=wanted, denied=answer["denied"])
    if "open" in answer:
        return protect.Answer(wanted=wanted)
    return protect.Answer(wanted=wanted, key_id=answer["keyId"], secret=b64decode(answer["secret"]))


def _pieces(items: Iterable[T], weigh: Callable[[T], int]) -> Iterator[list[T]]:
    """A few at a time, so that a request fits into a line."""
    piece: list[T] = []
    weight = 0
    for item in items:
        heavy = weigh(item)
        if piece and (len(piece) >= ASKS or weight + heavy > ROOM):
            yield piece
            piece, weight = [], 0
        piece.append(item)
        weight += heavy
    if piece:
        yield piece
