"""The clock and the surroundings."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import ConfigError
from tidegate.policy.environment import CLOCK, Environment
from tidegate.predicate import Predicate, compile

ROME = ZoneInfo("Europe/Rome")
gym = Environment({"location": "milan", "purpose": "training"}, zone=ROME)
monday = datetime(2026, 3, 2, 22, 30, tzinfo=ROME).timestamp()


def test_the_table_of_semantics() -> None:
    when = compile(
        "e.hour == 22 && e.minute == 30 && e.weekday == 0 && e.date == '2026-03-02' && within(e.now, '22:00-06:00') "
        "&& e.location == 'milan' && e.purpose == 'training' && has(e.now) && !has(e.weather)"
    )
    assert when({"e": gym.at(monday)}) is True
    assert when({"e": Environment(gym.added).at(monday)}) is False  # in UTC it is 21:30


def test_before_the_moment_is_known_the_rest_is() -> None:
    left = compile("e.location == 'milan' && e.hour >= 8").partial({"e": gym.known})
    assert isinstance(left, Predicate)
    assert left.reads == {"e.hour"}
    assert compile("e.location == 'rome' && e.hour >= 8").partial({"e": gym.known}) is False


def test_a_listener_has_its_own_then_the_nodes() -> None:
    made = gym.extended({"location": "annex"})
    assert made.at(monday)["location"] == "annex"
    assert made.at(monday)["purpose"] == "training"
    assert made.zone is ROME


@pytest.mark.parametrize("name", [*sorted(CLOCK), "a b", "1"])
def test_nothing_stands_in_for_the_clock(name: str) -> None:
    with pytest.raises(ConfigError):
        Environment({name: "x"})


def test_valid_until() -> None:
    assert gym.valid_until({"s.user", "e.location"}, monday) is None
    assert gym.valid_until({"e.now", "e.hour"}, monday) == monday
    assert gym.valid_until({"e"}, monday) == monday
    assert gym.valid_until({"e.minute"}, monday + 5.5) == monday + 60
    assert gym.valid_until({"e.hour"}, monday) == monday + 1800
    assert gym.valid_until({"e.date", "e.hour"}, monday) == monday + 1800
    assert gym.valid_until({"e.weekday"}, monday) == monday + 5400


zones = st.sampled_from(
    ["UTC", "Europe/Rome", "Asia/Kolkata", "Australia/Lord_Howe", "America/New_York", "Asia/Kathmandu"]
)
# around the changes of 2026 too
moments = st.one_of(
    st.floats(1.7e9, 1.9e9),
    *(
        st.floats(-90_000, 90_000).map(lambda shift, at=at: at + shift)
        for at in (
            datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp(),
            datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp(),
            datetime(2026, 4, 4, 15, tzinfo=UTC).timestamp(),
            datetime(2026, 10, 3, 15, 30, tzinfo=UTC).timestamp(),
        )
    ),
)


@given(zones, moments, st.sampled_from(["minute", "hour", "weekday", "date"]), st.floats(0, 0.999))
def test_until_then_nothing_changes(zone: str, at: float, name: str, part: float) -> None:
    made = Environment(zone=ZoneInfo(zone))
    until = made.valid_until({f"e.{name}"}, at)
    assert until is not None
    assert until > at
    assert made.at(at + (until - at) * part)[name] == made.at(at)[name]
