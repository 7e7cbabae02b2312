"""Operators narrow views and monitors, and nothing else of what can show content; the cases are in test_narrowing."""

from __future__ import annotations

from pathlib import Path

from api.real import administering
from processes import on_uvloop

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
                assert "may only narrow views and monitors: " in answer.json()["detail"]
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
