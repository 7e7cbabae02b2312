"""`bench keys`: what it asks and understands, what it makes of what it found, and all its parts with real nodes."""

from __future__ import annotations

import csv
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bench.cli import app
from bench.harness import procfs, rounds
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError, free_port
from bench.harness.work import chosen
from bench.keys import busy_api, connections, direct, generator, in_process, node, report, requests, works
from bench.keys.busy_api import Beside, Seen, Where
from bench.keys.direct import Cell, Direct
from bench.keys.in_process import Indoors
from bench.keys.load import Found, Task
from bench.keys.node import Sample, content, parts_of
from bench.keys.requests import Asked, Way
from bench.keys.weather import GUEST, TOPICS, Ports, Rules, Station, configuration
from bench.keys.works import Findings
from bench.load import frames
from bench.load.job import LoadError
from typer.testing import CliRunner

from tidegate.config import parse

CORES = sorted(os.sched_getaffinity(0))
PLAN = Plan(rounds=1, duration=0.2, warmup=0.1, server_core=CORES[0], load_core=CORES[-1])
SAMPLE = Sample(topic=TOPICS[0], key="k1", sealed="", clear="")


def quiet(words: str) -> None:
    """Nobody has to be told."""


# -- what is asked, and what answers it --------------------------------------------------------------------------------


def test_a_station_is_a_configuration_in_which_each_topic_has_its_readers() -> None:
    station = Station.of(3)
    assert station.asking == ["r000", "r001", "r002"]
    for rules in Rules:
        config = parse(configuration(station.rules(rules), Ports(mqtt=1883, http=8080)), "bench.yaml")
        assert config.keys.any is (rules is Rules.PROTECTED)
        assert set(config.built.readers) == {f"user:{name}" for name in (GUEST, *station.asking)}


def test_content_has_the_size_it_should_have() -> None:
    assert [len(content(size, 3)) for size in (100, 175, 1024)] == [100, 175, 1024]


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 20_000])
def test_a_message_is_taken_apart(size: int) -> None:
    packet = frames.publish("a/b", b"x" * size, qos=0, packet_id=0, version=4)
    assert parts_of(packet) == (b"a/b", b"x" * size)


def test_something_else_than_a_message_is_refused() -> None:
    with pytest.raises(LoadError, match="something else"):
        parts_of(frames.PINGRESP)


def test_each_request_has_a_mark_of_its_own_and_the_length_it_says() -> None:
    (request,) = connections.key_requests([SAMPLE], "secret")
    first, second = request.bytes(1), request.bytes(2)
    assert first != second
    head, _, body = first.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /keys/request HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert body == b'{"keyId":"k1","request":"00000000000000000001"}'


def test_a_mix_asks_for_everything_in_turn() -> None:
    mixed = connections.mixed([SAMPLE] * 2, user="u", admin="a", source="s")
    assert [one.kind for one in mixed] == ["POST /keys/request", "POST /data", "POST /keys/request", "GET /policies"]
    assert mixed[3].bytes(1) == mixed[3].bytes(2)


