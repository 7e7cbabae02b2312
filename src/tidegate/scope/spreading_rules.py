"""Rules of publishers on their way through trusted nodes (SEC-REDS, 2.5, figure 2.13; semantics, *Publisher rules*).

What a publisher says here goes to all trusted neighbours. What comes from one, and is newer than what is known, counts
here too and goes on to the others. A neighbour that connects later is told everything. Nothing has to be remembered of
what was told: nodes take the newest, and what they know already goes no further.

- A neighbour brings rules of the publishers of those domains that it speaks for, as it brings their messages.
- Each neighbour has a share of its own of what is kept. What exceeds it is refused and audited, and does not displace
  what others have brought.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.policy.publisher_rules import Book
from tidegate.policy.travelling_rules import TravellingRules, home_of, newer, publisher, travelling
from tidegate.session.packet_costs import CONDITION

if TYPE_CHECKING:
    from tidegate.scope.node_links import LinkEnd, NodeLinks
    from tidegate.scope.stored_publisher_rules import Publishers

RULES: Final = "$tidegate/link/rules"
SHARE: Final = 2_000  # rules, and publishers, of one neighbour
PIECE: Final = 50  # publishers whose rules are told in one go


class SpreadingRules:
    """Between what publishers have said here and the links of a node."""

    def __init__(self, publishers: Publishers, links: NodeLinks) -> None:
        self._publishers = publishers
        self._links = links
        publishers.on_change = self._changed

    # -- told ------------------------------------------------------------------------------------------------------

    def _changed(self, key: str) -> None:
        for end in self._links.ends.values():
            self._tell(end, key)

    def tell_all(self, end: LinkEnd) -> None:
        """A neighbour has connected."""
        if end.trusted:
            end.site.unfinished.append(self._told(end).__next__)

    def _told(self, end: LinkEnd) -> Iterator[bool]:
        connection = end.session.connection
        for number, key in enumerate(self._publishers.keys(), 1):
            while end.session.shut and end.session.connection is connection is not None:
                yield True  # it takes nothing at the moment
            if end.session.connection is not connection:
                break
            self._tell(end, key)
            if number % PIECE == 0:
                yield True
        yield False

    def _tell(self, end: LinkEnd, key: str) -> None:
        said = self._publishers.said(key)
        if said is None or not end.trusted:
            return
        book, through, beliefs = said
        rules = end.scope.gate.rules
        if through == end.link.name:  # it has told us
            return
        home = home_of(key, rules.domain)
        if not through and home is not None and home[1] == rules.domain:
            beliefs = {name: plain for name, domain in rules.domains.items() if (plain := domain.plain)}
        found = travelling(key, book, rules.domain, beliefs)
        if found is not None:
            end.control.tell(RULES, found.encode(self._publishers.now))

    # -- heard -----------------------------------------------------------------------------------------------------

    def take(self, end: LinkEnd, data: bytes) -> None:
        """The other end says what a publisher says. ProtocolError if that cannot be read."""
        end.site.effort += 100 + len(data) // 16
        try:
            found = TravellingRules.decode(data, self._publishers.now)
        except MalformedPacket as error:
            raise ProtocolError(f"rules of a publisher that cannot be read: {error}") from error
        who = f"{found.user[:100]}@{found.domain[:100]}"
        if not end.trusted or found.domain not in end.plans.domains:
            end.refused(f"rules of {who}: this link does not speak for that domain")
            return
        key = found.owner(end.scope.gate.rules.domain)
        known = self._publishers.said(key)
        if known is not None and not newer(found.book, known[0]):
            return
        if why := self._excess(end.link.name, found.book, known):
            end.refused(f"rules of {who}: {why}")
            return
        end.site.effort += CONDITION * sum(len(rule.when or "") for rule in found.book.rules.values())
        self._publishers.told(key, found.book, end.link.name, found.beliefs)
        end.scope.audit.ruled(publisher(found, end.session.inward.subject), found.book.sequence, found.book.rules)

    def _excess(self, through: str, book: Book, known: tuple[Book, str, Mapping[str, Any]] | None) -> str:
        """Why there is no room for what a neighbour brings; empty: there is."""
        count = self._publishers.counted(through)
        own = known is not None and known[1] == through
        rules = count.rules + len(book.rules) - (len(known[0].rules) if known is not None and own else 0)
        if rules > SHARE and book.rules:
            return f"{SHARE} rules of publishers may come over one link"
        if not own and count.publishers >= SHARE:
            return f"rules of {SHARE} publishers may come over one link"
        return ""
