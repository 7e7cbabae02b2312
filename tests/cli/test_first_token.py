"""The first token of an administrator: made over the control socket, and never in the log."""

from __future__ import annotations

import stat
from pathlib import Path

import httpx
import pytest

from cli.administering import CONFIGURATION, tidegate
from processes import File, Process, process

SAID = "nobody has a token of an administrator"


def test_the_first_token_is_made_over_the_socket_and_is_in_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with process(tmp_path, CONFIGURATION) as node:
        line = node.wait_for(SAID)
        assert line["remedy"] == f"tidegate token make --socket -c {tmp_path}/tidegate.yaml"
        assert stat.S_IMODE(node.control.stat().st_mode) == 0o600
        assert "give --role, or --socket" in tidegate("token", "make").err
        assert "add --socket" in tidegate("token", "make", "--role", "admin", "-c", "tidegate.yaml").err

        made = tidegate("token", "make", "--socket")
        assert made.code == 0, made
        token = made.out.removesuffix("\n")
        assert "\n" not in token
        asked = {"headers": {"Authorization": f"Bearer {token}"}, "timeout": 30}
        answer = httpx.get(f"http://127.0.0.1:{node.ports['HTTP_PORT']}/me", **asked)
        assert answer.json()["role"] == "admin"
        node.stop()
        again = Process(File(tmp_path, node.file.path.read_text()))
        again.wait_until_it_accepts()
        assert again.stop() == 0
        assert not again.events(SAID)
        for log in (node, again):
            assert "tg_" not in log.stderr.read_text()
