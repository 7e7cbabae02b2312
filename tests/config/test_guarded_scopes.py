"""Scopes that guard a broker: what their section says, and each way to write it wrong."""

from __future__ import annotations

import pytest

from tidegate.config import ConfigErrors, parse
from tidegate.config.links import Authenticate, Scope, Unenveloped

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
