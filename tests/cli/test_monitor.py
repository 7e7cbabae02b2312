"""`tidegate check --show-automata` and `tidegate monitor try`."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.driving import Tidegate

FILE = """\
version: 1
node: {name: n}
scopes: {home: {}}
listeners: [{url: "mqtt://127.0.0.1:1883", anonymous: true}]
policies: open
environment: {location: milan}
monitors:
  - {id: door, link: "home->client:lock", only: DL_unlock, after: [AccessRequest, AccessGranted], reset: AccessDenied}
  - {id: beat, scope: home, direction: im_pub, on: beat, silence: 10s, emit: {topic: lost, payload: {of: beat}, qos: 1}}
  - {id: hot, scope: home, direction: im_pub, payload: "o.payload.to < 25 && s.user == 'mary' && e.location == 'milan'"}
"""
TRACE = """\
{"topic": "DL_unlock", "payload": "now"}
{"topic": "AccessRequest", "payload": {"who": "mary"}, "at": 1}

{"topic": "AccessGranted", "qos": 1, "retain": true, "at": "+500ms"}
{"topic": "DL_unlock", "at": 3}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "f.yaml").write_text(FILE)
    (tmp_path / "t.jsonl").write_text(TRACE)
    return tmp_path


def rows(text: str) -> list[list[str]]:
    """The cells of a table, which stand at least three blanks apart."""
    return [[cell.strip() for cell in line.strip().split("   ") if cell.strip()] for line in text.splitlines()]


def test_a_trace_as_a_table(tidegate: Tidegate, folder: Path) -> None:
    answer = tidegate("monitor", "try", "f.yaml", "door", "t.jsonl")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert [row for row in rows(answer.stdout) if row and "─" not in row[0]] == [
        ["at", "event", "state", "out"],
        ["nothing seen"],
        ["0", "DL_unlock now", "nothing seen", "suppressed"],
        ["1", 'AccessRequest {"who":"mary"}', "seen AccessRequest", "same"],
        ["1.5", "AccessGranted (QoS 1, retained)", "seen AccessRequest, AccessGranted", "same"],
        ["3", "DL_unlock", "nothing seen", "same"],
    ]


def test_a_trace_for_scripts_with_time_going_by(tidegate: Tidegate, folder: Path) -> None:
    trace = '{"topic": "beat", "at": 5}\n{"topic": "other", "at": "+9s"}\n{"at": "+1m"}\n'
    answer = tidegate("monitor", "try", "f.yaml", "beat", "-", "--json", stdin=trace)
    assert (answer.returncode, answer.stderr) == (0, "")
    beat = {"topic": "beat", "payload": "", "qos": 0, "retain": False}
    other = {**beat, "topic": "other"}
    lost = {"topic": "lost", "payload": '{"of":"beat"}', "qos": 1, "retain": False}
    assert [json.loads(line) for line in answer.stdout.splitlines()] == [
        {"at": 5.0, "event": beat, "state": 15.0, "outputs": [beat]},
        {"at": 14.0, "event": other, "state": 15.0, "outputs": [other]},
        {"at": 15.0, "event": None, "state": None, "outputs": [lost]},
    ]


def test_conditions_read_what_the_trace_says(tidegate: Tidegate, folder: Path) -> None:
    lines = [
        {"topic": "t", "payload": {"to": 20}, "s": {"user": "mary"}},
        {"topic": "t", "payload": {"to": 30}, "s": {"user": "mary"}},
        {"topic": "t", "payload": {"to": 20}, "s": {"user": "mary"}, "e": {"location": "rome"}},
        {"topic": "t", "payload": "no JSON", "s": {"user": "mary"}},
        {"topic": "t", "payload": {"to": 20}},
    ]
    (folder / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    answer = tidegate("monitor", "try", "f.yaml", "hot", "t.jsonl", "--json")
    told = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [len(each["outputs"]) for each in told] == [1, 0, 0, 0, 0]
    assert ["failure" in each for each in told] == [False, False, False, True, True]
    assert told[3]["failure"].startswith("the condition `o.payload.to < 25")
    assert "suppressed: the condition" in tidegate("monitor", "try", "f.yaml", "hot", "t.jsonl").stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "this is no JSON"),
        ("5", 'this is no event; write for example {"topic": "a/b", "payload": "on"}'),
        ('{"topik": "a"}', "`topik` is unknown; there are topic, payload, qos, retain, at, s, e, p"),
        ('{"topic": "a/#"}', "`topic` is no topic; write it without `+` and `#`"),
        ('{"topic": "a", "qos": 3}', "`qos` must be 0, 1 or 2"),
        ('{"topic": "a", "retain": 1}', "`retain` must be true or false"),
        ('{"topic": "a", "at": "soon"}', "`at` must be seconds from the beginning"),
        ('{"topic": "a", "at": "+soon"}', "`at` must be a duration"),
        ('{"topic": "a", "at": 2}', "`at` is before the line above (3); a trace goes forward"),
        ('{"topic": "a", "s": 5}', "`s` must be an object of attributes"),
        ('{"topic": "a", "at": 1e12}', "`at` is too far away; write less than 1e+12 seconds"),
        ('{"topic": "a", "at": 1%s}' % ("0" * 400), "this is no JSON (number is infinity"),
        ('{"topic": "a", "at": "+300000000d"}', "`at` is too far away; write less than 1e+12 seconds"),
        ('{"topic": "a", "payload": NaN}', "this is no JSON"),
        ('{"topic": "a", "payload": "\\ud800"}', "this is no JSON (no low surrogate in string"),
        ('{"topic": "a", "payload": %s}' % ("[" * 5000 + "]" * 5000), "this is no JSON (depth limit exceeded"),
        ('{"topic": "a", "payload": %s}' % ("[" * 1010 + "]" * 1010), "`payload` cannot be written as JSON (maximum"),
    ],
)
def test_a_trace_that_is_wrong(tidegate: Tidegate, folder: Path, line: str, said: str) -> None:
    (folder / "t.jsonl").write_text(TRACE + line + "\n")
    answer = tidegate("monitor", "try", "f.yaml", "door", "t.jsonl")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith(f"t.jsonl:6: {said}")


