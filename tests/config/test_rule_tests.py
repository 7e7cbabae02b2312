"""Subjects as they are written on the command line and in tests of the rules."""

from __future__ import annotations

import pytest

from tidegate.config import SubjectName, parse_subject_name
from tidegate.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("user:mary", SubjectName(user="mary")),
        ("client:tr1", SubjectName(name="tr1")),
        ("client:a/b:c@d", SubjectName(name="a/b:c@d")),
        ("user:mary/client:tr1", SubjectName(user="mary", name="tr1")),
        ("user:mary/client:user:x", SubjectName(user="mary", name="user:x")),
        ("user:a/b", SubjectName(user="a/b")),
        ("user:alice@remotegym", SubjectName(user="alice", domain="remotegym")),
        ("user:alice@home@remotegym/client:x@y", SubjectName(user="alice@home", domain="remotegym", name="x@y")),
        ("service:pipeline", SubjectName(kind="service", name="pipeline")),
        ("scope:gym", SubjectName(kind="scope", name="gym")),
        ("link:gym->brand", SubjectName(kind="link", name="gym->brand")),
    ],
)
def test_who_is_meant(text: str, who: SubjectName) -> None:
    assert parse_subject_name(text) == who
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
        parse_subject_name(text)
    assert str(wrong.value).startswith(said)
