"""Monitors in the configuration: what is expected on a link, one event after the other.

A monitor is written in one way: as an `automaton`, in the sequence language (`only`, `after`, `reset`, `payload`,
`dedupe`, `rate`, `silence`, which can stand together), with `filter`, `map` or `use`, or in Python. What can be wrong
is found here, with its place; `machines` makes the machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationInfo,
    model_validator,
)

from tidegate import topics
from tidegate.config.checks import Finding, unknown
from tidegate.config.enums import BuiltInMonitor
from tidegate.config.link_types import no_link
from tidegate.config.links import SCOPE, bare, directed_links, ends, scope_names
from tidegate.config.parser import Parser, parser_of
from tidegate.config.policies import Condition, Filter, RuleId, combined_problems
from tidegate.config.problems import suggestion
from tidegate.config.section import LIST, ONE, TABLE, PythonName, Section, form, shape
from tidegate.config.units import Count, Duration, Switch, refusal
from tidegate.errors import ConfigError
from tidegate.monitor import MAX_OUTPUTS, Direction, Each, Suppressed, analysis
from tidegate.monitor.automaton import SHORTEST
from tidegate.monitor.library import unlike
from tidegate.monitor.sequence import MAX_STEPS
from tidegate.policy.scopes import Way

if TYPE_CHECKING:
    from tidegate.config.model import Config

SEQUENCE: Final = ("only", "after", "reset", "payload", "on", "dedupe", "rate", "burst", "silence", "emit")
OTHERS: Final = ("automaton", "filter", "map", "use", "python")
_OUTSIDE: Final = frozenset((Direction.EX_PUB, Direction.EX_SUB))
_NAMED: Final = frozenset((BuiltInMonitor.SIMPLE, BuiltInMonitor.COMPLEX))
_PACE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?/ ?(s|m|h)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
_STATE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f@]{1,100}")
_STATES: Final = 1000
_TRANSITIONS: Final = 10_000


# -- texts -----------------------------------------------------------------------------------------------------------


def _output(written: str) -> str:
    if not topics.valid_topic(written):
        raise refusal("is no topic, and events are put out to one; write it without `+` and `#`")
    if written[0] == "$":
        raise refusal("is reserved, because it begins with `$`; choose another topic")
    return written


def _content(written: JsonValue) -> JsonValue:
    from tidegate.config.automata import content

    try:
        content(written)
    except ValueError:
        raise refusal("has a number that JSON cannot hold; write a smaller one, or put it in quotes") from None
    return written


def _state(written: str) -> str:
    if not _STATE.fullmatch(written):
        raise refusal("must be the name of a state; write 1 to 100 characters, without `@`")
    return written


def _pace(written: object) -> object:
    if isinstance(written, str) and (found := _PACE.fullmatch(written)) and float(found[1]) > 0:
        return written
    raise refusal("must say how many and in which time; write for example `20/s`, `5/m` or `100/h`")


def pace(written: str) -> tuple[float, int]:
    """Events a second, and how many at once if nothing else is said: those of one unit of time."""
    found = _PACE.fullmatch(written)
    assert found is not None
    return float(found[1]) / _UNITS[found[2]], math.ceil(float(found[1]))


def _link(written: str) -> str:
    ends(written)
    return written


def _renames(written: Mapping[str, str]) -> Mapping[str, str]:
    found: list[Finding] = []
    for old, new in written.items():
        if new.startswith("$"):
            found.append(((old,), "is reserved, because it begins with `$`; choose another topic"))
        elif why := unlike(old, new):
            found.append(((old,), f"cannot carry the wildcards over: {why}; write as many in the new one"))
    if found:
        raise combined_problems(found)
    return written


OutputTopic = Annotated[str, AfterValidator(_output)]
Content = Annotated[JsonValue, AfterValidator(_content)]
StateName = Annotated[str, AfterValidator(_state)]
Pace = Annotated[str, BeforeValidator(_pace)]
Link = Annotated[str, AfterValidator(_link)]
Span = Annotated[Duration, Field(ge=SHORTEST, le=365 * 86400)]
Filters = Annotated[
    Annotated[Filter, Tag(ONE)] | Annotated[tuple[Filter, ...], Field(min_length=1), Tag(LIST)],
    Discriminator(shape),
]
Renames = Annotated[Mapping[Filter, Filter], Field(min_length=1), AfterValidator(_renames)]


# -- transitions and steps -------------------------------------------------------------------------------------------


class Emission(Section):
    """An event that is put out. What is left out is as in the event that came in."""

    topic: OutputTopic | None = None
    """Its topic. It cannot be reserved (`$…`)."""
    payload: Content = None
    """Its content: text as it is, anything else as JSON."""
    qos: Count | None = Field(default=None, ge=0, le=2)
    """Its QoS."""
    retain: Switch | None = None
    """Whether it is retained."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.topic is None and self.payload is None and self.qos is None and self.retain is None:
            raise combined_problems([((), "changes nothing; write `same`, or what shall be different")])
        return self


