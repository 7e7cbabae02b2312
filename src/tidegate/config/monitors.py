"""Monitors in the configuration: what is expected on a link, one event after the other.

A monitor is written in one way: as an `automaton`, in the sequence language (`only`, `after`, `reset`, `payload`,
`dedupe`, `rate`, `silence`, which can stand together), with `filter`, `map` or `use`, or in Python. What can be wrong
is found here, with its place. `Monitor.attachment` makes the machine that runs, from what was checked; conditions come
from the parser, so that each text is parsed once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, assert_never

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, JsonValue, Tag, ValidationInfo

from tidegate import topics
from tidegate.config.links import SCOPE, between, directed_links, ends, no_link, remote_scopes, scope_names
from tidegate.config.parser import Parser, parser_of
from tidegate.config.policies import Condition, Filter, RuleId
from tidegate.config.problems import Finding, combined_problems, refusal, requires, suggestion, unknown
from tidegate.config.scopes import Guards
from tidegate.config.section import (
    LIST,
    ONE,
    TABLE,
    CheckedSection,
    OneOrMore,
    PythonName,
    Section,
    as_tuple,
    form,
    listed,
)
from tidegate.config.units import Count, Duration, Switch
from tidegate.errors import ConfigError
from tidegate.monitor import MAX_OUTPUTS, Attachment, Direction, Each, Machine, Suppressed, analysis, sequence
from tidegate.monitor import automaton as automata
from tidegate.monitor.library import Alternate, Complex, Mapper, Names, Twice, unlike
from tidegate.monitor.library import Filter as FilterMachine
from tidegate.monitor.machines_in_a_row import Chain
from tidegate.monitor.python import load_monitor
from tidegate.monitor.rate_dedupe_silence import Dedupe, Rate, Silence
from tidegate.policy import Action
from tidegate.policy.scopes import Way
from tidegate.predicate import Predicate

if TYPE_CHECKING:
    from tidegate.config.model import Config


class BuiltInMonitor(StrEnum):
    """Monitors that need not be written: those of the measurements of scopes, 5.1."""

    SIMPLE = "simple_em"
    COMPLEX = "complex_em"
    HSUP = "hsup_em"
    MULTI = "multi_em"


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


_RESERVED: Final = "is reserved, because it begins with `$`; choose another topic"


def content(written: Any) -> bytes:
    """A payload: text as it is, anything else as compact JSON. Raises `ValueError`."""
    if isinstance(written, str):
        return written.encode()
    return json.dumps(written, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _content(written: JsonValue) -> JsonValue:
    try:
        content(written)
    except ValueError:
        raise refusal("has a number that JSON cannot hold; write a smaller one, or put it in quotes") from None
    return written


def _pace(written: object) -> object:
    if isinstance(written, str) and (pace := _PACE.fullmatch(written)) and float(pace[1]) > 0:
        return written
    raise refusal("must say how many and in which time; write for example `20/s`, `5/m` or `100/h`")


def pace(written: str) -> tuple[float, int]:
    """Events a second, and the default burst: the events of one unit of time."""
    parts = _PACE.fullmatch(written)
    assert parts is not None
    return float(parts[1]) / _UNITS[parts[2]], math.ceil(float(parts[1]))


def _link(written: str) -> str:
    ends(written)
    return written


def _renames(written: Mapping[str, str]) -> Mapping[str, str]:
    findings: list[Finding] = []
    for old, new in written.items():
        if new.startswith("$"):
            findings.append(((old,), _RESERVED))
        elif why := unlike(old, new):
            findings.append(((old,), f"cannot carry the wildcards over: {why}; write as many in the new one"))
    if findings:
        raise combined_problems(findings)
    return written


OutputTopic = Annotated[
    str,
    requires(topics.valid_topic, "is no topic, and events are put out to one; write it without `+` and `#`"),
    requires(lambda topic: topic[0] != "$", _RESERVED),
]
Content = Annotated[JsonValue, AfterValidator(_content)]
StateName = Annotated[
    str, requires(_STATE.fullmatch, "must be the name of a state; write 1 to 100 characters, without `@`")
]
Pace = Annotated[str, BeforeValidator(_pace)]
Link = Annotated[str, AfterValidator(_link)]
Span = Annotated[Duration, Field(ge=automata.SHORTEST, le=365 * 86400)]
Filters = OneOrMore[Filter]
Renames = Annotated[Mapping[Filter, Filter], Field(min_length=1), AfterValidator(_renames)]


# -- transitions and steps -------------------------------------------------------------------------------------------


class Emission(CheckedSection):
    """An event that is put out. What is left out is as in the event that came in."""

    topic: OutputTopic | None = None
    """Its topic. It cannot be reserved (`$…`)."""
    payload: Content = None
    """Its content: text as it is, anything else as JSON."""
    qos: Count | None = Field(default=None, ge=0, le=2)
    """Its QoS."""
    retain: Switch | None = None
    """Whether it is retained."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if not self.model_dump(exclude_none=True):
            yield (), "changes nothing; write `same`, or what shall be different"

    def event(self) -> automata.Emit:
        payload = None if self.payload is None else content(self.payload)
        return automata.Emit(topic=self.topic, payload=payload, qos=self.qos, retain=self.retain)


