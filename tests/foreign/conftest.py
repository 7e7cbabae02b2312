"""One node as a process of its own, with every kind of listener, for all foreign clients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from processes import Process, process
from tidegate.authentication.passwords import hash_password
from tidegate.cli import certificates

CONFIGURATION = """
version: 1
node: {name: foreign, data: data}
listeners:
  - {url: "mqtt://127.0.0.1:TCP_PORT", anonymous: true}
  - {url: "mqtts://127.0.0.1:TLS_PORT", anonymous: true, cert: node.pem, key: node.key}
  - {url: "mqtts://127.0.0.1:MTLS_PORT", cert: node.pem, key: node.key, client_ca: ca.pem, client_cert: required}
  - {url: "ws://127.0.0.1:WS_PORT/mqtt", anonymous: true}
  - {url: "wss://127.0.0.1:WSS_PORT/mqtt", anonymous: true, cert: node.pem, key: node.key}
directory:
  users:
    mary: {password: "HASH"}
policies: open
"""


class Broker:
    """Where a foreign client finds everything."""

    host = "127.0.0.1"
    user = "mary"
    password = "had a little lamb"

    def __init__(self, running: Process) -> None:
        self.process = running
        self.ca = running.file.folder / "ca.pem"
        self._names = count(1)

    def port(self, kind: str) -> int:
        return self.process.ports[f"{kind.upper()}_PORT"]

    def certificate(self, name: str) -> tuple[Path, Path]:
        return certificates.issue(self.ca.parent, name, [], client=True, days=2)

    def name(self, what: str) -> str:
        """A topic or client id that no other test has."""
        return f"{what}-{next(self._names)}"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("foreign")
    certificates.make_ca(folder, "Foreign tests", days=2)
    certificates.issue(folder, "node", ["127.0.0.1", "localhost"], client=False, days=2)
    text = CONFIGURATION.replace("HASH", hash_password(Broker.password.encode()))
    with process(folder, text) as running:
        yield Broker(running)
        assert running.ask("status")["bugs"] == 0
