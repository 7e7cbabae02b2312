"""Two sides, asked about each recorded message; what they say is compared.

What is compared is what happens, not by which rule: whether a publish is let in, whether somebody receives it, and what
of its content. Whoever is denied by another rule than before is denied as before.

- A delivery is decided by the whole path: what may not be published is received by nobody.
- What depends on something that was not recorded is counted as undecided, whatever else speaks for or against it.
- A publish that was refused was recorded without its content. It is taken to have asked for nothing of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from tidegate.gate import Deny, Lane, Plan, undecided
from tidegate.pipeline.replay import tally as sums
from tidegate.pipeline.replay.audience import Audience, Seat, named
from tidegate.pipeline.replay.sheet import Key, Offer, Part, Sheet, Shown, Unclear, Verdict, answer, sheet
from tidegate.pipeline.replay.side import Arrival, Pairs, Side, Speaker
from tidegate.pipeline.replay.tally import Change, Said, Tally
from tidegate.pipeline.replay.unrecorded import Bare, Unrecorded, message
from tidegate.policy import RELAXED, Demand
from tidegate.session import NO_OPTIONS, Context, Message, MessageOptions, Session
from tidegate.topics import matches
from tidegate.wire import NONE, V5, Properties

KEPT: Final = 20_000  # publishers that are remembered
WEIGHT: Final = 500_000  # decisions in the cases that are remembered
ELSEWHERE: Final = "it was refused, but not by these rules: by others, a monitor, a quota or a capability"
NOBODY: Final = "who published it is not known: nothing was recorded of that session before"
NOT_THERE: Final = "whom it was for is not known: nothing was recorded of that session before"
MAYBE_LATER: Final = "its QoS was not recorded: whether it would have waited for somebody who was away"
IN_PART: Final = "the payload was not recorded: what a view leaves of it"
OPEN: Final = "open"
"""What is named where no rule had to allow anything."""


@dataclass(slots=True, kw_only=True)
class Row:
    """A message as it was recorded."""

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
class _Heard:
    """A publisher, on both sides."""

    name: str
    sealed: bool
    assumed: bool
    """That its messages demand nothing themselves is not certain, and matters."""
    speakers: tuple[Speaker | Deny, Speaker | Deny]


@dataclass(slots=True, kw_only=True)
class _Said:
    """What one side says to a publish."""

    side: Side
    speaker: Speaker | Deny
    lane: Lane | None = None
    plan: Plan | None = None
    why: Deny | None = None
    """It is not let in."""
    message: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Both sheets of one kind of message, compared as far as that does not depend on the message."""

    decided: int
    changes: tuple[Change, ...]
    unclear: tuple[str, ...]
    open: tuple[tuple[Key, tuple[Sequence[Offer] | Deny, Sequence[Offer] | Deny]], ...]


