"""What a replay finds is what semantics.md says: compared with an evaluator that knows nothing of the gate."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.replay import naive
from pipeline.replay.naive import Event, Person, Policy, Preference, RecordedSubscription, Rules, View
from pipeline.replay.recording import config, decided, rows, total, write

NIGHT = 1_772_409_600.0  # 2026-03-02, midnight
FILTERS = ("#", "+", "a", "a/#", "a/+", "b", "+/c", "a/b")
TOPICS = ("a", "b", "a/b", "a/c", "a/b/c")
SUBJECTS = ("*", "user:alice", "user:bob", "role:r", "client:one", "client:two")
PEOPLE = (
    Person("one", "alice", ("r",)),
    Person("two", "bob", (), "tls"),
    Person("two", "alice", ("r",), "tls"),
    Person("three", None),
    Person("four", "carol", ("r",), "mtls"),
)
PAYLOADS = (b'{"a": 5, "b": 1}', b'{"a": 1}', b'{"b": 2, "c": 3}', b"{}", b"no", b"7", b"")
KEEPS = (("/a",), ("/b",), ("/a", "/b"))
NOW = tuple(naive.CONDITIONS)
ANY_TIME = tuple(each for each in NOW if each not in naive.LATER)

PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)  # to explain a failure takes minutes

few = {"max_size": 3}


def rules(conditions: Sequence[str]) -> st.SearchStrategy[Rules]:
    when = st.none() | st.sampled_from(conditions)
    numbered = st.lists(
        st.builds(
            Policy,
            id=st.just(""),
            subject=st.sampled_from(SUBJECTS),
            topic=st.sampled_from(FILTERS),
            actions=st.sampled_from((("read",), ("write",), ("read", "write"))),
            effect=st.sampled_from(("allow", "allow", "allow", "deny")),
            when=when,
        ),
        max_size=5,
    )
    broad = st.just([Policy("", "*", "#", ("read", "write"), "allow", None)])
    return st.builds(
        Rules,
        policies=st.none()
        | st.tuples(broad | st.just([]), numbered).map(lambda two: _named(Policy, "p", [*two[0], *two[1]])),
        combining=st.sampled_from(("deny-overrides", "permit-overrides", "first-applicable")),
        preferences=st.lists(
            st.builds(
                Preference,
                id=st.just(""),
                user=st.sampled_from(("alice", "bob")),
                topic=st.sampled_from(FILTERS),
                when=when,
                keep=st.none() | st.sampled_from(KEEPS),
            ),
            **few,
        ).map(lambda found: _named(Preference, "o", found)),
        views=st.lists(
            st.builds(
                View,
                id=st.just(""),
                topic=st.sampled_from(("a/#", "b", "a/b")),
                subject=st.sampled_from(SUBJECTS),
                keep=st.none() | st.sampled_from(KEEPS),
            ),
            **few,
        ).map(lambda found: _named(View, "v", found)),
        implied=st.booleans(),
    )


def _named(kind: type[Any], letter: str, found: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(replace(each, id=f"{letter}{number}") for number, each in enumerate(found))


DEMANDS = st.sampled_from((None, None, None, "none", "plain", "tls", "mtls"))


@st.composite
def stories(draw: st.DrawFn, conditions: Sequence[str], *, away: bool) -> list[Event]:
    """Something that a node could have recorded."""
    made: list[Event] = []
    here: dict[tuple[str | None, str], tuple[Person, set[str]]] = {}
    connected: set[tuple[str | None, str]] = set()
    at = NIGHT

    def happen(what: str, who: Person, **more: Any) -> None:
        made.append(Event(what, at, who, **more))

    for person in draw(st.lists(st.sampled_from(PEOPLE), min_size=2, max_size=4, unique=True)):
        here[person.user, person.client] = (person, {"#"})
        connected.add((person.user, person.client))
        happen("connect", person)
        happen("subscribe", person, subscription=RecordedSubscription("#", qos=1, no_local=draw(st.booleans())))
    for _ in range(draw(st.integers(3, 25))):
        at += draw(st.sampled_from((0.0, 0.001, 1.0, 3600.0, 20_000.0)))
        kind = draw(st.sampled_from(("connect", "subscribe", "subscribe", "message", "message", "message", "leave")))
        if kind == "connect" or not here:
            person = replace(draw(st.sampled_from(PEOPLE)), demand=draw(DEMANDS))
            key = (person.user, person.client)
            here.setdefault(key, (person, set()))
            here[key] = (person, here[key][1])
            connected.add(key)
            happen("connect", person)
            continue
        key = draw(st.sampled_from(sorted(here, key=str)))
        person, filters = here[key]
        match kind:
            case "subscribe" if key in connected:
                filter = draw(st.sampled_from((*FILTERS, "$share/g/#", "$share/g/a/+", "$share/h/#")))
                shared = filter.startswith("$share")
                where = draw(st.none() | st.sampled_from([each for each in naive.WHERES if each in conditions]))
                subscription = RecordedSubscription(
                    filter=filter,
                    qos=draw(st.integers(0, 2)),
                    no_local=not shared and draw(st.booleans()),
                    where=where,
                    demand=draw(DEMANDS),
                )
                filters.add(filter)
                happen("subscribe", person, subscription=subscription)
            case "message" if key in connected:
                view = draw(st.none() | st.none() | st.sampled_from(({"user:bob": ["/a"]}, {"*": "all"}, {})))
                happen(
                    "publish",
                    person,
                    topic=draw(st.sampled_from(TOPICS)),
                    payload=draw(st.sampled_from(PAYLOADS)),
                    qos=draw(st.integers(0, 2)),
                    properties=draw(st.sampled_from(((), (), (("k", "v"),)))),
                    demand=draw(DEMANDS),
                    view=view,
                )
            case "leave":
                if filters and draw(st.booleans()):
                    gone = draw(st.sampled_from(sorted(filters)))
                    filters.remove(gone)
                    happen("unsubscribe", person, subscription=RecordedSubscription(gone))
                elif away and key in connected and draw(st.booleans()):
                    connected.remove(key)
                    happen("disconnect", person)
                else:
                    del here[key]
                    connected.discard(key)
                    happen("end", person)
    return made


def found_in(sums: Sequence[dict[str, Any]]) -> Counter[naive.Change]:
    found: Counter[naive.Change] = Counter()
    for row in sums:
        if row["kind"] == "change":
            allowed = row["before_allowed"], row["after_allowed"]
            found[row["who"], row["action"], row["topic"], row["publisher"], *allowed] += row["count"]
    return found


def tried(
    events: list[Event], before: Rules, after: Rules, recorded: list[Event] | None = None, **options: Any
) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write(data, rows(recorded or events, before))
        return decided(config(before, data), config(after, data), **options)


def telling(events: list[Event], before: Rules, after: Rules) -> list[Event]:
    """The same, without what the record cannot tell: a message that demands what was meant anyway says nothing.

    It matters where levels are implied on one side only; `test_what_is_assumed_is_counted` is about that.
    """
    if before.implied == after.implied:
        return events

    def told(event: Event) -> Event:
        person = event.who
        usual = naive.demanded(before, person.level, person.demand)
        same = naive.demanded(before, person.level, event.demand, person.demand) == usual
        return replace(event, demand=None) if same and person.demand is None else event

    return [told(event) for event in events]


def check(events: list[Event], before: Rules, after: Rules) -> None:
    if not any(event.what == "publish" for event in events):
        return
    events = telling(events, before, after)
    sums = tried(events, before, after)
    wanted, deliveries = naive.changes(events, before, after)
    assert found_in(sums) == wanted
    assert total(sums, "undecided") == 0
    assert total(sums, "deliveries") == deliveries
    assert total(sums, "messages") == sum(event.what == "publish" for event in events)
    assert total(sums, "changed") == sum(wanted.values())


@settings(max_examples=60, deadline=None, phases=PHASES)
@given(stories(NOW, away=False), rules(NOW), rules(NOW))
def test_finds_exactly_what_the_definition_says(events: list[Event], before: Rules, after: Rules) -> None:
    check(events, before, after)


@settings(max_examples=40, deadline=None, phases=PHASES)
@given(stories(ANY_TIME, away=True), rules(ANY_TIME), rules(ANY_TIME))
def test_also_with_sessions_that_are_away(events: list[Event], before: Rules, after: Rules) -> None:
    check(events, before, after)


@settings(max_examples=25, deadline=None, phases=PHASES)
@given(stories(NOW, away=True), rules(NOW))
def test_the_same_rules_change_nothing(events: list[Event], before: Rules) -> None:
    if any(event.what == "publish" for event in events):
        sums = tried(events, before, before)
        assert not found_in(sums)
        assert total(sums, "undecided") == 0


@settings(max_examples=40, deadline=None, phases=PHASES)
@given(stories(NOW, away=False), rules(NOW), rules(NOW), st.data())
def test_nothing_is_guessed(events: list[Event], before: Rules, after: Rules, data: st.DataObject) -> None:
    """Of what was not recorded nothing is claimed that could be otherwise, and what is left out is counted."""
    recorded = []
    events = telling(events, before, after)
    for event in events:
        if event.what == "publish" and not naive.may_write(before, event) and not event.view and not event.demand:
            recorded.append(replace(event, what="refused"))
        elif event.what == "publish":
            recorded.append(replace(event, recorded=data.draw(st.booleans())))
        else:
            recorded.append(event)
    if not any(event.what in ("publish", "refused") for event in events):
        return
    sums = tried(events, before, after, recorded)
    wanted, _ = naive.changes(events, before, after)
    found = found_in(sums)
    assert not found - wanted
    if not total(sums, "undecided"):
        assert found == wanted


def test_what_is_assumed_is_counted() -> None:
    """`require: none` of a message is not in the record where nothing was implied."""
    one, two = PEOPLE[1], PEOPLE[0]  # over TLS, and without
    events = [
        Event("connect", NIGHT, one),
        Event("connect", NIGHT, two),
        Event("subscribe", NIGHT, two, subscription=RecordedSubscription("#")),
        Event("publish", NIGHT, one, topic="a", demand="none"),
        Event("publish", NIGHT, one, topic="a", demand="plain"),
    ]
    before, after = Rules(policies=None), Rules(policies=None, implied=True)
    sums = tried(events, before, after)
    assert found_in(sums) == Counter({("user:alice/client:one", "read", "a", "user:bob/client:two", True, False): 1})
    assert total(sums, "assumed") == 1  # the other one has said what it demands
    assert total(tried(events, before, before), "assumed") == 0


def test_for_whom_a_refused_publish_was_is_not_guessed() -> None:
    """It may have come with a table that shows it to nobody; the record does not say."""
    one, two = PEOPLE[0], PEOPLE[1]
    events = [
        Event("connect", NIGHT, one),
        Event("connect", NIGHT, two),
        Event("subscribe", NIGHT, two, subscription=RecordedSubscription("#")),
        Event("refused", NIGHT, one, topic="a"),
    ]
    sums = tried(events, Rules(policies=()), Rules(policies=None))
    assert {(action, before, after) for _, action, _, _, before, after in found_in(sums)} == {("write", False, True)}
    assert total(sums, "undecided") == 1


def test_it_can_fail() -> None:
    """The comparison sees a difference where there is one."""
    one, two = PEOPLE[0], PEOPLE[1]
    events = [
        Event("connect", NIGHT, one),
        Event("connect", NIGHT, two),
        Event("subscribe", NIGHT, two, subscription=RecordedSubscription("a/#")),
        Event("publish", NIGHT, one, topic="a/b", payload=b"x"),
    ]
    everything = Policy("all", "*", "#", ("read", "write"), "allow", None)
    but = Policy("but", "user:bob", "a/+", ("read",), "deny", None)
    sums = tried(events, Rules(policies=(everything,)), Rules(policies=(everything, but)))
    (change,) = (row for row in sums if row["kind"] == "change")
    assert (change["who"], change["publisher"]) == ("user:bob/client:two", "user:alice/client:one")
    assert (change["before_rule"], change["after_rule"]) == ("all", "but")
    assert (change["before_allowed"], change["after_allowed"]) == (True, False)
