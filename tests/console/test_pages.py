"""The console in a real Chromium: each screen, as whoever may see it; and that it does what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator

from console.conftest import HOSTILE, Device, Gym, looking
from tidegate.admin.roles import Role
from tidegate.console.access import ALLOWED

SCREENS = ("now", "denials", "clients", "topics", "flows", "rules", "monitors", "quality")
AXE = Path(__file__).parents[1] / "foreign/node_modules/axe-core/axe.min.js"
PEOPLE = {"grace": Role.ADMIN, "otto": Role.OPERATOR, "olga": Role.AUDITOR, "mary": Role.USER}
_FILLED = {"{kind}": "policy", "{name}": "console.css"}
_IDS = {"clients": "strap-3", "sessions": "strap-3", "topics": "gym%2Fstrap-3%2Fheartbeats", "monitors": "calm"}


def _path(route: str) -> str:
    for name, value in _FILLED.items():
        route = route.replace(name, value)
    return route.replace("{id}", _IDS.get(route.split("/")[2], "devices"))


@pytest.mark.parametrize("user", PEOPLE)
def test_everybody_may_open_what_their_role_says(gym: Gym, user: str) -> None:
    with gym.signed_in(user) as client:
        for method, route in ALLOWED:
            if method == "GET" and "events" not in route and ALLOWED[method, route]:
                query = "?as=user:bob&action=write&topic=gym/a" if route.endswith("/why") else ""
                answer = client.get(_path(route) + query)
                expected = 200 if PEOPLE[user] in ALLOWED[method, route] else 403
                found = 200 if answer.status_code == 303 else answer.status_code
                assert found == expected, (route, answer.status_code, answer.text[-600:])


@pytest.mark.parametrize("user", ["olga", "mary", "otto"])
def test_nobody_does_what_their_role_may_not(gym: Gym, user: str) -> None:
    with gym.signed_in(user) as client:
        for method, route in ALLOWED:
            if method == "POST" and ALLOWED[method, route] and PEOPLE[user] not in ALLOWED[method, route]:
                assert client.post(_path(route), data={"do": "apply"}).status_code == 403, route


def test_who_has_not_signed_in_sees_nothing(gym: Gym) -> None:
    import httpx

    with httpx.Client(base_url=gym.url, headers={"Origin": gym.url}) as client:
        for method, route in ALLOWED:
            if ALLOWED[method, route]:
                answer = client.request(method, _path(route))
                assert answer.status_code == 303, route
                assert answer.headers["location"].startswith("/ui/login"), route
                assert not answer.content, route


@pytest.mark.parametrize("user", ["grace", "otto", "olga"])
def test_every_screen_opens_without_an_error(gym: Gym, browser: Browser, user: str) -> None:
    with looking(gym, browser, user) as window:
        for name in SCREENS:
            window.page.get_by_role("link", name=name.capitalize(), exact=True).first.click()
            window.page.wait_for_url(f"**/ui/{name}**")
            assert window.page.locator("main h1").inner_text()
        assert window.page.evaluate("window.hit") is None


def test_nothing_keeps_people_with_a_screen_reader_out(gym: Gym, browser: Browser) -> None:
    """What axe-core finds serious or critical, light and dark, on a phone and on a desk."""
    if not AXE.exists():
        pytest.fail("axe-core is not installed; run `make foreign`")
    serious = []
    for scheme, width in (("light", 1200), ("dark", 360)):
        more = (
            "denials/why?as=user:bob&action=write&topic=gym/a",
            "rules/policy/devices",
            "clients/strap-3",
            "new/monitor",
            "monitors/start",
            "topics/gym%2Fstrap-3%2Fheartbeats",
            "flows?from=client:bike-2&to=scope:remote",
        )
        desk = (*SCREENS, *more) if width > 400 else ("now", "denials", *more)
        for user, names in (("grace", desk), ("mary", ("my-data",))):
            with looking(
                gym, browser, user, color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True
            ) as window:
                for name in names:
                    window.go(f"/ui/{name}")
                    window.page.add_script_tag(path=AXE)
                    found = window.page.evaluate("axe.run()")
                    serious += [
                        (scheme, name, each["id"], each["nodes"][0]["html"][:200])
                        for each in found["violations"]
                        if each["impact"] in ("serious", "critical")
                    ]
                    wide = window.page.evaluate("document.documentElement.scrollWidth > innerWidth + 1")
                    assert not wide, f"{name} is wider than {width} px"
    assert serious == []


def test_a_newcomer_finds_why_and_lets_exactly_that_through(gym: Gym, browser: Browser) -> None:
    """From the first page, in five clicks."""
    stranger = Device(gym.port, "meter-7", None)
    try:
        stranger.publish("meters/7/power", "denied")
        assert stranger.reasons == [0x87]
        with looking(gym, browser, "grace") as window:
            page = window.page
            clicks = 0

            def click(found: Locator) -> None:
                nonlocal clicks
                clicks += 1
                found.click()

            click(page.get_by_role("link", name="Denials"))
            page.get_by_label("topic").fill("meters/#")
            click(page.get_by_role("button", name="Filter"))
            click(page.get_by_role("link", name="Why?"))
            assert "Denied" in page.locator("h1").inner_text()
            assert page.locator(".ladder li.deny").count() == 1
            click(page.get_by_role("button", name="Try it on recorded decisions"))
            assert "can be applied" in page.get_by_role("status").first.inner_text()
            click(page.get_by_role("button", name="Apply it"))
            assert "It is allowed now" in page.get_by_role("status").first.inner_text()
            assert clicks == 5
        stranger.publish("meters/7/power", "allowed")
        assert stranger.reasons[1] < 0x80  # nobody has subscribed
        stranger.publish("meters/7/x", "denied")
        assert stranger.reasons[2:] == [0x87]
        with gym.signed_in("grace") as client:
            told = client.get("/ui/denials/why?as=client:meter-7&action=write&topic=meters/7/power")
            assert "Allowed" in told.text
            assert "Denied" in client.get("/ui/denials/why?as=client:meter-8&action=write&topic=meters/7/power").text
            assert "Denied" in client.get("/ui/denials/why?as=client:meter-7&action=write&topic=meters/7/x").text
    finally:
        stranger.end()


@pytest.mark.parametrize("script", [True, False])
def test_an_owner_stops_and_resumes_one_person_from_a_phone(gym: Gym, browser: Browser, script: bool) -> None:
    """The very next message obeys; and it works without JavaScript, too."""
    alice, bob, topic = gym.coaches["alice"], gym.coaches["bob"], "gym/strap-3/heartbeats"
    options = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "java_script_enabled": script}
    with looking(gym, browser, "mary", **options) as window:
        page = window.page
        page.get_by_role("switch", name="Stop sharing with bob").click()
        page.get_by_role("switch", name="Share with bob again").wait_for()
        gym.strap.publish(topic, f"stopped {script}")
        alice.wait_for(f"stopped {script}")
        page.get_by_role("switch", name="Share with bob again").click()
        page.get_by_role("switch", name="Stop sharing with bob").wait_for()
        gym.strap.publish(topic, f"resumed {script}")
        bob.wait_for(f"resumed {script}")
        assert not bob.has(f"stopped {script}")  # what is in order before it would have come before it
        page.get_by_role("button", name="Stop everything now").click()
        page.get_by_text("Sharing is stopped.").wait_for()
        gym.strap.publish(topic, f"nothing {script}")
        page.get_by_role("button", name="Share again").click()
        page.get_by_role("button", name="Stop everything now").wait_for()
        gym.strap.publish(topic, f"again {script}")
        for each in (alice, bob):
            each.wait_for(f"again {script}")
            assert not each.has(f"nothing {script}")


def test_a_rule_is_tried_applied_and_taken_back(gym: Gym, browser: Browser) -> None:
    with looking(gym, browser, "grace") as window:
        page = window.page
        window.go("/ui/new/policy")
        page.get_by_label("Name").fill("lamps")
        page.get_by_label("Policy, as in").fill("subject: '*'\ntopic: lamps/#\naction: wriet\n")
        page.get_by_role("button", name="Try it").click()
        page.get_by_role("alert").wait_for()
        window.wrong.clear()  # the browser says that the answer was 422
        page.get_by_label("Policy, as in").fill("subject: '*'\ntopic: lamps/#\naction: write\n")
        page.get_by_role("button", name="Try it").click()
        assert "can be applied" in page.get_by_role("status").first.inner_text()
        page.get_by_label("Why").fill("for the party")
        page.get_by_role("button", name="Apply", exact=True).click()
        page.wait_for_url("**/ui/rules/policy/lamps")
        assert "for the party" in page.content()
        page.get_by_role("button", name="Delete").click()
        page.wait_for_url("**/ui/rules/policy")
        assert "lamps/#" not in page.content()


def test_a_rule_is_completed_and_checked_while_it_is_written(gym: Gym, browser: Browser) -> None:
    """With the place of an error; a monitor is drawn; and what a link would open is shown before it counts."""
    with looking(gym, browser, "grace") as window:
        page = window.page
        window.go("/ui/new/monitor")
        field = page.locator("textarea")
        draft = "scope: main\ndirection: im_pub\neach: client\nonly: gym/+/start\nafter: [gym/+/ready]\n"
        field.fill(f"{draft}resset: gym/+/off")
        field.press("End")
        field.press("f")
        page.get_by_role("button", name="line 6").wait_for()
        assert "unknown key `resset`" in page.locator(".says").inner_text()
        field.fill(f"{draft}res")
        field.press("e")
        page.get_by_role("option", name="reset:").wait_for()
        field.press("Enter")
        field.type("gym/+/off")
        page.get_by_role("img", name="The automaton of draft").wait_for()
        assert "It can be tried" in page.locator(".says").inner_text()
        window.go("/ui/new/link")
        page.get_by_label("Name").fill("back")
        page.locator("textarea").fill("from: remote\nto: main\n")
        page.get_by_role("button", name="Try it").click()
        page.get_by_role("img", name="Flows after the change").wait_for()
        assert "Nobody could read more" in page.locator("main").inner_text()


def test_two_ends_of_the_graph_are_picked(gym: Gym, browser: Browser) -> None:
    """With the keyboard, and with clicks; it is moved and zoomed; without JavaScript the form does it."""
    with looking(gym, browser, "olga") as window:
        page = window.page
        window.go("/ui/flows")
        page.get_by_role("button", name="client:bike-2").press("Enter")
        page.get_by_role("button", name="scope:remote").press(" ")
        page.wait_for_url("**to=scope%3Aremote**")
        assert "reaches scope:remote" in page.get_by_role("status").first.inner_text()
        before = page.locator("svg.drawing").get_attribute("viewBox")
        page.get_by_role("button", name="scope:main").press("+")
        assert page.locator("svg.drawing").get_attribute("viewBox") != before
        page.get_by_role("button", name="client:strap-3").click()
        page.get_by_role("button", name="client:bike-2").click()
        page.wait_for_url("**from=client%3Astrap-3**")
    with gym.signed_in("olga") as olga:
        told = olga.get("/ui/flows?from=client:bike-2&to=scope:brand").text
        assert "client:bike-2</b> reaches" in told


def test_a_replay_is_asked_of_the_pipeline(gym: Gym) -> None:
    """Which this node does not have; what it does is in pipeline/replay/test_asked.py."""
    with gym.signed_in("grace") as grace:
        draft = {"id": "lamps", "body": "subject: '*'\ntopic: lamps/#\naction: write\n", "do": "try"}
        assert "/ui/replay/begin/policy" in grace.post("/ui/rules/policy", data=draft).text
        answer = grace.post("/ui/replay/begin/policy", data={**draft, "of": "hour"})
        assert (answer.status_code, "set `record: traffic` and `pipeline`" in answer.text) == (503, True)
        assert "None was asked for" in grace.get("/ui/replay").text
        assert grace.post("/ui/replay/cancel", data={"sure": "yes"}).status_code == 303
        for wrong in ({**draft, "id": ""}, {**draft, "body": "["}, {**draft, "body": "id: other\n"}):
            assert grace.post("/ui/replay/begin/policy", data=wrong).status_code == 422


def test_a_monitor_is_stepped_through(gym: Gym, browser: Browser) -> None:
    """With a trace, and with what was recorded, without payloads; the state of the step is marked, live ones too."""
    for name in ("start", "ready", "start"):
        gym.strap.publish(f"gym/strap-3/{name}", "secret-payload")
    with looking(gym, browser, "olga") as window:
        page = window.page
        window.go("/ui/monitors/start")
        page.get_by_label("Events, one JSON").fill('{"topic": "gym/a/start"}\n{"topic": "gym/a/ready", "at": "+3s"}')
        page.get_by_role("button", name="Step through it").click()
        page.get_by_role("button", name="next").click()
        assert "suppressed" in page.locator(".steps").inner_text()
        page.get_by_role("button", name="next").click()
        assert "passes" in page.locator(".steps").inner_text()
        stepped = page.get_by_role("img", name="The automaton of start after step 2")
        assert stepped.locator("rect.current + text").text_content() == "seen gym/+/ready"
        page.get_by_role("button", name="Go to step 1").click()
        page.get_by_label("or what was recorded").fill("strap-3")
        page.get_by_role("button", name="Take the last messages").click()
        page.get_by_text("Before the first of 3 events").wait_for()
        assert "secret-payload" not in page.content()
    with gym.signed_in("olga") as olga:
        path = "/ui/monitors/start/try"
        for trace, said in (("{", "this is no JSON"), ('{"topic": "#"}', "`topic` is no topic")):
            answer = olga.post(path, data={"trace": trace})
            assert (answer.status_code, said in answer.text) == (422, True)
        assert olga.post("/ui/monitors/nothing/try", data={"trace": ""}).status_code == 404
        hostile = json.dumps({"topic": "gym/<script>alert(1)</script>/start", "payload": HOSTILE})
        shown = olga.post(path, data={"trace": hostile, "step": "1"}).text
        assert "<script>alert" not in shown
        assert "<img src=x" not in shown


def test_pages_follow_what_happens(gym: Gym, browser: Browser) -> None:
    """Two tabs of one browser, and one stream of events for both."""
    with looking(gym, browser, "olga") as window:
        window.go("/ui/denials")
        other = window.page.context.new_page()
        other.goto(f"{gym.url}/ui/clients")
        late = Device(gym.port, "late-comer", None)
        try:
            other.get_by_text("late-comer").wait_for()
            late.publish("gym/late/x", "denied")
            other.close()
            window.page.get_by_text("gym/late/x").wait_for()
        finally:
            late.end()


def test_a_value_is_shown_to_whoever_would_receive_it(gym: Gym) -> None:
    """As a delivery to them: it is in the audit, and a policy denies it as it would."""
    gym.strap.publish("gym/strap-3/heartbeats", '{"value": 72}', retain=True)
    path = "/ui/topics/gym%2Fstrap-3%2Fheartbeats"
    with gym.signed_in("olga") as olga, gym.signed_in("grace") as grace:
        assert "72" not in olga.get(path).text
        shown = olga.post(f"{path}/value", data={"show": "yes"}).text
        assert "&#34;value&#34;: 72" in shown
        assert "Decided as a delivery to <b>olga</b>" in shown
        denied = grace.post(f"{path}/value", data={"show": "yes"}).text
        assert "You may not receive it: <code>default</code>" in denied
        assert "72" not in denied.split("<h2>Retained</h2>")[1]
        assert (
            "reading <code>gym/strap-3/heartbeats"
            in grace.get(
                "/ui/denials/why?as=user:grace&action=read&topic=gym/strap-3/heartbeats&from=user:mary/client:strap-3"
            ).text
        )
        assert "grace" in grace.get("/ui/denials?user=grace").text
    with gym.signed_in("mary") as mary:
        assert "olga" in mary.get("/ui/my-data").text.split("Who has received what")[1]


def test_owners_see_what_happens_without_a_reload(gym: Gym, browser: Browser) -> None:
    """The newest message, what each reader would be sent of it, and a rule of somebody else."""
    with looking(gym, browser, "mary") as window, gym.signed_in("grace") as grace:
        gym.strap.publish("gym/strap-3/heartbeats", '{"value": 123}', retain=True)
        window.page.locator("#newest").get_by_text("123").wait_for()
        body = "topic: gym/+/heartbeats\nfor: role:coach\nkeep: [/unit]\n"
        assert grace.post("/ui/rules/view", data={"id": "units", "body": body, "do": "apply"}).status_code == 303
        gym.strap.publish("gym/strap-3/heartbeats", '{"value": 124, "unit": "bpm"}', retain=True)
        window.page.locator("#newest").get_by_text("sees a part").wait_for()
        assert '"unit": "bpm"' in window.page.locator("#newest li", has_text="sees a part").inner_text()
        assert grace.post("/ui/rules/view/units", data={"version": "", "do": "delete"}).status_code == 303


def test_names_are_text_wherever_they_are_shown(gym: Gym, browser: Browser) -> None:
    with looking(gym, browser, "grace") as window:
        window.go("/ui/denials")
        assert window.page.get_by_text(HOSTILE).count() >= 1
        window.page.get_by_role("row", name="evil/").get_by_role("link", name="Why?").first.click()
        draft = window.page.get_by_label("A draft").input_value()
        assert "s.client ==" in draft  # a name that is no plain name is compared, not written into a filter
        window.page.get_by_role("button", name="Try it on recorded decisions").click()
        assert "can be applied" in window.page.get_by_role("status").first.inner_text()
        window.page.get_by_role("button", name="Apply it").click()
        assert "It is allowed now" in window.page.get_by_role("status").first.inner_text()
        assert window.page.evaluate("window.hit") is None
