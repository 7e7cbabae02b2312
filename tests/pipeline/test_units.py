"""Units: every conversion there and back, known values, and what cannot be converted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.pipeline.units import UNITS, Conversion, conversion, problem, quantity

KNOWN = [
    (212.0, "F", "C", 100.0),
    (32.0, "F", "C", 0.0),
    (0.0, "C", "K", 273.15),
    (-40.0, "C", "F", -40.0),
    (0.0, "K", "F", -459.67),
    (90.0, "km/h", "m/s", 25.0),
    (1.0, "kn", "km/h", 1.852),
    (1.0, "mph", "km/h", 1.609344),
    (1013.25, "hPa", "kPa", 101.325),
    (1.0, "bar", "hPa", 1000.0),
    (1.0, "hPa", "Pa", 100.0),
    (45.0, "%", "fraction", 0.45),
    (1.0, "kWh", "J", 3_600_000.0),
    (250.0, "Wh", "kWh", 0.25),
    (1500.0, "W", "kW", 1.5),
    (0.05, "mg/m3", "ug/m3", 50.0),
    (0.4, "ppm", "ppb", 400.0),
    (230_000.0, "mV", "V", 230.0),
    (20.0, "mA", "A", 0.02),
    (1.5, "km", "m", 1500.0),
    (25.4, "mm", "cm", 2.54),
    (2.5, "m3", "l", 2500.0),
    (1.5, "h", "min", 90.0),
    (250.0, "ms", "s", 0.25),
    (180.0, "deg", "rad", 3.141592653589793),
    (55.0, "dB", "dB", 55.0),
    (3.0, "count", "count", 3.0),
    (800.0, "lx", "lx", 800.0),
]


@pytest.mark.parametrize(("value", "unit", "to", "expected"), KNOWN)
def test_known_values(value: float, unit: str, to: str, expected: float) -> None:
    assert value * conversion(unit, to).factor + conversion(unit, to).offset == pytest.approx(expected, rel=1e-12)


def test_every_unit_is_in_a_known_value() -> None:
    assert {unit for _, unit, to, _ in KNOWN for unit in (unit, to)} == set(UNITS)


@given(value=st.floats(-1e6, 1e6))
def test_there_and_back(value: float) -> None:
    for unit, to in itertools.permutations(UNITS, 2):
        if quantity(unit) == quantity(to):
            there, back = conversion(unit, to), conversion(to, unit)
            turned = (value * there.factor + there.offset) * back.factor + back.offset
            assert turned == pytest.approx(value, rel=1e-9, abs=1e-6)


def test_a_unit_is_itself() -> None:
    assert all(conversion(unit, unit) == Conversion() for unit in UNITS)


@pytest.mark.parametrize(
    ("unit", "to", "said"),
    [
        ("F", "m/s", "`F` measures temperature and `m/s` speed; write one of C, K, F"),
        ("ug/m3", "ppb", "`ug/m3` measures mass concentration and `ppb` volume concentration"),
        ("W", "kWh", "`W` measures power and `kWh` energy"),
        ("hpa", "kPa", "the unit `hpa` is unknown; did you mean `hPa`?"),
        ("C", "quux", "the unit `quux` is unknown; known: C, K, F"),
    ],
)
def test_what_cannot_be_converted(unit: str, to: str, said: str) -> None:
    assert said in (problem(unit, to) or "")
    with pytest.raises(ValueError, match="cannot be converted"):
        conversion(unit, to)