def test_a_trace_that_is_no_text(tidegate: Tidegate, folder: Path) -> None:
    (folder / "t.jsonl").write_bytes(TRACE.encode() + b'{"topic": "\xff"}\n')
    answer = tidegate("monitor", "try", "f.yaml", "door", "t.jsonl")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == "t.jsonl: this is no text (invalid start byte); write JSON lines in UTF-8\n"


def test_content_that_is_no_json_is_no_content_as_on_a_link(tidegate: Tidegate, folder: Path) -> None:
    for payload in ("[" * 5000, '"\\ud800"', "NaN"):
        line = json.dumps({"topic": "t", "payload": payload, "s": {"user": "mary"}})
        answer = tidegate("monitor", "try", "f.yaml", "hot", "-", "--json", stdin=line + "\n")
        assert (answer.returncode, answer.stderr) == (0, "")
        assert "failure" in json.loads(answer.stdout)


def test_a_short_timer_and_a_long_time(tidegate: Tidegate, folder: Path) -> None:
    states = "{s: [{silent: 10ms, emit: {topic: beat}}]}"
    monitor = f"  - {{id: quick, scope: home, direction: im_pub, automaton: {{start: s, states: {states}}}}}\n"
    (folder / "f.yaml").write_text(FILE + monitor)
    trace = '{"topic": "a"}\n{"at": %s}\n'
    answer = tidegate("monitor", "try", "f.yaml", "quick", "-", "--json", stdin=trace % "1e9")
    assert answer.returncode == 1
    assert answer.stderr == "more than 100000 timers are due before line 2; write a smaller `at`\n"
    answer = tidegate("monitor", "try", "f.yaml", "quick", "-", "--json", stdin=trace % "1.005")
    assert (answer.returncode, len(answer.stdout.splitlines())) == (0, 101)


def test_what_there_is_not(tidegate: Tidegate, folder: Path) -> None:
    answer = tidegate("monitor", "try", "f.yaml", "dor", "t.jsonl")
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: there is no monitor dor; did you mean door?\n")
    assert tidegate("monitor", "try", "f.yaml", "door", "none.jsonl").returncode == 2
    assert tidegate("monitor", "try", "none.yaml", "door", "t.jsonl").returncode == 1


def test_automata_as_mermaid_and_dot(tidegate: Tidegate, folder: Path) -> None:
    answer = tidegate("check", "f.yaml", "--show-automata")
    assert answer.returncode == 0
    assert [line for line in answer.stderr.splitlines() if "names the unknown user `mary`" not in line] == []
    assert answer.stdout.count("stateDiagram-v2") == 3
    assert "    s0_0 --> s0_1 : AccessRequest → same\n" in answer.stdout
    answer = tidegate("check", "f.yaml", "--show-automata", "--format", "dot", "--monitor", "door")
    assert answer.stdout.startswith('digraph "door" {')
    assert answer.stdout.count("digraph") == 1


def test_automata_as_svg(tidegate: Tidegate, folder: Path) -> None:
    answer = tidegate("check", "f.yaml", "--show-automata", "--format", "svg", "--monitor", "door")
    texts = [each.text for each in ElementTree.fromstring(answer.stdout).iter("{http://www.w3.org/2000/svg}text")]
    assert {"door", "nothing seen", "seen AccessRequest", "DL_unlock → nothing"} <= set(texts)
    answer = tidegate("check", "f.yaml", "--show-automata", "--format", "svg")
    assert answer.returncode == 2
    assert "choose one with --monitor: door, beat, hot" in answer.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "dot"], "--format and --monitor say how --show-automata draws"),
        (["--monitor", "door"], "--format and --monitor say how --show-automata draws"),
        (["--show-automata", "--json"], "--show-automata draws, and --json writes no pictures"),
        (["--show-automata", "--monitor", "x"], "there is no monitor x; there are door, beat, hot"),
    ],
)
def test_options_without_effect(tidegate: Tidegate, folder: Path, options: list[str], said: str) -> None:
    answer = tidegate("check", "f.yaml", *options)
    assert answer.returncode == 2
    assert said in answer.stderr


def test_a_file_without_monitors(tidegate: Tidegate, folder: Path) -> None:
    (folder / "f.yaml").write_text(FILE.partition("monitors:")[0])
    answer = tidegate("check", "f.yaml", "--show-automata")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "There are no monitors.\n")


def test_the_summary_counts_them(tidegate: Tidegate, folder: Path) -> None:
    assert "monitors    3" in tidegate("check", "f.yaml").stdout
    assert json.loads(tidegate("check", "f.yaml", "--json").stdout)["monitors"] == 3
