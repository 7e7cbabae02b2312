"""Signing in at an OpenID Connect issuer: npm's oidc-provider for what has to work, and attacks on all of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from api.browsers import ShownSession
from api.pretending import hosting
from harness import PATIENCE, free_port
from issuers import CLIENT, RENEWING, SECRET, Issuer, SigningKey, claims, pretended, running, signs_in
from processes import Served, from_file
from tidegate.admin import sign_in
from tidegate.api import callers
from tidegate.node.http import HttpProcess
from tidegate.wire import Reason

FILE = """
version: 1
node: {name: n, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
sys: {interval: 0s}
http:
  url: "http://127.0.0.1:HTTP_PORT"
  roles: {admin: ["role:trainer@gym"], operator: ["group:operators"], auditor: ["user:cleo@gym"]}
  oidc: ISSUERS
directory: {users: {ana: {password: "plain:local"}}}
policies: [{id: p1, subject: "*", topic: "a/#", action: [read, write]}]
"""
GYM = '{name: gym, issuer: "URL", client: CLIENT, secret: "SECRET", groups: {ops: operators}, redirect: "REDIRECT"}'


class Site:
    """A node that trusts one issuer, and its HTTP interface."""

    def __init__(self, served: Served, port: int) -> None:
        self.served = served
        self.port = port
        self.browsers: list[httpx.AsyncClient] = []

    def browser(self) -> httpx.AsyncClient:
        browser = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE, auth=ShownSession())
        self.browsers.append(browser)
        return browser

    async def begin(self, browser: httpx.AsyncClient, **asked: str) -> str:
        answer = await browser.get("/oidc/login", params=asked)
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    async def sign_in(self, browser: httpx.AsyncClient, name: str, **asked: str) -> httpx.Response:
        back = await signs_in(await self.begin(browser, **asked), name)
        return await browser.get(back)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running(f"http://127.0.0.1:{free_port()}/oidc/callback") as issuer:
        yield issuer


def written(issuer: Issuer, issuers: str = GYM, url: str = "") -> str:
    named = {"URL": url or issuer.url, "CLIENT": CLIENT, "SECRET": SECRET, "REDIRECT": issuer.redirect}
    for word, value in named.items():
        issuers = re.sub(rf"\b{word}\b", value, issuers)
    return FILE.replace("ISSUERS", issuers)


@pytest.fixture
async def site(tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(HttpProcess, "start", lambda _: None)
    async with from_file(tmp_path, written(issuer)) as served:
        config = served.node.config
        port = urlsplit(issuer.redirect).port or 0
        async with hosting(config.http_socket, port, data=config.node.data):
            site = Site(served, port)
            yield site
            for browser in site.browsers:
                await browser.aclose()


async def test_a_person_of_the_issuer_signs_in(site: Site) -> None:
    """`sub` and issuer say who it is; its claims say which roles and groups."""
    browser = site.browser()
    page = await site.sign_in(browser, "ana", next="/docs?x=1")
    assert page.status_code == 200, page.text
    assert 'url=/docs?x=1"' in unescape(page.text)
    me = (await browser.get("/me")).json()
    assert (me["user"], me["role"]) == ("ana@gym", "admin")
    assert (await browser.get("/clients")).status_code == 200
    policy = {"id": "new", "subject": "user:bob", "topic": "b", "action": "read"}
    assert (await browser.post("/policies", json=policy)).status_code == 201
    [entry] = (await browser.get("/policies/new/history")).json()["items"]
    assert entry["by"] == "user:ana@gym"
    assert (await browser.post("/logout")).json() == {"ended": True}
    assert (await browser.get("/me")).status_code == 401


async def test_a_person_of_the_issuer_is_nobody_of_this_node(site: Site) -> None:
    """Who is called the same here is somebody else, and so are roles that no mapping names."""
    browser = site.browser()
    await site.sign_in(browser, "bob")
    me = (await browser.get("/me")).json()
    assert (me["user"], me["role"]) == ("bob@gym", "user")
    assert (await browser.get("/clients")).status_code == 403
    local = site.browser()
    assert (await local.post("/login", json={"user": "ana", "password": "local"})).json()["role"] == "user"
    assert (await local.post("/login", json={"user": "ana@gym", "password": "local"})).status_code == 401


def parts(location: str) -> dict[str, str]:
    return {name: value for name, [value] in parse_qs(urlsplit(location).query).items()}


def changed(location: str, **said: str | None) -> str:
    """The same address with other parameters."""
    query = {name: value for name, value in (parts(location) | said).items() if value is not None}
    return f"{location.partition('?')[0]}?{urlencode(query)}"


async def test_the_issuer_is_asked_as_it_should_be(site: Site, issuer: Issuer) -> None:
    browser = site.browser()
    answer = await browser.get("/oidc/login")
    asked = parts(answer.headers["location"])
    assert asked["redirect_uri"] == issuer.redirect
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    again = parts(await site.begin(browser))
    assert not {again[name] for name in ("state", "nonce", "code_challenge")} & set(asked.values())
    assert all(word in answer.headers["set-cookie"] for word in ("HttpOnly", "SameSite=Lax", "Path=/"))
    for host in ("evil.example", "127.0.0.1.evil.example"):
        assert (await browser.get("/oidc/login", headers={"Host": host})).status_code == 403


@pytest.mark.parametrize(
    "next", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\tb", "/%0d\n"]
)
async def test_nobody_is_led_elsewhere(site: Site, next: str) -> None:
    assert (await site.browser().get("/oidc/login", params={"next": next})).status_code == 422


@pytest.mark.parametrize(
    "attack",
    [
        "state",
        "no state",
        "iss",
        "no iss",
        "code",
        "verifier",
        "nonce",
        "denied",
        "another browser",
        "late",
        "issuer gone",
    ],
)
async def test_what_does_not_belong_together_is_refused(
    site: Site, issuer: Issuer, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was begun is over then: the right answer does not count any more."""
    browser = site.browser()
    back = await signs_in(await site.begin(browser), "ana")
    [(key, begun)] = site.served.node.control.sign_ins.elsewhere.begun.items()
    forged, asking = back, browser
    match attack:
        case "state":
            forged = changed(back, state="x" * 43)
        case "no state":
            assert (await browser.get(changed(back, state=None))).status_code == 422
            return
        case "iss":
            forged = changed(back, iss="http://127.0.0.1:1")
        case "no iss":
            forged = changed(back, iss=None)
        case "code":
            forged = changed(back, code="made-up")
        case "verifier":
            site.served.node.control.sign_ins.elsewhere.begun[key] = replace(begun, verifier="v" * 43)
        case "nonce":
            site.served.node.control.sign_ins.elsewhere.begun[key] = replace(begun, nonce="n" * 43)
        case "denied":
            forged = changed(back, code=None, error="access_denied")
        case "another browser":  # whose sign-in somebody else has begun: login CSRF
            asking = site.browser()
            await site.begin(asking)
        case "late":
            site.served.node.control.sign_ins.elsewhere.begun[key] = replace(begun, expires=0.0)
        case "issuer gone":
            await site.served.reload(site.served.file.path.read_text().replace("client: tidegate", "client: public"))
    answer = await asking.get(forged)
    assert answer.status_code == 401, answer.text
    assert (await asking.get("/me")).status_code == 401
    if attack != "another browser":
        assert (await browser.get(back)).status_code == 401
        assert (await browser.get("/me")).status_code == 401
    assert [row.rule for row in site.served.node.audit.sink.recent() if row.rule == "sign-in"]


async def test_a_code_is_good_for_one_session(site: Site) -> None:
    """And for no session that there was before."""
    browser, attacker = site.browser(), site.browser()
    await attacker.post("/login", json={"user": "ana", "password": "local"})
    for name, value in attacker.cookies.items():
        browser.cookies.set(name, value, domain="127.0.0.1")
    back = await signs_in(await site.begin(browser), "ana")
    binding = dict(browser.cookies)["tidegate-sign-in"]
    page = await browser.get(back)
    assert page.status_code == 200, page.text
    assert (await attacker.get("/me")).status_code == 401, "the session that there was has ended"
    thief = site.browser()
    thief.cookies.set("tidegate-sign-in", binding, domain="127.0.0.1")
    assert (await thief.get(back)).status_code == 401
    thief.cookies = httpx.Cookies(browser.cookies)
    assert (await thief.get("/me")).json()["user"] == "ana@gym"
    await browser.post("/logout")
    assert (await thief.get("/me")).status_code == 401, "a copy of the cookie is worth nothing then"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ana", '"role:trainer@gym"', '"role:trainer"'),
        ("cleo", "groups: {ops: operators}", "groups: {}"),
        ("cleo", '"user:cleo@gym"', '"user:cleo"'),
        ("ana", "issuer: ", "mqtt: false, issuer: "),
        ("ana", "127.0.0.1:ISSUER", "localhost:ISSUER"),
    ],
)
async def test_a_session_ends_with_what_is_behind_it(site: Site, issuer: Issuer, name: str, old: str, new: str) -> None:
    """The role of its person, and the issuer. Other settings of the issuer do not matter."""
    browser = site.browser()
    await site.sign_in(browser, name)
    assert (await browser.get("/me")).json()["role"] == {"ana": "admin", "cleo": "operator"}[name]
    text = site.served.file.path.read_text()
    old, new = old.replace("ISSUER", str(issuer.port)), new.replace("ISSUER", str(issuer.port))
    assert old in text
    await site.served.reload(text.replace(old, new, 1))
    assert (await browser.get("/clients")).status_code == (200 if new[0] == "m" or "cleo" in new else 401)


