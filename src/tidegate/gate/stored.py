"""Decides stored messages again when they are sent: queued, retained and resumed ones, and requests for keys.

A policy change counts from the next message on, so nothing that was decided when a message was stored is believed.
Partial decisions are kept for the next message of the same kind until the rules change.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.gate.attributes import Clock
from tidegate.gate.compiler import WITHDRAWN
from tidegate.gate.decision import UNSEEN, PartialDecision, evaluate, graver, undecided
from tidegate.gate.deferred_free import DeferredFree
from tidegate.gate.stages.order import StageSet
from tidegate.gate.verdict import Allow, Deny, Known, Stage, Step
from tidegate.session import Grant, Link, Message, Origin, Session
from tidegate.topics import matches

DECISIONS = 20_000  # partial decisions that are kept
KEY = "key"
NOBODY = Origin("", 0)
_OF_READERS = frozenset((Step.LEVELS, Step.READ))

Key = tuple[Link, bool, Grant | None, str, bytes, str]


class StoredMessageDecider:
    """Decides for one scope what of a stored message may be sent now."""

    def __init__(
        self, stages: StageSet, *, clock: Clock, fresh: Callable[[Session], bool], deferred: DeferredFree
    ) -> None:
        self.stages = stages
        self.clock = clock
        self.fresh = fresh
        self.deferred = deferred
        self.failed: tuple[tuple[str, str], ...] = ()  # of the last `decide`, see `PartialDecision.failed`
        self.epoch = 0  # another number: what was clear before has to be asked again
        self._decisions: dict[Key, PartialDecision | Deny] = {}

    def clear(self) -> None:
        """Forgets all partial decisions."""
        self.deferred.add(self._decisions)
        self._decisions = {}
        self.epoch += 1

    def _decision(
        self, key: Key, known: Known, stages: tuple[Stage, ...], grant: Grant | None = None
    ) -> PartialDecision | Deny:
        decision = evaluate(stages, known, grant)
        if not known.clocked:
            if len(self._decisions) >= DECISIONS:
                self.clear()
            self._decisions[key] = decision
        return decision

    def decide(
        self, message: Message, session: Session, grant: Grant | None = None, *, later: bool = False
    ) -> Message | Deny:
        """What of a queued, retained or resumed message may be sent to `session` at this moment.

        `grant` is the subscription that it is sent for, if that asks for anything itself. `later`: whether it might be,
        over a connection that is not known yet.
        """
        if not self.fresh(session):
            return WITHDRAWN
        if grant is not None and not grant.terms.asks:
            grant = None
        return self.over(session.outward, message, grant, away=later or session.connection is None)

    def over(self, target: Link, message: Message, grant: Grant | None = None, *, away: bool = False) -> Message | Deny:
        """The same for a link whose subject is up to date; `away`: its connection is not known yet."""
        key = (target, away, grant, message.topic, message.context, message.link)
        way = self._decisions.get(key)
        if way is None:
            known = Known(
                topic=message.topic,
                context=self.stages.attributes.context(message),
                link=message.link,
                now=self.clock.wall,
                target=target,
                away=away,
            )
            if grant is not None:
                known.terms, known.where = grant.terms, grant.where
            way = self._decision(key, known, self.stages.towards(target, away), grant)
        if isinstance(way, Deny):
            self.failed = ()
            return way
        failed_before = way.failed  # reported once, when it was made: showing a message begins anew
        shown = way.show(message)
        self.failed = failed_before + way.failed
        way.failed = ()
        return shown

    def clear_for(self, message: Message, session: Session) -> bool:
        """Whether every message like one that was just decided passes whole to `session`, while `epoch` stays."""
        key = (session.outward, session.connection is None, None, message.topic, message.context, message.link)
        way = self._decisions.get(key)
        return isinstance(way, PartialDecision) and way.clear

    def permits(
        self, message: Message, session: Session, filters: tuple[str, ...] | None = None, *, later: bool = False
    ) -> Message | Deny:
        """The same for what waited: by any of the subscriptions that it may be sent for.

        `filters` are those it came by, if that is known: of a shared subscription.
        """
        asking = [
            grant
            for filter, grant in (session.subscriptions or {}).items()
            if (filter in filters if filters is not None else grant.group is None and matches(filter, message.topic))
        ]
        if not any(grant.terms.asks for grant in asking):
            return self.decide(message, session, later=later)
        why: Deny | None = None
        for grant in asking:
            shown = self.decide(message, session, grant, later=later)
            if isinstance(shown, Message):
                return shown
            why = graver(why, shown)
        assert why is not None
        return why

    def readable(self, topic: str, context: bytes, target: Link) -> Allow | Deny:
        """Whether somebody may have the key of a group at this moment, given by one of its messages (steps 7 and 8)."""
        key = (target, False, None, topic, context, KEY)
        way = self._decisions.get(key)
        if way is None:
            known = Known(
                topic=topic,
                context=self.stages.attributes.decoded(context),
                link="",
                now=self.clock.wall,
                target=target,
            )
            stages = tuple(stage for stage in self.stages.egress if stage.step in _OF_READERS)
            way = self._decision(key, known, stages)
        if isinstance(way, Deny):
            return way
        if not way.view.shows_all:
            return UNSEEN
        if way.residuals:
            # what is left calls a volatile function, or reads what only a message has, which is an error here
            probe = Message(topic, b"", 0, False, self.clock.wall, NOBODY, 0, context, "")
            return undecided(way.residuals, probe) or Allow()
        return Allow()
