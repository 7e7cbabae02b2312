"""What one rule set offers to each session that could receive a message.

Made from plans, and kept for as long as the plans are: each distinct combination of publisher, topic and subscriptions
is decided once. What has to see the message itself stays open.

- One offer for each session, whichever of its subscriptions match; for a shared subscription one for each member, since
  who of those that may have a message is chosen was not recorded.
- Nobody is offered its own message by subscriptions with No Local.
- QoS 0 does not wait: who is away is offered only what would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.gate import Deny, PartialDecision, Step, passed
from tidegate.gate.stages.where import UNMET
from tidegate.pipeline.replay.recorded_sessions import RecordedSession, RecordedSessions
from tidegate.pipeline.replay.replay_engine import Arrival, FieldNotRecorded, ReplayEngine
from tidegate.policy import View
from tidegate.routing import Group
from tidegate.session import Grant, Message, Session, Subject

NOT_KEPT: Final = Deny(step=Step.WHERE, rule="QoS 0 does not wait")

Key = tuple[RecordedSession, tuple[str, str] | None]
"""Whom it is for, and by which shared subscription, if by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What somebody may have of what came to one scope."""

    arrival: Arrival
    why: Deny | None = None  # it is denied, whatever the message is
    ways: tuple[PartialDecision, ...] = ()
    """What has to be asked of the message; none: it may have all of it."""
    grant: Grant | None = None  # the subscription that lets it pass, if nothing has to be asked

    @property
    def open(self) -> bool:
        return bool(self.ways)

    @property
    def view(self) -> View | None:
        """What the ways leave of every message, if that is certain."""
        if any(way.residuals or way.wants for way in self.ways):
            return None
        return self.ways[0].view  # the same for all: they are of one subject


Offers = dict[Key, list[Offer]]


@dataclass(frozen=True, slots=True)
class Delivered:
    """Somebody may have it: this is what it sees."""

    payload: bytes | None  # None: all of it
    arrival: Arrival
    grant: Grant | None  # the subscription that it has it by


Verdict = Delivered | Deny | View | FieldNotRecorded
"""A view: somebody may have what it leaves of the message, which is not known. FieldNotRecorded: it is undecided."""


def offers_for(
    engine: ReplayEngine,
    sessions: RecordedSessions,
    arrivals: Sequence[Arrival],
    waits: bool,
    source: RecordedSession | None,
) -> Offers:
    """The offers of a message. `waits`: it does, for who is away. `source`: who published it, if that matters."""
    at = sessions.engines.index(engine)
    own = None if source is None else source.sessions[at]
    offers: Offers = {}
    for arrival in arrivals:
        plan, gate = arrival.plan, arrival.gate
        if plan.refusal is not None:
            continue  # behind a link, a topic that cannot be protected
        denied = {link.subject: why for link, why in plan.denied}
        whole = {grant.session: grant for grant in plan.targets}
        asked = {ways[0].session: ways for ways in plan.conditional}
        matching: dict[Session, list[Grant]] = {}
        for session, grant in gate.compiler.subscriptions.match(plan.topic.split("/")):
            if not (session is own and grant.no_local):
                matching.setdefault(session, []).append(grant)
        for session, grants in matching.items():
            if session.connection is None and not (waits and any(grant.qos for grant in grants)):
                continue
            if session is own and session in whole and whole[session].no_local:
                offer = Offer(arrival=arrival, why=UNMET)  # the others of its subscriptions do not let it pass
            else:
                offer = _offer(arrival, session, grants, whole, asked, denied)
            offers.setdefault((sessions.of(session), None), []).append(offer)
        for group, members in plan.groups:
            _shared(offers, sessions, arrival, group, members, waits)
    return offers


def _offer(
    arrival: Arrival,
    session: Session,
    grants: list[Grant],
    whole: dict[Session, Grant],
    asked: dict[Session, tuple[PartialDecision, ...]],
    denied: dict[Subject, Deny],
) -> Offer:
    if session in whole:
        if session.connection is None and not whole[session].qos:
            return Offer(arrival=arrival, why=NOT_KEPT)
        # of those that let it pass, which need not be all that match
        by = (session.subscriptions or {})[whole[session].filter]
        return Offer(arrival=arrival, grant=by)
    if session in asked:
        ways = tuple(
            way
            for way in asked[session]
            if way.grant is not None and way.grant in grants and (session.connection is not None or way.grant.qos)
        )
        return Offer(arrival=arrival, ways=ways) if ways else Offer(arrival=arrival, why=NOT_KEPT)
    return Offer(arrival=arrival, why=denied.get(session.subject, UNMET))


def _shared(
    offers: Offers,
    sessions: RecordedSessions,
    arrival: Arrival,
    group: Group[Session, Grant],
    members: dict[Session, PartialDecision | Deny],
    waits: bool,
) -> None:
    for session, way in members.items():
        grant = group.members[session]
        if session.connection is None and not (waits and grant.qos):
            continue
        if isinstance(way, Deny):
            offer = Offer(arrival=arrival, why=way)
        else:
            offer = Offer(arrival=arrival, ways=() if way.clear else (way,), grant=grant)
        offers.setdefault((sessions.of(session), grant.group), []).append(offer)


def answer(offers: Sequence[Offer], message: Message | None) -> Verdict:
    """What comes of the offers for one message: the first that passes counts. Without one, of every message."""
    why: Verdict | None = None
    for offer in offers:
        verdict = _asked(offer, message)
        if not isinstance(verdict, Deny):
            return verdict
        why = why or verdict
    assert why is not None
    return why


def _asked(offer: Offer, message: Message | None) -> Verdict:
    if offer.why is not None:
        return offer.why
    if not offer.ways:
        return Delivered(None, offer.arrival, offer.grant)
    assert message is not None
    come = offer.arrival.message or message
    try:
        passing = passed(offer.ways, come)
    except FieldNotRecorded as missing:
        return offer.view or missing
    if isinstance(passing, Deny):
        return passing
    _, shown = passing
    grant = next(way.grant for way in offer.ways if way.grant is not None)
    if len(offer.ways) > 1:
        grant = next(way.grant for way in offer.ways if isinstance(way.show(come), Message) and way.grant is not None)
    return Delivered(None if shown is come else shown.payload, offer.arrival, grant)
