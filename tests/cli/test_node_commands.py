"""`tidegate run`, `status`, `reload` and `stop`, with a node as a user runs it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
from pathlib import Path

from cli.driving import ENVIRONMENT, TIDEGATE, Tidegate, command, running
from harness import PATIENCE, free_port


async def test_the_life_of_a_node(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "f.yaml"
    good = "version: 1\nnode: {name: living, data: data}\npolicies: open\n"
    good += f"listeners: [{{url: 'mqtt://127.0.0.1:{port}', anonymous: true}}]\n"
    file.write_text(good)

    async def ask(*arguments: object) -> tuple[int | None, str, str]:
        async with command(*arguments, "-c", file) as asking:
            out, err = await asking.communicate()
            return asking.returncode, out.decode(), err.decode()

    async with command("run", "-c", file) as node:
        assert node.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while b'"ready"' not in await node.stderr.readline():
                assert node.returncode is None
        code, out, err = await ask("status", "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["node"] == "living"
        code, out, _ = await ask("status")
        assert code == 0
        assert "living" in out
        rows = out[out.index("limit ") :].splitlines()
        used = rows[0].index(" of") + len(" of")
        lines = {name: line for line in rows for name in ("sessions", "queued bytes") if line.startswith(name)}
        assert lines["sessions"][:used].split() == ["sessions", "0", "200,000"]
        assert lines["queued bytes"][:used].split() == ["queued", "bytes", "0", "B", "4", "GiB"]
        assert {"session expiry", "unreleased time", "refused connections"} <= {
            " ".join(row.split()[:2]) for row in rows
        }

        code, out, _ = await ask("reload")
        assert (code, out) == (0, "✓ reloaded\n")
        file.write_text(good + "pipelines: []\n")
        code, _, err = await ask("reload", "--socket", tmp_path / "data/control.sock")
        assert code == 1
        assert "f.yaml:5: unknown key `pipelines`" in err
        file.write_text(good)

        code, out, _ = await ask("stop")
        assert (code, out) == (0, "✓ stopping\n")
        async with asyncio.timeout(PATIENCE):
            assert await node.wait() == 0
    code, _, err = await ask("status")
    assert code == 1
    assert "is the node running?" in err


def test_an_ephemeral_node_is_found_by_its_port(tidegate: Tidegate, tmp_path: Path) -> None:
    port = free_port()
    with running([TIDEGATE, "run", "--port", str(port)], port, tmp_path / "log"):
        told = json.loads(tidegate("status", "--port", port, "--json").stdout)
        assert told["node"] == "ephemeral"
        assert tidegate("status", "--port", free_port()).returncode == 1


def test_an_ephemeral_node_says_so_loudly() -> None:
    port = free_port()
    ours, theirs = pty.openpty()
    node = subprocess.Popen([TIDEGATE, "run", "--port", str(port)], stdout=theirs, stderr=theirs, env=ENVIRONMENT)
    os.close(theirs)
    shown = b""
    try:
        while b"survives" not in shown:
            shown += os.read(ours, 4096)
    finally:
        node.terminate()
        node.wait(PATIENCE)
        os.close(ours)
    assert b"ephemeral node, policy open" in shown
    assert f"mqtt://127.0.0.1:{port}".encode() in shown
