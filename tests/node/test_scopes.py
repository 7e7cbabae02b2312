"""Several scopes in a running node, and what a change of the rules must not open."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Client
from processes import Served, from_file, on_uvloop, until
from tidegate import wire
from tidegate.errors import ConfigError

BY_ROLE = """
version: 1
node: {name: n}
listeners: [{url: "mqtt://127.0.0.1:PORT", scope: A}, {url: "mqtt://127.0.0.1:B_PORT", scope: B}]
scopes: {A: {}, B: {}}
links: [{from: A, to: B, direction: out}]
directory: {users: {u: {password: "plain:u", roles: [ROLE]}}}
policies: open
brokering:
  allow: [[loud, link], [link, hear], [quiet, hear], [loud, hear]]
  assign:
    - {client: "role:safe", in: quiet, out: hear}
    - {client: "role:loud", in: loud, out: hear}
    - {link: "A->B", type: link}
flows: {forbid: ["client:X -> scope:B"]}
"""


@on_uvloop
async def test_another_role_does_not_open_a_forbidden_flow_to_who_is_connected(tmp_path: Path) -> None:
    async with from_file(tmp_path, BY_ROLE.replace("ROLE", "safe")) as node:
        client = await node.dial(node.ports["PORT"])
        login = wire.Connect(
            version=wire.V5, client_id="X", clean_start=True, keep_alive=0, username="u", password=b"u"
        )
        await client.send(login)
        assert (await client.expect(wire.Connack)).reason == 0
        with pytest.raises(ConfigError, match="client:X -> scope:A -> scope:B"):
            await node.reload(BY_ROLE.replace("ROLE", "loud"))
        await client.send(wire.Disconnect())
        await node.reload(BY_ROLE.replace("ROLE", "loud"))
        again = await node.dial(node.ports["PORT"])
        await again.send(login)
        refused = await again.expect(wire.Connack)
        assert refused.reason == wire.Reason.NOT_AUTHORIZED
        assert "client:X -> scope:A -> scope:B" in (refused.properties.reason_string or "")


LINKED = """
version: 1
node: {name: n, data: data}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: A, anonymous: true}
  - {url: "mqtt://127.0.0.1:B_PORT", scope: B, anonymous: true}
scopes: {A: {}, B: {}, C: {}}
links: []
policies: open
"""


@on_uvloop
async def test_a_link_that_opens_carries_what_is_retained(tmp_path: Path) -> None:
    """By a reload, and by a change of the file while the node is down; what it carried it does not carry again."""
    reloaded = LINKED.replace("links: []", "links: [{from: A, to: C, direction: out}]")
    restarted = LINKED.replace(
        "links: []", "links: [{from: A, to: C, direction: out}, {from: C, to: B, direction: out}]"
    )

    async def subscriber(node: Served, port: str) -> Client:
        client = await node.dial(node.ports[port])
        await client.send(wire.Connect(version=wire.V5, client_id=port, clean_start=True, keep_alive=0))
        await client.expect(wire.Connack)
        return client

    async with from_file(tmp_path, LINKED) as node:
        source = await subscriber(node, "PORT")
        await source.publish("t", b"kept", qos=1, retain=True)
        await node.reload(reloaded)
        scope = node.node.scopes["C"]
        await until(lambda: scope.retained.get("t") is not None)
    async with from_file(tmp_path, restarted) as node:
        end = await subscriber(node, "B_PORT")
        await end.subscribe("#")
        assert (await end.message()).payload == b"kept"
        await end.publish("t", b"", retain=True)
        await until(lambda: node.node.scopes["B"].retained.get("t") is None)
    async with from_file(tmp_path, restarted) as node:
        end = await subscriber(node, "B_PORT")
        await end.subscribe("#")
        await end.silent()
