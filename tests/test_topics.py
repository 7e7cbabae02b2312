"""Topics and filters: tables from the specifications, and laws against brute force over a small universe.

The oracle is a regular expression per filter, so it shares no code and no idea with `matches`. The universe
has every topic of up to five levels, each the empty one, a plain one, a `$` one, or one that no filter spells
out and that stands for all the others.
"""

from __future__ import annotations

import re
import time
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.topics import MAX, covers, intersection, matches, overlaps, share, valid_filter, valid_topic


def spelled(levels: tuple[str, ...], depth: int) -> list[str]:
    return ["/".join(path) for n in range(1, depth + 1) for path in product(levels, repeat=n)]


TOPICS = [topic for topic in spelled(("", "a", "$", "other"), 5) if topic]
PLAIN = [filter for filter in spelled(("", "a", "$", "+"), 3) if filter]
FILTERS = [*PLAIN, "#", "/#", *(f"{filter}/#" for filter in PLAIN)]


def oracle(filter: str) -> re.Pattern[str]:
    """The filter as a regular expression over topics."""
    if filter == "#":
        return re.compile(r"(?!\$).*")
    pattern = re.escape(filter.removesuffix("/#")).replace(r"\+", "[^/]*")
    if filter.startswith("+"):
        pattern = r"(?!\$)" + pattern
    return re.compile(pattern + "(/.*)?" if filter.endswith("/#") else pattern)


def described(filter: str) -> int:
    """The topics that `filter` matches, one bit for each of the universe."""
    found = oracle(filter).fullmatch
    return sum(1 << i for i, topic in enumerate(TOPICS) if found(topic))


SETS = {filter: described(filter) for filter in FILTERS}


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        # MQTT 5, 4.7.1.2 and 4.7.1.3
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("sport/#", "sports", False),
        ("#", "anything/at/all", True),
        ("#", "/", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("+/tennis/#", "sport/tennis", True),
        ("+/tennis/#", "sport/tennis/a/b", True),
        ("+/tennis/#", "sport/golf/a", False),
        # 4.7.2 [MQTT-4.7.2-1]
        ("#", "$SYS/uptime", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor/Clients", True),
        ("$SYS/#", "$SYS", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("a/+", "a/$b", True),
        ("a/#", "a/$b/c", True),
        # 4.7.3
        ("ACCOUNTS", "Accounts", False),
        ("Accounts payable", "Accounts payable", True),
        ("/finance", "finance", False),
        ("finance/", "finance", False),
        ("a//c", "a//c", True),
        ("a/+/c", "a//c", True),
    ],
)
def test_matching_follows_the_specification(filter: str, topic: str, expected: bool) -> None:
    assert matches(filter, topic) is expected


@pytest.mark.parametrize(
    "topic", ["a", "/", "//", " ", "a b/c", "$SYS/x", "$share/g/t", "é/漢/😀", "a" * MAX, "é" * 32767]
)
def test_topics_that_may_be_published(topic: str) -> None:
    assert valid_topic(topic)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "+",
        "#",
        "a/+",
        "a/#",
        "a+",
        "#a",
        "a\0b",
        "\0",
        "a" * (MAX + 1),
        "é" * 32768,
        "漢" * 21846,
        "a/\ud800",
    ],
)
def test_topics_that_may_not(topic: str) -> None:
    assert not valid_topic(topic)


@pytest.mark.parametrize(
    "filter",
    [
        *("a", "/", "+", "#", "/#", "+/", "/+", "+/+", "+/#", "a/+/b", "a/#", "+/a/#", "$SYS/#", "a//#"),
        *(
            "$share",
            "$share/g/a",
            "$share/g/#",
            "$share/g/+/a",
            "$share/g//",
            "$share/$/a",
            "$shared/+",
            "$SHARE/+",
        ),
        *("$share/g/$share/+/#", "a/$share/+", "a" * MAX, "$share/g/" + "a" * (MAX - 9)),
    ],
)
def test_filters_that_may_be_subscribed_to(filter: str) -> None:
    assert valid_filter(filter)


@pytest.mark.parametrize(
    "filter",
    [
        *(
            "",
            "a#",
            "#a",
            "#/",
            "#/a",
            "##",
            "a/#/b",
            "a/b#",
            "a/#b",
            "+a",
            "a+",
            "a/b+/c",
            "++",
            "a/++",
            "+/#/",
            "+#",
        ),
        *(
            "$share/",
            "$share//",
            "$share//a",
            "$share/g",
            "$share/g/",
            "$share/+/a",
            "$share/#",
            "$share/#/a",
        ),
        *("$share/g+/a", "$share/g#/a", "$share/g/a#", "$share/g/#/a", "$share/g/+a", "$share/g/a\0", "\0"),
        *("a" * (MAX + 1), "é" * 32768, "+/\udfff", "$share/g/" + "a" * (MAX - 8)),
    ],
)
def test_filters_that_may_not(filter: str) -> None:
    assert not valid_filter(filter)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ("$share/g/a/+", ("g", "a/+")),
        ("$share/g//", ("g", "/")),
        ("$share/g/$share/h/a", ("g", "$share/h/a")),
        ("a/b", (None, "a/b")),
        ("$share", (None, "$share")),
        ("$share/g", (None, "$share/g")),
        ("a/$share/g/b", (None, "a/$share/g/b")),
    ],
)
def test_the_group_is_taken_off(filter: str, expected: tuple[str | None, str]) -> None:
    assert share(filter) == expected


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("#", "#", True),
        ("#", "a/+/#", True),
        ("#", "$SYS/a", False),
        ("+/#", "#", True),
        ("+/+/#", "#", False),
        ("+/#", "$SYS/#", False),
        ("$SYS/#", "$SYS/+/x", True),
        ("a/#", "a", True),
        ("a/+", "a", False),
        ("a/+", "a/#", False),
        ("a/+/#", "a/#", False),
        ("/+/#", "/#", True),
        ("+/+/#", "/#", True),
        ("/+/+/#", "/#", False),
        ("+/b", "a/b", True),
        ("a/b", "+/b", False),
        ("a/+", "a/$b", True),
    ],
)
def test_covering_by_example(outer: str, inner: str, expected: bool) -> None:
    assert covers(outer, inner) is expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("#", "a/b", True),
        ("#", "$SYS/#", False),
        ("+", "$SYS", False),
        ("$SYS/+", "$SYS/#", True),
        ("a/+", "+/b", True),
        ("a/+/c", "+/b/d", False),
        ("a/#", "a", True),
        ("a/#", "+", True),
        ("/#", "+", False),
        ("/#", "+/", True),
        ("a", "a/+", False),
        ("a/+/#", "a", False),
    ],
)
def test_overlapping_by_example(a: str, b: str, expected: bool) -> None:
    assert overlaps(a, b) is expected
    assert overlaps(b, a) is expected


