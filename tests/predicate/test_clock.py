# ruff: noqa: E501  rows of tables are not broken
"""How long answers hold: never too long, and exactly as long as can be for what is read of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generated import examples
from tidegate.policy import Environment
from tidegate.predicate import UNKNOWN, Predicate, PredicateFailed, compile, function

TICK = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROME, NEW_YORK, LORD_HOWE = ZoneInfo("Europe/Rome"), ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe")
ZONES: list[tzinfo] = [ROME, NEW_YORK, LORD_HOWE, UTC]
FAILED = "failed"


def at(when: datetime, zone: tzinfo, **subject: object) -> dict[str, Any]:
    """Everything at one instant, with the clock that a node has."""
    e = Environment({"location": "gym"}, zone=zone).at((when - EPOCH) / timedelta(seconds=1))
    return {"s": subject, "o": {"x": 1}, "e": e, "p": {"time": e["now"], "e": e, "user": "alice"}}


def ask(predicate: Predicate, env: dict[str, Any]) -> object:
    try:
        return predicate(env)
    except PredicateFailed:
        return FAILED


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


# Clocks are put in these nights (2026): sampled more often than chance would.
PUT = [
    utc(2026, 3, 29, 1),
    utc(2026, 10, 25, 1),
    utc(2026, 3, 8, 7),
    utc(2026, 11, 1, 6),
    utc(2026, 4, 4, 15),
    utc(2026, 10, 3, 15, 30),
]


@st.composite
def instants(draw: st.DrawFn) -> datetime:
    near = draw(st.sampled_from([*PUT, utc(2026, 6, 15), utc(2026, 12, 31, 23)]))
    off = draw(st.integers(-180, 120) | st.integers(-26 * 60, 26 * 60))
    fine = draw(st.sampled_from([timedelta(), -TICK, TICK, timedelta(seconds=31), timedelta(milliseconds=59_999)]))
    return near + timedelta(minutes=off) + fine


@st.composite
def windows(draw: st.DrawFn) -> str:
    night = st.sampled_from([0, 60, 90, 105, 120, 135, 150, 165, 180, 195, 210, 1380, 1439])
    begin, end = draw(night | st.integers(0, 1439)), draw(night | st.integers(0, 1439))
    if begin == end:
        end = 1440 if begin < 1439 else 0
    return f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}"


@st.composite
def stamps(draw: st.DrawFn) -> str:
    return (draw(instants()) + timedelta(hours=draw(st.integers(-3, 3)))).isoformat()


@st.composite
def atoms(draw: st.DrawFn) -> str:
    match draw(st.integers(0, 12)):
        case 0:
            return f"e.hour {draw(st.sampled_from(['<', '>=', '==']))} {draw(st.integers(0, 23))}"
        case 1:
            return f"e.minute {draw(st.sampled_from(['<', '>=', '==']))} {draw(st.integers(0, 59))}"
        case 2:
            return f"e.weekday {draw(st.sampled_from(['<', '==', '!=']))} {draw(st.integers(0, 6))}"
        case 3:
            return f"e.date {draw(st.sampled_from(['<', '==']))} '{draw(instants()).date().isoformat()}'"
        case 4 | 5:
            return f"within(e.now, '{draw(windows())}')"
        case 6:
            return f"within(e.now, ['{draw(windows())}', '{draw(windows())}'])"
        case 7:
            return f"within(e.now, s.shift, '{draw(st.sampled_from(['UTC', 'Europe/Rome', 'Australia/Lord_Howe', '+05:45']))}')"
        case 8:
            return f"e.now {draw(st.sampled_from(['<', '<=', '>', '>=', '==', '!=']))} timestamp('{draw(stamps())}')"
        case 9:
            return f"timestamp('{draw(stamps())}') {draw(st.sampled_from(['<', '<=', '>', '>=', '==', '!=']))} e.now"
        case 10:
            name, most = draw(
                st.sampled_from(
                    [
                        ("getHours", 23),
                        ("getMinutes", 59),
                        ("getDayOfWeek", 6),
                        ("getDate", 31),
                        ("getMonth", 11),
                        ("getDayOfYear", 365),
                    ]
                )
            )
            zone = draw(st.sampled_from(["", "'Europe/Rome'", "'America/New_York'", "'-03:30'"]))
            return f"e.now.{name}({zone}) {draw(st.sampled_from(['<', '==']))} {draw(st.integers(0, most))}"
        case 11:
            return draw(
                st.sampled_from(
                    [
                        "within(e.now, s.bad)",
                        "e.now < s.i",
                        "e.now == s.i",
                        "s.nope",
                        "s.i == 7",
                        "has(e.hour)",
                        "e.location == 'gym'",
                        "p.user == 'alice'",
                        "e.hour / 0 == 1",
                        "within(e.now, '00:00-24:00')",
                        "within(e.now, [])",
                    ]
                )
            )
        case _:
            return "within(e.now, s.shift)"


@st.composite
def predicates(draw: st.DrawFn, depth: int = 2) -> str:
    if depth == 0:
        return draw(atoms())
    left, right = draw(predicates(depth - 1)), draw(predicates(depth - 1))
    match draw(st.integers(0, 5)):
        case 0:
            return f"({left} && {right})"
        case 1:
            return f"({left} || {right})"
        case 2:
            return f"!({left})"
        case 3:
            return f"({left} ? {right} : {draw(atoms())})"
        case 4:
            return f"[1, 2].exists(x, x == s.i || ({left}))"
        case _:
            return left


@settings(max_examples=examples(150, 5000), deadline=None)
@given(data=st.data(), text=atoms() | predicates(), zone=st.sampled_from(ZONES), when=instants(), shift=windows())
def test_the_answer_is_the_same_until_then(
    data: st.DataObject, text: str, zone: tzinfo, when: datetime, shift: str
) -> None:
    subject: dict[str, object] = {"shift": shift, "bad": "9 to 5", "i": 7}
    predicate, env = compile(text), at(when, zone, **subject)
    answer, end = ask(predicate, env), predicate.until(env)
    assert end is None or (end.tzinfo is UTC and end > when), "all of these are understood"
    far = when + timedelta(days=400) if end is None else end
    samples = [when, far - TICK, when + (far - when) / 2]
    samples += [when + (far - when) * data.draw(st.floats(0, 1, exclude_max=True)) for _ in range(4)]
    samples += [
        put + shifted for put in PUT for shifted in (timedelta(), -TICK, timedelta(minutes=30), timedelta(hours=1))
    ]
    for sample in samples:
        if when <= sample < far:
            assert ask(predicate, at(sample, zone, **subject)) == answer, sample

    rest = predicate.partial(
        {"s": subject, "e": Environment({"location": "gym"}, zone=zone).known, "p": {"user": "alice", "time": UNKNOWN}}
    )
    if isinstance(rest, Predicate):
        assert rest.until(env) == end
    else:
        assert end is None


@settings(max_examples=300, deadline=None)
@given(window=windows(), where=st.sampled_from(["", ", 'Asia/Tokyo'", ", 'Australia/Lord_Howe'"]), zone=st.sampled_from(ZONES), when=instants())  # fmt: skip
def test_a_window_ends_exactly_where_the_answer_changes(window: str, where: str, zone: tzinfo, when: datetime) -> None:
    predicate = compile(f"within(e.now, '{window}'{where})")
    end = predicate.until(at(when, zone))
    if end is None:
        assert window == "00:00-24:00"
        return
    before, after = at(end - TICK, zone), at(end, zone)
    assert predicate(before) is predicate(at(when, zone))
    assert predicate(after) is not predicate(before)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(["hour", "minute", "weekday", "date"]), zone=st.sampled_from(ZONES), when=instants())
def test_an_attribute_holds_exactly_until_it_changes(name: str, zone: tzinfo, when: datetime) -> None:
    env = at(when, zone)
    end = compile(f"e.{name} == s.x").until({**env, "s": UNKNOWN})
    assert end is not None
    assert at(end - TICK, zone)["e"][name] == env["e"][name]
    assert at(end, zone)["e"][name] != env["e"][name]


NOON = datetime(2026, 3, 2, 12, 0, tzinfo=ROME)


@pytest.mark.parametrize(
    ("text", "when", "wanted"),
    [
        ("within(e.now, '08:00-14:00')", NOON, datetime(2026, 3, 2, 14, tzinfo=ROME)),
        ("within(e.now, '08:00-11:00')", NOON, datetime(2026, 3, 3, 8, tzinfo=ROME)),
        ("within(e.now, '22:00-06:00')", datetime(2026, 3, 2, 23, tzinfo=ROME), datetime(2026, 3, 3, 6, tzinfo=ROME)),
        ("within(e.now, '22:00-06:00')", datetime(2026, 3, 2, 5, tzinfo=ROME), datetime(2026, 3, 2, 6, tzinfo=ROME)),
        ("within(e.now, '22:00-24:00')", datetime(2026, 3, 2, 23, tzinfo=ROME), datetime(2026, 3, 3, tzinfo=ROME)),
        ("within(e.now, ['08:00-13:00', '13:00-15:00'])", NOON, datetime(2026, 3, 2, 15, tzinfo=ROME)),
        ("within(e.now, '12:00-13:00', 'Asia/Tokyo')", NOON, utc(2026, 3, 3, 3)),
        # the night the clocks go forward: 02:00 is 03:00, so this window opens late, and that one not at all
        ("within(e.now, '02:30-03:30')", datetime(2026, 3, 29, 1, 30, tzinfo=ROME), utc(2026, 3, 29, 1)),
        ("within(e.now, '02:10-02:20')", datetime(2026, 3, 29, 1, 30, tzinfo=ROME), utc(2026, 3, 30, 0, 10)),
        # the night they go back: the hour from two to three comes twice, and so does this window
        ("within(e.now, '02:10-02:20')", utc(2026, 10, 25, 0, 15), utc(2026, 10, 25, 0, 20)),
        ("within(e.now, '02:10-02:20')", utc(2026, 10, 25, 0, 20), utc(2026, 10, 25, 1, 10)),
        ("within(e.now, '01:00-02:30')", utc(2026, 10, 25, 0, 45), utc(2026, 10, 25, 1)),
        ("e.hour == 2", utc(2026, 10, 25, 0, 15), utc(2026, 10, 25, 2)),
        ("e.now < timestamp('2026-12-01T00:00:00Z')", NOON, utc(2026, 12, 1)),
        ("e.now <= timestamp('2026-12-01T00:00:00Z')", NOON, utc(2026, 12, 1) + TICK),
        ("timestamp('2026-12-01T00:00:00Z') <= e.now", NOON, utc(2026, 12, 1)),
        ("timestamp('2026-12-01T00:00:00Z') < e.now", NOON, utc(2026, 12, 1) + TICK),
        ("e.now == timestamp('2026-03-02T11:00:00Z')", NOON, NOON + TICK),
        ("e.now != timestamp('2026-03-02T11:00:01Z')", NOON, NOON + timedelta(seconds=1)),
        ("e.now > timestamp('2025-12-01T00:00:00Z')", NOON, None),
        ("e.now == timestamp('2025-12-01T00:00:00Z')", NOON, None),
        ("e.now >= timestamp('2026-01-01T00:00:00Z') && e.now < timestamp('2026-03-02T20:00:00Z') && within(e.now, '08:00-23:00')", NOON, utc(2026, 3, 2, 20)),
        ("e.hour < 14", NOON, NOON + timedelta(hours=1)),
        ("e.minute < 14", NOON, NOON + timedelta(minutes=1)),
        ("e.weekday < 5 && e.date != '2026-03-04'", NOON, datetime(2026, 3, 3, tzinfo=ROME)),
        ("e.now.getHours('Europe/Rome') < 14", NOON + timedelta(minutes=7), NOON + timedelta(hours=1)),
        ("e.now.getDayOfWeek() < 6", NOON, utc(2026, 3, 3)),
        ("e.now.getSeconds() < 6", NOON, NOON),
        ("s.role == 'coach'", NOON, None),
        ("has(e.hour) && e.location == 'gym'", NOON, None),
        ("s.role == 'x' && e.minute > 3", NOON, None),
        ("s.role == 'coach' || e.minute > 3", NOON, None),
        ("o.unknown == 3 || within(e.now, s.shift)", NOON, datetime(2026, 3, 2, 14, tzinfo=ROME)),
        ("o.unknown == 3 ? e.hour == 1 : e.minute == 2", NOON, NOON + timedelta(minutes=1)),
        ("within(e.now, '00:00-24:00')", NOON, None),
        ("within(e.now, s.role)", NOON, None),
        ("within(e.now, '08:00-14:00', s.role)", NOON, None),
        ("within(e.now, o.unknown)", NOON, NOON),
        ("age(s.since) < duration('1h')", NOON, NOON),
        ("e.now + duration('1h') < timestamp('2026-12-01T00:00:00Z')", NOON, NOON),
        ("e.now - s.since < duration('1h')", NOON, NOON),
        ("e.now == e.now", NOON, NOON),
        ("e.now < o.unknown", NOON, NOON),
        ("e == s", NOON, NOON),
        ("e['now'] < s.since", NOON, None),
        ("e[s.role] == 1", NOON, NOON),
        ("'now' in e", NOON, NOON),
        ("s.shifts.exists(w, within(e.now, w))", NOON, NOON),
        ("s.shifts.exists(w, within('12:00', w))", NOON, None),
        ("within(p.time, '08:00-14:00')", NOON, NOON),
        ("p.e.hour == 3", NOON, NOON),
        ("p.user == 'alice'", NOON, None),
        ("dice()", NOON, NOON),
        ("fixed(e.hour)", NOON, NOON + timedelta(hours=1)),
        ("fixed(e.now)", NOON, NOON),
        ("within(e.now, '08:00-14:00') || dice()", NOON, NOON),
        ("dice() || s.role == 'coach'", NOON, None),
    ],
)  # fmt: skip
def test_until(text: str, when: datetime, wanted: datetime | None) -> None:
    known = {"dice": function(volatile=True)(lambda: True), "fixed": function()(lambda value: True)}
    subject = {"role": "coach", "shift": "08:00-14:00", "shifts": ["08:00-14:00"], "since": utc(2026, 1, 1)}
    env = at(when.astimezone(UTC), ROME, **subject)
    env["o"] = {"unknown": UNKNOWN}
    end = compile(text, functions=known).until(env)
    assert end == (None if wanted is None else wanted.astimezone(UTC))
    assert end is None or end.tzinfo is UTC


def test_functions_of_administrators_are_not_taken_for_those_of_the_same_name() -> None:
    known = {"within": function()(lambda when, window: when.second < 30)}
    env = at(NOON.astimezone(UTC), ROME)
    assert compile("within(e.now, '08:00-14:00')", functions=known).until(env) == NOON.astimezone(UTC)


def test_the_clock_is_needed_only_by_what_reads_it() -> None:
    env: dict[str, Any] = {"s": {"role": "coach"}, "e": {"hour": 3}}
    assert compile("s.role == 'coach'").until(env) is None
    for wrong in ({"e": {"hour": 3}}, {}, {"e": UNKNOWN}, {"e": {"hour": 3, "now": UNKNOWN}}, {"e": {"hour": 3, "now": datetime(2026, 1, 1)}}):  # fmt: skip
        with pytest.raises(PredicateFailed, match=r"e\.now"):
            compile("e.hour == 3").until(wrong)  # type: ignore[arg-type]
    assert compile("e.hour == 3").until({"e": {"now": NOON}}) is None, "an hour that is absent stays absent"


def test_the_end_of_the_calendar() -> None:
    last = datetime(9999, 12, 31, 23, 59, 30, tzinfo=UTC)
    for text in ("e.hour == 3", "within(e.now, '08:00-14:00')", "e.now.getDate() == 3"):
        assert compile(text).until({"e": {"now": last, "hour": 23}}) == last
    env = {"e": {"now": NOON}, "s": {"t": datetime.max.replace(tzinfo=UTC)}}
    assert compile("e.now <= s.t").until(env) == NOON.astimezone(UTC)


def test_zones_without_names() -> None:
    zone = timezone(timedelta(hours=5, minutes=45, seconds=10))
    env = {"e": {"now": datetime(2026, 1, 1, 7, 59, 30, tzinfo=zone)}}
    assert compile("within(e.now, '08:00-14:00')").until(env) == datetime(2026, 1, 1, 8, tzinfo=zone).astimezone(UTC)
