"""The recorded traffic of each example through a guard in shadow mode: every client is sent the bytes that Mosquitto
alone sends it, and what is said to be denied is what the guard denies when it enforces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from guard.guarded import HERE, PLAIN, broker
from learn.recorded_examples import NAMES
from processes import from_file, on_uvloop
from sockets.replaying import Player, Sent, attacking, homes, on_page, port, recorded, section, summed
from sockets.shadowing import Denials, denials
from tidegate import wire

ONE_SCOPE = [name for name in NAMES if len(set(homes(name).values())) == 1]
"""A guarded scope is one broker; the smart home is five scopes."""

QUICK = PLAIN + "set_tcp_nodelay true\n"  # what is acknowledged at once does not wait for more


async def alone(name: str) -> Sent:
    with broker(QUICK) as mosquitto:
        return await played(name, Player(lambda client: mosquitto, wire.V311))


async def guarded(folder: Path, name: str, kind: str, *, enforce: bool) -> tuple[Sent, Denials]:
    folder.mkdir()
    where = next(iter(homes(name).values()))
    with broker(QUICK) as mosquitto:
        scope = {"backend": f"mqtt://127.0.0.1:{mosquitto}", **HERE}
        configured = {**section(name), "scopes": {where: scope}, "enforce": enforce}
        async with from_file(folder, json.dumps(configured)) as node:
            sent = await played(name, Player(lambda client: node.ports[port(where)], wire.V311, node.node))
            return sent, await denials(node, kind)


async def played(name: str, player: Player) -> Sent:
    try:
        await player.play([*recorded(name), *attacking(name)])
    finally:
        player.abandon()
    return player.sent


@pytest.mark.parametrize("name", ONE_SCOPE)
@on_uvloop
async def test_recorded_traffic(tmp_path: Path, name: str) -> None:
    plain = await alone(name)
    shown, would = await guarded(tmp_path / "shadow", name, "shadow", enforce=False)
    _, denied = await guarded(tmp_path / "enforced", name, "deny", enforce=True)
    assert would == denied
    assert shown == plain
    assert summed(name, shown, denied) == on_page(name, "guarded")
