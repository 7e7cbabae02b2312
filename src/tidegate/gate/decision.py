"""What stages leave undecided of a message to one receiver, and what a message gets when that is asked.

A `PartialDecision` has the residuals of the stages and the view that is left. It is made when a plan is compiled, or
for a stored message, and asked of each message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

from tidegate.gate.attributes import FLOOR, NO_TIME
from tidegate.gate.verdict import Allow, Deny, Known, Residual, Stage, Step
from tidegate.policy import ALL, View
from tidegate.policy.levels import SIGNED
from tidegate.session import Context, Grant, Message, SourceContext
from tidegate.wire import NONE, Properties

UNSEEN = Deny(step=Step.VIEW, rule="nothing is left")
UNSIGNED = Deny(step=Step.VIEW, rule=SIGNED, detail="a part of a message is not signed, and that is demanded")
CUT: Final = 4  # messages whose parts are kept
PARTS: Final = 4 << 20  # bytes of them, of one message
_CUT: deque[Message] = deque(maxlen=CUT)
_AFTER_THE_VIEW = frozenset((Step.WHERE, Step.MONITOR_OUT))


class PartialDecision:
    """The way of one topic to one subscription, as far as it is not decided: first the residuals, then the view.

    What the subscription itself wants is asked of what the view leaves.
    """

    __slots__ = ("failed", "grant", "residuals", "session", "view", "wants", "whole")

    def __init__(self, grant: Grant | None, residuals: tuple[Residual, ...], view: View, wants: tuple[Residual, ...]):
        self.grant = grant
        if grant is not None:
            self.session = grant.session
        self.residuals = residuals
        self.view = view
        self.wants = wants
        self.whole = False  # it must not be cut
        self.failed: tuple[tuple[str, str], ...] = ()
        """Conditions that failed on the last message, or for every message, and counted as false."""

    @property
    def clear(self) -> bool:
        """Nothing is left to ask: every message passes whole."""
        return not self.residuals and not self.wants and self.view.shows_all

    def ask(self, message: Message) -> View | Deny:
        """What of this message may be seen, or why nothing; what the subscription wants is not asked."""
        view = self.view
        self.failed = ()
        for residual in self.residuals:
            answer = residual.decide(message)
            if isinstance(answer, Deny):
                return answer
            if answer.view is not ALL:
                view &= answer.view
            if answer.errors:
                self.failed += answer.errors
        return view

    def show(self, message: Message) -> Message | Deny:
        """What passes of this message, or why nothing does."""
        view = self.ask(message)
        if isinstance(view, Deny):
            return view
        shown: Message | None = message
        if view.keep is not None:
            shown = None if self.whole else part_of(message, view)
            if shown is None:
                return UNSIGNED if self.whole else UNSEEN
        assert shown is not None
        for residual in self.wants:
            answer = residual.decide(shown)
            if isinstance(answer, Deny):
                return answer
        return shown


def part_of(message: Message, view: View) -> Message | None:
    """The message with what a view leaves of it; made once, so that everybody with the same view shares its bytes.

    It is kept for the newest messages only: what waits or is retained would be kept as often as there are views.
    """
    parts = message.views
    if parts is None:
        parts = message.views = {}
        if len(_CUT) == CUT:
            _CUT[0].views = None
        _CUT.append(message)
    elif view.keep in parts:
        return parts[view.keep]
    elif len(parts) * len(message.payload) > PARTS:
        parts.clear()
    payload = view.apply(message.payload)
    if payload is None:
        parts[view.keep] = None
        return None
    part = Message(
        message.topic,
        payload,
        message.qos,
        message.retain,
        message.published,
        message.origin,
        message.number,
        message.context,
        message.link,
        NONE if message.properties is NONE else part_properties(message.properties),
        message.expires,
        message.output,
    )
    parts[view.keep] = part
    return part


def part_properties(properties: Properties) -> Properties:
    """The properties of a part of a message that has these."""
    # user properties, response topic and correlation data are content; the floor is ours
    floor = tuple((name, _unsigned(told)) for name, told in properties.user_properties[-1:] if name == FLOOR)
    left = Properties(
        payload_format_indicator=properties.payload_format_indicator,
        content_type=properties.content_type,
        user_properties=floor,
    )
    return NONE if left == NONE else left


def unsigned(part: Message, context: Context) -> Message:
    """A part of a message with this context as it goes on behind a link: its publisher has signed the whole."""
    if context.unsigned is context:
        return part
    data = context.unsigned.encode()
    return part.across(part.topic, part.qos, data, part.link, part.properties)


def _unsigned(floor: str) -> str:
    """The floor of a part of a message, which its publisher has not signed."""
    return ",".join(name for name in floor.split(",") if name != SIGNED)


def evaluate(stages: tuple[Stage, ...], known: Known, grant: Grant | None = None) -> PartialDecision | Deny:
    """What is left to ask of a message when these stages have said what they can, or who denies every one.

    Of one that comes from several, each must be allowed to whom it is sent, and what all of them show is shown.
    """
    residuals: list[Residual] = []
    wants: list[Residual] = []
    view = ALL
    whole = False
    failed: tuple[tuple[str, str], ...] = ()
    for stage in stages:
        answer = stage.evaluate(known)
        match answer:
            case Deny():
                return answer
            case Residual():
                (wants if stage.step in _AFTER_THE_VIEW else residuals).append(answer)
            case Allow():
                if answer.view is not ALL:
                    view &= answer.view
                whole = whole or answer.whole
                failed += answer.errors
    if known.target is not None and known.context.others:
        before_the_view = tuple(stage for stage in stages if stage.step not in _AFTER_THE_VIEW)
        for source in known.context.others:
            there = known.of(source)
            way = evaluate(before_the_view, there)
            known.until, known.clocked = min(known.until, there.until), known.clocked or there.clocked
            known.unclear = known.unclear or there.unclear
            if isinstance(way, Deny):
                return way
            residuals += (_asked_of(source, there, residual) for residual in way.residuals)
            view &= way.view
            whole = whole or way.whole
            failed += way.failed
    if view.shows_nothing:
        return UNSEEN
    if whole and not view.shows_all:
        return UNSIGNED
    decision = PartialDecision(grant, tuple(residuals), view, tuple(wants))
    decision.failed, decision.whole = failed, whole
    return decision


def _asked_of(source: SourceContext, known: Known, residual: Residual) -> Residual:
    """What is left to ask of another message that a message comes from: its publisher is that of the other."""
    data, link = known.context.encode(), known.link
    published = NO_TIME if source.published is None else source.published

    def decide(message: Message) -> Allow | Deny:
        stand_in = message.across(message.topic, message.qos, data, link, message.properties)
        stand_in.published = published
        return residual.decide(stand_in)

    return Residual(decide)


def alike(grants: list[Grant]) -> list[list[Grant]]:
    """Overlapping subscriptions of one session, those together that ask for the same and so are decided alike."""
    if len(grants) == 1:
        return [grants]
    found: dict[Hashable, list[Grant]] = {}
    for grant in grants:
        found.setdefault((grant.terms.demand, grant.terms.where, grant.no_local), []).append(grant)
    return list(found.values())


def combine(grants: list[Grant]) -> Grant:
    """One delivery for several overlapping subscriptions of a session.

    The highest QoS of them, all their identifiers [MQTT-3.3.4-2, MQTT-3.3.4-4].
    """
    if len(grants) == 1:
        return grants[0]
    best = max(grants, key=lambda grant: grant.qos)
    combined = Grant(best.session, best.subscription(), best.qos, None)
    combined.ids = tuple(sorted({number for grant in grants for number in grant.ids}))
    combined.retain_as_published = any(grant.retain_as_published for grant in grants)
    combined.no_local = all(grant.no_local for grant in grants)
    others = [grant for grant in grants if not grant.no_local]
    if others and len(others) < len(grants):
        combined.own = combine(others)
    return combined


def passed(ways: tuple[PartialDecision, ...], message: Message) -> tuple[Grant, Message] | Deny:
    """What a session gets of a message: by those of its subscriptions that let it pass, and what of it is shown."""
    if len(ways) == 1:
        way = ways[0]
        assert way.grant is not None
        outcome = way.show(message)
        return outcome if isinstance(outcome, Deny) else (way.grant, outcome)
    grants: list[Grant] = []
    shown = message
    why: Deny | None = None
    for way in ways:
        assert way.grant is not None
        outcome = way.show(message)
        if isinstance(outcome, Message):
            grants.append(way.grant)
            shown = outcome  # the same for all: they are of one subject
        else:
            why = graver(why, outcome)
    if grants:
        return combine(grants), shown
    assert why is not None
    return why


def graver(one: Deny | None, other: Deny) -> Deny:
    """Of two denials, what counts: the first, unless it is only that somebody does not want it."""
    return other if one is None or one.step is Step.WHERE else one


def undecided(residuals: tuple[Residual, ...], message: Message) -> Deny | None:
    """Asks each; the first denial counts."""
    for residual in residuals:
        answer = residual.decide(message)
        if isinstance(answer, Deny):
            return answer
    return None
