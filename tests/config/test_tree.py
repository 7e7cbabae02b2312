"""YAML with lines: scalars, duplicates, aliases, and files that want to do harm."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.config import ConfigErrors
from tidegate.config.tree import MAX_BYTES, compose


def data(text: str, **variables: str) -> Any:
    tree, problems = compose(text, "f.yaml", variables)
    assert not problems
    return tree.data()


def problem(text: str, **variables: str) -> str:
    try:
        _, problems = compose(text, "f.yaml", variables)
    except ConfigErrors as broken:
        return str(broken)
    return "\n".join(map(str, problems))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("0x10", 16),
        ("0o17", 15),
        ("017", 17),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("12:30", "12:30"),
        ("08:00-14:00", "08:00-14:00"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("9" * 40, "9" * 40),
    ],
)
def test_scalars_follow_yaml_1_2(written: str, value: object) -> None:
    read = data(f"a: {written}")["a"]
    assert read == value
    assert type(read) is type(value)


def test_keys_are_text() -> None:
    assert data("{on: 1, 5: 2, true: 3, null: 4}") == {"on": 1, "5": 2, "true": 3, "null": 4}


def test_a_replaced_value_stays_text() -> None:
    assert data("a: '${PIN}'\nb: ${PIN}\nc: x${PIN}\n", PIN="0012") == {"a": "0012", "b": "0012", "c": "x0012"}


def test_a_variable_cannot_change_the_structure() -> None:
    assert data("a: ${X}\n", X="1\nb: {c: 2}") == {"a": "1\nb: {c: 2}"}


def test_lines_of_paths() -> None:
    tree, _ = compose("a: 1\nb:\n  - x: 1\n    y: 2\n  - {x: 3,\n     z: 4}\nc:\n  d: 5\n", "f", {})
    lines = {("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 0, "y"): 4, ("b", 1, "z"): 6, ("c", "d"): 8, (): 1}
    for path, line in lines.items():
        assert tree.line_of(path) == line, path
    assert tree.line_of(("b", 0, "missing")) == 3
    assert tree.line_of(("b", 7)) == 2
    assert tree.line_of(("missing", "deep")) == 1


def test_anchors_aliases_and_merge_keys() -> None:
    text = "x: &x {p: 1, q: 2}\ny: {<<: *x, q: 3}\nz: [*x, *x]\nw: {<<: [*x, {q: 9, r: 4}]}\n"
    x = {"p": 1, "q": 2}
    assert data(text) == {"x": x, "y": {"p": 1, "q": 3}, "z": [x, x], "w": {"p": 1, "q": 2, "r": 4}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: `a` stands here again (first on line 1)"),
        ("a: {b: 1,\n b: 2}\n", "f.yaml:2: `b` stands here again (first on line 1)"),
        ("a: ${NOPE}\n", "f.yaml:1: the environment variable `NOPE` is not set"),
        ("a: !!python/object:os.system x\n", "f.yaml:1: the tag `tag:yaml.org,2002:python/object:os.system`"),
        ("a: !!set {x}\n", "is not supported; remove it"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: a second document begins here"),
        ("", "f.yaml:1: the file is empty"),
        ("# only a comment\n", "f.yaml:1: the file is empty"),
        ("- a\n", "f.yaml:1: the file must be a mapping"),
        ("text", "f.yaml:1: the file must be a mapping"),
        ("a: *b\n", "f.yaml:1: nothing before this is named `&b`"),
        ("a: &a [*a]\n", "f.yaml:1: nothing before this is named `&a`"),
        ("a: {<<: 1}\n", "f.yaml:1: `<<` merges mappings only"),
        ("[a]: 1\n", "f.yaml:1: a list or mapping cannot be a key"),
        ("x: &x 1\n*x : 1\n", "f.yaml:2: an alias cannot be a key"),
        ("a: b\n\tc: d\n", "f.yaml:2: not valid YAML"),
        ("a: [1, 2\n", "not valid YAML"),
        ("a: 'x\n", "not valid YAML"),
        ("a: {b: ${X}}\n", "f.yaml:1: not valid YAML"),
        ("a: {b: ${X}}\n", "put `${NAME}` in quotes"),
        ("a: b: c\n", "f.yaml:1: not valid YAML (mapping values are not allowed"),
        ("a: 1\nb: \x00\n", "f.yaml:2: a character that YAML forbids"),
        ("a: 1\nb: \x07\n", "f.yaml:2: a character that YAML forbids"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, said: str) -> None:
    told = problem(text)
    assert said in told
    assert all("; " in line for line in told.splitlines()), "it says how to mend it"


def test_billion_laughs() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for n in range(1, 12):
        text += f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n"
    began = time.process_time()
    assert "values once aliases are expanded" in problem(text)
    assert time.process_time() - began < 5


def test_nesting_is_bounded() -> None:
    assert "nested deeper than" in problem("a: " + "[" * 100_000)
    assert "nested deeper than" in problem("a: " + "{a: " * 100_000)
    chained = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 5000))
    assert "nested deeper than" in problem(chained)


def test_size_is_bounded() -> None:
    assert "larger than 16 MiB" in problem("a: " + "x" * MAX_BYTES)


_WORDS = st.sampled_from(
    [
        "a: ",
        "b",
        "\n",
        "  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "&x ",
        "*x",
        "<<: ",
        "'",
        '"',
        "${A}",
        "${",
        "|",
        "? ",
        "!!str ",
        "---\n",
        "#",
        ": ",
        "\t",
        "\x85",
        "\ud800",
        "\U0001f600",
        "%YAML 1.1\n",
        "!t ",
    ]
)


@given(st.one_of(st.text(max_size=60), st.lists(_WORDS, max_size=25).map("".join)))
@settings(max_examples=400)
def test_any_text_is_a_tree_or_a_config_error(text: str) -> None:
    try:
        tree, problems = compose(text, "f", {"A": "1"})
    except ConfigErrors as broken:
        problems = list(broken.problems)
    else:
        tree.data()
    assert all(each.line >= 1 for each in problems)
