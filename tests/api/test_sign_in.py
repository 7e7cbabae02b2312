"""Signing in: who gets which role, what a session is worth, and when it ends; and what somebody tries who has none."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.browsers import ShownSession
from api.pretending import hosting
from harness import PATIENCE, free_port
from processes import Served, from_file
from tidegate.admin import sign_in
from tidegate.admin.control_commands import MakeToken
from tidegate.api.access import ALLOWED, PUBLIC
from tidegate.config import parse
from tidegate.console import pages
from tidegate.errors import ConfigError
from tidegate.net.control_socket import ask
from tidegate.node.http import HttpProcess

FILE = """
version: 1
node: {name: n, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
http: {url: "http://127.0.0.1:HTTP_PORT", roles: {admin: ["user:root"], operator: ["group:ops", "user:root"]}}
sys: {interval: 0s}
directory:
  users:
    root: {password: "plain:r"}
    olga: {password: "plain:o", groups: [ops]}
    mary: {password: "plain:m"}
    ghost: {}
policies: [{id: p1, subject: "*", topic: "a/#", action: [read, write]}]
"""


class Browser(httpx.AsyncClient):
    """Keeps cookies, as browsers do."""

    async def login(self, status: int = 200, headers: dict[str, str] | None = None, **body: Any) -> Any:
        answer = await self.post("/login", json=body, headers=headers or {})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def status(self, method: str = "GET", path: str = "/clients", **options: Any) -> int:
        return (await self.request(method, path, **options)).status_code


class Site:
    def __init__(self, served: Served, port: int) -> None:
        self.served = served
        self.port = port
        self.browsers: list[Browser] = []

    def browser(self) -> Browser:
        browser = Browser(base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE, auth=ShownSession())
        self.browsers.append(browser)
        return browser

    async def changed(self, old: str, new: str) -> None:
        """The file says something else now."""
        text = self.served.file.path.read_text()
        assert old in text
        await self.served.reload(text.replace(old, new))


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application runs in the test, on the socket that its process would have."""
    monkeypatch.setattr(HttpProcess, "start", lambda _: None)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with from_file(tmp_path, FILE) as served:
        port = free_port()
        config = served.node.config
        settings = {"data": config.node.data, "hosts": ("node.example",), "pages": pages()}
        async with hosting(config.http_socket, port, **settings):
            site = Site(served, port)
            yield site
            for browser in site.browsers:
                await browser.aclose()


@pytest.mark.parametrize(("user", "role"), [("root", "admin"), ("olga", "operator"), ("mary", "user")])
async def test_the_file_says_who_is_what(site: Site, user: str, role: str) -> None:
    browser = site.browser()
    assert (await browser.login(user=user, password=user[0]))["role"] == role
    me = (await browser.get("/me")).json()
    assert (me["user"], me["role"]) == (user, role)
    policy = {"id": "new", "subject": "user:bob", "topic": "b", "action": "read"}
    assert await browser.status("POST", "/policies", json=policy) == (201 if role == "admin" else 403)
    assert await browser.status() == (403 if role == "user" else 200)
    assert await browser.status(path="/me/history") == (200 if role == "user" else 403)
    if role == "admin":
        [entry] = (await browser.get("/policies/new/history")).json()["items"]
        assert entry["by"] == "user:root"


async def test_the_cookie_cannot_be_read_or_sent_by_other_pages(site: Site) -> None:
    answer = await site.browser().post("/login", json={"user": "mary", "password": "m"})
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43"))
    assert "ts_" not in answer.text


async def test_wrong_passwords(site: Site) -> None:
    browser = site.browser()
    for body in (
        {"user": "mary", "password": "x"},
        {"user": "nobody", "password": "m"},
        {"user": "ghost", "password": "x"},
        {"token": "tg_0000000000000000_" + "x" * 43},
        {"token": "ts_" + "x" * 43},
    ):
        await browser.login(401, **body)
    for body in ({}, {"user": "mary"}, {"password": "m"}):
        await browser.login(422, **body)
    assert await browser.status() == 401
    assert [row.rule for row in site.served.node.audit.sink.recent() if row.rule == "sign-in"]


async def test_a_stolen_cookie_is_worth_nothing_after_signing_out(site: Site) -> None:
    browser, thief = site.browser(), site.browser()
    await browser.login(user="root", password="r")
    thief.cookies = httpx.Cookies(browser.cookies)
    assert await thief.status() == 200
    assert (await browser.post("/logout")).json() == {"ended": True}
    assert await thief.status() == 401
    assert await browser.status() == 401
    assert (await thief.post("/logout")).json() == {"ended": False}


async def test_a_session_is_made_anew_with_every_sign_in(site: Site) -> None:
    """Whatever the browser was given before, by whomever, counts no more."""
    browser, attacker = site.browser(), site.browser()
    await attacker.login(user="mary", password="m")
    browser.cookies = httpx.Cookies(attacker.cookies)
    await browser.login(user="root", password="r")
    assert dict(browser.cookies) != dict(attacker.cookies)
    assert (await browser.get("/me")).json()["role"] == "admin"
    assert await attacker.status(path="/me") == 401, "the session that was there before has ended"
    for made_up in ("ts_" + "A" * 43, "ts_", "x", "ts_" + "A" * 42 + "!"):
        attacker.cookies.clear()
        attacker.cookies.set("tidegate-session", made_up)
        assert await attacker.status(path="/me") == 401


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"plain:o"', '"plain:other"'),
        ("    olga:", "    gone:"),
        ("groups: [ops]", "groups: []"),
        ('operator: ["group:ops", "user:root"]', 'admin: ["group:ops"]'),
    ],
)
async def test_a_session_ends_with_what_is_behind_it(site: Site, old: str, new: str) -> None:
    """The password, the user, the group, what the file says of the group."""
    browser, other = site.browser(), site.browser()
    await browser.login(user="olga", password="o")
    await other.login(user="mary", password="m")
    assert await browser.status() == 200
    if new.startswith("admin"):
        await site.changed('admin: ["user:root"], ', "")
    await site.changed(old, new)
    assert await browser.status() == 401
    assert await other.status(path="/me") == 200