def test_the_universe_is_made_of_valid_names() -> None:
    assert all(valid_topic(topic) for topic in TOPICS)
    assert all(valid_filter(filter) for filter in FILTERS)
    assert len(set(TOPICS)) == len(TOPICS)
    assert len(set(FILTERS)) == len(FILTERS)
    assert all(SETS.values()), "a filter that matches nothing would make every law about it empty"


def test_every_filter_matches_what_its_regular_expression_matches() -> None:
    for filter in FILTERS:
        found = oracle(filter).fullmatch
        for topic in TOPICS:
            assert matches(filter, topic) == bool(found(topic)), (filter, topic)


def test_covers_is_the_subset_relation() -> None:
    for outer, wide in SETS.items():
        for inner, narrow in SETS.items():
            assert covers(outer, inner) == (narrow & ~wide == 0), (outer, inner)


def test_overlaps_is_a_common_topic() -> None:
    for a, left in SETS.items():
        for b, right in SETS.items():
            assert overlaps(a, b) == (left & right != 0), (a, b)


def test_intersection_matches_what_both_match() -> None:
    for a, left in SETS.items():
        for b, right in SETS.items():
            found = intersection(a, b)
            assert (0 if found is None else described(found)) == left & right, (a, b, found)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_short_string_is_a_filter_or_not(size: int) -> None:
    # The grammar as one expression, over every string of these characters.
    grammar = re.compile(r"(?!$)((\+|[^+#/\0]*)/)*(\+|#|[^+#/\0]*)")
    for characters in product("a/+#$\0", repeat=size):
        text = "".join(characters)
        assert valid_filter(text) == bool(grammar.fullmatch(text)), text
        assert valid_topic(text) == ("+" not in text and "#" not in text and "\0" not in text), text


levels = st.sampled_from(["", "a", "b", "$", "$b", "+"])
filters = st.builds(
    lambda path, many: "/".join([*path, "#"] if many else path), st.lists(levels, max_size=8), st.booleans()
).filter(bool)
topics = st.lists(st.sampled_from(["", "a", "b", "c", "$", "$b"]), min_size=1, max_size=9).map("/".join).filter(bool)


@given(filters, filters, topics)
@example("/#", "+", "/")
def test_relations_agree_with_membership(a: str, b: str, topic: str) -> None:
    in_a, in_b = matches(a, topic), matches(b, topic)
    assert in_a == bool(oracle(a).fullmatch(topic))
    if covers(a, b) and in_b:
        assert in_a
    if in_a and in_b:
        assert overlaps(a, b)


@given(filters, filters, filters)
def test_covering_is_an_order(a: str, b: str, c: str) -> None:
    assert covers(a, a)
    assert overlaps(a, a)
    assert overlaps(a, b) == overlaps(b, a)
    if covers(a, b):
        assert overlaps(a, b)
        if covers(b, c):
            assert covers(a, c)


@given(st.text())
def test_any_text_gets_an_answer(text: str) -> None:
    assert valid_topic(text) in (True, False)
    group, inner = share(text)
    if valid_topic(text):
        assert valid_filter(text) or text.startswith("$share/")
        assert matches(text, text)
    if valid_filter(text):
        assert inner
        assert covers(inner, inner)
        assert group != ""


def test_sixty_five_thousand_levels_take_linear_time() -> None:
    # Splitting 65,536 levels takes a few milliseconds; anything quadratic would take minutes.
    slashes = "/" * MAX
    pluses = "/".join("+" * 32768)
    nested = "$share/g/" * 7281
    started = time.process_time()
    assert valid_topic(slashes)
    assert valid_filter(slashes)
    assert valid_filter(pluses)
    assert valid_filter(nested + "a")
    assert matches("#", slashes)
    assert matches(slashes[:-1] + "#", slashes)
    assert not matches(pluses, slashes)
    assert matches(pluses, slashes[:32767])
    assert covers(pluses[:-1] + "#", pluses)
    assert covers(pluses, slashes[:32767])
    assert not covers(slashes[:32767], pluses)
    assert overlaps(pluses, slashes[:32767])
    assert not overlaps(pluses, slashes)
    assert time.process_time() - started < 10
