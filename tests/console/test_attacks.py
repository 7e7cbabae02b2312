"""What a stranger's page, or somebody with an account, tries against the console."""

from __future__ import annotations

import httpx
import pytest

from console.conftest import PASSWORD, Gym


def test_a_page_of_another_origin_changes_nothing(gym: Gym) -> None:
    with gym.signed_in("mary") as client:
        for headers in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": f"{gym.url}.evil.example"},
            {"Origin": gym.url, "Sec-Fetch-Site": "cross-site"},
            {"Origin": gym.url, "Sec-Fetch-Site": "same-site"},
        ):
            answer = client.post("/ui/my-data/stop", data={"until": ""}, headers=headers)
            assert answer.status_code == 403, headers
        del client.headers["Origin"]
        assert client.post("/ui/my-data/stop", data={"until": ""}).status_code == 403
        assert "Sharing is stopped" not in client.get("/ui/my-data").text


def test_a_form_is_no_json_and_no_upload(gym: Gym) -> None:
    with gym.signed_in("mary") as client:
        assert client.post("/ui/my-data/stop", json={"until": ""}).status_code == 415
        assert client.post("/ui/my-data/stop", files={"until": b""}).status_code == 415
        assert "Sharing is stopped" not in client.get("/ui/my-data").text


def test_pages_are_framed_by_nobody_and_run_nothing_inline(gym: Gym) -> None:
    with gym.signed_in("grace") as client:
        for path in ("/ui/now", "/ui/denials", "/ui/nowhere", "/ui/clients/nobody"):
            headers = client.get(path).headers
            if path != "/ui/nowhere":
                assert "script-src 'self'" in headers["content-security-policy"], path
                assert "unsafe" not in headers["content-security-policy"], path
            assert "frame-ancestors 'none'" in headers["content-security-policy"], path
            assert headers["x-content-type-options"] == "nosniff", path
            assert headers["cache-control"] == "no-store", path


@pytest.mark.parametrize(
    "next",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "/ui//evil.example",
        "/ui/\\..\\evil",
        "javascript:alert(1)",
        "/ui/now\r\nSet-Cookie: a=b",
        "/ui/login",
    ],
)
def test_signing_in_leads_to_the_console_alone(gym: Gym, next: str) -> None:
    with httpx.Client(base_url=gym.url, headers={"Origin": gym.url}) as client:
        answer = client.post("/ui/login", data={"user": "grace", "password": PASSWORD, "next": next})
        assert answer.status_code == 303
        assert answer.headers["location"] == "/ui/now"
        assert "a" not in answer.cookies


def test_signing_in_makes_a_new_session_and_signing_out_ends_it(gym: Gym) -> None:
    with gym.signed_in("grace") as client:
        first = dict(client.cookies)
        client.post("/ui/login", data={"user": "grace", "password": PASSWORD})
        second = dict(client.cookies)
        assert first != second
        assert _now(gym, first) == 303
        assert _now(gym, second) == 200
        client.post("/ui/logout")
        assert _now(gym, second) == 303


def _now(gym: Gym, cookies: dict[str, str]) -> int:
    with httpx.Client(base_url=gym.url, cookies=cookies) as client:
        return client.get("/ui/now").status_code


def test_another_host_name_gets_nothing(gym: Gym) -> None:
    with gym.signed_in("grace") as client:
        assert client.get("/ui/now", headers={"Host": "evil.example"}).status_code == 403


def test_a_wrong_password_is_told_without_saying_who_exists(gym: Gym) -> None:
    answers = []
    for user in ("grace", "nobody"):
        answer = httpx.post(
            f"{gym.url}/ui/login", data={"user": user, "password": "wrong"}, headers={"Origin": gym.url}
        )
        answers.append((answer.status_code, answer.text.replace(user, "")))
    assert answers[0] == answers[1]
    assert answers[0][0] in (401, 403)


def test_what_belongs_to_another_owner_does_not_exist(gym: Gym) -> None:
    with gym.signed_in("mary") as mary, gym.signed_in("carl") as carl:
        body = "topic: gym/strap-3/#\nwhen: \"s.user == 'alice'\"\n"
        assert mary.post("/ui/my-data/preferences", data={"body": body}).status_code == 303
        page = mary.get("/ui/my-data").text
        id = page.split("/ui/my-data/preferences/")[1].split("/delete")[0]
        assert carl.post(f"/ui/my-data/preferences/{id}/delete", data={"sure": "yes"}).status_code == 404
        for named in ("user: mary\n", "owner: somebody\n"):
            assert carl.post("/ui/my-data/preferences", data={"body": named + body}).status_code in (403, 422)
        assert "gym/strap-3/#" not in carl.get("/ui/my-data").text
        assert mary.post(f"/ui/my-data/preferences/{id}/delete", data={"sure": "yes"}).status_code == 303