async def test_a_session_of_a_token_ends_with_the_token(site: Site) -> None:
    administration = site.served.node.administration
    assert administration is not None
    made = await administration.tokens.make(MakeToken(role="auditor", by="test"))
    browser = site.browser()
    assert (await browser.login(token=made["token"]))["role"] == "auditor"
    assert await browser.status() == 200
    path = site.served.node.config.control_socket
    await asyncio.to_thread(ask, path, "token_revoke", id=made["id"], by="test")
    assert await browser.status() == 401


async def test_a_session_ends_by_age(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = site.browser()
    await browser.login(user="olga", password="o")
    now = sign_in.time.time()
    monkeypatch.setattr(sign_in, "time", type("_", (), {"time": staticmethod(lambda: now + 12 * 3600 + 1)}))
    assert await browser.status() == 401
    assert len(site.served.node.control.sign_ins) == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "node.example"}, 200),
        ({"Host": "node.example:8080", "Origin": "http://node.example:8080"}, 200),
        ({"Host": "node.example", "Origin": "https://node.example"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "node.example.evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_only_pages_of_this_node_use_a_session(site: Site, headers: dict[str, str], status: int) -> None:
    browser = site.browser()
    await browser.login(user="root", password="r")
    cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
    path = "/ui/clients/nobody/disconnect"
    sent = {"Sec-Fetch-Site": "same-origin", **headers, **cookie}
    answer = await browser.request("POST", path, headers=sent, data={"why": "x"}, auth=None)
    assert answer.status_code == (404 if status == 200 else status), answer.text
    assert (
        await site.browser().post("/login", json={"user": "root", "password": "r"}, headers=headers)
    ).status_code == status
    if "evil" in headers.get("Host", ""):
        seen = await browser.request("GET", "/ui/clients", headers={**headers, **cookie}, auth=None)
        assert seen.status_code == status


async def test_the_interface_takes_no_cookie(site: Site) -> None:
    """At no route: whatever a page of somebody else has a browser send, it is nobody's."""
    browser = site.browser()
    await browser.login(user="root", password="r")
    assert (await browser.get("/ui/clients", auth=None)).status_code == 200
    for method, route in ALLOWED:
        if ALLOWED[method, route] is not PUBLIC:
            path = re.sub(r"{\w+}", "x", route)
            answer = await browser.request(method, path, json={}, auth=None)
            assert answer.status_code == 401, (method, route, answer.text)
    assert await browser.status() == 200, "the session itself still counts"


async def test_guessing_passwords_is_limited(tmp_path: Path) -> None:
    async with from_file(tmp_path, FILE + "authentication: {attempts: 3}\n") as served:
        port = free_port()
        async with hosting(served.node.config.http_socket, port):
            site = Site(served, port)
            browser = site.browser()
            for _ in range(3):
                await browser.login(401, user="root", password="x")
            await browser.login(429, user="root", password="r")
            await browser.aclose()


async def test_sessions_of_one_user_are_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "OWN", 3)
    first = site.browser()
    await first.login(user="mary", password="m")
    later = [site.browser() for _ in range(3)]
    for browser in later:
        await browser.login(user="mary", password="m")
    assert await first.status(path="/me") == 401
    assert [await browser.status(path="/me") for browser in later] == [200, 200, 200]


def test_nobody_signs_in_over_an_open_network(tmp_path: Path) -> None:
    async def tried() -> None:
        async with from_file(tmp_path, FILE.replace("127.0.0.1:HTTP_PORT", "0.0.0.0:HTTP_PORT")) as served:
            port = free_port()
            async with hosting(served.node.config.http_socket, port):
                browser = Site(served, port).browser()
                refused = await browser.login(403, user="root", password="r")
                assert "https" in refused["detail"]
                await browser.aclose()

    asyncio.run(tried())


@pytest.mark.parametrize("wrong", ['roles: {boss: ["user:a"]}', 'roles: {admin: ["*"]}', 'hosts: ["http://x"]'])
def test_what_the_file_cannot_say(wrong: str) -> None:
    with pytest.raises(ConfigError):
        parse(f"version: 1\nnode: {{name: n, data: d}}\nlisteners: []\nhttp: {{{wrong}}}\n", "f.yaml")
