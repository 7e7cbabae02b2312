"""What the pipeline remembers of what the node told it."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tidegate.pipeline import node_client
from tidegate.pipeline.node_client import FRESH, NodeClient
from tidegate.pipeline.protect import Wanted


class Clock:
    """Stands still unless it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def wanted(name: str) -> Wanted:
    return Wanted(target=f"weather/{name}", context=b"\x01\xa0", origin=f"raw/{name}")


def test_a_key_is_forgotten_when_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    clock = Clock()

    def ask(socket: Path, command: str, **said: Any) -> Any:
        asked.extend(each["topic"] for each in said["asks"])
        secret = b64encode(bytes(32)).decode()
        lasts = {"weather/short": 5.0}
        return {
            "answers": [
                {"keyId": "k", "secret": secret, "seconds": lasts.get(each["topic"], 3600.0)} for each in said["asks"]
            ]
        }

    monkeypatch.setattr(node_client, "ask", ask)
    monkeypatch.setattr(node_client, "time", clock)
    client = NodeClient(Path("nowhere"))
    client.keys({wanted("short"): 1, wanted("long"): 1})
    clock.now += 6.0
    assert client.keys({wanted("long"): 1})[0].key_id == "k"
    assert asked == ["weather/short", "weather/long"]
    assert {one.target for one in client._known} == {"weather/long"}
    clock.now += FRESH
    client.keys({wanted("other"): 1})
    assert {one.target for one in client._known} == {"weather/other"}