@pytest.mark.parametrize(
    "path",
    [
        "/ui/topics/gym%2Fstrap-3%2Fheartbeats/value",
        "/ui/check/policy",
        "/ui/replay/begin/policy",
        "/ui/replay/cancel",
        "/ui/monitors/start/try",
        "/ui/topics/gym%2Fstrap-3%2Fheartbeats/clear",
        "/ui/rules/policy",
    ],
)
def test_no_form_is_sent_by_another_page(gym: Gym, path: str) -> None:
    with gym.signed_in("grace") as client:
        for headers in ({"Origin": "http://evil.example"}, {"Origin": gym.url, "Sec-Fetch-Site": "cross-site"}):
            assert client.post(path, data={"body": "topic: a"}, headers=headers).status_code == 403, path
        assert client.post(path, json={"body": "topic: a"}).status_code == 415, path


def test_the_console_is_no_way_into_the_interface(gym: Gym) -> None:
    """Its cookie is worth nothing there; and what an owner's page asks for is theirs alone."""
    with gym.signed_in("grace") as grace, gym.signed_in("carl") as carl:
        for path in ("/clients", "/policies", "/audit", "/me", "/metrics"):
            assert grace.get(path).status_code == 401, path
        assert grace.delete("/clients/strap-3").status_code == 401
        asked = "?topics=%5B%22gym/strap-3/heartbeats%22%5D&people=%5B%22alice%22%5D"
        page = carl.get(f"/ui/my-data/newest{asked}")
        assert (page.status_code, "heartbeats" in page.text.split('class="newest"')[1].split(">", 1)[1]) == (200, False)
        for wrong in ("?topics=%7B", "?topics=1", "?topics=%5B%5D&people=%5B" + "1," * 5000 + "1%5D"):
            assert carl.get(f"/ui/my-data/newest{wrong}").status_code == 422, wrong


def test_what_is_drawn_and_completed_is_text(gym: Gym) -> None:
    """A client and a state with hostile names, in pictures and in what the editor is told."""
    hostile = "<script>alert(1)</script>"
    with gym.signed_in("grace") as client:
        made = {"id": hostile, "body": "user: mary\n", "do": "apply"}
        assert client.post("/ui/rules/client", data=made).status_code == 303
        try:
            for path in ("/ui/flows", "/ui/new/policy", "/ui/rules/client", f"/ui/flows?from={hostile}&to=scope:main"):
                text = client.get(path).text
                assert hostile not in text, path
            body = f"scope: main\ndirection: im_pub\neach: client\nonly: '{hostile}/x'\nafter: ['{hostile}']\n"
            told = client.post("/ui/check/monitor", data={"id": "m", "body": body}).json()
            assert hostile not in told["picture"]
        finally:
            page = client.get(f"/ui/rules/client/{hostile.replace('/', '%2F')}").text
            version = page.split('name="version" value="')[1].split('"')[0]
            gone = {"version": version, "do": "delete", "body": ""}
            assert client.post(f"/ui/rules/client/{hostile.replace('/', '%2F')}", data=gone).status_code == 303


def test_a_document_that_is_a_bomb_is_refused(gym: Gym) -> None:
    bomb = "a: &a [x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
    )
    with gym.signed_in("grace") as client:
        for body in (bomb, "[" * 50_000, "x: ${HOME}", "\x00", "- 1", "a: 1\na: 2"):
            answer = client.post("/ui/rules/policy", data={"id": "bomb", "body": body, "do": "try"})
            assert answer.status_code == 422, body[:40]


def test_content_that_is_nested_too_deep_to_be_written_is_shown_as_it_came(gym: Gym) -> None:
    nested = "[" * 300 + "]" * 300
    gym.strap.publish("gym/strap-3/nested", nested, retain=True)
    try:
        with gym.signed_in("mary") as client:
            answer = client.get("/ui/my-data")
            assert answer.status_code == 200
            assert nested in answer.text
    finally:
        gym.strap.publish("gym/strap-3/nested", "", retain=True)
