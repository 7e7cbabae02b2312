"""What counts and waits, at its edges; the sequence tests compare the rest with a second reading."""

from __future__ import annotations

import pytest

from monitor.traces import event, fed, made
from tidegate.monitor.rate_dedupe_silence import MEMORY


def test_dedupe_remembers_so_many() -> None:
    machine = made(dedupe="1h")
    events = [event(f"t/{index}") for index in range(MEMORY + 1)]
    state = machine.start()
    for each in events:
        state, outputs = machine.step(state, each)
        assert outputs == (each,)
    assert len(state) == MEMORY
    assert machine.step(state, events[1])[1] == ()
    assert machine.step(state, events[0])[1] == (events[0],)


def test_dedupe_knows_topic_from_payload() -> None:
    machine = made(dedupe="1h")
    came = fed(machine, [event("ab", b"c"), event("a", b"bc"), event("a", b"bc"), event("a", b"bc", qos=1)])
    assert [len(each) for each in came] == [1, 1, 0, 0, 0]


def test_dedupe_lets_one_pass_again_at_the_end_of_its_time() -> None:
    machine = made(dedupe="2s")
    came = fed(machine, [event("a", time=time) for time in (0.0, 1.9, 2.0, 3.9, 4.0)])
    assert [len(each) for each in came] == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("rate", "burst", "at_once", "in_an_hour"),
    [("2/s", None, 2, 7202), ("5/m", None, 5, 305), ("0.5/s", None, 1, 1801), ("3/h", 10, 10, 13)],
)
def test_how_many_pass(rate: str, burst: int | None, at_once: int, in_an_hour: int) -> None:
    machine = made(rate=rate, **({} if burst is None else {"burst": burst}))
    assert sum(map(len, fed(machine, [event("a") for _ in range(20)]))) == at_once
    flood = (event("a", time=index / 4) for index in range(4 * 3600 + 1))
    assert sum(map(len, fed(machine, flood))) == in_an_hour


def test_what_is_suppressed_changes_nothing() -> None:
    machine = made(rate="1/s", burst=1)
    state, _ = machine.step(machine.start(), event("a"))
    assert machine.step(state, event("a", time=0.5)) == (state, ())


def test_a_clock_that_goes_back_neither_opens_nor_closes_for_long() -> None:
    rate = made(rate="1/s", burst=1)
    state, _ = rate.step(rate.start(), event("a", time=1000.0))
    state, outputs = rate.step(state, event("a", time=10.0))
    assert outputs == ()
    assert len(rate.step(state, event("a", time=11.0))[1]) == 1
    dedupe = made(dedupe="5s")
    state, _ = dedupe.step(dedupe.start(), event("a", time=1000.0))
    assert dedupe.step(state, event("a", time=999.0))[1] == ()
    assert len(dedupe.step(state, event("a", time=10.0))[1]) == 1


def test_silence_speaks_once_and_again_after_the_next() -> None:
    machine = made(silence="10s", on="beat", emit=[{"topic": "gone"}, {"topic": "log", "payload": {"a": 1}}])
    came = fed(machine, [event("beat"), event("other", time=9.0), event("beat", time=40.0)], 100.0)
    assert [[each.topic for each in one] for one in came] == [
        ["beat"],
        ["other"],
        ["gone", "log", "beat"],
        ["gone", "log"],
    ]
    assert came[3][1].payload == b'{"a":1}'


def test_in_a_row_each_sees_what_the_others_let_pass() -> None:
    machine = made(payload="o.payload > 0", dedupe="10s", rate="1/s", burst=2, silence="5s", emit={"topic": "gone"})
    trace = [event("a", payload, time) for payload, time in ((b"1", 0.0), (b"1", 1.0), (b"0", 4.0), (b"2", 4.5))]
    assert [[each.payload for each in one] for one in fed(machine, trace, 60.0)] == [[b"1"], [], [], [b"2"], [b""]]