class Judge:
    """Decides one part of the record by two sets of rules: before, and after."""

    def __init__(self, before: Side, after: Side, tally: Tally) -> None:
        self.sides = (before, after)
        self.audience = Audience(self.sides)
        self.tally = tally
        self._contexts: dict[bytes, Context] = {}
        self._heard: dict[tuple[bytes, Pairs, bool], _Heard] = {}
        self._cases: dict[tuple[object, ...], _Case] = {}
        self._weight = 0

    def decide(self, row: Row) -> None:
        """One row."""
        for side in self.sides:
            side.at(row.at)
        if row.context is None:
            self._refused(row)
        elif row.target is not None:
            self._later(row, row.context)
        else:
            self._published(row, self._publisher(row, row.context))

    # -- who published -------------------------------------------------------------------------------------------

    def _publisher(self, row: Row, data: bytes) -> _Heard:
        context = self._contexts.get(data)
        if context is None:
            if len(self._contexts) >= KEPT:
                self._contexts.clear()
            context = self._contexts[data] = Context.decode(data)
        seat = self.audience.seats.get((context.subject.user, context.subject.client))
        if seat is None and context.subject.kind == "client":
            self.audience.unknown += 1  # it was there, and nothing is known of it: so may others have been
        said: Pairs = () if seat is None else seat.properties
        made = row.id is not None and "." in row.id[row.id.rfind("-") :]
        heard = self._heard.get((data, said, made))
        if heard is None:
            heard = self._hear(context, data, said, made)
            if len(self._heard) >= KEPT:
                self._heard.clear()
            self._heard[data, said, made] = heard
        return heard

    def _hear(self, context: Context, data: bytes, said: Pairs, made: bool) -> _Heard:
        """What the connection demands is known by its rows, so what is demanded beyond that the message has said."""
        levels = self.sides[0].rules.levels
        usual = levels.effective(context.subject.level, None, levels.demand(said))
        recorded = context.demand or RELAXED
        options = MessageOptions(None if recorded == usual else recorded, context.view)
        options = NO_OPTIONS if options == NO_OPTIONS else options
        # A message that says what its connection would have meant anyway looks like one that says nothing. Where the
        # connection has said nothing either, that makes a difference as soon as levels are implied on one side only.
        alike = options.demand is None and levels.demand(said) is None
        other = self.sides[1].rules.levels
        return self._both(context, data, said, options, made, assumed=alike and levels.implied != other.implied)

    def _both(
        self, context: Context, data: bytes, said: Pairs, options: MessageOptions, made: bool, *, assumed: bool = False
    ) -> _Heard:
        before, after = self.sides

        def on(side: Side) -> Speaker | Deny:
            demand: Demand | None = side.rules.levels.demand(said)
            return side.speaker(context, data, demand, options, made)

        return _Heard(
            name=named(context.subject),
            sealed=context.sealed,
            assumed=assumed,
            speakers=(on(before), on(after)),
        )

    # -- let in ----------------------------------------------------------------------------------------------------

    def _published(self, row: Row, heard: _Heard) -> None:
        tally = self.tally
        both = [self._entered(side, heard.speakers[at], row) for at, side in enumerate(self.sides)]
        if any(each.plan is not None and each.plan.control for each in both):
            tally.totals[sums.PASSED_OVER] += 1
            return
        tally.totals[sums.MESSAGES] += 1
        tally.totals[sums.BARE] += row.payload is None
        tally.totals[sums.ASSUMED] += heard.assumed
        try:
            for each in both:
                self._admit(each, heard, row)
        except Unrecorded as missing:
            tally.undecided(f"{missing} was not recorded, and a rule about publishing reads it")
            return
        before, after = both
        if (before.why is None) != (after.why is None):
            self._changed_in(heard, row, before, after)
        if before.why is None or after.why is None:
            self._delivered(heard, row, before, after)

    def _entered(self, side: Side, speaker: Speaker | Deny, row: Row) -> _Said:
        if isinstance(speaker, Deny):
            return _Said(side=side, speaker=speaker, why=speaker)
        lane = side.lane(speaker)
        plan = side.plan(speaker, lane, row.topic.encode())
        return _Said(side=side, speaker=speaker, lane=lane, plan=plan, why=plan.refusal)

    def _admit(self, said: _Said, heard: _Heard, row: Row) -> None:
        if said.why is None and said.plan is not None and said.plan.admission:
            said.why = undecided(said.plan.admission, self._message(said, heard, row))

    def _message(self, said: _Said, heard: _Heard, row: Row) -> Message:
        """The message as it is on one side; made once, if it is asked for."""
        if said.message is None:
            assert isinstance(said.speaker, Speaker)
            assert said.plan is not None
            sealed = said.plan.sealing is not None
            said.message = _made(row, said.speaker, sealed=sealed, hidden=heard.sealed and not sealed)
        return said.message

    def _changed_in(self, heard: _Heard, row: Row, before: _Said, after: _Said) -> None:
        told = []
        for said in (before, after):
            if said.why is not None:
                told.append(Said(False, said.why.rule))
                continue
            assert said.lane is not None
            assert said.plan is not None
            assert isinstance(said.speaker, Speaker)
            asked = self._message(said, heard, row) if said.plan.admission else None
            rule = said.side.allowed_in(said.speaker.scope.gate, said.lane, row.topic, asked)
            told.append(Said(True, rule or OPEN))
        self.tally.changed(Change(heard.name, "write", row.topic, "", *told), row.at)

    def _refused(self, row: Row) -> None:
        """It was not let in. What it held is not known."""
        tally = self.tally
        if row.kind != "client":
            tally.totals[sums.PASSED_OVER] += 1  # a link or a monitor: that follows from what somebody published
            return
        seat = self.audience.seats.get((row.user, row.client))
        if seat is None:
            tally.totals[sums.MESSAGES] += 1
            tally.undecided(NOBODY)
            return
        heard = self._both(Context(subject=seat.subject), b"", seat.properties, NO_OPTIONS, made=False)
        both = [self._entered(side, heard.speakers[at], row) for at, side in enumerate(self.sides)]
        if any(each.plan is not None and each.plan.control for each in both):
            tally.totals[sums.PASSED_OVER] += 1
            return
        tally.totals[sums.MESSAGES] += 1
        before, after = both
        try:
            self._admit(before, heard, row)
            if before.why is None:
                tally.undecided(ELSEWHERE)
                return
            self._admit(after, heard, row)
        except Unrecorded as missing:
            tally.undecided(f"{missing} was not recorded, and a rule about publishing reads it")
            return
        if after.why is None:
            self._changed_in(heard, row, before, after)
            self._delivered(heard, row, before, after)

    # -- handed out ------------------------------------------------------------------------------------------------

    def _delivered(self, heard: _Heard, row: Row, before: _Said, after: _Said) -> None:
        tally, both = self.tally, (before, after)
        case = self._case(heard, row, before, after)
        tally.totals[sums.DELIVERIES] += case.decided + len(case.open)
        for change in case.changes:
            tally.changed(change, row.at)
        for why in case.unclear:
            tally.undecided(why)
        for key, offered in case.open:
            verdicts: list[Verdict] = []
            for said, offers in zip(both, offered, strict=True):
                if isinstance(offers, Deny):
                    verdicts.append(offers)
                else:
                    asked = self._message(said, heard, row) if any(offer.open for offer in offers) else None
                    verdicts.append(answer(offers, asked))
            found = self._compared(heard, row, key, verdicts, both)
            if isinstance(found, Change):
                tally.changed(found, row.at)
            elif found:
                tally.undecided(found)

    def _case(self, heard: _Heard, row: Row, before: _Said, after: _Said) -> _Case:
        """The case of a message, made unless it is known. Plans are made anew when anything about them changes."""
        source = self.audience.seats.get((row.user, row.client))
        if source is not None and not any(each.no_local for each in source.subscriptions.values()):
            source = None
        waits = row.qos is None or row.qos > 0
        bare = row.context is None
        key = (heard.name, before.plan, after.plan, before.why, after.why, waits, bare, source)
        case = self._cases.get(key)
        if case is None:
            case, lasting = self._opened(heard, row, before, after, waits, source)
            if lasting:
                self._weight += 10 + case.decided + len(case.open)
                if self._weight > WEIGHT:
                    self._cases.clear()
                    self._weight = 0
                self._cases[key] = case
        return case

    def _opened(
        self, heard: _Heard, row: Row, before: _Said, after: _Said, waits: bool, source: Seat | None
    ) -> tuple[_Case, bool]:
        both = (before, after)
        lasting = True
        sheets: list[Sheet] = []
        ways: list[list[Arrival]] = []
        for said in both:
            arrivals: list[Arrival] = []
            if said.why is None:
                assert isinstance(said.speaker, Speaker)
                assert said.lane is not None
                assert said.plan is not None
                arrivals = said.side.arrivals(said.speaker, said.lane, said.plan, None)
                if len(arrivals) > 1 or not said.side.steady(arrivals):
                    # behind links a message may be called otherwise: it is made for each scope that it comes to
                    lasting = False
                    try:
                        come = self._message(said, heard, row)
                        arrivals = said.side.arrivals(said.speaker, said.lane, said.plan, come)
                    except Unrecorded as missing:
                        why = f"{missing} was not recorded, and a rule about a link between scopes reads it"
                        return _Case(decided=0, changes=(), unclear=(why,), open=()), False
            ways.append(arrivals)
            sheets.append(sheet(said.side, self.audience, arrivals, waits, source))
        decided, changes, unclear = 0, [], []
        left: list[tuple[Key, tuple[Sequence[Offer] | Deny, Sequence[Offer] | Deny]]] = []
        for key in dict.fromkeys((*sheets[0], *sheets[1])):
            offered = [
                said.why or found.get(key) or said.side.unreached(arrivals, key[0].subject.scope)
                for said, found, arrivals in zip(both, sheets, ways, strict=True)
            ]
            if any(not isinstance(each, Deny) and any(offer.open for offer in each) for each in offered):
                left.append((key, (offered[0], offered[1])))
                continue
            decided += 1
            verdicts = [each if isinstance(each, Deny) else answer(each, None) for each in offered]
            found_out = self._compared(heard, row, key, verdicts, both)
            if isinstance(found_out, Change):
                changes.append(found_out)
            elif found_out:
                unclear.append(found_out)
        return _Case(decided=decided, changes=tuple(changes), unclear=tuple(unclear), open=tuple(left)), lasting

    def _compared(
        self, heard: _Heard, row: Row, key: Key, verdicts: Sequence[Verdict], both: Sequence[_Said]
    ) -> Change | str:
        """A change, or why that cannot be said; nothing if all is as before."""
        seat = key[0]
        match verdicts:
            case (Deny(), Deny()):
                return ""
            case (Unclear(what=what), _) | (_, Unclear(what=what)):
                return f"{what} was not recorded, and a rule or a subscription reads it"
            case (Part(view=one), Part(view=other)):
                return "" if one == other else IN_PART
            case (Part(), _) | (_, Part()):
                return IN_PART
            case (Shown(payload=one), Shown(payload=other)) if _same(one, other, row):
                return ""
        if row.context is None and not seat.connected:
            return MAYBE_LATER
        told = []
        for said, verdict, session in zip(both, verdicts, seat.sessions, strict=True):
            if isinstance(verdict, Deny):
                told.append(Said(False, verdict.rule))
            else:
                assert isinstance(verdict, Shown)
                assert session is not None
                told.append(self._allowed(said, verdict, session))
        return Change(seat.name, "read", row.topic, heard.name, *told)

    def _allowed(self, said: _Said, verdict: Shown, session: Session) -> Said:
        come = verdict.arrival.message or said.message
        rule, view = said.side.allowed_out(verdict.arrival, session, verdict.grant, come)
        return Said(True, rule or OPEN, None if view.shows_all else ", ".join(view.plain))

    # -- handed out later --------------------------------------------------------------------------------------------

    def _later(self, row: Row, data: bytes) -> None:
        """A delivery that was decided by itself: something retained, or that has waited."""
        heard = self._publisher(row, data)
        seats = list(self.audience.named(row.target or ""))
        if not seats:
            self.tally.undecided(NOT_THERE)
        for seat in seats:
            self.tally.totals[sums.DELIVERIES] += 1
            both: list[_Said] = []
            verdicts: list[Verdict] = []
            for at, side in enumerate(self.sides):
                said = _Said(side=side, speaker=heard.speakers[at])
                both.append(said)
                verdicts.append(self._owed(said, heard, row, seat.sessions[at]))
            found = self._compared(heard, row, (seat, None), verdicts, both)
            if isinstance(found, Change):
                self.tally.changed(found, row.at)
            elif found:
                self.tally.undecided(found)

    def _owed(self, said: _Said, heard: _Heard, row: Row, session: Session | None) -> Verdict:
        speaker = said.speaker
        if isinstance(speaker, Deny):
            return speaker
        if session is None:
            return said.side.unreached([], "")
        gate = said.side.realm.scopes[session.home].gate
        come = said.message = _made(row, speaker, sealed=heard.sealed, hidden=False)
        try:
            found = gate.permits(come, session)
        except Unrecorded as missing:
            return Unclear(str(missing))
        if isinstance(found, Deny):
            return found
        lane = Lane(gate.attributes.context(come), speaker.link.type, V5, NONE, gate.version)
        arrival = Arrival(gate=gate, lane=lane, plan=Plan(row.topic, gate.version), message=come)
        grants = (session.subscriptions or {}).items()
        grant = next((grant for filter, grant in grants if grant.group is None and matches(filter, row.topic)), None)
        return Shown(None if found is come else found.payload, arrival, grant)


def _made(row: Row, speaker: Speaker, *, sealed: bool, hidden: bool) -> Message:
    """A recorded message by the rules of one side. `hidden`: what was recorded of its content is sealed."""
    context = speaker.its(sealed)
    if row.context is None:
        return Bare(row.topic, row.at, context, speaker.link.type)
    properties = Properties(user_properties=row.properties, content_type=row.content_type)
    return message(
        row.topic,
        None if hidden else row.payload,
        row.qos or 0,
        row.retain,
        row.at,
        context,
        speaker.link.type,
        NONE if properties == NONE else properties,
    )


def _same(one: bytes | None, other: bytes | None, row: Row) -> bool:
    """Whether two parts of a message are the same; None is all of it, with its user properties."""
    if one == other:
        return True
    if one is not None and other is not None:
        return False
    if row.properties or row.payload is None:
        return False
    part = other if one is None else one
    try:
        return bool(orjson.loads(part or b"") == orjson.loads(row.payload))
    except orjson.JSONDecodeError:
        return False
