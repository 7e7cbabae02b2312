"""The rules file: what it may say, and that all that is wrong is told at once, with its place and a remedy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import PipelineError
from tidegate.pipeline.rules import Form, Kind, Mapping, Score, Target, Time, Value, WrongRules, parse

WHOLE = """\
version: 1
sources:
  - id: thermo
    type: [temperature, heat]
    topic: "raw/temperature/+"
    schema: thermo/1
    as: temperature
    records: /readings
    source: /sensor
    time: {at: /ts, form: ms}
    values:
      - {name: temperature, at: /t, unit: F, to: C}
      - {name: state, at: /a~1b/0, kind: text, required: false}
    keep: [/battery, /net/rssi]
  - {id: rest, values: [{name: value, at: ""}]}
scores:
  - id: temp-range
    dimension: accuracy
    weight: 2
    filter: "type = 'temperature'"
    check: in_range
    args: {column: value, min: -40, max: 60, soft: 10}
topics:
  - {id: weather, type: temperature, topic: "weather/{type}/{source}"}
"""


def told(text: str, documents: list[tuple[str, Any]] | None = None) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        parse(text, "rules.yaml", documents or [])
    return str(caught.value).splitlines()


def source(**entries: Any) -> dict[str, Any]:
    return {"source": {"topic": "a", "values": [{"name": "v", "at": "/v"}], **entries}}


def test_everything_that_can_be_said() -> None:
    rules = parse(WHOLE, "rules.yaml")
    assert rules.sources == (
        Mapping(
            id="thermo",
            types=("temperature", "heat"),
            topic="raw/temperature/+",
            schema="thermo/1",
            becomes="temperature",
            records=("readings",),
            source=("sensor",),
            time=Time(at=("ts",), form=Form.MS),
            values=(
                Value(name="temperature", at=("t",), unit="F", to="C"),
                Value(name="state", at=("a/b", "0"), kind=Kind.TEXT, required=False),
            ),
            keep=(("battery",), ("net", "rssi")),
        ),
        Mapping(id="rest", schema="rest", values=(Value(name="value", at=()),)),
    )
    assert rules.scores == (
        Score(
            id="temp-range",
            dimension="accuracy",
            weight=2.0,
            filter="type = 'temperature'",
            check="in_range",
            args={"column": "value", "min": -40, "max": 60, "soft": 10},
        ),
    )
    assert rules.topics == (Target(id="weather", types=("temperature",), topic="weather/{type}/{source}"),)


def test_no_rules_are_rules() -> None:
    assert parse("version: 1\n", "rules.yaml").sources == ()


def test_the_version_is_that_of_the_content() -> None:
    version = parse(WHOLE, "rules.yaml").version_text
    assert len(version) == 12
    assert int(version, 16) >= 0
    assert parse("# why\n" + WHOLE.replace("weight: 2", "weight: 2.0"), "other.yaml").version_text == version
    assert parse(WHOLE.replace("weight: 2", "weight: 3"), "rules.yaml").version_text != version
    document = [("more", {"topic": {"filter": "value > 3", "topic": "b"}})]
    assert parse(WHOLE, "rules.yaml", document).version_text != version


def test_documents_follow_the_file() -> None:
    text = 'version: 1\nsources: [{id: first, topic: "x", values: [{name: v, at: /v}]}]\n'
    rules = parse(text, "rules.yaml", [("second", source()), ("third", source(id="third"))])
    assert [mapping.id for mapping in rules.sources] == ["first", "second", "third"]


def test_all_problems_at_once_with_their_lines() -> None:
    wrong = """\
version: 2
sorces: []
sources:
  - id: a
    topc: x
    topic: "a/#/b"
    time: {form: seconds}
    values:
      - {name: v, at: v, unit: F, to: m/s}
      - {name: v, at: /v, kind: nummer}
      - {at: /v, required: 1}
  - id: a
    values: []
