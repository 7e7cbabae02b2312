"""Subjects as they are written on the command line and in tests of the rules."""

from __future__ import annotations

import pytest

from tidegate.config import Who, parse_who
from tidegate.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("user:mary", Who(user="mary")),
        ("client:tr1", Who(name="tr1")),
        ("client:a/b:c@d", Who(name="a/b:c@d")),
        ("user:mary/client:tr1", Who(user="mary", name="tr1")),
        ("user:mary/client:user:x", Who(user="mary", name="user:x")),
        ("user:a/b", Who(user="a/b")),
        ("user:alice@remotegym", Who(user="alice", domain="remotegym")),
        ("user:alice@home@remotegym/client:x@y", Who(user="alice@home", domain="remotegym", name="x@y")),
        ("service:pipeline", Who(kind="service", name="pipeline")),
        ("scope:gym", Who(kind="scope", name="gym")),
        ("link:gym->brand", Who(kind="link", name="gym->brand")),
    ],
)
def test_who_is_meant(text: str, who: Who) -> None:
    assert parse_who(text) == who
    assert str(who) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mary", "`mary` is nobody who acts: write for example `user:mary`"),
        ("", "`` is nobody who acts"),
        ("role:coach", "`role:coach` is nobody who acts"),
        ("client:", "`client:` is nobody who acts"),
        ("user:", "`user:` names nobody: write `user:name`"),
        ("user:@x", "`user:@x` names nobody"),
        ("user:mary@", "`user:mary@` names nobody"),
        ("user:mary/client:", "`user:mary/client:` names no client"),
    ],
)
def test_nobody(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"nobody|no client") as wrong:
        parse_who(text)
    assert str(wrong.value).startswith(said)
