"""Asking trusted neighbours about a certificate that this node does not know (SEC-REDS, 2.4, figures 2.8 and 2.9).

A request goes to all trusted neighbours, and from each to its own, but not back. Who knows the certificate replies;
the reply goes back the way the request has come. What comes first counts, for as long as both nodes say; then, or when
it is withdrawn, whoever has come with that certificate has to go.

Invariants
- A node passes a request on once, whichever way it comes, and never to a node that it has been to.
- A reply counts if it answers a request that was sent over that very link, with the stack that was sent, and once.
- Nobody is believed about a domain that the link does not speak for, on no node of the way. Nobody vouches for the
  domain of this node.
- Only the link that a word has come over can take it back. What was said, passed on and believed is stored, so that it
  can be taken back after a restart of any of the nodes.
- Bounds: requests of one neighbour by rate, this node's own by rate; certificates nobody knows are not asked about
  again for a while.

Who is vouched for here, and what becomes of whom nobody vouches for any more, is for the node (`judge`, `on_end`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import orjson

from tidegate.bounded import Bounded
from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.policy.certificate_packets import (
    ID,
    MOST_NODES,
    CertificateReply,
    CertificateRequest,
    Vouched,
    decode_withdrawal,
    encode_withdrawal,
)
from tidegate.policy.trust_list import fingerprint
from tidegate.session import Bucket, Site, Timer
from tidegate.session.packet_costs import SIGNATURE
from tidegate.wire import cbor

if TYPE_CHECKING:
    from tidegate.scope.node_links import LinkEnd, NodeLinks

REQUEST: Final = "$tidegate/link/certificate/request"
REPLY: Final = "$tidegate/link/certificate/reply"
WITHDRAWAL: Final = "$tidegate/link/certificate/withdrawal"
TOPICS: Final = frozenset((REQUEST, REPLY, WITHDRAWAL))
ROOM: Final = "certificates"
"""In the store: what was said of certificates, by a list in JSON that says what kind it is."""
REMEMBERED: Final = 60.0  # seconds that a request is known: it is not passed on again, and answers are taken
RATE: Final = 5.0  # requests a second of one neighbour
BURST: Final = 50.0
OWN_RATE: Final = 10.0  # requests a second of this node
OWN_BURST: Final = 50.0
PATIENCE: Final = 2.0  # seconds that are waited for an answer
UNKNOWN: Final = 10.0  # seconds that a certificate which nobody knows is not asked about again
KEPT: Final = 10_000  # certificates of which it is remembered who vouches for them, or did not

Judge = Callable[[bytes], Vouched | None]
"""Whether this node knows a certificate; its words, without a time."""
Done = Callable[[], None]


@dataclass(slots=True, eq=False)
class _Passed:
    """A request that was sent, or passed on."""

    source: str  # the link that it came over; empty: this node has asked
    stack: tuple[str, ...]  # as it was sent, this node included
    certificate: str  # its fingerprint
    until: float
    sent: set[str] = field(default_factory=set)  # over which links
    answered: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Word:
    """A neighbour's word for a certificate."""

    vouched: Vouched
    through: str  # the link that it came over; empty: this node's own
    until: float
    to: set[str] = field(default_factory=set)  # the links that it was given to
    certificate: bytes = b""  # of this node's own


