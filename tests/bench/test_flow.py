"""`bench flow`: graphs are what they are called, and what is said of them is what was measured."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench.cli import app
from bench.flow import graphs as bench
from bench.flow.graphs import Found, Shape, graph, growth, look, measure, rows
from bench.flow.report import report
from typer.testing import CliRunner

from tidegate.flow.forest import forest_fault
from tidegate.flow.reach import Reach


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("links", [16, 200, 1_000])
def test_graphs_have_about_so_many_links(shape: Shape, links: int) -> None:
    made = graph(shape, links, seed=1)
    assert links * 0.8 <= len(made.links) <= links * 2
    again = graph(shape, links, seed=1)
    assert made.links == again.links


def test_a_forest_is_one() -> None:
    made = graph(Shape.FOREST, 400, seed=2)
    parents = {name: [each.target for each in made.bridges(name) if each.type == "up"] for name in made.scopes}
    assert forest_fault(parents) is None


def test_everybody_on_a_bus_hears_everybody() -> None:
    made = graph(Shape.BUS, 64, seed=0)
    reach = Reach(made)
    for one in made.devices:
        assert set(made.devices) <= set(reach.reached(one))
    assert not reach.reaches("client:0.0", "scope:1.pub")


def test_what_is_found_of_one_graph() -> None:
    found = look(Shape.CROWD, 100, 0)
    assert (found.links, found.entities) == (100, 51)
    assert found.joined == 50 * 50 + 100  # each client's link reaches all from the scope; and each itself
    assert min(found.made, found.closed, found.witness) > 0
    assert found.slowest >= found.witness
    assert found.seconds == found.made + found.closed + found.slowest
    assert found.mib >= 0


def test_each_graph_has_a_process_of_its_own() -> None:
    said: list[str] = []
    found = measure((20,), 2, said.append)
    assert [(one.shape, one.round) for one in found] == [(shape, number) for shape in Shape for number in (0, 1)]
    assert said[:2] == ["forest, 20 links, round 1 of 2", "forest, 20 links, round 2 of 2"]
    assert all(one.mib < 50 for one in found)


def grown(power: float, scale: float = 1e-6) -> list[Found]:
    one = look(Shape.CROWD, 20, 0)
    return [
        replace(one, wanted=size, links=size, made=0.0, slowest=0.0, closed=scale * (size / 200) ** power)
        for size in bench.SIZES
    ]


def test_growth_is_a_power() -> None:
    assert growth(rows(grown(2.0)))[Shape.CROWD] == pytest.approx(2.0)
    assert growth(rows(grown(2.0)[:1])) == {}


def test_what_is_too_slow_or_cubic_is_missed() -> None:
    fine = report(grown(2.0), {})
    assert fine.missed == []
    cubic = report(grown(3.1, scale=1e-3), {})
    assert cubic.missed == [
        "crowd, 2,000 links: slower than 1 s",
        "crowd, 20,000 links: slower than 60 s",
        "crowd: grows by n^3.10",
    ]
    text = cubic.markdown()
    assert "- Missed: crowd, 2,000 links: slower than 1 s" in text
    assert "| crowd | 20,000 |" in text
    assert "![time and memory by links](flow.png)" in text


def test_a_quick_run_writes_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SIZES", (20, 40, 60, 80, 100))
    done = CliRunner().invoke(app, ["flow", "--quick", "--check", "--out", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "forest" in done.output
    assert {file.name for file in tmp_path.iterdir()} == {
        "flow-quick.md", "flow-quick.csv", "flow-quick.png", "flow-quick-machine.json",
    }  # fmt: skip
    with (tmp_path / "flow-quick.csv").open() as source:
        lines = list(csv.DictReader(source))
    assert len(lines) == len(Shape) * 4
    assert float(lines[0]["seconds"]) > 0


def test_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SIZES", (20,))
    arguments = ["flow", "--quick", "--json", "--out", str(tmp_path)]
    told = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).output)
    assert [one["shape"] for one in told] == [shape.value for shape in Shape]
    assert all(one["links"] > 0 for one in told)