Emitted = Annotated[Annotated[Literal["same"], Tag(ONE)] | Annotated[Emission, Tag(TABLE)], Discriminator(form)]
Emit = Annotated[
    Annotated[Literal["same"], Tag(ONE)]
    | Annotated[Emission, Tag(TABLE)]
    | Annotated[tuple[Emitted, ...], Field(max_length=MAX_OUTPUTS), Tag(LIST)],
    Discriminator(form),
]


def _outputs(emit: Emit | None) -> tuple[automata.Emit, ...]:
    outputs: tuple[Any, ...] = () if emit is None else as_tuple(emit)
    return tuple(each.event() if isinstance(each, Emission) else automata.SAME for each in outputs)


def _filters(written: Filters, parser: Parser) -> tuple[str, ...]:
    return tuple(map(parser.filter, as_tuple(written)))


def _when(written: str | None, parser: Parser) -> tuple[Predicate, ...]:
    return () if written is None else (parser.predicate(written),)


def _unprompted(emit: Emit) -> Iterator[Finding]:
    """Outputs that need an event, where there is none: `same`, and events without a topic."""
    for index, each in listed(emit):
        if not isinstance(each, Emission):
            yield ("emit", *index), "is `same`, but in a silence there is no event; write `{topic: …, payload: …}`"
        elif each.topic is None:
            text = "is missing, and in a silence there is no event to take it from; add it"
            yield ("emit", *index, "topic"), text


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
    | Annotated[tuple[Matching, ...], Field(min_length=1, max_length=sequence.MAX_STEPS), Tag(LIST)]
    | Annotated[Step, Tag(TABLE)],
    Discriminator(form),
]


def _step(written: Matching | None, parser: Parser) -> sequence.Step | None:
    match written:
        case None:
            return None
        case Step(on=on, when=when):
            return sequence.Step(on=_filters(on, parser), when=_when(when, parser))
        case filters:
            return sequence.Step(on=_filters(filters, parser))


class Transition(CheckedSection):
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

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.silent is None:
            return
        for key in ("on", "when"):
            if getattr(self, key) is not None:
                yield (key,), "has no effect beside `silent`, which is about no event at all; remove one of the two"
        yield from _unprompted(self.emit or ())

    def built(self, parser: Parser) -> automata.Transition | automata.Timer:
        if self.silent is not None:
            return automata.Timer(silent=self.silent, go=self.go, emit=_outputs(self.emit))
        return automata.Transition(
            on=_filters("#" if self.on is None else self.on, parser),
            when=_when(self.when, parser),
            go=self.go,
            emit=(automata.SAME,) if self.emit is None else _outputs(self.emit),
        )