Emitted = Annotated[
    Annotated[Literal["same"], Tag(ONE)] | Annotated[Emission, Tag(TABLE)],
    Discriminator(form),
]
Emit = Annotated[
    Annotated[Literal["same"], Tag(ONE)]
    | Annotated[Emission, Tag(TABLE)]
    | Annotated[tuple[Emitted, ...], Field(max_length=MAX_OUTPUTS), Tag(LIST)],
    Discriminator(form),
]


def _unprompted(emit: Emit) -> Iterator[Finding]:
    """What cannot be put out when there is no event: no `same`, and nothing without a topic."""
    for index, each in enumerate(emit if isinstance(emit, tuple) else (emit,)):
        at = ("emit", index) if isinstance(emit, tuple) else ("emit",)
        if not isinstance(each, Emission):
            yield at, "is `same`, but in a silence there is no event; write `{topic: …, payload: …}`"
        elif each.topic is None:
            yield (*at, "topic"), "is missing, and in a silence there is no event to take it from; add it"


class Step(Section):
    """Events that count as one thing."""

    on: Filters = "#"
    """A topic filter, or a list of them."""
    when: Condition | None = None
    """A condition (CEL) on `s`, `o`, `e` and `p`. Default: always."""


Matching = Annotated[
    Annotated[Filter, Tag(ONE)]
    | Annotated[tuple[Filter, ...], Field(min_length=1), Tag(LIST)]
    | Annotated[Step, Tag(TABLE)],
    Discriminator(form),
]
Steps = Annotated[
    Annotated[Filter, Tag(ONE)]
    | Annotated[tuple[Matching, ...], Field(min_length=1, max_length=MAX_STEPS), Tag(LIST)]
    | Annotated[Step, Tag(TABLE)],
    Discriminator(form),
]


