"""Decides each recorded message by two rule sets, and compares the decisions.

It compares results, not rules: whether a publish is accepted, who receives it, and which part of its content. A denial
by another rule than before is the same result.

- A delivery is decided by the whole path: what may not be published is received by nobody.
- What depends on something that was not recorded is counted as undecided, whatever else speaks for or against it.
- A publish that was refused was recorded without its content, its level and its table of who may see it. Whether it
  is let in now is decided; who would then receive it is undecided, except for those whom the rules deny it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from tidegate.bounded import Bounded
from tidegate.gate import Deny, Lane, Plan, undecided
from tidegate.pipeline.replay import report
from tidegate.pipeline.replay.recipients import Delivered, Key, Offer, Offers, Verdict, answer, offers_for
from tidegate.pipeline.replay.recorded_sessions import RecordedSession, RecordedSessions, named
from tidegate.pipeline.replay.replay_engine import (
    NOWHERE,
    PAYLOAD,
    Arrival,
    FieldNotRecorded,
    Pairs,
    Publisher,
    RefusedMessage,
    ReplayEngine,
)
from tidegate.pipeline.replay.report import Change, Decision, Tally
from tidegate.policy import RELAXED, View
from tidegate.policy.demands import effective_demand, read_demand
from tidegate.session import NO_OPTIONS, Context, Message, MessageOptions, Session
from tidegate.topics import matches
from tidegate.wire import NONE, V5, Properties

KEPT: Final = 20_000  # publishers that are remembered
WEIGHT: Final = 500_000  # decisions in the cases that are remembered
ELSEWHERE: Final = "it was refused, but not by these rules: by others, a monitor, a quota or a capability"
NOBODY: Final = "who published it is not known: nothing was recorded of that session before"
NOT_THERE: Final = "whom it was for is not known: nothing was recorded of that session before"
MAYBE_LATER: Final = "its QoS was not recorded: whether it would have waited for somebody who was away"
NOT_KNOWN_FOR_WHOM: Final = "whom a publish that was refused was meant for was not recorded: who would receive it"
IN_PART: Final = "the payload was not recorded: what a view leaves of it"
OPEN: Final = "open"  # what is named where no rule had to allow anything


@dataclass(slots=True, kw_only=True)
class Row:
    at: float
    id: str | None
    topic: str
    payload: bytes | None
    qos: int | None
    retain: bool
    content_type: str | None
    properties: Pairs
    kind: str
    client: str
    user: str | None
    context: bytes | None
    target: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sender:
    name: str
    sealed: bool
    assumed: bool  # that its messages demand nothing themselves is not certain, and matters
    publishers: tuple[Publisher | Deny, Publisher | Deny]


@dataclass(slots=True, kw_only=True)
class _Ingress:
    engine: ReplayEngine
    publisher: Publisher | Deny
    lane: Lane | None = None
    plan: Plan | None = None
    why: Deny | None = None  # it is not let in
    message: Message | None = None

    @property
    def way(self) -> tuple[Publisher, Lane, Plan]:
        """Of what a plan was made for."""
        assert isinstance(self.publisher, Publisher)
        assert self.lane is not None
        assert self.plan is not None
        return self.publisher, self.lane, self.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Both sheets of one kind of message, compared as far as that does not depend on the message."""

    decided: int
    outcomes: tuple[Change | str, ...]
    """Of what is decided: what changes, and why something cannot be said."""
    open: tuple[tuple[Key, tuple[Sequence[Offer] | Deny, Sequence[Offer] | Deny]], ...]


