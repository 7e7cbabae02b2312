"""From a monitor as it is written to the machine that runs.

Expects what `monitors` has checked. Conditions come from the parser, so that each text is understood once.
"""

from __future__ import annotations

import json
from typing import Any, assert_never

from tidegate.config import monitors
from tidegate.config.enums import BuiltInMonitor
from tidegate.config.parser import Parser
from tidegate.monitor import Attachment, Machine, Suppressed
from tidegate.monitor.automaton import SAME, Automaton, Emit, Timer, Transition
from tidegate.monitor.chain import Chain
from tidegate.monitor.library import Alternate, Complex, Filter, Mapper, Names, Twice
from tidegate.monitor.pacing import Dedupe, Rate, Silence
from tidegate.monitor.python import load_monitor
from tidegate.monitor.sequence import Step, guard
from tidegate.predicate import Predicate


def attachment(id: str, entry: monitors.Monitor, parser: Parser) -> Attachment:
    """The monitor, and where it acts. Raises `ConfigError` if its Python cannot be used."""
    return Attachment(
        id=id,
        monitor=machine(entry, parser),
        link=entry.ends(),
        scope=entry.scope,
        direction=entry.direction,
        each=entry.each,
        default=entry.default,
        refuses=entry.suppressed is Suppressed.REFUSE,
    )


def machine(entry: monitors.Monitor, parser: Parser) -> Machine:
    """What runs."""
    if entry.automaton is not None:
        return automaton(entry.automaton, parser)
    if entry.filter is not None:
        return Filter([parser.filter(each) for each in entry.filter])
    if entry.python is not None:
        return load_monitor(entry.python, entry.arguments or {})
    if entry.use is not None:
        return _ready(entry.use, Names(entry.map or {}))
    if entry.map is not None:
        return Mapper(Names(entry.map))
    return _sequence(entry, parser)


def _ready(use: BuiltInMonitor, names: Names) -> Machine:
    match use:
        case BuiltInMonitor.SIMPLE:
            return Mapper(names)
        case BuiltInMonitor.COMPLEX:
            return Complex(names)
        case BuiltInMonitor.HSUP:
            return Alternate()
        case BuiltInMonitor.MULTI:
            return Twice()
        case _:
            assert_never(use)


def _sequence(entry: monitors.Monitor, parser: Parser) -> Machine:
    made: list[Machine] = []
    on = _filters(entry.on, parser)
    if entry.only is not None or entry.payload is not None:
        only, after, reset = steps(entry, parser)
        payload = None if entry.payload is None else parser.predicate(entry.payload)
        made.append(guard(only=only, after=after, reset=reset, payload=payload))
    if entry.dedupe is not None:
        made.append(Dedupe(entry.dedupe, on))
    if entry.rate is not None:
        rate, burst = monitors.pace(entry.rate)
        made.append(Rate(rate, entry.burst or burst, on))
    if entry.silence is not None:
        made.append(Silence(entry.silence, _emit(entry.emit), on))
    return made[0] if len(made) == 1 else Chain(made)


def automaton(written: monitors.Automaton, parser: Parser) -> Automaton:
    """The automaton of states and transitions."""
    states = transitions(written, parser)
    timers = {name: each for name, found in states.items() for each in found if isinstance(each, Timer)}
    arrows = {name: [each for each in found if isinstance(each, Transition)] for name, found in states.items()}
    return Automaton(written.start, arrows, timers)


def transitions(written: monitors.Automaton, parser: Parser) -> dict[str, list[Transition | Timer]]:
    """What stands in each state, in the order of the file."""
    return {name: [_transition(each, parser) for each in found] for name, found in written.states.items()}


def steps(entry: monitors.Monitor, parser: Parser) -> tuple[Step | None, list[Step], Step | None]:
    """`only`, `after` and `reset`."""
    after = entry.after if isinstance(entry.after, tuple) else () if entry.after is None else (entry.after,)
    made = [_step(each, parser) for each in after]
    only = None if entry.only is None else _step(entry.only, parser)
    return only, made, None if entry.reset is None else _step(entry.reset, parser)


def _transition(written: monitors.Transition, parser: Parser) -> Transition | Timer:
    if written.silent is not None:
        return Timer(silent=written.silent, go=written.go, emit=_emit(written.emit))
    return Transition(
        on=_filters("#" if written.on is None else written.on, parser),
        when=_when(written.when, parser),
        go=written.go,
        emit=(SAME,) if written.emit is None else _emit(written.emit),
    )


def _step(written: monitors.Matching, parser: Parser) -> Step:
    if isinstance(written, monitors.Step):
        return Step(on=_filters(written.on, parser), when=_when(written.when, parser))
    return Step(on=_filters(written, parser))


def _filters(written: monitors.Filters, parser: Parser) -> tuple[str, ...]:
    return tuple(parser.filter(each) for each in (written if isinstance(written, tuple) else (written,)))


def _when(written: str | None, parser: Parser) -> tuple[Predicate, ...]:
    return () if written is None else (parser.predicate(written),)


def _emit(written: monitors.Emit | None) -> tuple[Emit, ...]:
    if written is None:
        return ()
    return tuple(map(_emitted, written if isinstance(written, tuple) else (written,)))


def _emitted(written: Any) -> Emit:
    if not isinstance(written, monitors.Emission):
        return SAME
    payload = None if written.payload is None else content(written.payload)
    return Emit(topic=written.topic, payload=payload, qos=written.qos, retain=written.retain)


def content(written: Any) -> bytes:
    """A payload: text as it is, anything else as compact JSON. Raises `ValueError`."""
    if isinstance(written, str):
        return written.encode()
    return json.dumps(written, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
