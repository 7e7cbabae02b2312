"""Questions that two nodes ask each other over a link, and their answers: control packets on the link's connection.

- A question is answered over the connection that it came over, or not at all. When the connection ends, whoever has
  asked over it is told so.
- Bounds: `OPEN` questions of one end at a time, `BURST` of the other end at once and `RATE` a second after that, and
  `ANSWERING` that are being answered. What exceeds them is answered with an error.
- It knows nothing of what is asked. How long somebody waits for an answer is for whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.session import Bucket, Connection
from tidegate.wire import V5, Publish, cbor, encode

if TYPE_CHECKING:
    from tidegate.scope.node_links import LinkEnd

QUESTION: Final = "$tidegate/link/question"
ANSWER: Final = "$tidegate/link/answer"
OPEN: Final = 16  # questions of this end that wait for their answers
ANSWERING: Final = 4  # questions of the other end that are being answered
RATE: Final = 5.0  # questions a second of the other end
BURST: Final = 20.0
BUSY: Final = {"error": "too many questions at a time; ask again later"}

Values = Mapping[str, Any]
Done = Callable[[Values | None], None]
"""Called once, with the answer; None: the connection has ended."""
Answerer = Callable[["LinkEnd", str, Values, Callable[[Values], None]], None]
"""Answers a question of the other end, at once or later: the end here, what is asked, and where the answer goes."""


class LinkQuestions:
    """What one end of a link has asked, and is asked."""

    def __init__(self, end: LinkEnd) -> None:
        self.end = end
        self._number = 0
        self._asked: dict[int, Done] = {}
        self._answering = 0
        self._rate: Bucket | None = None

    # -- asks ------------------------------------------------------------------------------------------------------

    def ask(self, what: str, values: Values, done: Done) -> int | str:
        """Asks the other node; the number of the question, or why it cannot be asked."""
        if self.end.session.connection is None:
            return "there is no connection"
        if len(self._asked) >= OPEN:
            return BUSY["error"]
        self._number += 1
        if not self._send(QUESTION, [self._number, what, values]):
            return "it is too large for the other node"
        self._asked[self._number] = done
        return self._number

    def forget(self, number: int) -> None:
        """Nobody waits for this answer any more."""
        self._asked.pop(number, None)

    def ended(self) -> None:
        """The connection has ended."""
        asked, self._asked = self._asked, {}
        self._answering = 0
        for done in asked.values():
            done(None)

    # -- hears -----------------------------------------------------------------------------------------------------

    def take_answer(self, data: bytes) -> None:
        match self._read(data):
            case [int(number), dict(values)]:
                if (done := self._asked.pop(number, None)) is not None:  # else it came too late
                    done(values)
            case _:
                raise ProtocolError("an answer over a link that is none")

    def take_question(self, data: bytes) -> None:
        match self._read(data):
            case [int(number), str(what), dict(values)] if number >= 0:
                self._take(number, what, values)
            case _:
                raise ProtocolError("a question over a link that is none")

    def _take(self, number: int, what: str, values: Values) -> None:
        answerer, site, connection = self.end.links.answerer, self.end.site, self.end.session.connection
        if self._rate is None:
            self._rate = Bucket(RATE, BURST, site.now)
        if answerer is None or self._answering >= ANSWERING or not self._rate.afford(site.now):
            self._send(ANSWER, [number, BUSY])
            return
        self._answering += 1

        def reply(answer: Values) -> None:
            if self.end.session.connection is connection is not None:
                self._answering -= 1
                if not self._send(ANSWER, [number, answer]):
                    self._send(ANSWER, [number, {"error": "the answer is too large"}])

        answerer(self.end, what, values, reply)

    @staticmethod
    def _read(data: bytes) -> object:
        try:
            return cbor.plain(data)
        except MalformedPacket as error:
            raise ProtocolError(f"a control packet that cannot be read: {error}") from error

    def _send(self, topic: str, values: list[Any]) -> bool:
        session = self.end.session
        connection: Connection | None = session.connection
        packet = encode(Publish(topic=topic, payload=cbor.canonical(values), qos=0), V5)
        if connection is None or (session.maximum and len(packet) > session.maximum):
            return False
        session.send(packet)
        return True
