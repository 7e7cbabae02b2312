"""What each step of the gate costs by itself, without sockets.

Two sorts of cost have to be told apart. A step is asked once when a plan is compiled, and again only after a change;
that is the price of the first message of a publisher on a topic. What it could not decide then is left for each
message: nothing as a rule, so that the message takes the fast lane, and otherwise a condition on its content or on the
clock. The time is CPU time of this thread with the garbage collector off, the median of some repetitions, less what
an empty call takes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat

from bench.gate import rulebook
from bench.gate.in_process import End, World, read
from bench.harness.figures import Spread, spread
from tidegate.gate import Known, Step
from tidegate.gate.decision import part_of
from tidegate.gate.stages.read_preferences import PreferenceStage
from tidegate.gate.verdict import Residual, Stage
from tidegate.session import Grant, Message

REPEATS = 5
PUBLISHERS = 28
MANY_PUBLISHERS = 1000
TOPIC = "bench/k01"
BATCH = 1024  # messages at a time
WHERE = rulebook.PAYLOAD_CONDITION


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How thorough to be."""

    seconds: float = 0.5
    """For each figure."""
    policies: tuple[int, ...] = (100, 1000, 10_000)
    publishers: int = MANY_PUBLISHERS
    """That come back after a change of the rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One figure."""

    group: str
    name: str
    nanos: Spread


def timed(call: Callable[[], object], seconds: float, *, per: int = 1) -> Spread:
    """Nanoseconds for each call, or for each of `per` things that it does."""
    call()  # what is only done the first time is measured elsewhere
    count, took = 1, 0
    while (took := spent(call, count)) < seconds * 1e9 / REPEATS / 4:
        count *= 2
    count = max(1, int(count * seconds * 1e9 / REPEATS / max(took, 1)))
    nothing = spent(_nothing, count) / count
    return found_in(max(0.0, spent(call, count) / count - nothing) / per for _ in range(REPEATS))


def found_in(values: Iterable[float]) -> Spread:
    """The spread of what was certainly measured."""
    made = spread(values)
    assert made is not None
    return made


def _nothing() -> None:
    return None