class Spoken:
    """A socket from which comes what a test says."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def fileno(self) -> int:
        return 7

    def recv(self, size: int) -> bytes:
        if not self.pieces:
            raise BlockingIOError
        return self.pieces.pop(0)


ANSWERED = b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 15\r\nx: y\r\n\r\n" + b'{"keyId": "k1"}'
TOLD = frames.publish(node.ANSWER, b'{"keyId": "k1"}', qos=0, packet_id=0, version=4)


@pytest.mark.parametrize(("data", "whole"), [(ANSWERED, connections._response), (TOLD, connections._packet)])
def test_an_answer_may_come_in_any_pieces(data: bytes, whole: Callable[[bytes], bytes | None]) -> None:
    for cut in range(1, len(data)):
        sock: Any = Spoken(data[:cut], data[cut:])
        line = connections.Line(sock, [], whole)
        assert line.answer() is None
        assert line.answer() == b'{"keyId": "k1"}'
        assert line.answer() is None, "nothing more has come"


@pytest.mark.parametrize(
    ("data", "whole", "words"),
    [
        (ANSWERED.replace(b"200 OK", b"429 No"), connections._response, "refused: HTTP/1.1 429"),
        (b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n", connections._response, "unknown length"),
        (TOLD.replace(b"keyId", b"error"), connections._packet, "no key was given"),
        (TOLD + TOLD, connections._packet, "more came"),
        (b"", connections._packet, "closed a connection"),
    ],
)
def test_what_is_no_answer_ends_the_measurement(
    data: bytes, whole: Callable[[bytes], bytes | None], words: str
) -> None:
    sock: Any = Spoken(data)
    with pytest.raises(LoadError, match=words):
        connections.Line(sock, [], whole).answer()


def test_tasks_and_outcomes_cross_the_border() -> None:
    task = Task(way="http", port=1, pids=(2, 3), readers={"r": "k"}, samples=(SAMPLE,), rate=2.5)
    assert Task.from_json(task.to_json()) == task
    found = Found(answers=10, seconds=2.0, cpu=(0.5, 0.25), load_cpu=1.0, kinds={"x": 10})
    assert Found.from_json(found.to_json()) == found
    assert (found.per_second, found.micros(0), found.micros(1), found.load_busy) == (5.0, 50_000.0, 25_000.0, 0.5)


def test_cpu_time_of_a_process_grows_while_it_works_and_ends_with_it() -> None:
    code = "print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as working:
        try:
            assert working.stdout is not None
            working.stdout.readline()
            before = procfs.own_cpu_seconds(working.pid)
            while procfs.own_cpu_seconds(working.pid) <= before + 0.01:
                pass  # the test's own timeout is the deadline
        finally:
            working.kill()
    with pytest.raises(FileNotFoundError):
        procfs.own_cpu_seconds(working.pid)


# -- what is made of what was found ------------------------------------------------------------------------------------


def found(rate: float, p99: float = 0.001, **more: Any) -> Found:
    return Found(answers=int(rate), seconds=1.0, cpu=(0.9,), p99=p99, **more)


def test_goals_of_requests() -> None:
    way = Way(name="mqtt", most=[found(1900), found(2100), None], half=[found(1000, 0.002), found(1000, 0.0039), None])
    assert [goal[2:] for goal in way.goals()] == [("2,000", "yes"), ("2.95 ms", "yes")]
    way.half.append(found(10, overrun=True))
    assert [goal[3] for goal in way.goals()] == ["yes", "no"], "a rate that could not be kept"
    assert [goal[3] for goal in Way(name="mqtt", most=[None], half=[None]).goals()] == ["failed", "failed"]


def path_found(*, protected: float) -> Direct:
    seconds = {Rules.OPEN: 0.001, Rules.GATE: 0.0011, Rules.PROTECTED: protected}
    return Direct(
        cells=[
            Cell(rate=10, size=175, rules=rules, seconds=[each] * 100, load=[0.01], micros=[300.0])
            for rules, each in seconds.items()
        ]
    )


def test_goals_of_the_direct_path() -> None:
    assert [goal[2:] for goal in path_found(protected=0.0013).goals()] == [("+0.300 ms", "yes")] * 2
    assert [goal[3] for goal in path_found(protected=0.0016).goals()] == ["no"] * 2
    empty = Direct(cells=[Cell(rate=10, size=175, rules=rules) for rules in Rules])
    assert [goal[3] for goal in empty.goals()] == ["failed"] * 2


def beside_found(*p99: tuple[float, float, float]) -> Beside:
    def seen(value: float, where: Where) -> Seen:
        load = None if where is Where.ALONE else Found(answers=100, seconds=1.0, cpu=(0.1, 0.5))
        return Seen(rate=1000.0, messages=1000, p50=value / 2, p99=value, p999=value * 2, load=load)

    return Beside(seen={where: [seen(one[place], where) for one in p99] for place, where in enumerate(Where)})


def test_goals_beside_the_api_compare_within_rounds() -> None:
    part = beside_found((0.001, 0.0015, 0.005), (0.010, 0.0190, 0.050), (0.001, 0.0030, 0.005))
    assert [goal[2:] for goal in part.goals()] == [("1.90 times", "yes")]
    part.seen[Where.APART][0] = None
    assert [goal[3] for goal in part.goals()] == ["no"]
    assert list(Beside().goals()) == []


def findings() -> Findings:
    ways = {name: Way(name=name, most=[found(2500)], half=[found(1250)]) for name in ("mqtt", "mqtts")}
    ways |= {name: Way(name=name, most=[None], half=[None]) for name in ("http", "https")}
    return Findings(
        plan=PLAN,
        machine={"cpu": "of the test"},
        asked=Asked(ways=ways, failures=["http, round 1: out of tide"]),
        direct=path_found(protected=0.0013),
        beside=beside_found((0.001, 0.0015, 0.005)),
    )


def test_report(tmp_path: Path) -> None:
    made = findings()
    files = report.report(made).write(tmp_path, "keys")
    text = files[0].read_text()
    assert "- Goals reached: 7 of 11." in text
    assert "| key requests a second, mqtt | ≥ 2,000 | 2,500 | yes |" in text
    assert "| http | failed | - | - | - | - |" in text
    assert "| 10 | 175 | protected | 1.300 | 1.300 | 5.5 | 1.00% | 300 |" in text
    assert "| API on the other core | 1000 | 0.750 | 1.500 | 3.000 | 1.50 | 100 | 50% of a core |" in text
    assert "- http, round 1: out of tide" in text
    assert len(report.report(made).terminal()) == 6
    with (tmp_path / "keys.csv").open() as source:
        lines = list(csv.DictReader(source))
    (rate,) = [each for each in lines if (each["what"], each["figure"]) == ("mqtt", "requests a second")]
    assert float(rate["median"]) == 2500
    assert len((tmp_path / "keys-direct.csv").read_text().splitlines()) == 301
    assert len((tmp_path / "keys-beside.csv").read_text().splitlines()) == 4


def test_nothing_found_is_a_report_too(tmp_path: Path) -> None:
    empty = Findings(plan=PLAN, machine={})
    assert [file.name for file in report.report(empty).write(tmp_path, "keys")] == ["keys.md", "keys-machine.json"]
    assert report.report(empty).terminal() == []


# -- real nodes --------------------------------------------------------------------------------------------------------


def test_requests_over_mqtt_and_http_with_and_without_tls() -> None:
    asked = requests.measure(PLAN, quiet, readers=4)
    assert asked.failures == []
    for way in asked.ways.values():
        ((most,), (half,)) = (way.most, way.half)
        assert most is not None
        assert half is not None
        assert most.answers > 0
        assert half.answers > 0
        assert all(cpu > 0 for cpu in most.cpu)
        assert len(most.cpu) == len(way.processes)
        assert 0 < half.p50 <= half.p99 <= half.slowest


def test_the_direct_path() -> None:
    told: list[str] = []
    part = direct.measure(PLAN, told.append, rates=(40,), sizes=(175, 1024))
    assert part.failures == []
    assert len(told) == direct.count(PLAN, (40,), (175, 1024))
    assert all(len(cell.seconds) >= 6 and cell.load[0] > 0 for cell in part.cells)
    assert {cell.rules for cell in part.cells} == set(Rules)


def test_a_node_that_is_not_what_it_is_called_is_not_timed() -> None:
    with node.running(Station.of(1), Rules.GATE, core=CORES[0]) as started:
        with pytest.raises(BenchError, match="received 3 messages, not 6"):
            direct.prove(started, Rules.OPEN)
        with pytest.raises(BenchError, match="the node called protected shows"):
            direct.prove(started, Rules.PROTECTED)
        with pytest.raises(BenchError, match="is not protected"):
            started.samples()


def test_the_broker_beside_its_api() -> None:
    part = busy_api.measure(PLAN, quiet, clients=2)
    assert part.failures == []
    for where, (seen,) in part.seen.items():
        assert seen is not None
        assert seen.messages > 0
        assert (seen.load is None) is (where is Where.ALONE)
        if seen.load is not None:
            assert set(seen.load.kinds) <= {"POST /keys/request", "POST /data", "GET /policies"}
            assert seen.load.answers > 0


def test_a_load_that_cannot_be_applied_says_why() -> None:
    with node.running(Station.of(1), Rules.PROTECTED, core=CORES[0]) as started:
        nowhere = Task(port=free_port(), readers={"r000": ""}, samples=(SAMPLE,))
        with pytest.raises(BenchError, match="Connection refused"):
            generator.apply(started, nowhere, CORES[-1])
        going = generator.during(started, dataclasses.replace(nowhere, until_closed=True), CORES[-1])
        with pytest.raises(BenchError, match="Connection refused"), going:
            pytest.fail("it is not in full swing")
        wrong = dataclasses.replace(
            nowhere, port=started.ports.mqtt, readers={"r000": started.station.readers["r000"].text()}
        )
        with pytest.raises(BenchError, match="no key was given"):
            generator.apply(started, wrong, CORES[-1])


def test_a_process_is_moved_with_all_its_threads() -> None:
    code = "import threading\nthreading.Thread(target=input).start()\nprint(flush=True)"
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        node.moved(process.pid, CORES[-1])
        threads = [int(name) for name in os.listdir(f"/proc/{process.pid}/task")]
        assert len(threads) == 2
        assert all(os.sched_getaffinity(thread) == {CORES[-1]} for thread in threads)
        process.stdin.write(b"\n")
        process.stdin.flush()


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "two_cores", lambda: (CORES[0], CORES[-1]))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["keys", *arguments], catch_exceptions=False)
    return result.exit_code, result.output


def test_an_unknown_work_is_refused_with_the_names() -> None:
    code, text = run("--work", "key")
    assert code == 1
    assert "there is no work named key; there are requests, direct, beside, indoors" in text


@pytest.mark.usefixtures("cores")
def test_indoors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "QUICK_SECONDS", 0.001)
    monkeypatch.setattr(in_process, "KEYS", (100,))
    code, text = run("--quick", "--work", "indoors", "--out", str(tmp_path))
    assert code == 0, text
    assert "without sockets: requests" in text, "progress, where there is no terminal"
    lines = (tmp_path / "keys-indoors-quick.csv").read_text()
    for what in ("one encryption, 175 bytes", "MQTT packet to packet, mlkem768-x25519", "ring of 100 keys"):
        assert what in lines


@pytest.mark.usefixtures("cores")
def test_what_fails_is_told_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BenchError("out of tide")

    monkeypatch.setattr(node, "running", fail)
    monkeypatch.setattr(in_process, "measure", lambda *_: Indoors())
    code, text = run("--quick", "--out", str(tmp_path))
    assert code == 1
    for words in ("requests, mqtt and http, round 1", "direct path, round 1", "beside the API, round 1"):
        assert f"{words}: out of tide" in text
    assert "Goals reached: 0 of 17." in text
    assert (tmp_path / "keys-quick.md").exists()


def test_a_whole_run_is_told_of_in_steps() -> None:
    assert works.count(list(works.PARTS), Plan(rounds=5)) == 5 * 2 + 5 * 5 + 5 + 4
    assert chosen(["indoors", "direct"], list(works.PARTS)) == ["direct", "indoors"]
