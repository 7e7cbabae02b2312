"""MQTT.js, 3.1.1 and 5, over WebSocket with and without TLS, and over TCP.

`client.mjs` runs all scenarios for one version and transport in one Node.js process and prints what it saw; the
tests here say what that should have been.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from foreign.conftest import Broker
from processes import missing, needs

HERE = Path(__file__).parent
KINDS = [(version, scheme) for version in (4, 5) for scheme in ("ws", "wss")] + [(5, "tcp")]
NAMES = {4: "3.1.1", 5: "5"}


@pytest.fixture(scope="module", params=KINDS, ids=[f"{NAMES[version]} {scheme}" for version, scheme in KINDS])
def seen(broker: Broker, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What MQTT.js saw, by scenario."""
    needs("node")
    if not (HERE / "node_modules" / "mqtt").is_dir():
        missing("MQTT.js is not installed; `make foreign` does it")
    version, scheme = request.param
    url = f"mqtt://{broker.host}:{broker.port('tcp')}"
    if scheme != "tcp":
        url = f"{scheme}://{broker.host}:{broker.port(scheme)}/mqtt"
    given = {
        "url": url,
        "version": version,
        "ca": str(broker.ca) if scheme == "wss" else None,
        "prefix": broker.name("js"),
        "user": broker.user,
        "password": broker.password,
    }
    done = subprocess.run(
        ["node", "client.mjs", json.dumps(given)], cwd=HERE, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return {"version": version, **json.loads(done.stdout)}


def test_messages_at_every_qos(seen: dict[str, Any]) -> None:
    assert seen["qos"] == {
        "granted": 2,
        "got": [[f"/{qos}", f"message {qos}", qos, False] for qos in (0, 1, 2)],
    }


def test_retained(seen: dict[str, Any]) -> None:
    assert seen["retained"] == [["kept", True], ["", False], ["live", False]]


def test_will_when_the_connection_breaks(seen: dict[str, Any]) -> None:
    assert seen["will"] == ["/broken", "gone", 1]


def test_persistent_session_gets_what_it_missed(seen: dict[str, Any]) -> None:
    assert seen["queued"] == {
        "present": [False, True, False],
        "1": [[1, number] for number in range(0, 30, 2)],
        "2": [[2, number] for number in range(1, 30, 2)],
    }


def test_password(seen: dict[str, Any]) -> None:
    assert seen["password"] == {"payload": "in", "refused": 0x86 if seen["version"] == 5 else 4}


def test_take_over(seen: dict[str, Any]) -> None:
    assert seen["takeOver"] == {"end": 0x8E if seen["version"] == 5 else None, "payload": "to the second"}


def test_large_payload(seen: dict[str, Any]) -> None:
    assert seen["large"] == [True, True, True]


def test_many_messages_none_lost_in_order(seen: dict[str, Any]) -> None:
    assert seen["many"] == {"received": 2000, "inOrder": True}


def test_properties(seen: dict[str, Any]) -> None:
    if seen["version"] == 4:
        assert seen["properties"] is None
        return
    got = seen["properties"]
    assert 95 <= got.pop("messageExpiryInterval") <= 100
    assert got == {
        "payloadFormatIndicator": True,
        "responseTopic": "answer/here",
        "correlationData": "sheep",
        "userProperties": {"colour": ["blue", "green"], "size": "1"},
        "contentType": "text/plain",
        "subscriptionIdentifier": 7,
    }


def test_topic_alias(seen: dict[str, Any]) -> None:
    if seen["version"] == 4:
        assert seen["topicAlias"] is None
    else:
        assert seen["topicAlias"] == [[True, "0"], [True, "1"], [True, "2"]]
