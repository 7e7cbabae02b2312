"""Which cached plans a changed subscription concerns: those are forgotten, and made anew for the next message.

Whoever changes a subscription pays for that, and for large plans that have to be compiled again because of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.session import Session
from tidegate.session.packet_costs import TARGET
from tidegate.topics import share

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

TOUCH = 100_000  # cached topics looked at per turn because of changed subscriptions, unless one filter costs more
SMALL_PLANS = 32  # targets of plans that a change of a subscription makes necessary to compile again for nothing
TOUCHED = 2  # microseconds to forget the plans of one filter
MATCHED = 5  # and to look whether a session has a subscription for one topic
FEW = 100  # subscriptions of a session that need no such look


class ForgottenPlans:
    """Forgets plans of one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.site = scope.site
        self._touched = 0  # cached topics looked at in this turn
        self._touched_at = -1.0

    def forget_session(self, session: Session) -> None:
        """It speaks another version or has other limits than before: plans that name it are made anew.

        This is not done in pieces: a plan that is left over would send over another connection than it was made for.
        Whoever comes back again and again with many subscriptions pays for it.
        """
        filters, cache = session.subscriptions or {}, self.scope.gate.cache
        topics = cache.topics
        if len(filters) <= FEW or len(filters) < 4 * topics:
            self.site.effort += TOUCHED * len(filters)
            for filter in filters:
                self.forget(share(filter)[1])
            return
        self.site.effort += MATCHED * topics
        for topic in cache.cached_topics():  # there are not many: this way round is faster
            if self._wants(session, topic):
                cache.touch(topic)
        links = self.scope.node_links
        if links is not None and links.subscriptions.active:
            self.site.effort += TOUCHED * len(filters)
            for filter in filters:
                self.spread(share(filter)[1])
        self.scope.sweep()

    def forget(self, filter: str) -> None:
        """Plans that a changed subscription concerns are made anew.

        A filter with wildcards may have to look at all of them. Many in one turn (one client with thousands of
        filters, or thousands of clients that come back) forget them all at once instead.
        """
        self.spread(filter)
        if "+" in filter or "#" in filter:
            if self._touched_at != self.site.now:
                self._touched_at = self.site.now
                self._touched = 0
            topics = self.scope.gate.cache.topics
            if self._touched and self._touched + topics > TOUCH:
                self.scope.gate.cache.clear()
                self.scope.sweep()
                self._touched = 0
                return
            self._touched += topics
            self.site.effort += topics // 2
        # whoever publishes next compiles these plans again: whoever made that necessary pays for large ones
        self.site.effort += max(0, self.scope.gate.cache.touch(filter) - SMALL_PLANS) * TARGET
        self.scope.sweep()

    def spread(self, filter: str) -> None:
        """Other nodes that forward only what is subscribed to have to know."""
        links = self.scope.node_links
        if links is not None and links.subscriptions.active:
            links.subscriptions.changed(self.scope.name, filter)

    def _wants(self, session: Session, topic: str) -> bool:
        """Whether one of its subscriptions matches."""
        levels = topic.split("/")
        if any(each is session for each, _ in self.scope.subscriptions.match(levels)):
            return True
        return session.shares > 0 and any(session in group.members for group in self.scope.shares.match(levels))
