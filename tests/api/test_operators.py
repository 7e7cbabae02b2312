"""Operators only narrow views, monitors and links, and nothing else that can show content; cases: test_narrowing."""

from __future__ import annotations

from pathlib import Path

from api.real import administering
from harness import Client
from processes import on_uvloop
from tidegate import wire
from tidegate.admin.control_commands import ApplyChanges
from tidegate.admin.documents import RequestedChange

VIEW = {"topic": "coach/#", "for": "role:coach", "keep": ["/pulse", "/name"]}
FILTER = {"scope": "main", "direction": "im_pub", "filter": ["coach/#", "of/#"]}
RENAME = {"scope": "main", "direction": "im_pub", "map": {"coach/#": "of/#"}}
EMIT = {
    "scope": "main",
    "direction": "im_pub",
    "automaton": {"start": "a", "states": {"a": [{"on": "coach/a", "emit": ["same", {"topic": "of/a"}]}]}},
}


@on_uvloop
async def test_an_operator_only_narrows(tmp_path: Path) -> None:
    async with administering(tmp_path) as api:
        operator = (await api.make("/tokens", {"role": "operator"}))["token"]

        async def put(path: str, body: dict[str, object], token: str | None = operator, **query: str) -> int:
            known = await api.ask("GET", path)
            headers = {"If-Match": known.headers["ETag"]} if known.status_code == 200 else {}
            answer = await api.ask("PUT", path, token, json=body, headers=headers, params=query)
            if answer.status_code == 403:
                assert "may only narrow views, monitors and links: " in answer.json()["detail"]
            return answer.status_code

        # a topic that was seen whole, then less of it, and no more again
        assert await put("/views/v", VIEW) == 201
        assert await put("/views/v", {**VIEW, "keep": ["/pulse"]}) == 200
        assert await put("/views/v", VIEW) == 403
        assert await put("/views/v", VIEW, dry_run="true") == 403
        assert await put("/views/v", {**VIEW, "for": "*", "keep": ["/pulse"]}) == 403
        assert await put("/views/w", {**VIEW, "keep": ["/home"]}) == 403
        assert (await api.ask("DELETE", "/views/v", operator)).status_code == 403
        [_, last] = (await api.ask("GET", "/views/v/history")).json()["items"]
        taken_back = await api.ask("POST", "/views/v/revert", operator, json={"sequence": last["sequence"]})
        assert taken_back.status_code == 403
        assert (await api.ask("GET", "/views/v")).json()["value"]["keep"] == ["/pulse"]

        # a monitor that filters, then more of it
        assert await put("/monitors/m", FILTER) == 201
        assert await put("/monitors/m", {**FILTER, "filter": ["coach/+"]}) == 200
        assert await put("/monitors/m", FILTER) == 403
        assert (await api.ask("DELETE", "/monitors/m", operator)).status_code == 403
        for id, wider in (("renames", RENAME), ("emits", EMIT)):
            assert await put(f"/monitors/{id}", wider) == 403
            assert (await api.ask("POST", "/monitors", operator, json=wider)).status_code == 403
            assert (await api.ask("GET", f"/monitors/{id}")).status_code == 404

        # which is for administrators
        assert await put("/views/v", VIEW, token=None) == 200
        assert await put("/monitors/m", FILTER, token=None) == 200
        assert (await api.ask("DELETE", "/monitors/m")).status_code == 200
        assert (await api.ask("POST", "/policies", operator, json={})).status_code == 403


SCOPES = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", scope: ward}, {url: "mqtt://127.0.0.1:OUT_PORT", scope: outside}]
store: sqlite
sys: {interval: 0s}
scopes: {ward: {}, outside: {}}
directory:
  users: {mary: {password: "plain:mary"}, eve: {password: "plain:eve"}}
views:
  - {id: v, topic: "angina/#", for: "group:cardiologists", keep: all}
policies:
  - {id: all, subject: "*", topic: "#", action: [read, write]}
"""
LINK = {"from": "ward", "to": "outside", "share": [{"topic": "#", "direction": "out", "remote_prefix": "x/"}]}
LESS = {**LINK, "share": [{"topic": "other", "direction": "out"}]}


@on_uvloop
async def test_an_operator_removes_links_and_neither_makes_nor_changes_one(tmp_path: Path) -> None:
    async with administering(tmp_path, SCOPES) as api:
        operator = (await api.make("/tokens", {"role": "operator"}))["token"]
        mary = await api.served.connect("m", username="mary", password=b"mary")
        eve = await api.served.dial(api.served.ports["OUT_PORT"])
        await eve.send(
            wire.Connect(version=5, client_id="e", clean_start=True, keep_alive=0, username="eve", password=b"eve")
        )
        assert (await eve.expect(wire.Connack)).reason == 0
        await eve.subscribe("#")

        async def refused(method: str, path: str, body: dict[str, object], **headers: str) -> None:
            answer = await api.ask(method, path, operator, json=body, headers=headers)
            assert answer.status_code == 403, answer.text
            assert "link between `ward` and `outside` can show content to others" in answer.json()["detail"]

        await refused("POST", "/links", LINK)
        await refused("POST", "/links?dry_run=true", LINK)
        await refused("PUT", "/links/l", LINK)
        await mary.publish("angina/1", b'{"illness": "secret"}', qos=1)
        assert await _topics(eve) == []

        # one of an administrator stays what it is, or goes
        await api.make("/links", {"id": "l", **LINK})
        await mary.publish("angina/1", b'{"illness": "secret"}', qos=1)
        assert await _topics(eve) == ["x/angina/1"]
        await refused("PUT", "/links/l", LESS, **{"If-Match": "*"})
        assert (await api.ask("DELETE", "/links/l", operator)).status_code == 200
        await mary.publish("angina/1", b'{"illness": "secret"}', qos=1)
        assert await _topics(eve) == []
        last = (await api.ask("GET", "/links/l/history")).json()["items"]
        gone = max(each["sequence"] for each in last)
        await refused("POST", "/links/l/revert", {"sequence": gone})


async def _topics(end: Client) -> list[str]:
    """Of what it has been sent up to now."""
    await end.send(wire.Pingreq())
    topics = []
    while not isinstance(packet := await end.receive(), wire.Pingresp):
        assert isinstance(packet, wire.Publish)
        topics.append(packet.topic)
    return topics


@on_uvloop
async def test_an_operator_takes_back_only_what_an_operator_may_change(tmp_path: Path) -> None:
    """A change of several kinds is taken back whole, or not at all."""
    async with administering(tmp_path, SCOPES) as api:
        operator = (await api.make("/tokens", {"role": "operator"}))["token"]
        administration = api.served.node.administration
        assert administration is not None
        deny = {"subject": "user:eve", "topic": "angina/#", "action": ["read"], "effect": "deny"}
        together = [
            RequestedChange(kind="policy", id="no", body=deny, expected=None),
            RequestedChange(kind="link", id="l", body=LINK, expected=None),
        ]
        await administration.apply_changes(ApplyChanges(changes=together, by="test"))
        [made] = (await api.ask("GET", "/links/l/history")).json()["items"]
        back = {"sequence": made["sequence"]}
        for query in ({}, {"dry_run": "true"}):
            answer = await api.ask("POST", "/links/l/revert", operator, json=back, params=query)
            assert (answer.status_code, "policy" in answer.text) == (403, True), answer.text
        assert (await api.ask("GET", "/policies/no")).status_code == 200
        assert (await api.ask("POST", "/links/l/revert", json=back)).status_code == 200
        assert (await api.ask("GET", "/policies/no")).status_code == 404