class DecisionComparer:
    """Decides one part of the record by two sets of rules: before, and after."""

    def __init__(self, before: ReplayEngine, after: ReplayEngine, tally: Tally) -> None:
        self.engines = (before, after)
        self.sessions = RecordedSessions(self.engines)
        self.tally = tally
        self._contexts = Bounded(KEPT, Context.decode)
        self._senders: Bounded[tuple[bytes, Pairs, bool], _Sender] = Bounded(KEPT)
        self._cases: dict[tuple[object, ...], _Case] = {}
        self._weight = 0

    def decide(self, row: Row) -> None:
        for engine in self.engines:
            engine.at(row.at)
        if row.context is None:
            self._refused(row)
        elif row.target is not None:
            self._later(row, row.context)
        else:
            self._published(row, self._sender(row, row.context))

    # -- who published -------------------------------------------------------------------------------------------

    def _sender(self, row: Row, data: bytes) -> _Sender:
        context = self._contexts[data]
        recorded = self.sessions.by_key.get((context.subject.user, context.subject.client))
        if recorded is None and context.subject.kind == "client":
            self.sessions.unknown += 1  # it was there, and nothing is known of it: so may others have been
        connection_properties: Pairs = () if recorded is None else recorded.properties
        derived = row.id is not None and "." in row.id[row.id.rfind("-") :]
        sender = self._senders.get((data, connection_properties, derived))
        if sender is None:
            sender = self._identify_sender(context, data, connection_properties, derived)
            self._senders[data, connection_properties, derived] = sender
        return sender

    def _identify_sender(self, context: Context, data: bytes, connection_properties: Pairs, derived: bool) -> _Sender:
        """What the connection demands is known by its rows, so what is demanded beyond that the message has said."""
        levels = self.engines[0].rules.levels
        options = message_options(self.engines[0], context, connection_properties)
        # A message that says what its connection would have meant anyway looks like one that says nothing. Where the
        # connection has said nothing either, that makes a difference as soon as levels are implied on one side only.
        alike = options.demand is None and read_demand(levels, connection_properties) is None
        assumed = alike and levels.implied != self.engines[1].rules.levels.implied
        return self._both(context, data, connection_properties, options, derived, assumed)

    def _both(
        self, context: Context, data: bytes, properties: Pairs, options: MessageOptions, derived: bool, assumed: bool
    ) -> _Sender:
        before, after = (
            engine.publisher(context, data, read_demand(engine.rules.levels, properties), options, derived)
            for engine in self.engines
        )
        name = named(context.subject)
        return _Sender(name=name, sealed=context.sealed, assumed=assumed, publishers=(before, after))

    # -- let in ----------------------------------------------------------------------------------------------------

    def _published(self, row: Row, sender: _Sender) -> None:
        tally = self.tally
        both = self._entering(sender, row)
        if both is None:
            return
        tally.totals[report.BARE] += row.payload is None
        tally.totals[report.ASSUMED] += sender.assumed
        try:
            for each in both:
                self._admit(each, sender, row)
        except FieldNotRecorded as missing:
            tally.undecided(f"{missing} was not recorded, and a rule about publishing reads it")
            return
        before, after = both
        if (before.why is None) != (after.why is None):
            self._changed_in(sender, row, before, after)
        if before.why is None or after.why is None:
            self._delivered(sender, row, before, after)

    def _entering(self, sender: _Sender, row: Row) -> list[_Ingress] | None:
        """Both sides; None if it was said to the node itself, which is passed over."""
        both = [self._entered(engine, sender.publishers[at], row) for at, engine in enumerate(self.engines)]
        if any(each.plan is not None and each.plan.control for each in both):
            self.tally.totals[report.PASSED_OVER] += 1
            return None
        self.tally.totals[report.MESSAGES] += 1
        return both

    def _entered(self, engine: ReplayEngine, publisher: Publisher | Deny, row: Row) -> _Ingress:
        if isinstance(publisher, Deny):
            return _Ingress(engine=engine, publisher=publisher, why=publisher)
        lane = engine.lane(publisher)
        plan = engine.plan(publisher, lane, row.topic.encode())
        return _Ingress(engine=engine, publisher=publisher, lane=lane, plan=plan, why=plan.refusal)

    def _admit(self, ingress: _Ingress, sender: _Sender, row: Row) -> None:
        if ingress.why is None and ingress.plan is not None and ingress.plan.admission:
            ingress.why = undecided(ingress.plan.admission, self._message(ingress, sender, row))

    def _message(self, ingress: _Ingress, sender: _Sender, row: Row) -> Message:
        """The message as it is on one side; made once, if it is asked for."""
        if ingress.message is None:
            publisher, _, plan = ingress.way
            sealed = plan.sealing is not None
            ingress.message = recorded_message(row, publisher, sealed=sealed, hidden=sender.sealed and not sealed)
        return ingress.message

    def _changed_in(self, sender: _Sender, row: Row, before: _Ingress, after: _Ingress) -> None:
        decisions = []
        for ingress in (before, after):
            if ingress.why is not None:
                decisions.append(Decision(False, ingress.why.rule))
                continue
            publisher, lane, plan = ingress.way
            asked = self._message(ingress, sender, row) if plan.admission else None
            rule = ingress.engine.allowed_in(publisher.scope.gate, lane, row.topic, asked)
            decisions.append(Decision(True, rule or OPEN))
        self.tally.changed(Change(sender.name, "write", row.topic, "", *decisions), row.at)

    def _refused(self, row: Row) -> None:
        """It was not let in. What it held is not known."""
        tally = self.tally
        if row.kind != "client":
            tally.totals[report.PASSED_OVER] += 1  # a link or a monitor: that follows from what somebody published
            return
        recorded = self.sessions.by_key.get((row.user, row.client))
        if recorded is None:
            tally.totals[report.MESSAGES] += 1
            tally.undecided(NOBODY)
            return
        context = Context(subject=recorded.subject)
        sender = self._both(context, b"", recorded.properties, NO_OPTIONS, derived=False, assumed=False)
        both = self._entering(sender, row)
        if both is None:
            return
        before, after = both
        try:
            self._admit(before, sender, row)
            if before.why is None:
                tally.undecided(ELSEWHERE)
                return
            self._admit(after, sender, row)
        except FieldNotRecorded as missing:
            tally.undecided(f"{missing} was not recorded, and a rule about publishing reads it")
            return
        if after.why is None:
            self._changed_in(sender, row, before, after)
            self._delivered(sender, row, before, after)

    # -- handed out ------------------------------------------------------------------------------------------------

    def _delivered(self, sender: _Sender, row: Row, before: _Ingress, after: _Ingress) -> None:
        tally, both = self.tally, (before, after)
        case = self._case(sender, row, before, after)
        tally.totals[report.DELIVERIES] += case.decided + len(case.open)
        for outcome in case.outcomes:
            self._count(outcome, row)
        for key, offered in case.open:
            verdicts: list[Verdict] = []
            for ingress, offers in zip(both, offered, strict=True):
                if isinstance(offers, Deny):
                    verdicts.append(offers)
                else:
                    asked = self._message(ingress, sender, row) if any(offer.open for offer in offers) else None
                    verdicts.append(answer(offers, asked))
            self._count(self._compared(sender, row, key, verdicts, both), row)

    def _case(self, sender: _Sender, row: Row, before: _Ingress, after: _Ingress) -> _Case:
        """The case of a message, made unless it is known. Plans are made anew when anything about them changes."""
        source = self.sessions.by_key.get((row.user, row.client))
        if source is not None and not any(each.no_local for each in source.subscriptions.values()):
            source = None
        waits = row.qos is None or row.qos > 0
        bare = row.context is None
        key = (sender.name, before.plan, after.plan, before.why, after.why, waits, bare, source)
        case = self._cases.get(key)
        if case is None:
            case, lasting = self._opened(sender, row, before, after, waits, source)
            if lasting:
                self._weight += 10 + case.decided + len(case.open)
                if self._weight > WEIGHT:
                    self._cases.clear()
                    self._weight = 0
                self._cases[key] = case
        return case

    def _opened(
        self, sender: _Sender, row: Row, before: _Ingress, after: _Ingress, waits: bool, source: RecordedSession | None
    ) -> tuple[_Case, bool]:
        both = (before, after)
        lasting = True
        offers_by_engine: list[Offers] = []
        ways: list[list[Arrival]] = []
        for ingress in both:
            arrivals: list[Arrival] = []
            if ingress.why is None:
                arrivals = ingress.engine.arrivals(*ingress.way, None)
                if len(arrivals) > 1 or not ingress.engine.steady(arrivals):
                    # behind links a message may be called otherwise: it is made for each scope that it comes to
                    lasting = False
                    try:
                        come = self._message(ingress, sender, row)
                        arrivals = ingress.engine.arrivals(*ingress.way, come)
                    except FieldNotRecorded as missing:
                        why = f"{missing} was not recorded, and a rule about a link between scopes reads it"
                        return _Case(decided=0, outcomes=(why,), open=()), False
            ways.append(arrivals)
            offers_by_engine.append(offers_for(ingress.engine, self.sessions, arrivals, waits, source))
        decided = 0
        outcomes: list[Change | str] = []
        left: list[tuple[Key, tuple[Sequence[Offer] | Deny, Sequence[Offer] | Deny]]] = []
        for key in dict.fromkeys((*offers_by_engine[0], *offers_by_engine[1])):
            offered = [
                ingress.why or offers.get(key) or ingress.engine.unreached(arrivals, key[0].subject.scope)
                for ingress, offers, arrivals in zip(both, offers_by_engine, ways, strict=True)
            ]
            if any(not isinstance(each, Deny) and any(offer.open for offer in each) for each in offered):
                left.append((key, (offered[0], offered[1])))
                continue
            decided += 1
            verdicts = [each if isinstance(each, Deny) else answer(each, None) for each in offered]
            if outcome := self._compared(sender, row, key, verdicts, both):
                outcomes.append(outcome)
        return _Case(decided=decided, outcomes=tuple(outcomes), open=tuple(left)), lasting

    def _compared(
        self, sender: _Sender, row: Row, key: Key, verdicts: Sequence[Verdict], both: Sequence[_Ingress]
    ) -> Change | str:
        """A change, or why that cannot be said; nothing if all is as before."""
        recorded = key[0]
        match verdicts:
            case (Deny(), Deny()):
                return ""
            case (FieldNotRecorded() as missing, _) | (_, FieldNotRecorded() as missing):
                return f"{missing} was not recorded, and a rule or a subscription reads it"
            case (View(), _) | (_, View()):
                return "" if verdicts[0] == verdicts[1] else IN_PART
            case (Delivered(payload=first), Delivered(payload=other)) if _same(first, other, row):
                return ""
        if row.context is None:
            return NOT_KNOWN_FOR_WHOM if recorded.connected else MAYBE_LATER
        decisions = []
        for ingress, verdict, session in zip(both, verdicts, recorded.sessions, strict=True):
            if isinstance(verdict, Deny):
                decisions.append(Decision(False, verdict.rule))
            else:
                assert isinstance(verdict, Delivered)
                assert session is not None
                decisions.append(self._allowed(ingress, verdict, session))
        return Change(recorded.name, "read", row.topic, sender.name, *decisions)

    def _count(self, outcome: Change | str, row: Row) -> None:
        if isinstance(outcome, Change):
            self.tally.changed(outcome, row.at)
        elif outcome:
            self.tally.undecided(outcome)

    def _allowed(self, ingress: _Ingress, verdict: Delivered, session: Session) -> Decision:
        come = verdict.arrival.message or ingress.message
        rule, view = ingress.engine.allowed_out(verdict.arrival, session, verdict.grant, come)
        return Decision(True, rule or OPEN, None if view.shows_all else ", ".join(view.plain))

    # -- handed out later --------------------------------------------------------------------------------------------

    def _later(self, row: Row, data: bytes) -> None:
        """A delivery that was decided by itself: something retained, or that has waited."""
        sender = self._sender(row, data)
        by_key = list(self.sessions.named(row.target or ""))
        if not by_key:
            self.tally.undecided(NOT_THERE)
        for recorded in by_key:
            self.tally.totals[report.DELIVERIES] += 1
            both: list[_Ingress] = []
            verdicts: list[Verdict] = []
            for at, engine in enumerate(self.engines):
                ingress = _Ingress(engine=engine, publisher=sender.publishers[at])
                both.append(ingress)
                verdicts.append(self._owed(ingress, sender, row, recorded.sessions[at]))
            self._count(self._compared(sender, row, (recorded, None), verdicts, both), row)

    def _owed(self, ingress: _Ingress, sender: _Sender, row: Row, session: Session | None) -> Verdict:
        publisher = ingress.publisher
        if isinstance(publisher, Deny):
            return publisher
        if session is None:
            return ingress.engine.unreached([], "")
        gate = ingress.engine.realm.scopes[session.home].gate
        come = ingress.message = recorded_message(row, publisher, sealed=sender.sealed, hidden=False)
        try:
            permitted = gate.permits(come, session)
        except FieldNotRecorded as missing:
            return missing
        if isinstance(permitted, Deny):
            return permitted
        lane = Lane(gate.attributes.context(come), publisher.link.type, V5, NONE, gate.version)
        arrival = Arrival(gate=gate, lane=lane, plan=Plan(row.topic, gate.version), message=come)
        grants = (session.subscriptions or {}).items()
        grant = next((grant for filter, grant in grants if grant.group is None and matches(filter, row.topic)), None)
        return Delivered(None if permitted is come else permitted.payload, arrival, grant)


