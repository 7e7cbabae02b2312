"""Where monitors act: links and borders, order, defaults."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.monitor import Attachment, Direction, Monitors
from tidegate.monitor.library import Twice

IM_PUB, IM_SUB, EX_PUB, EX_SUB = Direction.IM_PUB, Direction.IM_SUB, Direction.EX_PUB, Direction.EX_SUB


def at(id: str, link: str | None = None, scope: str | None = None, kind: Direction | None = None, **other: Any) -> Any:
    source, _, target = (link or "").partition("->")
    ends = None if link is None else (source, target)
    return Attachment(id=id, monitor=Twice(), link=ends, scope=scope, direction=kind, **other)


def found(monitors: Monitors, link: str, kind: Direction, scope: str) -> list[str]:
    source, _, target = link.partition("->")
    return [each.id for each in monitors.over(source, target, kind=kind, scope=scope)]


def test_none() -> None:
    assert (len(Monitors(())), list(Monitors())) == (0, [])
    assert found(Monitors(()), "client:a->scope:home", IM_PUB, "home") == []


def test_by_border() -> None:
    monitors = Monitors([at("in", scope="home", kind=IM_PUB), at("out", scope="home", kind=IM_SUB)])
    assert found(monitors, "client:a->scope:home", IM_PUB, "home") == ["in"]
    assert found(monitors, "scope:home->client:a", IM_SUB, "home") == ["out"]
    assert found(monitors, "client:a->scope:work", IM_PUB, "work") == []
    assert found(monitors, "scope:work->scope:home", EX_SUB, "home") == []


@pytest.mark.parametrize(
    ("link", "kind", "scope", "acts"),
    [
        ("client:a->scope:home", IM_PUB, "home", True),
        ("scope:home->client:a", IM_SUB, "home", True),
        # once, on entering the second scope, whichever of the two is the parent
        ("scope:home->scope:work", EX_PUB, "home", False),
        ("scope:home->scope:work", IM_PUB, "work", True),
        ("scope:home->scope:work", IM_SUB, "home", False),
        ("scope:home->scope:work", EX_SUB, "work", True),
    ],
)
def test_by_link_once(link: str, kind: Direction, scope: str, acts: bool) -> None:
    monitors = Monitors([at("m", link)])
    assert found(monitors, link, kind, scope) == (["m"] if acts else [])
    source, _, target = link.partition("->")
    assert found(monitors, f"{target}->{source}", kind, scope) == []


def test_a_client_that_is_called_like_a_scope_is_none() -> None:
    monitors = Monitors([at("m", "scope:home->client:scope:home")])
    assert found(monitors, "scope:home->client:scope:home", IM_SUB, "home") == ["m"]


def test_several_in_file_order() -> None:
    link = "client:a->scope:home"
    monitors = Monitors([at("1", scope="home", kind=IM_PUB), at("2", link), at("3", scope="home", kind=IM_PUB)])
    assert found(monitors, link, IM_PUB, "home") == ["1", "2", "3"]
    assert found(monitors, "client:b->scope:home", IM_PUB, "home") == ["1", "3"]
    assert [each.id for each in monitors] == ["1", "2", "3"]
    assert monitors.by_id["2"].link == ("client:a", "scope:home")


def test_a_default_acts_where_no_other_does() -> None:
    link = "client:a->scope:home"
    monitors = Monitors(
        [
            at("d", scope="home", kind=IM_PUB, default=True),
            at("2", link),
            at("e", scope="home", kind=IM_PUB, default=True),
        ]
    )
    assert found(monitors, link, IM_PUB, "home") == ["2"]
    assert found(monitors, "client:b->scope:home", IM_PUB, "home") == ["d", "e"]
