"""A granted subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.predicate import Predicate
from tidegate.session.context import NO_TERMS, Terms
from tidegate.wire import Subscription

if TYPE_CHECKING:
    from tidegate.session.session import Session


class Grant:
    """A subscription as it was granted. Merged grants of overlapping filters look the same."""

    __slots__ = (
        "filter",
        "group",
        "held",
        "ids",
        "no_local",
        "opened",
        "own",
        "qos",
        "replays",
        "retain_as_published",
        "retain_handling",
        "session",
        "terms",
        "where",
    )

    def __init__(
        self,
        session: Session,
        subscription: Subscription,
        qos: int,
        identifier: int | None,
        terms: Terms = NO_TERMS,
        where: Predicate | None = None,
    ) -> None:
        self.session = session
        self.terms = terms
        self.where = where  # the condition of `terms`, compiled
        self.held = False  # nobody allows it yet
        self.replays = False  # retained messages are sent for it
        self.opened: Any = None  # the publishers' rules that have allowed it, where later ones may
        self.filter = subscription.filter
        self.qos = qos
        self.no_local = subscription.no_local
        self.retain_as_published = subscription.retain_as_published
        self.retain_handling = subscription.retain_handling
        self.ids: tuple[int, ...] = () if identifier is None else (identifier,)
        self.group: tuple[str, str] | None = None  # (share name, filter)
        self.own: Grant | None = None  # merged of some with and some without No Local: what its own messages get

    def subscription(self) -> Subscription:
        return Subscription(
            filter=self.filter,
            qos=self.qos,
            no_local=self.no_local,
            retain_as_published=self.retain_as_published,
            retain_handling=self.retain_handling,
        )