async def test_a_session_ends_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, issuer: Issuer) -> None:
    """The issuer says how long it vouches for somebody."""
    monkeypatch.setattr(HttpProcess, "start", lambda _: None)
    port = urlsplit(issuer.redirect).port or 0
    async with (
        from_file(tmp_path, written(issuer)) as served,
        hosting(served.node.config.http_socket, port, data=served.node.config.node.data),
    ):
        site = Site(served, port)
        browser = site.browser()
        await site.sign_in(browser, "ana")
        now = sign_in.time.time()
        for later, status in ((500, 200), (700, 401)):
            monkeypatch.setattr(sign_in, "time", type("_", (), {"time": staticmethod(lambda at=now + later: at)}))
            monkeypatch.setattr(callers, "TRUSTED", 0.0)
            assert (await browser.get("/me")).status_code == status
        await browser.aclose()


class Clock:
    """What the sessions of a node think the time is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.later = 0.0
        real = sign_in.time.time
        monkeypatch.setattr(sign_in, "time", SimpleNamespace(time=lambda: real() + self.later))
        monkeypatch.setattr(sign_in, "AGAIN", 0.0)
        monkeypatch.setattr(callers, "TRUSTED", 0.0)


async def test_a_session_is_renewed_where_the_issuer_gives_refresh_tokens(
    site: Site, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """npm's oidc-provider gives one for each: a second use of one would end all that came of it."""
    text = site.served.file.path.read_text()
    await site.served.reload(text.replace(f"client: {CLIENT}", f"client: {RENEWING}"))
    browser = site.browser()
    await site.sign_in(browser, "ana")
    sessions = site.served.node.control.sign_ins._sessions
    [first] = sessions.values()
    assert first.person is not None
    assert first.refresh is not None
    assert first.expires > first.person.expires + 3600
    assert first.refresh not in repr(first)
    clock = Clock(monkeypatch)
    for later in (575.0, 590.0):  # shortly before it ends
        clock.later = later
        answers = await asyncio.gather(*(browser.get("/me") for _ in range(5)))
        assert [(each.status_code, each.json()["role"]) for each in answers] == [(200, "admin")] * 5
    [second] = sessions.values()
    assert second.person is not None
    assert second.person.expires >= first.person.expires
    await site.served.reload(text)  # another client: the refresh token is not its own
    clock.later = 1300.0
    assert (await browser.get("/me")).status_code == 401
    assert not sessions


