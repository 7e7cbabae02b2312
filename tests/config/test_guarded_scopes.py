"""Scopes that guard a broker: what their section says, and each way to write it wrong."""

from __future__ import annotations

import pytest

from tidegate.config import ConfigErrors, parse
from tidegate.config.scopes import Authenticate, Scope, Unenveloped

HEAD = "version: 1\nnode: {name: n}\npolicies: open\nlisteners: [{url: 'mqtt://127.0.0.1', anonymous: true}]\n"


def read(section: str) -> Scope:
    return parse(f"{HEAD}scopes: {{legacy: {section}}}\n", "f.yaml", variables={}).scopes["legacy"]


def test_backend_is_all_it_takes() -> None:
    scope = read("{backend: 'mqtt://127.0.0.1:1884'}")
    assert str(scope.backend) == "mqtt://127.0.0.1:1884"
    assert (scope.authenticate, scope.unenveloped) == (Authenticate.BACKEND, Unenveloped.DENY)


def test_secrets_are_not_shown() -> None:
    scope = read("{backend: 'mqtt://h', username: guard, password: sesame, secret: 0123456789abcdef0123456789abcdef}")
    assert "sesame" not in repr(scope)
    assert "abcdef" not in repr(scope)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{backend: 'mqtt://0.0.0.0'}", "means all interfaces of a machine"),
        ("{backend: 'ws://h'}", "must begin with"),
        ("{backend: 'mqtt://user:pw@h'}", "write them as `username` and `password` beside it"),
        ("{authenticate: here}", "has no effect without `backend`"),
        ("{backend: 'mqtt://h', authenticate: there}", "must be `backend` or `here`"),
        ("{backend: 'mqtt://h', password: x}", "has no effect without `username`"),
        ("{backend: 'mqtt://h', secret: short}", "must have 32 to 64 bytes"),
    ],
)
def test_each_way_to_write_it_wrong(section: str, said: str) -> None:
    with pytest.raises(ConfigErrors) as wrong:
        read(section)
    assert said in str(wrong.value)


def test_nobody_has_to_be_in_the_directory_if_the_broker_knows_them() -> None:
    scope = "scopes: {legacy: {backend: 'mqtt://h'}}\n"
    named = HEAD.replace("open", "[{id: p, subject: 'user:mary', topic: a, action: read}]").replace(
        ", anonymous: true", ""
    )
    assert not [text for _, text in parse(named + scope, "f.yaml", variables={}).warnings() if "user" in text]
    here = scope.replace("}}\n", ", authenticate: here}}\n")
    assert [text for _, text in parse(named + here, "f.yaml", variables={}).warnings() if "user" in text]


SEVERAL = (
    HEAD.replace("anonymous: true", "scope: legacy, anonymous: true")
    + "store: postgresql://t@h/t\n"
    + "scopes: {legacy: {backend: 'mqtt://h', guards: several, SECRET}, other: {parents: [legacy]}}\n"
)
SECRET = "secret: 0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("store: sqlite\n", "needs a `store` that all of them share"),
        ("subscribe: hold\n", "of what `legacy` holds its other guards know nothing"),
        *(
            (f"monitors: [{{{place}, {what}}}]\n", "has several guards, each of which sees a part of it")
            for place in ("scope: legacy, direction: im_pub", "link: legacy->other", "link: other->legacy")
            for what in ("rate: 1/s", "each: link, dedupe: 1s", "use: hsup_em")
        ),
        ("monitors: [{scope: legacy, direction: im_sub, each: scope, rate: 1/s}]\n", "each of which sees a part"),
    ],
)
def test_what_several_guards_cannot_share_is_refused(more: str, said: str) -> None:
    text = SEVERAL.replace("SECRET", SECRET)
    if more.startswith("store"):
        text = text.replace("store: postgresql://t@h/t\n", "")
    with pytest.raises(ConfigErrors) as wrong:
        parse(text + more, "f.yaml", variables={})
    assert said in str(wrong.value)


def test_several_guards_share_a_secret() -> None:
    with pytest.raises(ConfigErrors) as wrong:
        parse(SEVERAL.replace(", SECRET", ""), "f.yaml", variables={})
    assert "is missing, which all its guards have to share" in str(wrong.value)


def test_monitors_without_a_memory_act_at_several_guards() -> None:
    here = "{scope: legacy, direction: im_pub, filter: ['a/#']}"
    there = "{scope: other, direction: im_pub, rate: 1/s}"
    monitors = f"monitors: [{here}, {there}]\n"
    assert len(parse(SEVERAL.replace("SECRET", SECRET) + monitors, "f.yaml", variables={}).monitors) == 2
