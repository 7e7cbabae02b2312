"""Names that have an order: compared by rank, known when a text is loaded, and partially evaluated as all are."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.predicate import UNKNOWN, Predicate, PredicateError, PredicateFailed, Ranking, compile

NAMES = ("plain", "tls", "mtls", "a")
RANKING = Ranking(NAMES, ("s.level", "p.floor"), "level")
OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

names = st.sampled_from(NAMES)


@given(st.sampled_from(list(OPERATORS)), names, names, st.booleans())
def test_an_attribute_and_a_name_compare_by_rank(sign: str, held: str, name: str, swapped: bool) -> None:
    left, right = (f"'{name}'", "s.level") if swapped else ("s.level", f"'{name}'")
    ranks = NAMES.index(held), NAMES.index(name)
    expected = OPERATORS[sign](*(reversed(ranks) if swapped else ranks))
    asked = compile(f"{left} {sign} {right}", ranking=RANKING)
    assert asked({"s": {"level": held}}) is expected
    assert asked.partial({"s": {"level": held}}) is expected
    assert isinstance(asked.partial({"s": {"level": UNKNOWN}}), Predicate)
    assert asked.reads == {"s.level"}


@given(st.sampled_from(["<", "<=", ">", ">="]), names, names)
def test_two_attributes_and_what_is_computed_compare_by_rank(sign: str, left: str, right: str) -> None:
    expected = OPERATORS[sign](NAMES.index(left), NAMES.index(right))
    env = {"s": {"level": left}, "p": {"floor": right}, "o": {"payload": {"wanted": right}}}
    for text in (
        f"s.level {sign} p.floor",
        f"s['level'] {sign} o.payload.wanted",
        f"s.level {sign} (o.payload.wanted == 'a' ? 'a' : o.payload.wanted)",
        f"[o.payload.wanted].all(name, s.level {sign} name)",
    ):
        assert compile(text, ranking=RANKING)(env) is expected


@pytest.mark.parametrize(
    "text",
    ["s.level >= 'warp'", "'warp' < p.floor", "s.level == 'warp'", "'' != s.level", "s.level in ['tls', 'warp']"],
)
def test_a_name_that_is_not_in_the_order_is_refused(text: str) -> None:
    with pytest.raises(PredicateError, match="is no level; there is plain, tls, mtls, a") as caught:
        compile(text, ranking=RANKING)
    assert caught.value.column > 0


def test_what_is_computed_and_unknown_fails_and_an_old_name_is_the_lowest() -> None:
    asked = compile("s.level >= o.payload.wanted", ranking=RANKING)
    with pytest.raises(PredicateFailed, match="no level"):
        asked({"s": {"level": "tls"}, "o": {"payload": {"wanted": "warp"}}})
    with pytest.raises(PredicateFailed):
        asked({"s": {"level": "tls"}, "o": {"payload": {"wanted": 3}}})
    assert asked({"s": {"level": "gone"}, "o": {"payload": {"wanted": "plain"}}})
    assert not asked({"s": {"level": "gone"}, "o": {"payload": {"wanted": "tls"}}})


def test_other_attributes_and_other_operators_stay_as_they_are() -> None:
    env = {"s": {"level": "tls", "user": "b", "name": "zzz"}}
    assert compile("s.user >= 'a' && s.name > s.user", ranking=RANKING)(env)
    assert compile("s.level + 'x' == 'tlsx' && size(s.level) == 3 && s.level.startsWith('t')", ranking=RANKING)(env)
    assert compile("s.level > 'b'")(env)  # without an order it is a text
