"""Views: SEC-REDS' patient and teacher, JSON pointers, and the laws of uniting and intersecting."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policy.people import HOME, Person
from policy.written import row_of
from tidegate.errors import ConfigError
from tidegate.policy import pointers
from tidegate.policy.views import ALL, NOTHING, Seen, Table, View, Views, united

andrew = Person(user="andrew", groups=("cardiologists",))
mark = Person(user="mark", groups=("cardiologists",))
nurse = Person(user="nurse")

RECORD = {
    "name": {"first": "John", "last": "Patient", "born": "4/2/1948", "country": "Italy"},
    "illness": "steady angina",
    "therapy": {"pills a day": "if needed", "pill": "Carvasin 10mg"},
}


def shown(view: View, document: Any) -> Any:
    left = view.apply(json.dumps(document).encode())
    return None if left is None else json.loads(left)


# -- SEC-REDS --------------------------------------------------------------------------------------------------------


def test_sec_reds_appendix_b_the_patient_and_the_cardiologists() -> None:
    table = Table.parse('{"group:cardiologists": ["/illness", "/therapy"], "user:andrew": "all"}')
    assert shown(table.seen(andrew, HOME), RECORD) == RECORD
    assert shown(table.seen(mark, HOME), RECORD) == {"illness": RECORD["illness"], "therapy": RECORD["therapy"]}
    assert shown(table.seen(nurse, HOME), RECORD) is None


LESSON = {"Socrates": "469 BC", "Immanuel Kant": "1724", "Edmund Burk": "1729"}


@pytest.mark.parametrize(
    ("category", "expected"),
    [("I", ["Socrates"]), ("II", ["Socrates", "Immanuel Kant"]), ("III", list(LESSON))],
)
def test_sec_reds_figures_2_14_to_2_16_the_teacher_and_the_students(category: str, expected: list[str]) -> None:
    table = Table.parse('{"group:I": ["/Socrates"], "group:II": ["/Socrates", "/Immanuel Kant"], "group:III": "all"}')
    student = Person(user="student", groups=(category,))
    assert shown(table.seen(student, HOME), LESSON) == {name: LESSON[name] for name in expected}


def test_sec_reds_a_content_of_numbered_parts() -> None:
    data = ["Name:John", "type of illness:steady angina", "number of pills"]
    assert shown(View.parse(["/1"]), data) == [None, "type of illness:steady angina"]
    assert shown(View.parse(["/0"]), data) == ["Name:John"]


def test_views_of_overlapping_groups_unite() -> None:
    table = Table.parse('{"group:I": ["/a"], "group:II": ["/b"]}')
    assert table.seen(Person(groups=("I", "II")), HOME) == View.parse(["/a", "/b"])


# -- tables ----------------------------------------------------------------------------------------------------------

office = Views(
    [
        row_of(id="v1", topic="angina", subject="group:cardiologists", keep=["/illness", "/therapy"]),
        row_of(id="v2", topic="angina", subject="user:andrew", keep="all"),
        row_of(id="v3", topic="+/x", subject="*", keep=["/a"]),
    ],
    domain=HOME,
)


def test_the_administrators_table() -> None:
    assert office.seen(mark, "angina") == Seen(View.parse(["/illness", "/therapy"]), ("v1",))
    assert office.seen(andrew, "angina") == Seen(ALL, ("v1", "v2"))
    assert office.seen(nurse, "angina") == Seen(NOTHING, ("default",))
    assert office.seen(nurse, "weather") == Seen(ALL)
    assert office.seen(nurse, "b/x") == Seen(View.parse(["/a"]), ("v3",))
    assert office.seen(nurse, "$SYS/x") == Seen(ALL)


def test_the_administrators_default_is_configurable() -> None:
    open_office = Views(office.rows, otherwise=ALL, domain=HOME)
    assert open_office.seen(nurse, "angina") == Seen(ALL, ("default",))


def test_kin_see_the_same() -> None:
    assert office.cache_key(nurse) == office.cache_key(Person(user="zoe", client="c9", roles=("r",)))
    assert office.cache_key(nurse) != office.cache_key(andrew)


def test_tables_intersect() -> None:
    publisher = Table.parse('{"group:cardiologists": ["/illness", "/name/country"]}')
    both = office.seen(mark, "angina").view & publisher.seen(mark, HOME)
    assert both == View.parse(["/illness"])
    # a table without an applicable row shows nothing, whatever the others show
    assert ALL & publisher.seen(nurse, HOME) == NOTHING
    assert united([]) == NOTHING


def test_a_publishers_names_are_of_the_publishers_domain() -> None:
    table = Table.parse('{"user:andrew": "all"}')
    assert table.seen(andrew, HOME) == ALL
    assert table.seen(andrew, "elsewhere") == NOTHING
    assert Table.parse('{"user:andrew@mygymbrand": "all"}').seen(andrew, "elsewhere") == ALL


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        '{"andrew": "all"}',
        '{"user:andrew": "some"}',
        '{"user:andrew": ["illness"]}',
        '{"user:andrew": ["/a~2"]}',
        '{"user:andrew": [1]}',
        '{"user:andrew": null}',
        '{"*": "all", "user:": []}',
        '{"*": ["' + "/a" * 33 + '"]}',
        '{"*": ' + json.dumps([f"/{n}" for n in range(257)]) + "}",
        json.dumps({f"user:u{n}": "all" for n in range(257)}),
        '{"*": ["/' + "a" * 20_000 + '"]}',
        "[" * 10_000,
    ],
)
def test_a_table_that_cannot_be_read_shows_nothing(text: str) -> None:
    table = Table.parse(text)
    assert table.error
    assert table.seen(andrew, HOME) == NOTHING


def test_a_table_travels() -> None:
    table = Table.parse('{"group:cardiologists": ["/illness", "/a~1b"], "user:andrew": "all"}')
    assert Table.of(json.loads(json.dumps(table.plain()))) == table


# -- JSON pointers ---------------------------------------------------------------------------------------------------

RFC = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8}


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("", RFC),
        ("/foo", {"foo": ["bar", "baz"]}),
        ("/foo/0", {"foo": ["bar"]}),
        ("/foo/1", {"foo": [None, "baz"]}),
        ("/", {"": 0}),
        ("/a~1b", {"a/b": 1}),
        ("/c%d", {"c%d": 2}),
        ("/e^f", {"e^f": 3}),
        ("/g|h", {"g|h": 4}),
        ("/i\\j", {"i\\j": 5}),
        ('/k"l', {'k"l': 6}),
        ("/ ", {" ": 7}),
        ("/m~0n", {"m~n": 8}),
        ("/foo/2", None),
        ("/foo/-", None),
        ("/foo/01", None),
        ("/foo/1e0", None),
        ("/foo/0/x", None),
        ("/nothing", None),
        ("/m~01n", None),
    ],
)
def test_rfc_6901_section_5(pointer: str, expected: Any) -> None:
    assert shown(View.parse([pointer]), RFC) == expected


def test_rfc_6901_section_4_a_tilde_is_put_back_last() -> None:
    assert pointers.parse("/~01") == ("~1",)


def test_the_order_of_the_document_is_kept() -> None:
    assert View.parse(["/b", "/a", "/c"]).apply(b'{"c":1,"x":2,"a":3,"b":4}') == b'{"c":1,"a":3,"b":4}'


def test_of_a_name_twice_the_last_counts_and_the_first_is_not_sent() -> None:
    assert View.parse(["/a"]).apply(b'{"a":"secret","a":1}') == b'{"a":1}'


@pytest.mark.parametrize("payload", [b"", b"not json", b"\xff\x00", b"NaN", b"{", b"[" * 5000, b'{"a":1}x'])
def test_content_that_is_not_json_is_all_or_nothing(payload: bytes) -> None:
    assert ALL.apply(payload) == payload
    assert View.parse(["/a"]).apply(payload) is None
    assert View.parse([""]).apply(payload) == payload


def test_bounds() -> None:
    large = b'{"a":1,"b":"' + b"x" * 100 + b'"}'
    assert View.parse(["/a"]).apply(large, limit=100) is None
    assert View.parse(["/a"]).apply(large) == b'{"a":1}'
    deep = b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"
    assert View.parse(["/a"]).apply(deep) is None  # it can be read, but not written
    with pytest.raises(ConfigError, match="at most 32 parts"):
        View.parse(["/a" * 33])
    with pytest.raises(ConfigError, match="at most 256"):
        View.parse([f"/{n}" for n in range(257)])
    with pytest.raises(ConfigError, match="write `all`"):
        View.parse("everything")


# -- laws ------------------------------------------------------------------------------------------------------------

tokens = st.sampled_from(["a", "b", "0", "1", "~", "/", "", "~1"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(alphabet="xy", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tokens, inner, max_size=3),
    max_leaves=12,
)
paths = st.lists(tokens, max_size=3).map(tuple)
views = st.just(ALL) | st.builds(View, st.frozensets(paths, max_size=4))


def leaves(document: Any, at: tuple[str, ...] = ()) -> set[tuple[tuple[str, ...], str]]:
    """Everything a document says, place by place."""
    match document:
        case dict() if document:
            return {leaf for name, part in document.items() for leaf in leaves(part, (*at, name))}
        case list() if document:
            return {leaf for place, part in enumerate(document) for leaf in leaves(part, (*at, str(place)))}
        case _:
            return {(at, json.dumps(document))}


def expected(view: View, document: Any) -> set[tuple[tuple[str, ...], str]]:
    """The leaves that the definition keeps: those below one of the pointers."""
    if view.keep is None:
        return leaves(document)
    return {(at, value) for at, value in leaves(document) if any(at[: len(p)] == p for p in view.keep)}


@given(views, documents)
def test_what_is_shown_is_what_pointers_lead_to(view: View, document: Any) -> None:
    left = view.apply(json.dumps(document).encode())
    have = set() if left is None else leaves(json.loads(left))
    want = expected(view, document)
    assert want <= have
    # the rest are places before a kept element, which say nothing
    assert all(value == "null" for _, value in have - want)
    assert (left is None) == (not want)


@given(views, views, documents)
def test_uniting_and_intersecting_show_what_either_and_both_show(a: View, b: View, document: Any) -> None:
    assert expected(a | b, document) == expected(a, document) | expected(b, document)
    assert expected(a & b, document) == expected(a, document) & expected(b, document)


@given(views, views, views)
def test_laws_of_sets(a: View, b: View, c: View) -> None:
    assert a | b == b | a
    assert a & b == b & a
    assert (a & b) & c == a & (b & c)
    assert a & (b | c) == (a & b) | (a & c)
    assert a | a == a & a == a
    assert a & ALL == a | NOTHING == a
    assert hash(a & a) == hash(a)


@given(paths)
def test_pointers_round_trip(pointer: tuple[str, ...]) -> None:
    assert pointers.parse(pointers.text(pointer)) == pointer


@given(st.frozensets(paths, max_size=4))
def test_views_round_trip(keep: frozenset[tuple[str, ...]]) -> None:
    assume(() not in keep)
    assert View.parse(View(keep).plain) == View(keep)
