"""The tree of topic names says what a walk through all of them says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.routing.topic_names import Branch, TopicNames

LEVELS = st.sampled_from(["", "a", "b", "a-b", "b c", "a\x01", "ä", "0"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)


def walked(topics: set[str], under: str | None) -> list[Branch]:
    """The same, by looking at every topic."""
    depth = 0 if under is None else under.count("/") + 1
    found: dict[str, list[str]] = {}
    for topic in topics:
        levels = topic.split("/")
        if under is None or (len(levels) > depth and "/".join(levels[:depth]) == under):
            found.setdefault("/".join(levels[: depth + 1]), []).append(topic)
    return [
        Branch(topic=name, here=name in below, below=len(below) - (name in below))
        for name, below in sorted(found.items(), key=lambda item: item[0].replace("/", "\0"))
    ]


@given(st.sets(TOPICS, max_size=20), st.sets(TOPICS, max_size=10), st.none() | TOPICS)
def test_branches(kept: set[str], gone: set[str], under: str | None) -> None:
    names = TopicNames()
    for topic in kept | gone:
        names.add(topic)
    for topic in gone - kept:
        names.remove(topic)
    assert len(names) == len(kept)
    found = list(names.below(under))
    assert found == walked(kept, under)
    for index, branch in enumerate(found):
        assert list(names.below(under, branch.topic)) == found[index + 1 :]
