"""What topics were called before they crossed links."""

from __future__ import annotations

from itertools import product

import pytest

from tidegate.policy.scopes import ScopeGraph, ScopeLink, TopicMapping
from tidegate.topics import matches

LEVELS = ("a", "b", "pre")
TOPICS = ["/".join(levels) for count in (1, 2, 3) for levels in product(LEVELS, repeat=count)]
SHARES = [
    TopicMapping(filter="#"),
    TopicMapping(filter="a/#", there="pre/"),
    TopicMapping(filter="+/b", here="pre/", there="b/"),
    TopicMapping(filter="a", here="pre/a/"),
    TopicMapping(filter="#", here="pr"),
    TopicMapping(filter="#", there="pr"),
]


@pytest.mark.parametrize("filter", ["#", "+", "a/#", "+/b", "pre/a", "pre/+/b", "b/a/b", "pre/#"])
def test_nothing_is_left_out(filter: str) -> None:
    """Whatever matches behind two links, it matched one of the filters before them."""
    for first, second in product(SHARES, SHARES):
        links = (
            ScopeLink(source="x", target="y", shares=(first,)),
            ScopeLink(source="y", target="z", shares=(second,)),
        )
        originals = ScopeGraph(scopes=("x", "y", "z"), links=links).originals("z", filter)
        for topic in TOPICS:
            there = first.renamed(topic)
            behind = None if there is None else second.renamed(there)
            if behind is not None and matches(filter, behind):
                assert any(matches(each, topic) for each in originals), (first, second, topic)


def test_what_stays_out() -> None:
    link = ScopeLink(source="x", target="y", shares=(TopicMapping(filter="a/#", there="pre/"),))
    graph = ScopeGraph(scopes=("x", "y"), links=(link,))
    assert graph.originals("y", "pre/a/b") == {"pre/a/b", "a/b"}
    assert graph.originals("y", "#") == {"#", "a/#"}
    assert graph.originals("y", "pre/b") == {"pre/b"}
    assert graph.originals("x", "pre/a/b") == {"pre/a/b"}


def test_circles() -> None:
    """A name that comes back is looked at once; names that grow are followed to a bound."""
    names = tuple(f"s{number}" for number in range(12))
    links = tuple(ScopeLink(source=one, target=other) for one in names for other in names if one != other)
    assert ScopeGraph(scopes=names, links=links).originals("s0", "a") == {"a"}
    longer = (
        ScopeLink(source="x", target="y", shares=(TopicMapping(filter="#", here="pre/"),)),
        ScopeLink(source="y", target="x"),
    )
    assert ScopeGraph(scopes=("x", "y"), links=longer).originals("y", "a") == {"#"}
