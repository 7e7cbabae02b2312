"""Completion: scripts for shells, commands and options, and ids that the node is asked for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cli.administering import Administered, Ran, administered, tidegate
from cli.test_administration_http import answer, scripted
from harness import free_port
from tidegate.cli.administration.options import QUICK


def completed(line: str, **variables: str) -> list[str]:
    """What bash would offer for the last word."""
    ran = typed(line, **variables)
    assert (ran.code, ran.err) == (0, ""), ran
    return ran.out.split()


def typed(line: str, **variables: str) -> Ran:
    place = str(len(line.split(" ")) - 1)
    return tidegate(_TIDEGATE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=place, **variables)


def test_scripts() -> None:
    for shell, word in (("bash", "complete -o default"), ("zsh", "#compdef tidegate"), ("fish", "complete --command")):
        ran = tidegate(_TIDEGATE_COMPLETE=f"source_{shell}")
        assert ran.code == 0
        assert word in ran.out
    shown = tidegate("--help").out
    assert "--install-completion" in shown
    assert "--show-completion" in shown


def test_commands_and_options() -> None:
    assert completed("tidegate poli") == ["policy"]
    assert {"list", "show", "add", "set", "remove", "history", "revert"} <= set(completed("tidegate policy "))
    assert completed("tidegate user add --pass") == ["--password-stdin"]
    assert completed("tidegate token make --role a") == ["admin", "auditor"]


def test_ids_of_the_node(tmp_path: Path) -> None:
    with administered(tmp_path) as admin:
        known = {"TIDEGATE_URL": admin.url, "TIDEGATE_TOKEN": admin.token}
        for id in ("gym-1", "gym-2"):
            admin.done("policy", "add", id, "--subject", "*", "--topic", "x", "--action", "read")
        for command in ("show", "remove", "set", "history", "revert"):
            assert completed(f"tidegate policy {command} gym", **known) == ["gym-1", "gym-2"]
        assert completed("tidegate policy show p", **known) == ["p1"]
        assert completed("tidegate user show m", **known) == ["mary"]
        assert completed("tidegate token make --user m", **known) == ["mary"]
        (token,) = admin.said("token", "list")["items"]
        assert completed("tidegate token revoke ", **known) == [token["id"]]

        # As the options say, too; and users are offered what is theirs.
        line = f"tidegate policy show --url {admin.url} --token {admin.token} gym"
        assert completed(line) == ["gym-1", "gym-2"]
        eve = admin.said("user", "add", "eve")["token"]
        mine = admin.said("preference", "add", "--topic", "x", token=eve)["id"]
        admin.done("preference", "add", "other", "--user", "mary", "--topic", "x")
        assert completed("tidegate preference remove ", **{**known, "TIDEGATE_TOKEN": eve}) == [mine]
        assert completed("tidegate policy remove ", **{**known, "TIDEGATE_TOKEN": eve}) == []
        offered(admin)


def offered(admin: Administered) -> None:
    """Nothing is offered, and nothing said, with a token that does not count."""
    for token in ("", "wrong", "no token"):
        assert completed("tidegate policy show ", TIDEGATE_URL=admin.url, TIDEGATE_TOKEN=token) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "ftp://nowhere", "https://127.0.0.1:1"])
def test_silence_if_nobody_can_be_asked(url: str) -> None:
    assert completed("tidegate policy show ", TIDEGATE_URL=url, TIDEGATE_TOKEN="x") == []


def test_silence_if_somebody_else_answers() -> None:
    for said in (answer([]), answer({"items": 5}), answer({"items": [{}]}), b"hello\r\n"):
        with scripted(said) as server:
            assert completed("tidegate policy show ", TIDEGATE_URL=server.url) == []


def test_nobody_waits_long() -> None:
    import socket

    with socket.create_server(("127.0.0.1", free_port())) as silent:  # accepts, and never answers
        began = time.monotonic()
        assert completed("tidegate policy show ", TIDEGATE_URL=f"http://127.0.0.1:{silent.getsockname()[1]}") == []
        assert time.monotonic() - began < QUICK + 20


def test_help() -> None:
    shown = tidegate("--help", COLUMNS="200").out
    for group in ("user", "client", "policy", "preference", "key", "token", "application", "source"):
        assert len([line for line in shown.splitlines() if line.startswith(f"│ {group} ")]) == 1
        below = tidegate(group, "list", "--help")
        assert below.code == 0
        assert all(option in below.out for option in ("--json", "--url", "--token-file", "--ca", "TIDEGATE_TOKEN"))
    assert " api " not in shown
