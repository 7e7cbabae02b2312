"""What two nodes tell each other over a link beside messages, on topics that are never routed.

- An owner's preferences: see `preference_changes`.
- The certificates of nodes that have signed messages: see `link_signatures`.
- The end of the retained messages that a link carries when it opens: what came over it before and was not among them
  is gone at the other side.
- Rules of publishers, who knows a certificate, which nodes are in a group: see `spreading_rules`,
  `certificate_requests` and `neighbourhood`.
- What is subscribed to on either side: see `spreading_subscriptions`.
- Questions and answers: see `link_questions`.
- Which connection carries: see `standby_connections`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tidegate.errors import ProtocolError
from tidegate.scope import preference_changes, vocabulary
from tidegate.scope.certificate_requests import TOPICS as CERTIFICATES
from tidegate.scope.link_questions import ANSWER, QUESTION, LinkQuestions
from tidegate.scope.link_signatures import SIGNER
from tidegate.scope.neighbourhood import STATE
from tidegate.scope.preference_changes import PreferenceChanges
from tidegate.scope.seen_ids import Id
from tidegate.scope.spreading_rules import RULES
from tidegate.scope.spreading_subscriptions import WANTED
from tidegate.scope.vocabulary import KNOWN
from tidegate.session import Message
from tidegate.topics import matches
from tidegate.wire import V5, Publish, encode

if TYPE_CHECKING:
    from tidegate.scope.node_links import LinkEnd, NodeLinks

PREFIX: Final = "$tidegate/link/"
RETAINED: Final = f"{PREFIX}retained"
DEFAULT: Final = f"{PREFIX}default"
OF_MESSAGES: Final = frozenset((RETAINED, DEFAULT))
"""What a node that is not trusted is told and may tell; of the end of what is retained only if it never is."""
REPEATED: Final = 32 * 2**20  # bytes of retained topics that are remembered until the end mark
_ENTRY: Final = 100  # bytes of a topic beside its text
ROOM_BESIDE: Final = 100  # bytes of a control packet beside what it says
PASSED_OVER: Final = 100_000
"""Retained messages that are remembered until the end mark, because they may be here under another name."""
PIECE: Final = 200  # retained messages looked at in one go


class LinkControl:
    """What one end of a link has told the other, and is told."""

    def __init__(self, end: LinkEnd, links: NodeLinks) -> None:
        self.end = end
        self.links = links
        self.questions = LinkQuestions(end)
        self.preferences = PreferenceChanges(end, links)
        self._signers: dict[bytes, bytes] = {}  # certificates of nodes that sign, by their digests, that it has to know
        self._repeated: set[str] | None = None  # retained topics that have come since the link has opened
        self._repeated_bytes = 0
        self._passed_over: set[Id] = (
            set()
        )  # ids of retained messages that are here, but not under the name they came by
        self._missing = False  # one of them was here under a name that is gone
        self._introduced = False  # the other node has said what it knows

    # -- told ------------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """There is a new connection."""
        self.questions.ended()
        self.preferences.opened()
        self._repeated, self._repeated_bytes = set(), 0
        self._passed_over, self._missing = set(), False
        self._introduced = False

    def tell_signer(self, digest: bytes, certificate: bytes) -> None:
        """A message is about to leave that the holder of a certificate has signed."""
        if digest not in self._signers:
            self._signers[digest] = certificate
            self.send(SIGNER, certificate)

    def tell_signers(self) -> None:
        """There is a new connection: before anything else."""
        for certificate in self._signers.values():
            self.send(SIGNER, certificate)

    def retained_sent(self) -> bool:
        """All retained messages have been handed to the session; True while some of them wait."""
        session = self.end.session
        if session.connection is not None and session.queued:
            return True
        self.send(RETAINED, b"")
        return False

    def tell(self, topic: str, data: bytes) -> None:
        """Something that the other node may hear or not: what is too large for it is not sent."""
        if not self.end.session.maximum or len(data) + ROOM_BESIDE <= self.end.session.maximum:
            self.send(topic, data)

    def send(self, topic: str, payload: bytes) -> None:
        session = self.end.session
        if self.end.untrusted and topic not in OF_MESSAGES:
            return  # nothing but messages travels
        if session.connection is not None and self.end.link.broker is None:  # a foreign broker would publish it
            session.send(encode(Publish(topic=topic, payload=payload, qos=0), V5))

    # -- hears -----------------------------------------------------------------------------------------------------

    def take(self, topic: str, payload: bytes) -> None:
        """The other node says something on one of these topics."""
        if self.end.untrusted and (topic not in OF_MESSAGES or (topic == RETAINED and self.end.link.trusted)):
            self.end.refused(f"`{topic[:100]}`: it is not trusted")
        elif topic == preference_changes.TOPIC:
            self.preferences.take(payload)
        elif topic == RETAINED:
            repeated, self._repeated = self._repeated, None
            if repeated is not None:
                self.end.site.unfinished.append(self._forgotten(repeated).__next__)
        elif topic == RULES:
            self.links.spreading.take(self.end, payload)
        elif topic == WANTED:
            self.links.subscriptions.take(self.end, payload)
        elif topic == SIGNER:
            self.links.signatures.take(self.end, payload)
        elif topic == STATE:
            self.links.neighbourhood.take(self.end, payload)
        elif topic in CERTIFICATES:
            self.links.certificates.take(self.end, topic, payload)
        elif topic == KNOWN:
            if self._introduced:  # all preferences are looked at for it
                self.end.refused("the names of what it knows: it has said them")
            else:
                self._introduced = True
                vocabulary.take(self.end, payload)
        elif topic == QUESTION:
            self.questions.take_question(payload)
        elif topic == ANSWER:
            self.questions.take_answer(payload)
        elif topic == DEFAULT:
            self.end.told_of_default(payload)
        else:
            raise ProtocolError(f"nothing is known of `{topic[:100]}` on a link")

    @property
    def remembered(self) -> int:
        """Bytes of the retained topics that are remembered until the end mark."""
        return self._repeated_bytes

    def came_retained(self, topic: str) -> None:
        """A retained message has come over this link."""
        repeated = self._repeated
        if repeated is not None and topic not in repeated:
            repeated.add(topic)
            self._repeated_bytes += len(topic) + _ENTRY
            if self._repeated_bytes > REPEATED:  # it never comes to an end: nothing is dropped then
                self._repeated, self._repeated_bytes = None, 0

    def passed_over(self, id: Id) -> None:
        """A retained message that has been here was not taken, and this name has none or another one."""
        if self._repeated is not None and len(self._passed_over) < PASSED_OVER:
            self._passed_over.add(id)

    def gone(self, id: Id) -> None:
        """A retained message is gone under the name that it had here. Whether it has come under another one meanwhile
        is seen at the end mark."""
        self._missing = self._missing or id in self._passed_over

    def forget_retained(self, gone: Iterable[str], wanted: Collection[str]) -> None:
        """These filters are not wanted of the other side any more: what it retains of them is not told from now on."""
        self.end.site.unfinished.append(self._unwanted(tuple(gone), wanted).__next__)

    def _unwanted(self, gone: tuple[str, ...], wanted: Collection[str]) -> Iterator[bool]:
        scope, far = self.end.scope, self.end.far
        for filter in gone:
            for number, (topic, message) in enumerate(list(scope.retained.matching(filter)), 1):
                path = scope.gate.attributes.context(message).path
                if path and path[-1] == far and not any(matches(each, topic) for each in wanted):
                    scope.retained.drop(topic)
                    self.end.plans.gone(message)
                if number % PIECE == 0:
                    yield True
        yield False

    def _forgotten(self, repeated: set[str]) -> Iterator[bool]:
        """Lets go of retained messages that came over this link and are not there any more, a piece at a time."""
        scope, far = self.end.scope, self.end.far
        gone: list[Message] = []
        for number, (topic, message) in enumerate(scope.retained.matching("#"), 1):
            path = scope.gate.attributes.context(message).path
            if path and path[-1] == far and topic not in repeated:
                gone.append(message)
            if number % PIECE == 0:
                yield True
        for message in gone:
            if scope.retained.get(message.topic) is message:
                scope.retained.drop(message.topic)
                self.end.plans.gone(message)
        if self._missing:  # its id would still have been known when it came under the name that it has now
            self._open_anew()
        yield False

    def _open_anew(self) -> None:
        """What is retained has to cross once more: both ends make another connection, as when what crosses changes."""
        self.end.agreed = ()
        for changed in self.links.on_change:
            changed()