def spent(call: Callable[[], object], count: int) -> int:
    """Nanoseconds of CPU for so many calls."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        begin = time.thread_time_ns()
        for _ in repeat(None, count):
            call()
        return time.thread_time_ns() - begin
    finally:
        if enabled:
            gc.enable()


def measure(pace: Pace, before: Callable[[str], None]) -> list[Cost]:
    """Everything, in the order of the tables."""
    found: list[Cost] = []
    for name, part in PARTS.items():
        before(f"steps: {name}")
        found += part(pace)
    return found


# -- a step by itself ------------------------------------------------------------------------------------------------


class Scene:
    """One publisher and one subscriber, in the same places as over sockets."""

    def __init__(self, rules: str, *, where: str = "") -> None:
        self.world = World(rules, version=5 if where else 4)
        self.reader = self.world.subscriber("s00001", TOPIC, where)
        self.writer = self.world.end("p00001")

    @property
    def grant(self) -> Grant:
        session = self.reader.connection.session
        assert session.subscriptions is not None
        return session.subscriptions[TOPIC]

    def known(self, step: Step) -> Known:
        """What the gate knows when it compiles the plan of this publisher for `TOPIC`."""
        link = self.writer.connection.session.inward
        gate, grant = self.world.gate, self.grant
        known = Known(topic=TOPIC, context=gate.context(link), link=link.type, now=time.time())
        if step is not Step.WRITE:
            known.target, known.terms, known.where = self.reader.connection.session.outward, grant.terms, grant.where
        return known

    def stage(self, step: Step, owners: bool = False) -> Stage:
        """Of those that decide by rules."""
        gate = self.world.gate
        return next(
            one
            for one in reversed(gate.stages.ingress + gate.stages.egress)
            if one.step is step and isinstance(one, PreferenceStage) is owners
        )

    def message(self) -> Message:
        self.world.site.open()
        return self.world.message(self.writer, TOPIC, rulebook.content().encode())


STEPS: tuple[tuple[str, Step, bool], ...] = (
    ("write", Step.WRITE, False),
    ("levels", Step.LEVELS, False),
    ("read", Step.READ, False),
    ("preferences", Step.READ, True),
    ("view", Step.VIEW, False),
    ("where", Step.WHERE, False),
)


def _asked(pace: Pace) -> Iterator[Cost]:
    """Each step when a plan is compiled, with everything switched on."""
    rules = rulebook.everything(PUBLISHERS) + "\n" + "\n".join(rulebook.views())
    scene = Scene(rules, where=WHERE)
    for name, step, owners in STEPS:
        stage, known = scene.stage(step, owners), scene.known(step)
        yield Cost(group="asked", name=name, nanos=timed(partial(stage.evaluate, known), pace.seconds))


def _left(pace: Pace) -> Iterator[Cost]:
    """What a step leaves for each message if it depends on the content, and if another has read that before."""
    condition = rulebook.PAYLOAD_CONDITION
    scenes: dict[str, Scene] = {
        "write": Scene(rulebook.alone(PUBLISHERS, write=condition)),
        "read": Scene(rulebook.alone(PUBLISHERS, read=condition)),
        "preferences": Scene(rulebook.alone(PUBLISHERS, more=rulebook.preferences(PUBLISHERS, condition))),
        "where": Scene(rulebook.alone(PUBLISHERS), where=WHERE),
    }
    for name, step, owners in STEPS:
        scene = scenes.get(name)
        if scene is None:
            continue
        answer = scene.stage(step, owners).evaluate(scene.known(step))
        assert isinstance(answer, Residual), f"{name} was decided before the message came"
        decide, message = answer.decide, scene.message()

        def first(decide: Callable[[Message], object] = decide, message: Message = message) -> None:
            message.facts = None
            decide(message)

        yield Cost(group="content", name=name, nanos=timed(first, pace.seconds))
        yield Cost(group="content again", name=name, nanos=timed(partial(decide, message), pace.seconds))
    clock = Scene(rulebook.alone(PUBLISHERS, read=rulebook.MECHANISMS["moment"][1]["read"]))
    answer = clock.stage(Step.READ).evaluate(clock.known(Step.READ))
    assert isinstance(answer, Residual)
    yield Cost(group="clock", name="read", nanos=timed(partial(answer.decide, clock.message()), pace.seconds))
    yield from _views(pace)


def _views(pace: Pace) -> Iterator[Cost]:
    scene = Scene(rulebook.alone(PUBLISHERS, more=rulebook.views()))
    view = scene.world.gate.rules.views.seen(scene.reader.connection.session.subject, TOPIC).view
    message = scene.message()

    def cut() -> None:
        message.views = None
        part_of(message, view)

    yield Cost(group="content", name="view", nanos=timed(cut, pace.seconds))
    yield Cost(group="content again", name="view", nanos=timed(partial(part_of, message, view), pace.seconds))


# -- the whole way ---------------------------------------------------------------------------------------------------


def _paths(pace: Pace) -> Iterator[Cost]:
    """From the bytes that come in to the bytes that go out, for each message."""
    everywhere: dict[str, tuple[str, str]] = {
        "fast lane, policies: open": (rulebook.unrestricted(PUBLISHERS), ""),
        "fast lane, everything but monitors": (rulebook.everything(PUBLISHERS, monitored=False), ""),
        "fast lane, everything": (rulebook.everything(PUBLISHERS), ""),
        **{name: (rulebook.alone(PUBLISHERS, more=made), "") for name, (_, made) in rulebook.MONITORS.items()},
        **{name: (rulebook.alone(PUBLISHERS, **said), "") for name, (_, said) in rulebook.MECHANISMS.items()},
        "size": (rulebook.alone(PUBLISHERS, read="o.size < 1000"), ""),
        "preferences": (
            rulebook.alone(PUBLISHERS, more=rulebook.preferences(PUBLISHERS, rulebook.PAYLOAD_CONDITION)),
            "",
        ),
        "views": (rulebook.alone(PUBLISHERS, more=rulebook.views()), ""),
        "where": (rulebook.alone(PUBLISHERS), WHERE),
    }
    for name, (rules, where) in everywhere.items():
        world = World(rules, version=5 if where else 4)
        copies = len(rulebook.VIEWS) if name == "views" else 1
        topics = [f"bench/k{number:02d}" for number in range(rulebook.SUBSCRIBERS // copies)]
        readers = [
            world.subscriber(f"s{number:05d}", topics[number // copies], where)
            for number in range(rulebook.SUBSCRIBERS)
        ]
        writers = [world.end(f"p{number:05d}") for number in range(len(topics))]
        payload = rulebook.content().encode()
        data = [world.frame(topic, payload) for topic in topics]
        nanos = timed(partial(world.play, writers, data, BATCH), pace.seconds, per=BATCH)
        _proved(name, world, readers, writers, data)
        yield Cost(group="path", name=name, nanos=nanos)


def _proved(name: str, world: World, readers: list[End], writers: list[End], data: list[bytes]) -> None:
    """What was timed was delivered."""
    before = [one.written for one in readers]
    world.play(writers, data, 1)
    if any(one.written == old for one, old in zip(readers, before, strict=True)):
        raise AssertionError(f"{name}: a subscriber received nothing")


def _stored(pace: Pace) -> Iterator[Cost]:
    """A message that was queued or retained, decided again when it is sent."""
    scene = Scene(rulebook.everything(PUBLISHERS))
    gate, session = scene.world.gate, scene.reader.connection.session
    message = scene.message()
    yield Cost(group="stored", name="decided before", nanos=timed(partial(gate.decide, message, session), pace.seconds))

    others = [scene.world.end(f"p{number:05d}") for number in range(2, PUBLISHERS)]
    waiting = [scene.world.message(end, TOPIC, message.payload) for end in others]

    def all_of_them() -> None:
        for one in waiting:
            gate.decide(one, session)

    firsts: list[float] = []
    for _ in range(REPEATS):
        gate.cache.clear()
        firsts.append(spent(all_of_them, 1) / len(waiting))
    yield Cost(group="stored", name="for the first time", nanos=found_in(firsts))
    scene = Scene(rulebook.alone(PUBLISHERS, read=rulebook.PAYLOAD_CONDITION))
    gate, session, other = scene.world.gate, scene.reader.connection.session, scene.message()

    def by_content() -> None:
        other.facts = None
        gate.decide(other, session)

    yield Cost(group="stored", name="by its content", nanos=timed(by_content, pace.seconds))


# -- compiling -------------------------------------------------------------------------------------------------------


def _compiled(pace: Pace) -> Iterator[Cost]:
    """A plan for a topic with one subscriber, and one more who may not read it; and then what a message costs."""
    for count in pace.policies:
        for dense in (False, True):
            world = World(rulebook.everything(PUBLISHERS, count, dense=dense))
            number = 0 if dense else 1
            world.subscriber(f"s{number:05d}", f"bench/k{number:02d}")
            world.subscriber("b00000", "#")
            writer = world.end(f"p{number:05d}")
            lane = world.gate.lane(writer.connection.session.inward, world.version)
            topic = f"bench/k{number:02d}"
            make = partial(world.gate.compiler.compile, topic, lane)
            if len(make().targets) != 1:
                raise AssertionError("the plan that is timed delivers to nobody")
            name = f"{count:,} policies, all of this topic" if dense else f"{count:,} policies"
            yield Cost(group="compile", name=name, nanos=timed(make, pace.seconds))
            play = partial(world.play, [writer], [world.frame(topic, rulebook.content().encode())], BATCH)
            yield Cost(group="message", name=name, nanos=timed(play, pace.seconds, per=BATCH))


def _changed(pace: Pace) -> Iterator[Cost]:
    """Other rules with many plans in use: the change itself, and the first message of each publisher after it."""
    editions = [read(rulebook.everything(pace.publishers, edition=number)).rules for number in range(2)]
    world = World(rulebook.everything(pace.publishers))
    for number in range(rulebook.SUBSCRIBERS):
        world.subscriber(f"s{number:05d}", f"bench/k{number:02d}")
    world.subscriber("b00000", "#")
    writers = [world.end(f"p{number:05d}") for number in range(pace.publishers)]
    payload = rulebook.content().encode()
    data = [world.frame(f"bench/k{number % rulebook.TOPICS:02d}", payload) for number in range(pace.publishers)]
    changes: list[float] = []
    firsts: list[float] = []
    _everybody(world, writers, data)
    for number in range(REPEATS):
        world.site.open()
        changes.append(float(spent(partial(world.scope.change, editions[number % 2]), 1)))
        world.site.close()
        while world.site.unfinished:  # the review of sessions, and what is thrown away: pieces between messages
            piece = world.site.unfinished.popleft()
            if piece():
                world.site.unfinished.append(piece)
        firsts.append(spent(partial(_everybody, world, writers, data), 1) / pace.publishers)
    for name, values in (("the change itself", changes), ("first message of a publisher", firsts)):
        yield Cost(group="change", name=name, nanos=found_in(values))


def _everybody(world: World, writers: list[End], data: list[bytes]) -> None:
    for end, frame in zip(writers, data, strict=True):
        world.site.open()
        end.connection.reader.receive(frame)
    world.site.close()


PARTS: dict[str, Callable[[Pace], Iterator[Cost]]] = {
    "when a plan is compiled": _asked,
    "what is left for each message": _left,
    "the whole way": _paths,
    "stored messages": _stored,
    "compiling": _compiled,
    "other rules": _changed,
}
