"""Subject selectors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.people import HOME, Person, alice, mary, stranger
from tidegate.errors import ConfigError
from tidegate.policy.selector import Selector
from tidegate.policy.subject import Subject

gym = Person(kind="scope", client="gym", scope="gym")
bridge = Person(kind="link", client="gym->remotegym", scope="gym")
pipeline = Person(kind="service", client="pipeline")
monitor = Person(kind="monitor", client="door")
everyone = (alice, mary, stranger, gym, bridge, pipeline, monitor)

CASES = [
    ("*", set(range(7))),
    ("user:mary", {1}),
    ("user:mary@mygymbrand", {1}),
    ("user:mary@remotegym", set()),
    ("role:coach", {0}),
    ("client:tr1", {1}),
    ("client:pipeline", set()),
    ("scope:gym", {3, 4}),
    ("scope:remotegym", set()),
    ("link:gym->remotegym", {4}),
    ("link: gym->remotegym", None),
    ("service:pipeline", {5}),
    ("monitor:door", {6}),
    (["role:coach", "client:phone"], {0, 2}),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_selects(text: str | list[str], expected: set[int] | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError):
            Selector.parse(text)
        return
    selector = Selector.parse(text)
    assert {i for i, actor in enumerate(everyone) if selector.matches(actor, HOME)} == expected


def test_a_bare_name_means_the_domain_it_was_written_in() -> None:
    theirs = replace(alice, domain="remotegym")
    assert Selector.parse("user:alice").matches(alice, HOME)
    assert not Selector.parse("user:alice").matches(theirs, HOME)
    assert Selector.parse("user:alice@remotegym").matches(theirs, HOME)
    assert Selector.parse("user:alice").matches(theirs, "remotegym")


def test_a_name_with_an_at_is_nobody_of_that_domain() -> None:
    fake = replace(alice, user="alice@remotegym")
    assert not Selector.parse("user:alice@remotegym").matches(fake, HOME)
    assert Selector.parse("user:alice@remotegym@mygymbrand").matches(fake, HOME)


def test_a_client_of_a_scope_is_not_the_scope_nor_a_service() -> None:
    assert not Selector.parse("scope:gym").matches(mary, HOME)
    assert not Selector.parse("service:tr1").matches(mary, HOME)
    assert not Selector.parse("user:tr1").matches(mary, HOME)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mary", "user:mary"),
        ("rolle:coach", "did you mean `role:`"),
        ("xyz:coach", "it begins with one of"),
        ("role:", "a name follows"),
        ("role: coach", "without spaces"),
        ("user:*", "no wildcards"),
        ("user:@x", "user:name@domain"),
        ("user:x@", "user:name@domain"),
        ("link:A", "link:A->B"),
        ("link:A->B->C", "link:A->B"),
        ([], "for everybody"),
        ([3], "not 3"),
    ],
)
def test_errors_say_what_is_wrong(text: str | list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=None) as caught:
        Selector.parse(text)
    assert says in str(caught.value)


texts = st.sampled_from([text for text, expected in CASES if isinstance(text, str) and expected is not None])
selectors = st.lists(texts, min_size=1, max_size=3)


@given(selectors, st.sampled_from(everyone))
def test_a_list_selects_whom_one_of_it_selects(texts: list[str], actor: Subject) -> None:
    one_by_one = any(Selector.parse(text).matches(actor, HOME) for text in texts)
    assert Selector.parse(texts).matches(actor, HOME) == one_by_one


@given(selectors, selectors, st.sampled_from(everyone))
def test_covers(a: list[str], b: list[str], actor: Subject) -> None:
    wide, narrow = Selector.parse(a).within(HOME), Selector.parse(b).within(HOME)
    if wide.covers(narrow) and narrow.matches(actor, HOME):
        assert wide.matches(actor, HOME)


@given(selectors)
def test_shown_as_it_is_read(texts: list[str]) -> None:
    selector = Selector.parse(texts)
    assert Selector.parse(str(selector).split(", ")) == selector