@pytest.mark.parametrize("said", ["somebody else", "another audience", "expired", "no token", "away", "groups"])
async def test_what_an_issuer_may_say_when_a_session_is_renewed(
    site: Site, issuer: Issuer, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = SigningKey("other", "ES256")
    with pretended(key, authorization_response_iss_parameter_supported=True) as other:
        one = f'{{name: pool, issuer: "{other.url}", client: {CLIENT}, redirect: "{issuer.redirect}"}}'
        text = written(issuer, one).replace('"group:operators"', '"group:ops@pool"')
        await site.served.reload(text)
        browser = site.browser()
        asked = parts(await site.begin(browser))

        def answers(**changed: object) -> None:
            token = key.sign(claims(other.url, **{"nonce": None, **changed}))
            other.pages["/token"] = {"id_token": token, "access_token": "x", "refresh_token": "r"}

        answers(nonce=asked["nonce"])
        back = urlencode({"code": "c", "state": asked["state"], "iss": other.url})
        assert (await browser.get(f"/oidc/callback?{back}")).status_code == 200
        clock = Clock(monkeypatch)
        assert (await browser.get("/me")).json()["role"] == "operator"
        clock.later = 590.0
        match said:
            case "somebody else":
                answers(sub="bob")
            case "another audience":
                answers(aud="others")
            case "expired":
                answers(exp=int(sign_in.time.time()) - 1)
            case "groups":
                answers(groups=[], exp=int(sign_in.time.time()) + 600)
            case "no token":
                del other.pages["/token"]["id_token"]
            case "away":
                del other.pages["/token"]
        still = said == "away"  # it counts until it expires
        assert (await browser.get("/me")).status_code == (200 if still else 401)
        forms = [form for path, form in other.asked if path == "/token"]
        assert "grant_type=refresh_token" in forms[-1]
        if still:
            clock.later = 610.0
            assert (await browser.get("/me")).status_code == 503
            answers(exp=int(sign_in.time.time()) + 600)
            assert (await browser.get("/me")).status_code == 200


async def test_two_issuers_are_not_mixed_up(site: Site, issuer: Issuer) -> None:
    """The code of one is never handed to the other, and their people are different people."""
    key = SigningKey("other", "ES256")
    with pretended(key, authorization_response_iss_parameter_supported=True) as other:
        second = f'{{name: pool, issuer: "{other.url}", client: {CLIENT}, redirect: "{issuer.redirect}"}}'
        await site.served.reload(written(issuer, f"[{GYM}, {second}]"))
        browser = site.browser()
        assert (await browser.get("/oidc/login")).status_code == 422, "it has to be said which one"
        location = await site.begin(browser, issuer="pool")
        assert location.startswith(f"{other.url}/auth?")
        # the other one, which is evil, has led the browser on to the right one with its own state
        right = await site.begin(site.browser(), issuer="gym")
        back = await signs_in(changed(right, state=parts(location)["state"], nonce=parts(location)["nonce"]), "ana")
        assert (await browser.get(back)).status_code == 401
        location = await site.begin(browser, issuer="pool")
        forged = changed(back, state=parts(location)["state"], iss=None)
        assert (await browser.get(forged)).status_code == 401
        assert not [path for path, _ in other.asked if path == "/token"], "it has been given no code"
        # what it may do: say who its own people are
        location = await site.begin(browser, issuer="pool")
        asked = parts(location)
        for subject, issued, status in (("ana", issuer.url, 401), ("ana", other.url, 200)):
            if subject == "ana" and issued == other.url:
                asked = parts(await site.begin(browser, issuer="pool"))
            token = key.sign(claims(issued, sub=subject, nonce=asked["nonce"]))
            other.pages["/token"] = {"id_token": token, "access_token": "x", "token_type": "Bearer"}
            query = urlencode({"code": "c", "state": asked["state"], "iss": other.url})
            answer = await browser.get(f"/oidc/callback?{query}")
            assert answer.status_code == status, answer.text
        me = (await browser.get("/me")).json()
        assert (me["user"], me["role"]) == ("ana@pool", "user")


async def test_an_issuer_that_is_away_lets_nobody_in(site: Site, issuer: Issuer) -> None:
    """And the answer says what is wrong."""
    away = written(issuer, url=f"http://127.0.0.1:{free_port()}")
    await site.served.reload(away)
    answer = await site.browser().get("/oidc/login")
    assert answer.status_code == 503
    assert "gym" in answer.json()["detail"]
    assert (await site.browser().post("/login", json={"user": "ana", "password": "local"})).status_code == 200


async def test_its_tokens_over_mqtt(site: Site, issuer: Issuer) -> None:
    """With the keys that the real one publishes; otherwise it is a password like any other."""
    await site.served.connect("c", password=issuer.token().encode(), expect=Reason.NOT_AUTHORIZED)
    await site.served.reload(site.served.file.path.read_text().replace("{name: gym,", "{name: gym, mqtt: true,"))
    client = await site.served.connect("c", password=issuer.token().encode())
    assert (await client.subscribe("a/b")).reasons == (0,)
    stranger = SigningKey().sign(claims(issuer.url)).encode()
    await site.served.connect("c", password=stranger, expect=Reason.BAD_USER_NAME_OR_PASSWORD)