scores:
  - {id: s, dimension: acuracy, weight: 0, check: in_range}
topics:
  - {id: t, topic: "weather/{sorce}/+"}
"""
    assert told(wrong) == [
        "rules.yaml:1: `version` is not known; write `1`",
        "rules.yaml:2: unknown key `sorces`; did you mean `sources`?",
        "rules.yaml:5: unknown key `topc` in `sources[0]`; did you mean `topic`?",
        "rules.yaml:6: `sources[0].topic` is no topic filter; write for example `raw/+/temperature` or `raw/#`",
        "rules.yaml:7: `sources[0].time.at` is missing; add it",
        "rules.yaml:7: `sources[0].time.form` must be `iso`, `s`, `ms` or `us`; write one of these",
        "rules.yaml:9: `sources[0].values[0].at` must be a JSON pointer; `v` is no JSON pointer: it begins with `/`, "
        "as in `/illness`",
        "rules.yaml:9: `sources[0].values[0].to` cannot be converted: `F` measures temperature and `m/s` speed; "
        "write one of C, K, F",
        "rules.yaml:10: `sources[0].values[1].kind` must be `number`, `text` or `boolean`; did you mean `number`?",
        "rules.yaml:11: `sources[0].values[2].name` is missing; add it",
        "rules.yaml:11: `sources[0].values[2].required` must be `true` or `false`; write one of the two",
        "rules.yaml:12: `sources[1].id` is `a`, and so is that of rules.yaml:4: `sources[0]`; "
        "give each rule an id of its own",
        "rules.yaml:13: `sources[1].values` is empty, so nothing would be recorded; name a value",
        "rules.yaml:15: `scores[0].weight` must be more than 0; raise it, or remove the score",
        "rules.yaml:15: `scores[0].dimension` must be `confidentiality`, `integrity`, `privacy`, `authentication`, "
        "`accuracy`, `precision`, `timeliness` or `completeness`; did you mean `accuracy`?",
        "rules.yaml:17: `topics[0].topic` has the unknown placeholder `{sorce}`; did you mean `{source}`?",
        "rules.yaml:17: `topics[0].topic` is no topic to publish to; write it without `+`, `#` and a leading `$`",
    ]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"values": [{"name": "v", "at": "/v", "to": "C"}]}, "not from what; add `unit`"),
        ({"values": [{"name": "v", "at": "/v", "kind": "text", "unit": "C"}]}, "has no effect on a text"),
        ({"values": [{"name": "v", "at": "/v"}, {"name": "v", "at": "/w"}]}, "has the name `v` again"),
        ({"values": {"name": "v"}}, "`source.values` must be a list"),
        ({"values": ["v"]}, "`source.values[0]` must be a mapping"),
        ({"values": [{"name": "v", "at": "/v~2"}]}, "neither `~0` nor `~1`"),
        ({"values": [{"name": "v", "at": "/0/1/2/3"}]}, "more than 3 steps that are numbers"),
        ({"values": [{"name": f"v{i}", "at": "/v"} for i in range(65)]}, "has 65 entries; at most 64"),
        ({"keep": [""]}, "`source.keep[0]` is everything"),
        ({"keep": ["/a~1b", "/a/b"]}, "would be kept as `a/b`, and so would one before it"),
        ({"type": []}, "is an empty list"),
        ({"type": 3}, "`source.type` must be a text"),
        ({"schema": "a\nb"}, "no control characters"),
        ({"topic": "$share/g/a"}, "is no topic filter"),
        ({"id": "other"}, "is not `d`; leave it out, or write that"),
        ({"time": "/ts"}, "`source.time` must be a mapping"),
    ],
)
def test_what_is_wrong_with_a_document(entries: dict[str, Any], said: str) -> None:
    [problem] = told("version: 1\n", [("d", source(**entries))])
    assert problem.startswith("pipeline/d: ")
    assert said in problem


@pytest.mark.parametrize("body", [{}, {"source": source()["source"], "topic": {"topic": "a"}}])
def test_a_document_is_one_rule(body: dict[str, Any]) -> None:
    assert told("version: 1\n", [("d", body)]) == [
        "pipeline/d: the document must have one key; write `source`, `score` or `topic`"
    ]


def test_ids_are_unique_over_file_and_documents() -> None:
    text = "version: 1\nscores: []\ntopics: [{id: d, type: x, topic: y}]\n"
    [problem] = told(text, [("d", source())])
    assert problem.startswith("pipeline/d: `source` is `d`, and so is that of rules.yaml:3: `topics[0]`")


def test_variables_are_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIND", "temperature")
    text = 'version: 1\nsources:\n  - {id: a, type: "${KIND}", values: [{name: v, at: /v}]}\n'
    assert told(text) == [
        "rules.yaml:3: `${KIND}` is not replaced in this file; write the value, or `$${` for `${`",
    ]
    assert parse(text.replace("$", "$$"), "rules.yaml").sources[0].types == ("${KIND}",)


def test_a_rule_that_nothing_reaches_is_wrong() -> None:
    text = "version: 1\nsources: [{id: all, values: [{name: v, at: /v}]}]\ntopics: [{id: any, topic: x}]\n"
    assert told(text, [("d", source()), ("e", {"topic": {"topic": "y"}})]) == [
        "pipeline/d: `source` is never reached: `all` before it fits everything; let `all` ask for a type or topic",
        "pipeline/e: `topic` is never reached: `any` before it fits everything; let `any` ask for a type or topic",
    ]


def test_checks_and_conditions_are_asked() -> None:
    text = "version: 1\nscores:\n  - {id: s, dimension: accuracy, check: in_rage}\n"
    [problem] = told(text)
    assert problem.startswith("rules.yaml:3: `scores[0]` ")
    assert "in_range" in problem
    [problem] = told('version: 1\ntopics:\n  - {id: t, filter: "value >", topic: x}\n')
    assert problem.startswith("rules.yaml:3: `topics[0].filter` is no condition")


def test_limits() -> None:
    assert told("version: 1\n" + "#" * (1 << 20)) == ["rules.yaml: larger than 1 MiB; make it smaller"]
    assert "nested deeper" in told("version: 1\nsources: " + "[" * 60 + "]" * 60)[0]
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    assert told("version: 1\n", [("d", {"source": deep})]) == [
        "pipeline/d: the document is nested deeper than 50 levels; flatten it"
    ]
    many = [(f"d{i}", source()) for i in range(201)]
    assert told("version: 1\n", many) == [
        "the file and the documents have more than 200 `sources` together; remove some"
    ]


def test_bad_yaml_tells_its_line() -> None:
    assert told("version: 1\nsources: [\n")[0].startswith("rules.yaml:3: not valid YAML")
    assert told("")[0] == "rules.yaml:1: the file is empty; begin with `version: 1`"


def test_problems_are_values_too() -> None:
    with pytest.raises(WrongRules) as caught:
        parse("version: 1\n", "rules.yaml", [("d", source(schema=3))])
    assert [(problem.file, problem.line) for problem in caught.value.problems] == [("pipeline/d", 0)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "type", "topic", "values", "name", "at", "time", "keep", "check", "args", "weight", "x"]
            ),
            below,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(["source", "score", "topic", "sauce"]), body=JSON)
def test_any_document_is_read_or_refused(kind: str, body: Any) -> None:
    try:
        problems = parse("version: 1\n", "rules.yaml", [("d", {kind: body})]) and ()
    except WrongRules as wrong:
        problems = wrong.problems
    assert all("; " in str(problem) for problem in problems)


def test_spark_is_not_needed() -> None:
    code = (
        "import sys; from tidegate.pipeline.rules import parse; "
        "parse(sys.stdin.read(), 'r'); print('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=WHOLE, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