class Transition(Section):
    """What happens to some events in a state. The first transition that matches is taken."""

    on: Filters | None = None
    """A topic filter, or a list of them. Default: `#`."""
    when: Condition | None = None
    """A condition (CEL) on `s`, `o`, `e` and `p`. If it fails, the event is suppressed. Default: always."""
    silent: Span | None = None
    """Instead of `on` and `when`: the transition is taken when no event has come for that long in this state."""
    go: StateName | None = None
    """The next state. Default: the same."""
    emit: Emit | None = None
    """What is put out: `same` (the event), new events, or a list of these; an empty list suppresses the event.
    Default: `same`; with `silent`, nothing."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        found: list[Finding] = []
        if self.silent is not None:
            found = [
                ((key,), "has no effect beside `silent`, which is about no event at all; remove one of the two")
                for key in ("on", "when")
                if getattr(self, key) is not None
            ]
            found += _unprompted(self.emit or ())
        if found:
            raise combined_problems(found)
        return self


class Automaton(Section):
    """States, and what happens to events in each. What no transition matches passes."""

    start: StateName
    """The first state."""
    states: Mapping[StateName, tuple[Transition, ...]] = Field(min_length=1)
    """The transitions of each state, in the order in which they are tried. At most 1000 states with 10,000 in all."""

    @model_validator(mode="after")
    def _sound(self, info: ValidationInfo) -> Self:
        from tidegate.config.automata import transitions

        for what, count, most in (
            ("states", len(self.states), _STATES),
            ("transitions", sum(map(len, self.states.values())), _TRANSITIONS),
        ):
            if count > most:
                text = f"has {count} {what}, and {most} are the most; use `+` and `#`, or several monitors"
                raise combined_problems([(("states",), text)])
        try:
            states = transitions(self, parser_of(info) or Parser())
        except ConfigError:
            return self  # a condition calls what could not be loaded, which is said elsewhere
        found = list(analysis.automaton_problems(self.start, states))
        if found:
            raise combined_problems(found)
        return self


# -- monitors --------------------------------------------------------------------------------------------------------


class Monitor(Section):
    """What is expected on a link, and what happens to events that are not."""

    id: RuleId | None = None
    """Name of the monitor, as for policies. What it puts out is published by `monitor:ID`."""
    link: Link | None = None
    """The link it watches: `from->to`, where each end is a scope by its name or `client:ID`."""
    scope: str | None = None
    """Instead of `link`: all links that touch this scope as `direction` says."""
    direction: Direction | None = None
    """With `scope`: `im_pub`: events from clients and child scopes. `im_sub`: events to them. `ex_pub`: events to
    parents and to scopes that are linked otherwise. `ex_sub`: events from them."""
    each: Each = Each.LINK
    """What has a state of its own: each link, each client, or each scope."""
    default: Switch = False
    """Whether it acts only where no other monitor does."""
    suppressed: Suppressed = Suppressed.ACCEPT
    """What an MQTT 5 publisher is told of a suppressed event: `accept` (0x10) or `refuse` (0x87)."""

    only: Matching | None = None
    """What is guarded: it passes only after the steps of `after`, and if `payload` is true."""
    after: Steps | None = None
    """Steps that must have come, in this order, before what `only` says may pass once. Others may come in between."""
    reset: Matching | None = None
    """What makes the steps of `after` start again."""
    payload: Condition | None = None
    """A condition (CEL) on what `only` says, without it on everything; where it is false or fails, the event is
    suppressed."""
    on: Filters = "#"
    """What `dedupe`, `rate` and `silence` apply to."""
    dedupe: Span | None = None
    """An event with the topic and payload of one that passed less than this time ago is suppressed. The last 128 are
    remembered."""
    rate: Pace | None = None
    """How many events may pass on average: `20/s`, `5/m`, `100/h`. More are suppressed."""
    burst: Count | None = Field(default=None, ge=1, le=10**9)
    """How many may pass at once. Default: those of one unit of time of `rate`."""
    silence: Span | None = None
    """When no event has passed for this long after one that did, `emit` is put out, once."""
    emit: Emit | None = None
    """With `silence`: what is put out, one event or a list; each with its `topic`."""

    automaton: Automaton | None = None
    """The monitor as states and transitions."""
    filter: tuple[Filter, ...] | None = Field(default=None, min_length=1)
    """Only events that match one of these topic filters pass."""
    map: Renames | None = None
    """Topics are renamed by the first filter that matches; `+` and `#` are carried over by their position."""
    use: BuiltInMonitor | None = None
    """One of four ready ones: `simple_em` renames by `map`; `complex_em` also replaces the payload by random text;
    `hsup_em` suppresses every other event; `multi_em` doubles every event."""
    python: PythonName | None = None
    """A class with `start` and `step`, as `package.module:Class`."""
    arguments: Mapping[str, JsonValue] | None = Field(default=None, alias="with")
    """With `python`: keyword arguments for the class."""

    @model_validator(mode="after")
    def _together(self, info: ValidationInfo) -> Self:
        found = [*self._place(), *self._way(), *self._sequence(), *self._steps(info)]
        if found:
            raise combined_problems(found)
        return self

    def ends(self) -> tuple[str, str] | None:
        """Source and target of the link by full name."""
        return None if self.link is None else ends(self.link)

    @property
    def enters(self) -> bool:
        """Whether it acts where events come into a scope."""
        link = self.ends()
        if link is not None:
            return link[1].startswith(SCOPE)
        return self.direction is not None and self.direction.enters

    @property
    def way(self) -> str | None:
        """The key that says how it is written; None: the sequence language."""
        found = [key for key in OTHERS if getattr(self, key) is not None]
        return "use" if "use" in found else found[0] if found else None

    @property
    def between(self) -> bool:
        """Whether it acts where no client is: on a link of two scopes, or towards parents."""
        link = self.ends()
        if link is not None:
            return all(end.startswith(SCOPE) for end in link)
        return self.direction in _OUTSIDE

    def _place(self) -> Iterator[Finding]:
        if self.link is not None:
            for key in ("scope", "direction"):
                if getattr(self, key) is not None:
                    yield (key,), "has no effect beside `link`; remove one of the two"
        elif self.scope is None and self.direction is None:
            yield (), "is nowhere; add `link`, or `scope` and `direction`"
        elif self.scope is None:
            yield ("scope",), "is missing, which `direction` needs; add it"
        elif self.direction is None:
            yield ("direction",), "is missing, which `scope` needs; add `im_pub`, `im_sub`, `ex_pub` or `ex_sub`"
        if "suppressed" in self.model_fields_set and (self.link or self.direction) and not self.enters:
            yield ("suppressed",), "has no effect where events leave a scope: nobody is acknowledged; remove it"
        if self.each is Each.CLIENT and self.between:
            yield ("each",), "is `client`, and between scopes there is none; write `link` or `scope`"

    def _way(self) -> Iterator[Finding]:
        said = self.model_fields_set
        ways = [key for key in OTHERS if getattr(self, key) is not None]
        if "use" in ways and "map" in ways:
            ways.remove("map")
            if self.use not in _NAMED:
                yield ("map",), f"has no effect on `{self.use}`; remove it"
        for key in ways[1:]:
            yield (key,), f"cannot stand beside `{ways[0]}`; write two monitors"
        written = [key for key in SEQUENCE if key in said and getattr(self, key) is not None]
        if ways:
            for key in written:
                yield (key,), f"cannot stand beside `{ways[0]}`; write two monitors"
        elif not written:
            yield (), "does nothing; add for example `only` and `after`, `rate`, `filter` or `automaton`"
        if self.arguments is not None and self.python is None:
            yield ("with",), "has no effect without `python`; add that, or remove it"

    def _sequence(self) -> Iterator[Finding]:
        if self.after is not None and self.only is None:
            yield ("after",), "has no effect without `only`, which says what must wait; add that"
        if self.reset is not None and self.after is None:
            yield ("reset",), "has no effect without `after`; add that, or remove it"
        if self.only is not None and self.after is None and self.payload is None:
            yield ("only",), "has no effect without `after` or `payload`; add one of the two"
        if self.burst is not None and self.rate is None:
            yield ("burst",), "has no effect without `rate`; add that, or remove it"
        if self.silence is not None and self.emit is None:
            yield ("silence",), "has no effect without `emit`; add what shall be put out"
        if self.emit is not None:
            if self.silence is None:
                yield ("emit",), "has no effect without `silence`; add that, or write an `automaton`"
            elif self.emit == ():
                yield ("emit",), "is empty, so nobody is told of a silence; add what shall be put out"
            else:
                yield from _unprompted(self.emit)
        paced = (self.dedupe, self.rate, self.silence)
        if "on" in self.model_fields_set and paced == (None, None, None):
            yield ("on",), "has no effect without `dedupe`, `rate` or `silence`; add one of these, or write `only`"

    def _steps(self, info: ValidationInfo) -> Iterator[Finding]:
        from tidegate.config.automata import steps

        try:
            only, after, reset = steps(self, parser_of(info) or Parser())
        except ConfigError:
            return  # as for automata
        yield from analysis.sequence_problems(only, after, reset)


def problems(config: Config) -> Iterator[Finding]:
    """Scopes and links that monitors name and nobody has."""
    known = scope_names(config)
    links = {joint.name: joint for joint in directed_links(config)}
    for index, entry in enumerate(config.monitors):
        here = ("monitors", index)
        if entry.scope is not None and entry.scope not in known:
            yield (*here, "scope"), unknown("scope", entry.scope, known, "scopes")
        lost = False
        for end in entry.ends() or ():
            name = end.removeprefix(SCOPE)
            if end.startswith(SCOPE) and name not in known:
                lost = True
                meant = suggestion(name, known)
                hint = f"did you mean `{meant}`? A" if meant else "a"
                yield (*here, "link"), f"names the unknown scope `{name}`; {hint} client is written `client:{name}`"
        if entry.link is not None and entry.between and not lost and bare(*ends(entry.link)) not in links:
            yield (*here, "link"), no_link(bare(*ends(entry.link)), links)


def warnings(config: Config) -> Iterator[Finding]:
    """What about monitors is allowed but probably not meant."""
    from tidegate.config.automata import steps, transitions

    parser = Parser()
    parser.functions.update(config.built.rules.functions)
    outward = {joint.source for joint in directed_links(config) if joint.way is not Way.DOWN}
    inward = {joint.target for joint in directed_links(config) if joint.way is not Way.UP}
    for index, entry in enumerate(config.monitors):
        here = ("monitors", index)
        if entry.direction in _OUTSIDE and entry.scope not in (
            outward if entry.direction is Direction.EX_PUB else inward
        ):
            yield (
                (*here, "direction"),
                f"acts on nothing, because `{entry.scope}` has neither parents nor such links; change it",
            )
        found = [*analysis.sequence_warnings(*steps(entry, parser))]
        if entry.automaton is not None:
            found += (
                (("automaton", *at), text)
                for at, text in analysis.automaton_warnings(transitions(entry.automaton, parser))
            )
        for at, text in found:
            yield (*here, *at), text
