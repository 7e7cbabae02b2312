"""A place in a condition is told as a place in the file, however YAML lets the condition be written."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.config.tree import compose
from tidegate.config.validation import position_in_file


def told(source: str, wanted: str, **variables: str) -> tuple[int, int]:
    """Where `wanted` is said to be, in the scalar under the key `when`."""
    tree, _ = compose(source, "f", variables)
    *_, node = tree.along(("when",))
    assert isinstance(node.value, str)
    before = node.value[: node.value.index(wanted)]
    return position_in_file(source, node, before.count("\n") + 1, len(before) - before.rfind("\n"))


@pytest.mark.parametrize(
    "source",
    [
        "when: a && HERE",
        "ä: ö\nwhen: ü && HERE",
        "when: a &&\n  b &&\n\n  HERE",
        "when: '''it'' == HERE'",
        "when: 'x == ''y'' &&\n\n   ''z'' == HERE'",
        'when: "x == \\"y\\" && HERE"',
        'when: "x\\n&& \\x41\\u0042 \\t && \\\n   HERE"',
        "when: |\n  a &&\n    b\n\n  && HERE\n",
        "when: |2-   # why\n\n    a &&\n  HERE\n",
        "when: >\n  a &&\n  b\n\n    c\n  HERE\n",
        "when: >-\n\n  HERE",
        "x: &it |\n  a\n  && HERE\nwhen: *it\n",
        "x: &it !!str 'a && HERE'\nwhen: *it\n",
        "base: &base\n  when: HERE\n<<: *base\n",
        "{a: 1, when: 'a && HERE'}",
        "# ${A}\nwhen: $${ == HERE",
    ],
)
def test_it_is_where_it_stands(source: str) -> None:
    at = source.index("HERE")
    if "$${" in source:
        # the text is not what stands in the file, so the place is that in the text
        assert told(source, "HERE") == (2, len("${ == ") + 1)
        return
    assert told(source, "HERE") == (source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at))


def test_the_end_of_a_text_is_behind_its_last_character() -> None:
    source = "a: 1\nwhen: |\n  x &&\n  y ==\n\nb: 1\n"
    tree, _ = compose(source, "f", {})
    *_, node = tree.along(("when",))
    assert position_in_file(source, node, 3, 1) == (4, len("  y ==") + 1)


def test_a_variable_makes_the_place_one_in_the_text() -> None:
    assert told("a: 1\nwhen: ${X} && HERE", "HERE", X="some") == (2, len("some && ") + 1)


def test_what_is_no_text_has_its_line() -> None:
    tree, _ = compose("a: 1\nwhen: [1]", "f", {})
    *_, node = tree.along(("when",))
    assert position_in_file("a: 1\nwhen: [1]", node, 1, 7) == (2, 7)


@given(st.text('ab"\\/\n\t 1é😀', max_size=12), st.text('ab"\\/\n\t é', max_size=12))
def test_double_quotes_with_any_escapes(before: str, after: str) -> None:
    source = f"# é😀\nwhen: {json.dumps(before + 'HERE' + after, ensure_ascii=False)}\n"
    tree, _ = compose(source, "f", {})
    *_, node = tree.along(("when",))
    assume(isinstance(node.value, str))
    at = source.index("HERE")
    assert told(source, "HERE") == (2, at - source.index("\n"))
