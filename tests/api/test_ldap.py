"""Signing in with the password of an LDAP directory: Debian's slapd, and attacks on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.browsers import ShownSession
from api.pretending import hosting
from harness import PATIENCE, free_port
from processes import Served, from_file, missing
from tidegate.admin import sign_in
from tidegate.api import callers
from tidegate.authentication.ldap_directory import LdapDirectory
from tidegate.authentication.openid_token import Wrong
from tidegate.authentication.outgoing_request import Unreachable
from tidegate.config.identity_providers import Ldap
from tidegate.node.http import HttpProcess

if TYPE_CHECKING:
    from ldap_server import Directory

PASSWORD = "b(o)b*\\"
SUFFIX = "dc=corp,dc=example"
SETTINGS: dict[str, Any] = {
    "name": "corp",
    "bind": {"dn": f"cn=tidegate,{SUFFIX}", "password": "search only"},
    "people": {"base": f"ou=people,{SUFFIX}", "attributes": {"title": "title"}},
    "memberships": {"base": f"ou=groups,{SUFFIX}"},
    "groups": {"ops": "operators"},
    "roles": {"heads": "head"},
}
FILE = f"""
version: 1
node: {{name: n, data: data}}
listeners: [{{url: "mqtt://127.0.0.1:PORT"}}]
sys: {{interval: 0s}}
authentication: {{attempts: 8}}
http:
  url: "http://127.0.0.1:HTTP_PORT"
  roles: {{operator: ["group:operators"], auditor: ["role:head"]}}
  ldap:
    name: corp
    url: "URL"
    ca: CA
    bind: {{dn: "cn=tidegate,{SUFFIX}", password: "search only"}}
    people: {{base: "ou=people,{SUFFIX}"}}
    memberships: {{base: "ou=groups,{SUFFIX}"}}
    groups: {{ops: operators}}
    roles: {{heads: head}}
