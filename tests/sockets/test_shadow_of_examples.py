"""The recorded traffic of each example in shadow mode: every client is sent the bytes that it is sent without any rule,
and what is said to be denied is what is denied when the rules are enforced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from learn.recorded_examples import NAMES
from processes import from_file, on_uvloop
from sockets.replaying import Player, attacking, homes, on_page, port, recorded, section, summed
from sockets.shadowing import Denials, denials
from tidegate import wire

RULES = ("policies", "preferences", "views", "monitors", "rules", "brokering", "flows", "levels", "subscribe")


def ruleless(configured: dict[str, Any]) -> dict[str, Any]:
    """The same scopes and people, and everything allowed."""
    return {name: part for name, part in configured.items() if name not in RULES} | {"policies": "open"}


async def played(folder: Path, name: str, version: int, kind: str, configured: dict[str, Any]) -> tuple[Any, Denials]:
    folder.mkdir()
    where = homes(name)
    async with from_file(folder, json.dumps(configured)) as node:
        player = Player(lambda client: node.ports[port(where[client])], version, node.node)
        try:
            await player.play([*recorded(name), *attacking(name)])
        finally:
            player.abandon()
        return player.sent, await denials(node, kind)


@pytest.mark.parametrize("name", NAMES)
@on_uvloop
async def test_recorded_traffic(tmp_path: Path, name: str) -> None:
    configured = section(name)
    opened, _ = await played(tmp_path / "open", name, wire.V5, "deny", ruleless(configured))
    shown, would = await played(tmp_path / "shadow", name, wire.V5, "shadow", {**configured, "enforce": False})
    _, denied = await played(tmp_path / "enforced", name, wire.V5, "deny", configured)
    assert would == denied
    assert shown == opened
    assert summed(name, shown, denied) == on_page(name, "embedded")
