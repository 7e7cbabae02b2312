"""Sources whose data is published: HTTP is no way around a capability that is needed over MQTT."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from api.real import administering
from sockets.holding import Holder, issuing


def sending(folder: Path, topic: str | None = "raw/{source}", **more: Any) -> str:
    """Policies allow everything; where a capability is needed, that decides besides."""
    return json.dumps(
        {
            "version": 1,
            "node": {"name": "test", "data": "data"},
            "listeners": [{"url": "mqtt://127.0.0.1:PORT"}],
            "store": "sqlite",
            "sys": {"interval": "0s"},
            "sources": {"unregistered": "accept", **({} if topic is None else {"topic": topic})},
            "capabilities": issuing(folder, **more),
            "policies": [{"id": "all", "subject": "*", "topic": "#", "action": ["read", "write"]}],
        }
    )


CASES = {  # whether everybody needs one, what the source shows, over TLS; which rule refuses it
    "not needed": (False, None, "tls", None),
    "needed": (True, None, "tls", "capability"),
    "shown": (True, Holder("write:raw/#", subject="user:s1"), "tls", None),
    "for other topics": (False, few := Holder("write:other/#", subject="user:s1"), "tls", few.rule),
    "to read only": (True, reading := Holder("read:#", subject="user:s1"), "tls", reading.rule),
    "of somebody else": (False, other := Holder("write:#", subject="user:s2"), "tls", other.rule),
    "expired": (False, late := Holder("write:#", subject="user:s1", lasts=-60.0), "tls", late.rule),
    "in clear": (True, clear := Holder("write:#", subject="user:s1"), "plain", clear.rule),
    "without proofs": (True, bare := Holder("write:#", subject="user:s1", proof="per-message"), "tls", bare.rule),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_a_source_publishes_is_bounded_by_its_capability(tmp_path: Path, case: str) -> None:
    required, holder, level, rule = CASES[case]
    settings = {"cert": tmp_path / "none.pem"} if level == "tls" else {}
    async with administering(tmp_path, sending(tmp_path, required=required), **settings) as api:
        source = {"NodeId": "s1", "NodeType": "sensor", "CommunicationMode": "discrete"}
        made = await api.make("/registration", source)
        headers = {} if holder is None else {"Tidegate-Capability": holder.token}
        answer = await api.ask("POST", "/data", made["token"], json={"n": 1}, headers=headers)
        assert answer.status_code == (202 if rule is None else 403), answer.text
        if rule is not None:
            assert rule in answer.text


@pytest.mark.parametrize("topic", [None, "raw/{source}"])
async def test_whoever_is_not_registered_shows_none(tmp_path: Path, topic: str | None) -> None:
    """What is not published is written to no topic."""
    text, accepted = sending(tmp_path, topic, required=True), {"unregistered": True}
    async with administering(tmp_path, text, sources=accepted) as api:
        answer = await api.post("/data", json={"n": 1})
        assert answer.status_code == (202 if topic is None else 403), answer.text


async def test_others_are_served_while_much_data_is_taken(tmp_path: Path) -> None:
    """A flood over HTTP rests as one over MQTT does: each record goes through the node."""
    text = json.loads(sending(tmp_path)) | {"listeners": [{"url": "mqtt://127.0.0.1:PORT", "anonymous": True}]}
    records = [{"n": number} for number in range(900)]
    async with administering(tmp_path, json.dumps(text)) as api:
        victim, turns = await api.served.connect("victim"), api.served.node.turns
        made = await api.make("/registration", {"NodeId": "s1", "NodeType": "x", "CommunicationMode": "y"})
        flood = asyncio.gather(*(api.ask("POST", "/data", made["token"], json=records) for _ in range(6)))
        rested = 0
        while not flood.done():
            await victim.publish("v", qos=1)
            rested += turns._resting
        assert {answer.status_code for answer in await flood} == {202}
        assert rested, "nobody who sends over MQTT takes so much that they would have to"