directory: {{users: {{eve: {{password: "plain:here"}}}}}}
policies: [{{id: p1, subject: "*", topic: "a/#", action: [read, write]}}]
"""


@pytest.fixture(scope="module")
def directory() -> Iterator[Directory]:
    try:
        from ldap_server import running
    except ImportError:
        missing("ldap3 is not installed")
        raise
    with running() as directory:
        yield directory


def asking(directory: Directory, **settings: Any) -> LdapDirectory:
    url = f"ldaps://127.0.0.1:{directory.port}"
    return LdapDirectory(Ldap(**{**SETTINGS, "url": url, "ca": directory.ca, **settings}))


@pytest.mark.parametrize("starttls", [False, True])
def test_who_somebody_is(directory: Directory, starttls: bool) -> None:
    """Their name, however they type it, and their groups; `roles` says which of them are roles."""
    url = f"ldap://127.0.0.1:{directory.plain_port}" if starttls else f"ldaps://127.0.0.1:{directory.port}"
    there = asking(directory, url=url)
    for typed in ("ana", "ANA"):
        person = there.verify(typed, "wonder")
        assert (person.full_name, person.roles) == ("ana@corp", ("heads",))
        assert set(person.groups) == {"ops", "heads", "everybody"}
        assert person.attributes == {"title": "ana of corp"}
    assert there.verify("bob", PASSWORD).name == "bob"
    assert there.person("eve").groups == ("everybody",)


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("ana", "wrong"),
        ("ana", ""),
        ("ana", "\0"),
        ("ana", "wonder\0"),
        ("", "wonder"),
        ("nobody", "wonder"),
        ("*", "wonder"),
        ("an*", "wonder"),
        ("ana)(uid=*", "wonder"),
        ("*)(|(uid=*", "wonder"),
        ("nobody)(|(uid=ana)", "wonder"),
        ("ana\0", "wonder"),
        ("\\61na", "wonder"),
        (f"uid=ana,ou=people,{SUFFIX}", "wonder"),
        ("ana,ou=people", "wonder"),
    ],
)
def test_nobody_is_let_in_by_a_trick(directory: Directory, name: str, password: str) -> None:
    with pytest.raises(Wrong):
        asking(directory).verify(name, password)


def test_a_filter_that_finds_several_lets_nobody_in(directory: Directory) -> None:
    people = {**SETTINGS["people"], "filter": "(|(uid={name})(objectClass=inetOrgPerson))"}
    with pytest.raises((Wrong, Unreachable)):
        asking(directory, people=people).verify("ana", "wonder")


def test_a_directory_that_cannot_be_trusted_is_not_asked(directory: Directory, tmp_path: Path) -> None:
    """No password goes to somebody who has no certificate for that name, of those authorities."""
    from tidegate.cli import certificates

    certificates.make_ca(tmp_path, "Other", days=2)
    wrong = [
        {"ca": tmp_path / "ca.pem"},
        {"ca": None},
        {"url": f"ldaps://127.0.0.2:{directory.port}"},
        {"url": f"ldaps://127.0.0.1:{directory.plain_port}"},
        {"url": f"ldaps://127.0.0.1:{free_port()}"},
        {"bind": {"dn": f"cn=tidegate,{SUFFIX}", "password": "wrong"}},
        {"people": {"base": "ou=nowhere,dc=corp,dc=example"}},
        {"people": {"base": f"ou=people,{SUFFIX}", "filter": "(uid={name}"}},
    ]
    for settings in wrong:
        with pytest.raises(Unreachable):
            asking(directory, **settings).verify("ana", "wonder")


class Site:
    def __init__(self, served: Served, port: int) -> None:
        self.served = served
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, auth=ShownSession())

    async def login(self, user: str, password: str, status: int = 200) -> Any:
        answer = await self.client.post("/login", json={"user": user, "password": password})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def me(self) -> tuple[int, str | None]:
        answer = await self.client.get("/me")
        return answer.status_code, answer.json().get("role")


@pytest.fixture
async def site(tmp_path: Path, directory: Directory, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(HttpProcess, "start", lambda _: None)
    monkeypatch.setattr(callers, "TRUSTED", 0.0)
    text = FILE.replace("URL", f"ldaps://127.0.0.1:{directory.port}").replace("CA\n", f"{directory.ca}\n")
    async with from_file(tmp_path, text) as served:
        port, config = free_port(), served.node.config
        async with hosting(config.http_socket, port, data=config.node.data):
            site = Site(served, port)
            yield site
            await site.client.aclose()


async def test_people_of_the_directory_sign_in(site: Site) -> None:
    assert (await site.login("ana", "wonder"))["role"] == "operator"
    assert (await site.client.get("/me")).json()["user"] == "ana@corp"
    assert (await site.login("bob@corp", PASSWORD))["role"] == "auditor"
    assert (await site.login("eve", "here"))["user"] == "eve", "who is in the file comes first"
    assert (await site.login("eve@corp", "e"))["user"] == "eve@corp"
    await site.login("eve", "e", 401)
    for user, password in (("ana", "wrong"), ("nobody", "x"), ("*", "wonder"), ("ana@other", "wonder")):
        await site.login(user, password, 401)
    assert [row.rule for row in site.served.node.audit.sink.recent() if row.rule == "sign-in"]


async def test_guessing_is_limited(site: Site) -> None:
    for _ in range(8):
        await site.login("bob", "x", 401)
    await site.login("bob", PASSWORD, 429)
    await site.login("ana", "wonder")


async def test_groups_are_at_most_a_minute_old(
    site: Site, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes next has them looked up, and whoever has lost a role has to sign in again."""
    await site.login("ana", "wonder")
    directory.change("ops", ["bob"])
    try:
        assert await site.me() == (200, "operator"), "it was asked a moment ago"
        monkeypatch.setattr(sign_in, "REFRESH", 0.0)
        assert (await site.me())[0] == 401
        assert (await site.login("ana", "wonder"))["role"] == "auditor"
    finally:
        directory.change("ops", ["ana"])
    assert (await site.me())[0] == 401


async def test_a_directory_that_is_away(site: Site, directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody signs in, and sessions of its people are worth nothing once what it said is too old."""
    await site.login("ana", "wonder")
    monkeypatch.setattr(sign_in, "REFRESH", 0.0)
    directory.stop()
    try:
        assert await site.me() == (200, "operator")
        async with httpx.AsyncClient(base_url=site.client.base_url, timeout=PATIENCE) as other:
            refused = await other.post("/login", json={"user": "bob", "password": PASSWORD})
        assert refused.status_code == 503
        assert str(directory.port) not in refused.text, "where it is, is for the log"
        monkeypatch.setattr(sign_in, "STALE", 0.0)
        assert (await site.me())[0] == 503
    finally:
        directory.start()
    monkeypatch.setattr(sign_in, "STALE", 60.0)
    assert await site.me() == (200, "operator"), "it is back"
