"""Topic filters with placeholders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import topics
from tidegate.errors import ConfigError
from tidegate.policy.index import FilterIndex
from tidegate.policy.template import Template


@pytest.mark.parametrize(
    ("template", "s", "topic", "expected"),
    [
        ("+/performance/{s.user}/#", {"user": "mary"}, "tr1/performance/mary/speed", True),
        ("+/performance/{s.user}/#", {"user": "mary"}, "tr1/performance/bob/speed", False),
        ("dev-{s.client}/{s.tls.version}", {"client": "a", "tls": {"version": "1.3"}}, "dev-a/1.3", True),
        ("{{{s.user}}}", {"user": "mary"}, "{mary}", True),
        ("a/#", {}, "a", True),
        ("#", {}, "$SYS/x", False),
        ("+/x", {}, "$SYS/x", False),
        ("$SYS/#", {}, "$SYS/x", True),
        # placeholders holding wildcards
        ("{s.user}/x", {"user": "+"}, "mary/x", False),
        ("{s.user}/x", {"user": "+"}, "+/x", False),
        ("{s.user}", {"user": "#"}, "mary", False),
        ("a/{s.user}", {"user": "b/c"}, "a/b/c", False),
        ("a/{s.user}", {"user": ""}, "a/", False),
        ("a/{s.user}", {}, "a/mary", False),
        ("a/{s.n}", {"n": 1}, "a/1", False),
        ("a/{s.n}", {"n": ["b"]}, "a/b", False),
        ("a/{s.user.name}", {"user": "b"}, "a/b", False),
        # nobody gets at $SYS by being called that
        ("{s.user}/#", {"user": "$SYS"}, "$SYS/broker", False),
        ("a/{s.user}", {"user": "$SYS"}, "a/$SYS", True),
    ],
)
def test_matches(template: str, s: dict[str, object], topic: str, expected: bool) -> None:
    assert Template.parse(template).matches(s, topic) is expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a/{user}", "write for instance `{s.user}`"),
        ("a/{o.topic}", "attribute of the subject"),
        ("a/{s.user", "a single `{`"),
        ("a/s.user}", "a single `}`"),
        ("a/{}", "attribute of the subject"),
        ("a/#/b", "no topic filter"),
        ("a/{s.user}+", "no topic filter"),
        ("", "no topic filter"),
        ("$share/g/a", "without `$share/g/`"),
    ],
)
def test_errors_say_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Template.parse(text)
    assert says in str(caught.value)


def test_reads() -> None:
    assert Template.parse("{s.user}/+/{s.tls.version}").reads == {"s.user", "s.tls.version"}
    assert Template.parse("a/+").reads == frozenset()
    assert Template.parse("a/+").fixed == "a/+"
    assert Template.parse("a/{s.user}").fixed is None
    assert Template.parse("a/x-{s.user}/#").levels == ["a", "+", "#"]


values = st.text(alphabet="ab+#/$", max_size=3)
levels = st.sampled_from(["a", "b", "+", "{s.x}", "{s.y}", "p{s.x}"])
texts = st.tuples(st.lists(levels, min_size=1, max_size=3), st.sampled_from(["", "/#"])).map(
    lambda made: "/".join(made[0]) + made[1]
)
names = st.lists(st.sampled_from(["a", "b", "", "$a", "pa", "ab"]), min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.tuples(st.lists(st.sampled_from(["a", "b", "", "+"]), max_size=3), st.booleans()).map(
    lambda made: "/".join([*made[0], *["#"] * made[1]]) or "+"
)


@given(texts, values, values, names)
def test_a_value_never_widens_a_filter(text: str, x: str, y: str, topic: str) -> None:
    """Whatever it matches, it matches level by level with the values as they are."""
    template = Template.parse(text)
    if template.matches({"x": x, "y": y}, topic):
        wanted = text.removesuffix("/#").split("/")
        have = topic.split("/")
        assert text.endswith("/#") or len(wanted) == len(have)
        for want, level in zip(wanted, have, strict=False):
            assert want == "+" or want.replace("{s.x}", x).replace("{s.y}", y) == level
        assert not topic.startswith("$")


@given(texts, values, values, filters, names)
def test_overlaps_where_a_topic_matches_both(text: str, x: str, y: str, filter: str, topic: str) -> None:
    template, s = Template.parse(text), {"x": x, "y": y}
    if template.matches(s, topic) and topics.matches(filter, topic):
        assert template.overlaps(s, filter)


@given(st.lists(filters, max_size=12), names, filters)
def test_index_leaves_nothing_out(held: list[str], topic: str, filter: str) -> None:
    index: FilterIndex[str] = FilterIndex()
    for each in held:
        index.add(each.split("/"), each)
    assert {each for each in held if topics.matches(each, topic)} <= set(index.matching(topic))
    assert {each for each in held if topics.overlaps(each, filter)} <= set(index.overlapping(filter))
    assert {each for each in held if topics.covers(each, filter)} <= set(index.matching(filter))