class CertificateRequests:
    """Of all links of a node."""

    def __init__(self, site: Site, links: NodeLinks) -> None:
        self.site = site
        self.judge: Judge = lambda certificate: None
        self.lifetime = 0.0  # seconds that a neighbour's word counts here
        self.patience = PATIENCE
        self.on_end: Callable[[str], None] = lambda fingerprint: None
        """Called with a certificate that nobody vouches for any more."""
        self._links = links
        self._number = 0  # of requests of this node
        self._passed: dict[bytes, _Passed] = {}  # the oldest first
        self._asked: dict[str, tuple[Timer, list[Done]]] = {}  # certificates that are being asked about
        self._unknown: Bounded[str, float] = Bounded(KEPT)  # until when
        self._words: dict[str, tuple[_Word, Timer]] = {}  # what counts here
        self._given: dict[tuple[str, str], _Word] = {}
        """What was said to others, or passed on to them: by certificate, and by the link that it came over."""
        self._withdrawn: dict[str, set[str]] = {}  # what links that were down have still to be told
        self._rates: dict[str, Bucket] = {}
        self._rate: Bucket | None = None

    # -- asked here ------------------------------------------------------------------------------------------------

    def vouched(self, certificate: bytes) -> Vouched | None:
        """Who somebody is by the word of a neighbour that counts now."""
        found = self._words.get(fingerprint(certificate)) if self._words else None
        return None if found is None or found[0].until <= self.site.now else found[0].vouched

    def ask(self, certificate: bytes, done: Done) -> None:
        """Asks the trusted neighbours. `done` is called when one of them has vouched for it, or none did in time."""
        name, site = fingerprint(certificate), self.site
        if name in self._asked:
            self._asked[name][1].append(done)
            return
        if self._rate is None:
            self._rate = Bucket(OWN_RATE, OWN_BURST, site.now)
        ends = [end for end in self._links.ends.values() if end.trusted]
        if not ends or self._unknown.get(name, 0.0) > site.now or not self._rate.afford(site.now):
            done()
            return
        self._number += 1
        id = blake2b(f"{site.origin.node} {self._number} {site.random_id()}".encode(), digest_size=ID).digest()
        request = CertificateRequest(id=id, certificate=certificate, stack=(site.origin.node,))
        self._asked[name] = (site.timers.at(site.now + self.patience, self._late, name), [done])
        self._send(request, ends, "")

    def _late(self, name: str) -> None:
        self._unknown[name] = self.site.now + UNKNOWN
        self._settle(name)

    def _settle(self, name: str) -> None:
        asked = self._asked.pop(name, None)
        if asked is not None:
            timer, waiting = asked
            self.site.timers.cancel(timer)
            for done in waiting:
                done()

    def _send(self, request: CertificateRequest, ends: list[LinkEnd], source: str) -> None:
        passed = _Passed(source, request.stack, fingerprint(request.certificate), self.site.now + REMEMBERED)
        passed.sent.update(end.link.name for end in ends)
        self._remember(request, passed)
        for end in ends:
            end.control.tell(REQUEST, request.encode())

    def _remember(self, request: CertificateRequest, passed: _Passed) -> None:
        while self._passed and next(iter(self._passed.values())).until <= self.site.now:
            del self._passed[next(iter(self._passed))]
        self._passed[request.id] = passed

    # -- heard -----------------------------------------------------------------------------------------------------

    def take(self, end: LinkEnd, topic: str, data: bytes) -> None:
        """The other end of a link says something on one of `TOPICS`. ProtocolError if that cannot be read."""
        try:
            if topic == REQUEST:
                self._take_request(end, CertificateRequest.decode(data))
            elif topic == REPLY:
                self._take_reply(end, CertificateReply.decode(data))
            else:
                self._take_withdrawal(end, decode_withdrawal(data))
        except MalformedPacket as error:
            raise ProtocolError(f"a control packet about a certificate that cannot be read: {error}") from error

    def _take_request(self, end: LinkEnd, request: CertificateRequest) -> None:
        site, name = self.site, end.link.name
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = Bucket(RATE, BURST, site.now)
        if not rate.afford(site.now):
            end.refused("a request for a certificate: too many at a time")
            return
        here, sender = site.origin.node, end.greeted
        if not end.trusted or sender is None or request.stack[-1] != sender.node or here in request.stack:
            end.refused("a request for a certificate: its way here is not the one that it names")
            return
        if request.id in self._passed:
            return  # it has come another way before
        site.effort += SIGNATURE
        said = self.judge(request.certificate)
        if said is not None:
            passed = _Passed(name, request.stack, fingerprint(request.certificate), site.now + REMEMBERED)
            self._remember(request, passed)
            said = replace(said, domain=end.scope.gate.rules.domain, seconds=self.lifetime)
            if self._give(end, passed, said, "", request.certificate):
                self._reply(end, request.id, said, request.stack)
            return
        stack = (*request.stack, here)
        if len(stack) > MOST_NODES:
            return
        ends = [
            each
            for each in self._links.ends.values()
            if each is not end and each.trusted and each.greeted is not None and each.greeted.node not in stack
        ]
        self._send(replace(request, stack=stack), ends, name)

    def _take_reply(self, end: LinkEnd, reply: CertificateReply) -> None:
        site, name, said = self.site, end.link.name, reply.vouched
        passed = self._passed.get(reply.id)
        who = f"a word for {said.name[:100]}@{said.domain[:100]}"
        if passed is None or passed.until <= site.now or name not in passed.sent or reply.stack != passed.stack:
            end.refused(f"{who}: nobody has asked")
            return
        if name in passed.answered:
            end.refused(f"{who}: it has been said before")
            return
        passed.answered.add(name)
        if passed.source and len(passed.answered) > 1:
            return  # somebody else was quicker, and whoever has asked has been told
        rules = end.scope.gate.rules
        if said.domain in rules.formerly | {rules.domain}:
            end.refused(f"{who}: nobody else vouches for the domain of this node")
            return
        if not end.trusted or said.domain not in end.plans.domains:
            end.refused(f"{who}: this link does not speak for that domain")
            return
        if passed.source:
            source = self._links.ends.get(passed.source)
            if source is not None and source.trusted:
                if self._give(source, passed, said, name):
                    self._reply(source, reply.id, said, reply.stack[:-1])
            return
        if passed.certificate in self._words and self._words[passed.certificate][0].through != name:
            return  # somebody else was quicker
        self._believe(passed.certificate, said, name)

    def _believe(self, certificate: str, said: Vouched, through: str) -> None:
        site = self.site
        self._end(certificate, told=False)
        seconds = min(self.lifetime, said.seconds)
        if seconds > 0 and len(self._words) < KEPT:
            word = _Word(said, through, site.now + seconds)
            self._words[certificate] = (word, site.timers.at(word.until, self._end, certificate))
            owner = None if said.owner is None else list(said.owner)
            self._keep("believed", certificate, value=[through, self._wall(word), said.domain, said.name, owner])
        self._settle(certificate)

    def _give(self, end: LinkEnd, passed: _Passed, said: Vouched, through: str, certificate: bytes = b"") -> bool:
        """It will be heard over this link, and can be taken back there. False: there are too many already."""
        until = self.site.now + said.seconds
        if len(self._given) >= KEPT:
            for old in [key for key, word in self._given.items() if word.until <= self.site.now]:
                self._given.pop(old)
                self._keep("given", *old)
            if len(self._given) >= KEPT:
                return False
        key, name = (passed.certificate, through), end.link.name
        word = self._given.get(key)
        if word is None:
            word = self._given[key] = _Word(said, through, until, certificate=certificate)
        word.until = max(word.until, until)
        word.to.add(name)
        self._keep("given", *key, value=[self._wall(word), sorted(word.to), word.certificate])
        if passed.certificate in self._withdrawn.get(name, ()):
            self._withdrawn[name].remove(passed.certificate)
            self._keep("withdrawn", name, passed.certificate)
        return True

    def _reply(self, end: LinkEnd, id: bytes, said: Vouched, stack: tuple[str, ...]) -> None:
        if said.owner is not None:
            end.control.preferences.tell_owner((said.domain, said.owner[0]), said.owner[1])
        end.control.tell(REPLY, CertificateReply(id=id, vouched=said, stack=stack).encode())

    # -- withdrawn -------------------------------------------------------------------------------------------------

    def _take_withdrawal(self, end: LinkEnd, certificate: str) -> None:
        name = end.link.name
        believed = self._words.get(certificate)
        ours = believed is not None and believed[0].through == name
        theirs = (certificate, name) in self._given
        if not ours and not theirs:
            end.refused(f"the withdrawal of its word for {certificate}, which it has not given")
            return
        if ours:
            self._end(certificate)
        if theirs:
            self._withdraw(certificate, name)

    def _withdraw(self, certificate: str, through: str) -> None:
        """Whoever was given this word is told that it does not count any more."""
        word = self._given.pop((certificate, through))
        self._keep("given", certificate, through)
        for name in word.to if word.until > self.site.now else ():
            end = self._links.ends.get(name)
            if end is not None and end.trusted:
                end.control.tell(WITHDRAWAL, encode_withdrawal(certificate))
            elif end is not None:
                self._withdrawn.setdefault(name, set()).add(certificate)
                self._keep("withdrawn", name, certificate, value=[])

    def _end(self, certificate: str, *, told: bool = True) -> None:
        """What was believed of it does not count any more."""
        found = self._words.pop(certificate, None)
        if found is not None:
            self.site.timers.cancel(found[1])
            self._keep("believed", certificate)
            if told:
                self.on_end(certificate)

    def review(self) -> None:
        """Others are trusted here now, or speak for domains, or are linked: what does not hold any more ends."""
        for (certificate, through), given in list(self._given.items()):
            if given.certificate and self.judge(given.certificate) is None:
                self._withdraw(certificate, through)
        for certificate, (word, _) in list(self._words.items()):
            end = self._links.ends.get(word.through)
            if end is None or (end.trusted and word.vouched.domain not in end.plans.domains):
                self._end(certificate)

    def opened(self, end: LinkEnd) -> None:
        """A neighbour has connected: it is told what was withdrawn while it was away."""
        if end.trusted:
            for certificate in self._withdrawn.pop(end.link.name, set()):
                self._keep("withdrawn", end.link.name, certificate)
                end.control.tell(WITHDRAWAL, encode_withdrawal(certificate))

    # -- over a restart --------------------------------------------------------------------------------------------

    def _wall(self, word: _Word) -> float:
        return self.site.wall + word.until - self.site.now

    def _keep(self, *key: str, value: list[object] | None = None) -> None:
        """`value`: None: nothing any more."""
        self.site.store.keep(ROOM, orjson.dumps(key).decode(), None if value is None else cbor.canonical(value))

    def restore(self, records: Mapping[str, bytes]) -> None:
        """What the store kept. What does not hold any more ends with the next `review`."""
        site = self.site
        value: Any
        for name, data in records.items():
            key, value = orjson.loads(name), cbor.plain(data)
            match key:
                case ["given", certificate, through]:
                    wall, to, own = value
                    nobody = Vouched(domain="?", name="?", seconds=0.0)
                    word = _Word(nobody, through, site.now + wall - site.wall, set(to), own)
                    self._given[certificate, through] = word
                case ["believed", certificate]:
                    through, wall, domain, who, owner = value
                    said = Vouched(domain=domain, name=who, seconds=0.0, owner=owner and (owner[0], owner[1]))
                    word = _Word(said, through, site.now + wall - site.wall)
                    self._words[certificate] = word, site.timers.at(word.until, self._end, certificate)
                case ["withdrawn", link, certificate] if link in self._links.ends:
                    self._withdrawn.setdefault(link, set()).add(certificate)
                case _:
                    self._keep(*key)