def message_options(engine: ReplayEngine, context: Context, connection_properties: Pairs) -> MessageOptions:
    """What a message asked for itself, beyond what its connection did."""
    levels = engine.rules.levels
    usual = effective_demand(levels, context.subject.level, None, read_demand(levels, connection_properties))
    recorded = context.demand or RELAXED
    options = MessageOptions(None if recorded == usual else recorded, context.view)
    return NO_OPTIONS if options == NO_OPTIONS else options


def recorded_message(row: Row, publisher: Publisher, *, sealed: bool, hidden: bool) -> Message:
    """A recorded message by the rules of one side. `hidden`: what was recorded of its content is sealed."""
    context = publisher.its(sealed)
    if row.context is None:
        return RefusedMessage(row.topic, row.at, context, publisher.link.type)
    payload = PAYLOAD if hidden or row.payload is None else row.payload
    properties = Properties(user_properties=row.properties, content_type=row.content_type)
    properties = NONE if properties == NONE else properties
    link = publisher.link.type
    return Message(row.topic, payload, row.qos or 0, row.retain, row.at, NOWHERE, 0, context, link, properties)


def _same(first: bytes | None, other: bytes | None, row: Row) -> bool:
    """Whether two parts of a message are the same; None is all of it, with its user properties."""
    if first == other:
        return True
    if first is not None and other is not None:
        return False
    if row.properties or row.payload is None:
        return False
    part = other if first is None else first
    try:
        return bool(orjson.loads(part or b"") == orjson.loads(row.payload))
    except orjson.JSONDecodeError:
        return False
