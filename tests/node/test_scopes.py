"""Several scopes in a running node, and what a change of the rules must not open."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import from_file, on_uvloop
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