class Automaton(CheckedSection):
    """States, and what happens to events in each. What no transition matches passes."""

    start: StateName
    """The first state."""
    states: Mapping[StateName, tuple[Transition, ...]] = Field(min_length=1)
    """The transitions of each state, in the order in which they are tried. At most 1000 states with 10,000 in all."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        for what, count, most in (
            ("states", len(self.states), _STATES),
            ("transitions", sum(map(len, self.states.values())), _TRANSITIONS),
        ):
            if count > most:
                yield ("states",), f"has {count} {what}, and {most} are the most; use `+` and `#`, or several monitors"
                return
        try:
            states = self.transitions(parser_of(info) or Parser())
        except ConfigError:
            return  # a condition calls a function that could not be loaded, which is reported elsewhere
        yield from analysis.automaton_problems(self.start, states)

    def transitions(self, parser: Parser) -> dict[str, list[automata.Transition | automata.Timer]]:
        """What stands in each state, in the order of the file."""
        return {name: [each.built(parser) for each in entries] for name, entries in self.states.items()}

    def machine(self, parser: Parser) -> Machine:
        states = self.transitions(parser).items()
        arrows = {name: [each for each in entries if isinstance(each, automata.Transition)] for name, entries in states}
        timers = {name: each for name, entries in states for each in entries if isinstance(each, automata.Timer)}
        return automata.Automaton(self.start, arrows, timers)


# -- monitors --------------------------------------------------------------------------------------------------------


class Monitor(CheckedSection):
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
    enforce: Switch = True
    """`false`: it is only watched, as for policies: it moves, and what it would suppress or change passes."""

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

    def _problems(self, info: ValidationInfo) -> list[Finding]:
        problems = [*self._place(), *self._way(), *self._sequence()]
        try:
            return [*problems, *analysis.sequence_problems(*self.steps(parser_of(info) or Parser()))]
        except ConfigError:
            return problems  # a condition calls a function that could not be loaded, which is reported elsewhere

    def ends(self) -> tuple[str, str] | None:
        return None if self.link is None else ends(self.link)

    @property
    def enters(self) -> bool:
        """Whether it acts where events come into a scope."""
        if (link := self.ends()) is not None:
            return link[1].startswith(SCOPE)
        return self.direction is not None and self.direction.enters

    @property
    def way(self) -> str | None:
        """The key that says how it is written; None: the sequence language."""
        ways = [key for key in OTHERS if getattr(self, key) is not None]
        return "use" if "use" in ways else ways[0] if ways else None

    @property
    def remembers(self) -> bool:
        """Whether what it does depends on the events that came before."""
        if self.automaton is not None or self.python is not None or self.use is BuiltInMonitor.HSUP:
            return True
        return (self.after, self.dedupe, self.rate, self.silence) != (None, None, None, None)

    @property
    def between(self) -> bool:
        """Whether it acts where no client is: on a link of two scopes, or towards parents."""
        if (link := self.ends()) is not None:
            return all(end.startswith(SCOPE) for end in link)
        return self.direction in _OUTSIDE

    @property
    def makes(self) -> bool:
        """Whether it puts out anything but the event itself."""
        if self.automaton is not None:
            every = (each.emit for transitions in self.automaton.states.values() for each in transitions)
            return any(output != automata.SAME for emit in every for output in _outputs(emit))
        if self.use is not None:
            return self.use is not BuiltInMonitor.HSUP
        return self.map is not None or self.python is not None or self.silence is not None

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
        ways = [key for key in OTHERS if getattr(self, key) is not None]
        if "use" in ways and "map" in ways:
            ways.remove("map")
            if self.use not in _NAMED:
                yield ("map",), f"has no effect on `{self.use}`; remove it"
        written = [key for key in SEQUENCE if key in self.model_fields_set and getattr(self, key) is not None]
        if ways:
            for key in (*ways[1:], *written):
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
        if self.emit is not None and self.silence is None:
            yield ("emit",), "has no effect without `silence`; add that, or write an `automaton`"
        elif self.emit == ():
            yield ("emit",), "is empty, so nobody is told of a silence; add what shall be put out"
        elif self.emit is not None:
            yield from _unprompted(self.emit)
        if "on" in self.model_fields_set and (self.dedupe, self.rate, self.silence) == (None, None, None):
            yield ("on",), "has no effect without `dedupe`, `rate` or `silence`; add one of these, or write `only`"

    def steps(self, parser: Parser) -> tuple[sequence.Step | None, list[sequence.Step], sequence.Step | None]:
        """`only`, `after` and `reset`."""
        after: tuple[Matching, ...] = () if self.after is None else as_tuple(self.after)
        steps = [step for each in after if (step := _step(each, parser)) is not None]
        return _step(self.only, parser), steps, _step(self.reset, parser)

    def leaves(self, far: Collection[str]) -> bool:
        """Whether it acts where events leave for another node; `far` are the scopes of others."""
        link = self.ends()
        return link is not None and link[1].removeprefix(SCOPE) in far and link[1].startswith(SCOPE)

    def attachment(self, id: str, parser: Parser, far: Collection[str] = ()) -> Attachment:
        """The machine, and where it acts; `far` are scopes of other nodes. Raises `ConfigError` if its Python cannot be
        used."""
        return Attachment(
            id=id,
            monitor=self.machine(parser),
            link=self.ends(),
            leaves=self.leaves(far),
            scope=self.scope,
            direction=self.direction,
            each=self.each,
            default=self.default,
            suppressed=self.suppressed,
            renames=self.makes,
        )

    def machine(self, parser: Parser) -> Machine:
        if self.automaton is not None:
            return self.automaton.machine(parser)
        if self.filter is not None:
            return FilterMachine(list(map(parser.filter, self.filter)))
        if self.python is not None:
            return load_monitor(self.python, self.arguments or {})
        names = Names(self.map or {})
        match self.use:
            case BuiltInMonitor.SIMPLE:
                return Mapper(names)
            case BuiltInMonitor.COMPLEX:
                return Complex(names)
            case BuiltInMonitor.HSUP:
                return Alternate()
            case BuiltInMonitor.MULTI:
                return Twice()
            case None:
                return self._chain(parser) if self.map is None else Mapper(names)
            case _:
                assert_never(self.use)

    def _chain(self, parser: Parser) -> Machine:
        machines: list[Machine] = []
        on = _filters(self.on, parser)
        if self.only is not None or self.payload is not None:
            only, after, reset = self.steps(parser)
            payload = None if self.payload is None else parser.predicate(self.payload)
            machines.append(sequence.guard(only=only, after=after, reset=reset, payload=payload))
        if self.dedupe is not None:
            machines.append(Dedupe(self.dedupe, on))
        if self.rate is not None:
            rate, burst = pace(self.rate)
            machines.append(Rate(rate, self.burst or burst, on))
        if self.silence is not None:
            machines.append(Silence(self.silence, _outputs(self.emit), on))
        return machines[0] if len(machines) == 1 else Chain(machines)


def problems(config: Config) -> Iterator[Finding]:
    """Scopes and links that monitors name and nobody has."""
    known, far = scope_names(config), remote_scopes(config)
    links = {joint.name: joint for joint in directed_links(config)}
    for index, entry in enumerate(config.monitors):
        here = ("monitors", index)
        if entry.scope is not None and entry.scope not in known:
            yield (*here, "scope"), unknown("scope", entry.scope, known, "scopes")
        lost = False
        for end in entry.ends() or ():
            name = end.removeprefix(SCOPE)
            if end.startswith(SCOPE) and name not in known and not (name in far and entry.between):
                lost = True
                meant = suggestion(name, known)
                hint = f"did you mean `{meant}`? A" if meant else "a"
                yield (*here, "link"), f"names the unknown scope `{name}`; {hint} client is written `client:{name}`"
        if entry.link is not None and entry.between and not lost and (name := between(entry.link)) not in links:
            yield (*here, "link"), no_link(name, links)
        at = {entry.scope, *(end.removeprefix(SCOPE) for end in entry.ends() or () if end.startswith(SCOPE))}
        for name in sorted(each for each in at if each is not None and each in known):
            if config.scopes[name].guards is Guards.SEVERAL and entry.remembers:
                text = f"remembers what has come, and `{name}` has several guards, each of which sees a part of it"
                yield here, f"{text}; let one guard have its clients, or write a monitor without a memory"
        if "suppressed" in entry.model_fields_set and entry.leaves(far):
            text = "has no effect where events leave for another node: nobody is acknowledged; remove it"
            yield (*here, "suppressed"), text


def warnings(config: Config) -> Iterator[Finding]:
    """Monitors that are allowed but probably not meant so."""
    parser = config.parser
    policies = config.built.rules.policies
    attachments = tuple(config.built.rules.monitors)
    writers = None if policies is None else policies.named(Action.WRITE, "monitor")
    outward = {joint.source for joint in directed_links(config) if joint.way is not Way.DOWN}
    inward = {joint.target for joint in directed_links(config) if joint.way is not Way.UP}
    far = remote_scopes(config)
    for index, entry in enumerate(config.monitors):
        here = ("monitors", index)
        linked = outward if entry.direction is Direction.EX_PUB else inward
        if entry.direction in _OUTSIDE and entry.scope not in linked:
            text = f"acts on nothing, because `{entry.scope}` has neither parents nor such links; change it"
            yield (*here, "direction"), text
        enters = entry.enters and not entry.leaves(far)
        if enters and entry.makes and not (writers is None or attachments[index].id in writers):
            how = f'add `{{subject: "monitor:{attachments[index].id}", topic: …, action: write}}` to `policies`'
            yield here, f"makes messages that no policy allows it to write, and `*` does not count for monitors; {how}"
        for path, text in analysis.sequence_warnings(*entry.steps(parser)):
            yield (*here, *path), text
        if entry.automaton is not None:
            for path, text in analysis.automaton_warnings(entry.automaton.transitions(parser)):
                yield (*here, "automaton", *path), text
