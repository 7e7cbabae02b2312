"""Schemathesis against a real node: what the OpenAPI document promises is kept, whatever is sent.

That what fits the schema is accepted is not asked: a condition or a topic filter is more than its schema says.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from api.pretending import hosting
from harness import free_port
from processes import from_file
from tidegate.admin.control_commands import MakeToken

SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
CHECKS += "response_schema_conformance,negative_data_rejection,missing_required_header,unsupported_method,ignored_auth"
# Most of the time goes into every case that the schema has. A tenth of them were monitors that are put: they have the
# body of those that are posted, and are still fuzzed. Long texts for the filters of the audit take seconds to make up.
BOUNDS = """
[phases.coverage]
unexpected-methods = ["PATCH"]

[[operations]]
include-path = "/audit"
phases.fuzzing.generation.max-examples = 1

[[operations]]
include-name = "PUT /monitors/{id}"
phases.coverage.enabled = false
"""
OWN = "me|policies|tokens|audit|explain|users|applications|keys"
CONFIGURATION = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
store: sqlite
sys: {interval: 0s}
directory: {users: {mary: {roles: [coach], password: "plain:x"}}, clients: {"a/b": {user: mary}}}
policies: [{id: p1, subject: "*", topic: "#", action: [read, write]}]
preferences: [{id: up1, user: mary, topic: "a/#", when: "true"}]
"""


@pytest.mark.parametrize("role", ["admin", "user"])
async def test_schemathesis_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    monkeypatch.setattr("tidegate.api.limits.GUESSED", 1e9)  # it tries many wrong tokens
    (tmp_path / "schemathesis.toml").write_text(BOUNDS)
    async with from_file(tmp_path, CONFIGURATION) as served:
        administration = served.node.administration
        assert administration is not None
        made = await administration.tokens.make(
            MakeToken(role=role, user="mary" if role == "user" else None, by="test")
        )
        port = free_port()
        async with hosting(served.node.config.http_socket, port, data=served.node.config.node.data, max_body=512 << 10):
            process = await asyncio.create_subprocess_exec(
                SCHEMATHESIS,
                "run",
                f"http://127.0.0.1:{port}/openapi.json",
                *("-H", f"Authorization: Bearer {made['token']}"),
                *("--phases", "examples,coverage,fuzzing", "--max-examples", "2", "--seed", "1"),
                *("--checks", CHECKS, "--no-color", "--request-timeout", "20"),
                # it finds out which token it has, and revokes that
                *("--exclude-path", "/tokens/{id}", "--exclude-path", "/me/credentials"),
                *(("--include-path-regex", f"^/({OWN})") if role == "user" else ()),
                cwd=tmp_path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-8000:]
