"""`http.oidc`: what the file cannot say, and what is believed of the people of a provider."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tidegate.config import Config, identity_providers, parse
from tidegate.config.identity_providers import callback, providers
from tidegate.errors import ConfigError

CORP = {"name": "corp", "issuer": "https://login.example/realms/gym", "client": "tidegate"}


def config(oidc: Any = None, http: dict[str, Any] | None = None, **more: Any) -> Config:
    written = {
        "version": 1,
        "node": {"name": "gym", "data": "d"},
        "listeners": [{"url": "mqtt://127.0.0.1:1883"}],
        "http": {"url": "http://127.0.0.1:8080", "oidc": CORP if oidc is None else oidc, **(http or {})},
        "policies": "open",
        **more,
    }
    return parse(yaml.safe_dump(written), "f.yaml")


@pytest.mark.parametrize(
    ("oidc", "why"),
    [
        ({"issuer": "http://login.example"}, "write https://"),
        ({"issuer": "login.example"}, "no address of an issuer"),
        ({"issuer": "https://login.example?x=1"}, "no address of an issuer"),
        ({"issuer": "https://a@login.example"}, "no address of an issuer"),
        ({"issuer": "https://login.example:x"}, "no address of an issuer"),
        ({"redirect": "https://gym.example/elsewhere"}, "where browsers come back to"),
        ({"redirect": "http://gym.example/oidc/callback"}, "write https://"),
        ({"redirect": "https://gym.example/oidc/callback"}, "add it to `http.hosts`"),
        ({"hosts": ["https://x"]}, "must be a host"),
        ({"scopes": ["profile"]}, "openid"),
        ({"claims": {"roles": "/a~b"}}, "cannot be read"),
        ({"claims": {"attributes": {"user": "x"}}}, "set by the node itself"),
        ({"name": "gym"}, "the domain of this node"),
        ({"name": "far"}, "another domain of `trust.domains`"),
        ({"secret": ""}, "one line of text"),
        ({"password": "x"}, "unknown key"),
    ],
)
def test_what_the_file_cannot_say(oidc: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config({**CORP, **oidc}, trust={"domains": {"far": {"nodes": ["n2"]}}})


def test_several_issuers() -> None:
    other = {**CORP, "name": "other"}
    with pytest.raises(ConfigError, match="again"):
        config([CORP, other])
    with pytest.raises(ConfigError, match="another one here"):
        config([CORP, {**other, "name": "corp", "issuer": "https://other.example"}])
    both = config([CORP, {**other, "issuer": "https://other.example", "roles": {"a": "b"}}])
    assert [provider.name for _, provider in providers(both)] == ["corp", "other"]
    assert both.built.rules.domains["other"].roles == {"a": "b"}
    assert both.built.policy_version != config([CORP]).built.policy_version


def test_where_browsers_come_back_to() -> None:
    """Never what a request says: the file alone."""
    [(_, issuer)] = providers(config())
    assert callback(config(), issuer) == "http://127.0.0.1:8080/oidc/callback"  # type: ignore[arg-type]
    for url in ("https://0.0.0.0:8443", "http://127.0.0.1:0"):
        certificate = {"cert": __file__} if url.startswith("https") else {}
        with pytest.raises(ConfigError, match=r"http\.url` is no address to come back to"):
            config(http={"url": url, **certificate})
    there = {**CORP, "redirect": "https://node.example/oidc/callback"}
    named = config(there, http={"hosts": ["node.example"]})
    [(_, issuer)] = providers(named)
    assert callback(named, issuer) == there["redirect"]  # type: ignore[arg-type]


DIRECTORY = {
    "name": "people",
    "url": "ldaps://directory.example",
    "bind": {"dn": "cn=x", "password": "secret"},
    "people": {"base": "ou=people"},
}


@pytest.mark.parametrize(
    ("ldap", "why"),
    [
        ({"url": "https://directory.example"}, "ldaps://"),
        ({"url": "ldaps://0.0.0.0"}, "nobody can connect"),
        ({"people": {"base": "ou=people", "filter": "(uid=ana)"}}, "must hold `{name}`"),
        ({"memberships": {"base": "ou=groups", "filter": "(cn=ops)"}}, "must hold `{dn}`"),
        ({"bind": {"dn": "cn=x"}}, "is missing"),
        ({"name": "gym"}, "the domain of this node"),
        ({"mqtt": True}, "unknown key"),
    ],
)
def test_what_the_file_cannot_say_of_a_directory(ldap: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config(http={"ldap": {**DIRECTORY, **ldap}})


def test_a_directory_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_providers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'tidegate\[ldap\]'"):
        config(http={"ldap": DIRECTORY})
