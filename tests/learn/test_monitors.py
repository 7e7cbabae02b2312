"""Monitors that are learned would have suppressed nothing of what was seen: their own machines are asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from learn.worlds import NODE
from pipeline.replay import naive, recording
from tidegate.cli.commands import app
from tidegate.config import Config, parse
from tidegate.learn.monitors import propose_monitors
from tidegate.learn.observed import PACES, Observed, Pace
from tidegate.learn.sequences import find_sequences
from tidegate.monitor import Event, Machine
from tidegate.monitor.rate_dedupe_silence import Rate

DOOR = ("AccessRequest", "AccessGranted", "DL_unlock")
REFUSED = ("AccessRequest", "AccessDenied")
TOPICS = st.sampled_from("abcd")
STRUCTURED = st.lists(
    st.one_of(
        st.just(["a", "b", "c"]), st.just(["a", "d"]), st.just(["a", "d", "a", "b", "c"]), st.lists(TOPICS, max_size=1)
    ),
    max_size=25,
).map(lambda parts: [topic for part in parts for topic in part])


def machines(monitors: Iterable[dict[str, Any]]) -> list[Machine]:
    text = NODE + json.dumps({"monitors": list(monitors)})[1:-1]
    return [each.monitor for each in configured(text).built.rules.monitors]


def configured(text: str) -> Config:
    return parse(text.replace('"monitors": ', "monitors: ", 1), "learned.yaml", variables={})


def suppressed(machine: Machine, events: Iterable[Event]) -> list[str]:
    state = machine.start()
    lost: list[str] = []
    for event in events:
        state, out = machine.step(state, event)
        if tuple(out) != (event,):
            lost.append(event.topic)
    return lost


@settings(max_examples=150, deadline=None)
@given(STRUCTURED)
def test_sequences_suppress_nothing_that_was_seen(topics: Sequence[str]) -> None:
    found = find_sequences(topics, cases=3, chance=1.0)
    entries = [
        {"id": f"m{at}", "scope": "main", "direction": "im_pub", "only": each.only, "after": list(each.after)}
        | ({} if each.reset is None else {"reset": each.reset})
        for at, each in enumerate(found)
    ]
    for machine in machines(entries) if entries else ():
        assert suppressed(machine, [Event(topic, b"") for topic in topics]) == []


def test_the_door() -> None:
    topics = [*DOOR, *REFUSED] * 8
    (found,) = [each for each in find_sequences(topics) if each.only == "DL_unlock"]
    assert (found.after, found.reset, found.cases) == (("AccessRequest", "AccessGranted"), "AccessDenied", 8)


def test_one_counter_example_is_enough() -> None:
    topics = [*DOOR, *REFUSED] * 8
    assert not [each for each in find_sequences([*topics, "DL_unlock"]) if each.only == "DL_unlock"]
    assert not [each for each in find_sequences(["DL_unlock", *topics]) if each.only == "DL_unlock"]


def test_what_comes_all_the_time_is_no_step() -> None:
    topics = ["clock", "clock", "clock", "clock", "door"] * 6
    assert find_sequences(topics) == []


def test_few_cases_prove_nothing() -> None:
    assert find_sequences([*DOOR] * 4) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 30), min_size=1, max_size=120))
def test_a_bucket_of_the_observed_size_lets_everything_pass(gaps: list[float]) -> None:
    pace, at, events = Pace(), 1000.0, []
    for gap in gaps:
        at += gap
        pace.add(at)
        events.append(Event("t", b"", time=at))
    for number, rate in enumerate(PACES):
        burst = int(-(-pace.peaks[number] // 1))
        assert suppressed(Rate(rate, burst), events) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.integers(-1000, 1000), st.floats(-50, 50)), min_size=20, max_size=40))
def test_ranges_let_pass_what_was_seen(values: list[float]) -> None:
    observed = Observed()
    world = [{"speed": value} for value in values]
    for at, payload in enumerate(world):
        observed.add("main", ("mary", "tr1"), "gym/tr1/speed", float(at), payload, True)
    entries = [entry for entry, _ in propose_monitors(observed, _publishing("gym/tr1/speed"))]
    ranges = [entry for entry in entries if "payload" in entry]
    assert len(ranges) == 1
    (machine,) = machines(ranges)
    events = [Event("gym/tr1/speed", json.dumps(each).encode(), scene={"o": {"payload": each}}) for each in world]
    assert suppressed(machine, events) == []
    wild = {"speed": max(values) * 3 + 5000}
    assert suppressed(machine, [Event("gym/tr1/speed", b"", scene={"o": {"payload": wild}})])


def _publishing(topic: str) -> Any:
    from tidegate.learn.propose import propose
    from tidegate.learn.table import WRITE, tabulate

    return propose(tabulate([("mary", "tr1", WRITE, topic, 1, "", "", 20, 1.0, 2.0)])).policies


# -- from a journal, with the command ----------------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    config = tmp_path / "tidegate.yaml"
    data = tmp_path / "data"
    users = ", ".join(f"{name}: {{password: 'plain:x'}}" for name in ("bell", "phone", "tr1"))
    config.write_text(
        f"version: 1\nnode: {{name: n, data: {data}}}\nlisteners: [{{url: 'mqtt://127.0.0.1:1883'}}]\n"
        f"directory: {{users: {{{users}}}}}\npolicies: open\nrecord: traffic\n"
    )
    write(data)
    out = tmp_path / "learned.yaml"
    done = CliRunner().invoke(app, ["learn", "-c", str(config), "--monitors", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "8 cases, no counter-example" in done.output
    text = out.read_text()
    assert "only: DL_unlock, after: [AccessRequest, AccessGranted], reset: AccessDenied" in text.replace('"', "")
    assert "o.payload.speed >= 8 && o.payload.speed <= 14" in text
    assert "rate" in text
    checked = CliRunner().invoke(app, ["check", str(out), "-c", str(config)])
    assert checked.exit_code == 0, checked.output
    tried = json.loads(CliRunner().invoke(app, ["learn", "-c", str(config), "--monitors", "--json"]).output)
    assert {each["id"] for each in tried["monitors"]} >= {"only-DL-unlock", "range-tr1-speed"}


def write(data: Path) -> None:
    who = {name: naive.Person(client=name, user=name) for name in ("bell", "phone", "tr1")}
    at = 1_700_000_000.0
    events = [naive.Event("connect", at, each) for each in who.values()]
    for _ in range(8):
        for topic in (*DOOR, *REFUSED):
            at += 30
            events.append(naive.Event("publish", at, who["bell" if topic == "AccessRequest" else "phone"], topic=topic))
    for number in range(60):
        at += 2
        payload = json.dumps({"speed": 9 + number % 5}).encode()
        events.append(naive.Event("publish", at, who["tr1"], topic="gym/tr1/speed", payload=payload))
    recording.write(data, recording.rows(events, naive.Rules(policies=None)))
