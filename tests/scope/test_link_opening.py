"""Links between scopes that open while there are retained messages. What may cross is in `test_walk`."""

from __future__ import annotations

from dataclasses import replace

from pure import World
from scope.spaces import both, got, say, world
from tidegate.monitor import Attachment
from tidegate.monitor.library import Alternate
from tidegate.policy.scopes import ScopeGraph, ScopeLink, TopicMapping

SCOPES = ("a", "b", "c")


def linked(*links: ScopeLink) -> ScopeGraph:
    return ScopeGraph(scopes=SCOPES, links=links)


def change(here: World, *links: ScopeLink) -> None:
    here.realm.change(replace(here.realm.rules, space=linked(*links)))
    for _ in range(3):
        here.turn()


def test_a_link_that_opens_carries_what_is_retained() -> None:
    """Into all scopes that it leads to, the oldest first."""
    before, new = both("b", "c"), both("a", "b")
    here = world(linked(*before))
    end = here.peer("end", scope="c")
    end.subscribe("#", qos=1)
    source = here.peer("source", scope="a")
    for topic in ("t/1", "t/2"):
        say(source, topic, b"kept", retain=True)
    say(source, "t/1", b"newer", retain=True, qos=1)
    change(here, *before, *new)
    assert got(end) == [("t/2", b"kept"), ("t/1", b"newer")]
    for scope in "bc":
        late = here.peer("late", scope=scope)
        late.subscribe("#")
        assert sorted(got(late)) == [("t/1", b"newer"), ("t/2", b"kept")]
    change(here, *new, *before)
    assert got(end) == []


def test_what_is_newer_behind_a_link_that_opens_stays() -> None:
    here = world(linked())
    end = here.peer("end", scope="b")
    end.subscribe("#")
    say(here.peer("source", scope="a"), "t", b"old", retain=True)
    say(here.peer("other", scope="b"), "t", b"new", retain=True)
    assert got(end) == [("t", b"new")]
    change(here, ScopeLink(source="a", target="b"))
    assert got(end) == []


def test_what_was_published_behind_a_link_does_not_come_back() -> None:
    links = both("a", "b")
    here = world(linked(links[1]))
    end = here.peer("end", scope="b")
    end.subscribe("#")
    say(end, "t", retain=True)  # in b, and from there in a
    change(here)
    say(end, "t", b"", retain=True)
    got(end)
    change(here, *links)
    assert got(end) == []


def test_a_share_that_grows_carries_what_did_not_cross_before() -> None:
    shares = (TopicMapping(filter="t/#"),)
    here = world(linked(ScopeLink(source="a", target="b", shares=shares)))
    source, end = here.peer("source", scope="a"), here.peer("end", scope="b")
    end.subscribe("#")
    for topic in ("t", "u"):
        say(source, topic, retain=True)
    assert got(end) == [("t", b"x")]
    say(end, "t", b"", retain=True)  # cleared here, and not there
    assert got(end) == [("t", b"")]
    shares += (TopicMapping(filter="u", there="their/"),)
    change(here, ScopeLink(source="a", target="b", shares=shares))
    assert got(end) == [("their/u", b"x")]


def test_monitors_see_what_a_link_carries_once() -> None:
    monitor = Attachment(id="m", monitor=Alternate(), link=("scope:a", "scope:b"))
    here = world(linked(), monitor)
    end = here.peer("end", scope="b")
    end.subscribe("#")
    source = here.peer("source", scope="a")
    for topic in ("1", "2", "3"):
        say(source, topic, retain=True)
    change(here, ScopeLink(source="a", target="b"))
    assert got(end) == [("1", b"x"), ("3", b"x")]
    change(here)
    change(here, ScopeLink(source="a", target="b"))
    assert got(end) == []  # 2 is seen once more, for it has not got there, and is suppressed
