"""Folded stacks into text."""

from __future__ import annotations

from bench.harness.profiling import summarise

STACKS = [
    "main (tidegate/cli/app.py:9);read (/opt/x/src/tidegate/net/connection.py:10);parse (tidegate/wire/a.py:3) 60",
    "main (tidegate/cli/app.py:9);read (/opt/x/src/tidegate/net/connection.py:11) 30",
    "main (tidegate/cli/app.py:9);read (/opt/x/src/tidegate/net/connection.py:10) 10",
    "",
]


def test_own_and_inclusive_time() -> None:
    own, inclusive, lines = summarise(STACKS).split("\n\n")
    assert own.splitlines() == [
        "own time, by function (100 samples)",
        "  60.0%  parse (tidegate/wire/a.py)",
        "  40.0%  read (tidegate/net/connection.py)",
    ]
    assert inclusive.splitlines()[1:3] == [
        " 100.0%  main (tidegate/cli/app.py)",
        " 100.0%  read (tidegate/net/connection.py)",
    ] or inclusive.splitlines()[2:0:-1] == [
        " 100.0%  main (tidegate/cli/app.py)",
        " 100.0%  read (tidegate/net/connection.py)",
    ]
    assert "  30.0%  read (tidegate/net/connection.py:11)" in lines.splitlines()


def test_nothing_sampled() -> None:
    assert "0 samples" in summarise([])
