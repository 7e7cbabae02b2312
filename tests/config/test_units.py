"""Durations, sizes, counts and switches as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from tidegate.config.units import duration, duration_text, size, size_text


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("3s", 3),
        ("5m", 300),
        ("2h", 7200),
        ("7d", 604800),
        ("1.5s", 1.5),
        ("0", 0),
        (0, 0),
        (3, 3),
        (0.25, 0.25),
        ("10", 10),
        (" 3s ", 3),
        ("3 s", 3),
    ],
)
def test_durations_that_are_read(written: object, seconds: float) -> None:
    assert duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    ["", "s", "3x", "3S", "-3s", -3, True, None, "1h30m", "3s4", "\u0661s", "9" * 40, float("inf"), [], "1e3s"],
)
def test_durations_that_are_refused(written: object) -> None:
    with pytest.raises(PydanticCustomError, match="must be a duration; write for example"):
        duration(written)


@pytest.mark.parametrize(
    ("written", "total"),
    [
        ("64KiB", 65536),
        ("1MiB", 1048576),
        ("64KB", 64000),
        ("1GiB", 1 << 30),
        ("2MB", 2000000),
        ("12B", 12),
        ("12", 12),
        (12, 12),
        (0, 0),
        ("1.5KiB", 1536),
        ("1GB", 10**9),
    ],
)
def test_sizes_that_are_read(written: object, total: int) -> None:
    assert size(written) == total


@pytest.mark.parametrize("written", ["", "KiB", "64kib", "64K", "-1", -1, True, None, 1.5, "1e3", "9" * 40, {}])
def test_sizes_that_are_refused(written: object) -> None:
    with pytest.raises(PydanticCustomError, match="must be a size; write for example"):
        size(written)


@given(st.integers(0, 10**12))
def test_a_size_that_is_written_is_read_back(total: int) -> None:
    assert size(size_text(total)) == total


@given(st.integers(0, 10**11))
def test_a_duration_that_is_written_is_read_back(milliseconds: int) -> None:
    assert duration(duration_text(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=1e-6)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.5, "500ms"), (90, "90s"), (120, "2m"), (604800, "7d"), (0.0001, "0.1ms")]
)
def test_durations_are_written_short(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
