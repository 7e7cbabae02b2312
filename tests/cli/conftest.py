"""The command as a user runs it, and brokers for it to speak to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.driving import ENVIRONMENT, TIDEGATE, Tidegate, mosquitto_program, running
from harness import free_port


@pytest.fixture
def tidegate(tmp_path: Path) -> Tidegate:
    """Runs the command to its end in a folder of its own."""

    def run(*arguments: object, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [TIDEGATE, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env={**ENVIRONMENT, **variables},
        )

    return run


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an open Mosquitto."""
    port = free_port()
    log = tmp_path_factory.mktemp("mosquitto") / "log"
    with running([mosquitto_program(), "-p", str(port)], port, log):
        yield port


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an ephemeral node."""
    port = free_port()
    log = tmp_path_factory.mktemp("node") / "log"
    with running([TIDEGATE, "run", "--port", str(port)], port, log):
        yield port


@pytest.fixture(params=["mosquitto", "node"])
def broker(request: pytest.FixtureRequest) -> int:
    """The port of a broker that lets everybody in: a foreign one, then our own."""
    port: int = request.getfixturevalue(request.param)
    return port
