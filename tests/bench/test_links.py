"""`bench links`: small, but with real nodes, a real link over TLS, and messages that are counted where they arrive."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from bench.cli import app
from bench.harness import rounds
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError, Peer
from bench.links import chain, in_process, nodes, report, standing_by, works
from bench.links.chain import Cell, Chains
from bench.links.nodes import Formation
from bench.links.works import ALL, ALONE, BATCHED, CHAIN, DURABLE, HALF, INDOORS, KEPT, TENTH, Findings
from bench.load.job import Outcome
from typer.testing import CliRunner

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "two_cores", lambda: (CORES[0], CORES[-1]))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["links", *arguments], catch_exceptions=False)
    return result.exit_code, result.output


def found(outcomes: dict[works.Formation, list[Outcome | None]]) -> Findings:
    every = {(one, BATCHED): outcomes.get(one, [None]) for one in (ALONE, ALL, HALF, TENTH)}
    return Findings(plan=Plan(rounds=1), machine={"load_average_at_start": 0.5}, parts=[BATCHED], outcomes=every)


def outcome(near: float, far: float = 0.0) -> Outcome:
    """A million messages in a second; microseconds for each."""
    return Outcome(messages=1_000_000, seconds=1.0, server_cpu=near + far, linked_cpu=far)


def test_batched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "LOADS", {ALONE: [BATCHED], HALF: [BATCHED]})
    monkeypatch.setattr(works, "CONTESTS", [one for one in works.CONTESTS if one.linked == HALF])
    code, text = run("--quick", "--duration", "0.2", "--work", "batched", "--out", str(tmp_path), "--json")
    assert code == 0, (tmp_path / "links-batched-quick.md").read_text()
    (line,) = json.loads(text)["loads"]
    assert (line["load"], line["what"], line["goal"]) == ("batched", "half cross", 1.45)
    assert line["linked_micros"] == pytest.approx(line["near_micros"] + line["far_micros"], abs=0.001)
    assert min(line["near_micros"], line["far_micros"], line["judged"]) > 0
    assert (tmp_path / "links-batched-quick.md").exists()
    assert (tmp_path / "links-batched-quick.png").exists()
    assert len((tmp_path / "links-batched-quick-rounds.csv").read_text().splitlines()) == 1 + 2


def test_durable_over_the_link(tmp_path: Path) -> None:
    """Mosquitto's bridge is a reference that not everybody has."""
    folder = nodes.certificates(tmp_path)
    plan = Plan(rounds=1, duration=0.2, warmup=0.05, server_core=CORES[0], load_core=CORES[-1])
    with nodes.running_all(KEPT, folder, core=CORES[0]) as servers:
        measured = works._apply(servers, DURABLE, KEPT, plan)
        assert [(one.log.parent / "data").is_dir() for one in servers] == [True, True]
    assert measured.messages > 0
    assert measured.lost == 0


