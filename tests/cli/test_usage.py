"""Help everywhere and at once, and wrong usage told with exit code 2."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cli.driving import Tidegate
from harness import free_port
from tidegate.cli.commands import app

COMMANDS = ["run", "check", "status", "reload", "stop", "pub", "sub", "bench", "passwd", "schema", "cert"]


@pytest.mark.parametrize("command", ["", *COMMANDS, "cert ca", "cert issue", "cert show"])
def test_help_everywhere(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="tidegate")
    assert shown.exit_code == 0, shown.stderr
    assert "Usage: tidegate" in shown.stdout
    if not command:
        assert all(f" {each} " in shown.stdout for each in COMMANDS)


HEAVY = {"pydantic", "yaml", "aiomqtt", "paho", "cryptography", "argon2", "uvloop", "asyncio", "tidegate.node"}


@pytest.mark.parametrize("code", ["pass", "main(['--help'], standalone_mode=False)"], ids=["imported", "--help"])
def test_nothing_heavy_is_imported_for_help(code: str) -> None:
    """Help is immediate because of what it does not wait for."""
    code = f"import sys; from tidegate.cli.commands import app as main; {code}; print('modules:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = done.stdout.rpartition("modules:")[2].split()
    assert "tidegate.cli.commands" in loaded
    assert not HEAVY & set(loaded)


def test_version(tidegate: Tidegate) -> None:
    import tidegate as package

    assert tidegate("--version").stdout == f"tidegate {package.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("pub -t a", "say what to publish: one of --message, --file, --stdin-lines, --null"),
        ("pub -t a -m x -n", "say what to publish"),
        ("pub -t a/# -m x", "`a/#` is not a topic"),
        ("pub -m x", "Missing option"),
        ("pub -t a -m x -q 3", "less than or equal to 2"),
        ("pub -t a -m x -D novalue", "`novalue` is not a property: write NAME=VALUE"),
        ("pub -t a -m x -D =v", "is not a property"),
        ("pub -t a -m x -D a=b --protocol 311", "need MQTT 5"),
        ("pub -t a -m x --expiry 5 --protocol 311", "need MQTT 5"),
        ("pub -t a -m x --require tls --protocol 311", "need MQTT 5"),
        ("pub -t a -m x --session-expiry 5 --protocol 311", "--session-expiry needs MQTT 5"),
        ("pub -t a -m x --will-topic w --will-delay 5 --protocol 311", "--will-delay needs MQTT 5"),
        ("pub -t a -m x --will-message w", "a will needs --will-topic"),
        ("pub -t a -m x --no-clean", "--no-clean needs a client identifier: add --id"),
        ("pub -t a -m x -P secret --protocol 311", "a password needs a user name"),
        ("pub -t a -m x --cafile nowhere.pem", "does not exist"),
        ("sub -t a/#/b", "`a/#/b` is not a filter"),
        ("sub -t $share/x", "is not a filter"),
        ("sub", "Missing option"),
        ("sub -t a --no-local --protocol 311", "need MQTT 5"),
        ("run -c a.yaml --port 5", "--port is for an ephemeral node"),
        ("check", "Missing argument"),
        ("nonsense", "No such command"),
        ("cert", "Usage: tidegate cert"),
    ],
)
def test_wrong_usage(arguments: str, said: str) -> None:
    answer = CliRunner().invoke(app, arguments.split(), prog_name="tidegate")
    assert answer.exit_code == 2
    assert said in answer.output


def test_wrong_usage_ends_the_process_with_2(tidegate: Tidegate) -> None:
    answer = tidegate("pub", "-t", "a/#", "-m", "x")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "Traceback" not in answer.stderr


def test_nobody_there(tidegate: Tidegate) -> None:
    port = free_port()
    for arguments in (("pub", "-t", "a", "-m", "x"), ("sub", "-t", "a")):
        answer = tidegate(*arguments, "-p", port)
        assert answer.returncode == 1
        assert answer.stderr == f"error: cannot connect to 127.0.0.1:{port}: Connection refused\n"
    answer = tidegate("pub", "-t", "a", "-m", "x", "-h", "no.such.host.invalid")
    assert answer.returncode == 1
    assert "cannot connect to no.such.host.invalid:1883" in answer.stderr


def test_fewer_messages_than_asked_for(tidegate: Tidegate, mosquitto: int) -> None:
    answer = tidegate("sub", "-p", mosquitto, "-t", "silence", "-C", 1, "-W", 0.2)
    assert (answer.returncode, answer.stderr) == (1, "error: only 0 of 1 messages came within 0.2 s\n")
    answer = tidegate("sub", "-p", mosquitto, "-t", "silence", "-W", 0.2)
    assert (answer.returncode, answer.stderr) == (0, "")
