"""What the screen *Quality* makes of the rows of the lake."""

from __future__ import annotations

from tidegate.console.chart import lines, nice, sparkline
from tidegate.console.quality import by_source


def row(date: str, mean: float | None, assessed: int) -> dict[str, object]:
    return {"source": "strap-3", "dimension": "accuracy", "date": date, "mean": mean, "assessed": assessed}


def test_means_are_of_records_and_not_of_rows() -> None:
    (found,) = by_source([row("2026-01-01", 1.0, 1), row("2026-01-01", 0.0, 3), row("2026-01-02", 0.5, 4)])
    assert (found["mean"], found["records"]) == (0.375, 8)
    assert by_source([row("2026-01-01", None, 0)]) == []


def test_names_are_text_in_pictures() -> None:
    assert "<b>" not in sparkline([0.1, 2.0], "<b>")
    assert "<b>" not in lines([0.0, 1.0], [("cpu", [0.0, 1.0])], "<b>")


def test_a_scale_ends_at_a_round_number() -> None:
    for value, top in ((0, 1), (0.3, 0.5), (1, 1), (7, 10), (41, 50), (101, 200), (19_000, 20_000)):
        assert nice(value) == top