def test_a_chain_of_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Mosquitto, which not everybody has: three nodes, and what arrives at the last one is what was sent."""
    monkeypatch.setattr(chain, "PEERS", (Peer.TIDEGATE,))
    scale = works.Scale(chains=chain.Extent(lengths=(3,), rates=(500,), rounds=1, longer=1))
    monkeypatch.setattr(works, "QUICK", scale)
    code, text = run("--quick", "--duration", "0.2", "--work", "chain", "--out", str(tmp_path), "--json")
    assert code == 0, (tmp_path / "links-chain-quick.md").read_text()
    (line,) = json.loads(text)["chain"]
    assert (line["servers"], line["rate"], line["seed_optimal"], line["judged"]) == (3, 500, True, True)
    assert line["tidegate_lost"] == 0
    assert line["tidegate_micros"] > 0
    assert line["reached"] == "failed"  # there is nothing to compare it with
    assert (tmp_path / "links-chain-quick-chain.png").exists()
    assert "The highest rate that is optimal" in (tmp_path / "links-chain-quick.md").read_text()


def test_without_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "QUICK", works.Scale(in_process=(3, 0.001)))
    code, text = run("--quick", "--work", "indoors", "--out", str(tmp_path), "--json")
    assert code == 0, text
    found = json.loads(text)["indoors"]
    assert [one["servers"] for one in found] == [works.named(one) for one in (ALONE, ALL, HALF, TENTH)]
    assert all(one["near_micros"] > 0 for one in found)
    assert [one["far_micros"] is not None for one in found] == [False, True, True, True]


def test_what_fails_is_told_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BenchError("out of tide")

    monkeypatch.setattr(works, "running_all", fail)
    monkeypatch.setattr(chain, "running_all", fail)
    monkeypatch.setattr(in_process, "measure", lambda *_: [])
    code, text = run("--quick", "--out", str(tmp_path))
    assert code == 1
    assert "two linked nodes, 10% cross, round 1: out of tide" in text
    assert "two bridged Mosquittos, 100% cross, round 1: out of tide" in text
    assert "chain, 3 x tidegate, round 1: out of tide" in text
    assert (tmp_path / "links-quick.md").exists()


def test_goals_are_judged_by_the_sum_of_both_nodes() -> None:
    seen = found(
        {ALONE: [outcome(1.0)], ALL: [outcome(2.0, 2.5)], HALF: [outcome(1.0, 0.4)], TENTH: [outcome(1.1, 0.1)]}
    )
    values = [(one.contest.title, one.value.median if one.value else None, one.reached) for one in seen.compared]
    assert values == [
        ("all cross: a hop, both sides", pytest.approx(3.5), "yes"),
        ("all cross", pytest.approx(4.5), ""),
        ("half cross", pytest.approx(1.4), "yes"),
        ("a tenth crosses", pytest.approx(1.2), "no"),
    ]
    assert seen.missed == ["batched: a tenth crosses"]
    text = report.report(seen).markdown()
    assert "| batched | two linked nodes, 100% cross | 1000.0 k/s | 2.00 | 2.50 |" in text
    assert "Load average when it began: 0.5" in text


def test_goals_that_could_not_be_judged_are_missed() -> None:
    assert [one.reached for one in found({ALONE: [outcome(1.0)]}).compared] == ["failed", "", "failed", "failed"]


def test_what_crosses_is_what_the_far_subscribers_read() -> None:
    assert TENTH.topics() == ["bench/probe", "bench/k18", "bench/k19"]
    assert [one.share for one in (ALL, HALF, TENTH, ALONE)] == [1.0, 0.5, 0.1, 0.0]
    assert works.count([BATCHED, DURABLE], Plan(rounds=3), works.WHOLE) == 3 * 6
    assert works.count([CHAIN, INDOORS], Plan(rounds=3), works.WHOLE) == 3 * 6 + 1
    assert works.count([CHAIN], Plan(rounds=3), works.BRIEF) == 6
    assert list(works.formations([DURABLE])) == [KEPT, works.BRIDGED]


def chained(mosquitto: float, tidegate: float, rate: int = 10_000) -> Cell:
    """CPU of all servers per message, in microseconds; everything arrives."""

    def offered(micros: float) -> Outcome:
        return Outcome(messages=rate, seconds=1.0, server_cpu=rate * micros / 1e6)

    return Cell(length=3, rate=rate, mosquitto=[offered(mosquitto)], tidegate=[offered(tidegate)])


def test_chains_are_judged_by_the_cpu_of_all_servers_where_there_was_enough() -> None:
    cells = [chained(30, 27), chained(30, 33), chained(30, 33, 30_000), chained(60, 33, 30_000)]
    assert [one.reached for one in cells] == ["yes", "no", "no", ""]
    assert Chains(cells=cells).missed == ["chain of 3, 10000/s", "chain of 3, 30000/s"]
    assert [one.seed for one in cells] == [True, True, False, False]
    late = Cell(length=1, rate=1000, tidegate=[Outcome(messages=900, seconds=1.0, server_cpu=0.1)])
    assert not late.optimal(late.tidegate)
    assert late.reached == "failed"
    seen = Findings(
        plan=Plan(rounds=1), machine={"load_average_at_start": 0.5}, parts=[CHAIN], chains=Chains(cells=cells)
    )
    text = report.report(seen).markdown()
    assert "| 10 k/s | 30.0 | 27.0 | 0.90 | 0.30 | 0.27 | yes, yes, yes | ≤ 1 x | yes |" in text
    assert "| 30 k/s | 60.0 | 33.0 | 0.55 | 1.80 | 0.99 | yes, yes, no | over 1.5 cores | - |" in text


@pytest.mark.parametrize("peer", [Peer.MOSQUITTO, Peer.TIDEGATE])
def test_each_server_of_a_chain_connects_to_the_next(peer: Peer, tmp_path: Path) -> None:
    wanted = Formation(linked=nodes.SUBSCRIBERS, peer=peer, servers=3)
    text = nodes.bridged if peer is Peer.MOSQUITTO else nodes.linked
    first, middle, last = (
        text(wanted, tmp_path, nodes.Place(number=number, port=1000 + number, tls_port=tls, next_port=following))
        for number, tls, following in ((1, 0, 2002), (2, 2002, 2003), (3, 2003, 0))
    )
    assert [("2002" in one, "2003" in one) for one in (first, middle, last)] == [
        (True, False),
        (True, True),
        (False, True),
    ]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_link_that_nothing_crosses(qos: int) -> None:
    values = standing_by.compared(True, qos, 2, 0.0001, lambda what: None)
    assert len(values) == 2
    assert all(cost > 0 for pair in values for cost in pair)
    assert "with everything" in standing_by.report({(True, qos): values})
