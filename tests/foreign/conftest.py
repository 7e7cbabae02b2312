"""What all foreign clients connect to, with every kind of listener: a node as a process of its own.

The variable TIDEGATE_FOREIGN puts something else in its place, so that the same tests say what differs: `bare` is
Debian's Mosquitto, and `guarded` is a node in front of one. `test_guard` runs both and compares.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from backends import SECRET, UNLIMITED, mosquitto_of
from harness import free_port
from processes import needs, process
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


GUARD = """
version: 1
node: {name: foreign}
listeners:
  - {url: "mqtt://127.0.0.1:TCP_PORT", anonymous: true}
  - {url: "mqtts://127.0.0.1:TLS_PORT", anonymous: true, cert: node.pem, key: node.key}
  - {url: "mqtts://127.0.0.1:MTLS_PORT", cert: node.pem, key: node.key, client_ca: ca.pem, client_cert: required}
  - {url: "ws://127.0.0.1:WS_PORT/mqtt", anonymous: true}
  - {url: "wss://127.0.0.1:WSS_PORT/mqtt", anonymous: true, cert: node.pem, key: node.key}
scopes: {main: {backend: "BACKEND", secret: SECRET}}
policies: open
limits: {queue: {messages: 1000000, bytes: 1GiB}}
"""
KINDS = ("tcp", "tls", "mtls", "ws", "wss")


class Broker:
    """Where a foreign client finds everything."""

    host = "127.0.0.1"
    user = "mary"
    password = "had a little lamb"

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        self.ca = folder / "ca.pem"
        self._ports = ports
        self._names = count(1)

    def port(self, kind: str) -> int:
        return self._ports[f"{kind.upper()}_PORT"]

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
    running = {"node": _node, "bare": _bare, "guarded": _guarded}[os.environ.get("TIDEGATE_FOREIGN", "node")]
    with running(folder) as ports:
        yield Broker(folder, ports)


@contextlib.contextmanager
def _node(folder: Path) -> Iterator[Mapping[str, int]]:
    text = CONFIGURATION.replace("HASH", hash_password(Broker.password.encode()))
    with process(folder, text) as running:
        yield running.ports
        assert running.ask("status")["bugs"] == 0


@contextlib.contextmanager
def _bare(folder: Path) -> Iterator[Mapping[str, int]]:
    """Mosquitto with the same listeners, and the same user."""
    ports = {f"{kind.upper()}_PORT": free_port() for kind in KINDS if kind != "tcp"}
    pair = f"certfile {folder}/node.pem\nkeyfile {folder}/node.key\n"
    more = {
        "TLS_PORT": pair,
        "MTLS_PORT": f"{pair}cafile {folder}/ca.pem\nrequire_certificate true\nuse_identity_as_username true\n",
        "WS_PORT": "protocol websockets\n",
        "WSS_PORT": f"{pair}protocol websockets\n",
    }
    listeners = "".join(f"listener {port} 127.0.0.1\n{more[kind]}" for kind, port in ports.items())
    with mosquitto_of(folder / "mosquitto", _known(folder) + listeners) as running:
        yield {"TCP_PORT": running.port, **ports}


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[Mapping[str, int]]:
    """The same user is known to Mosquitto alone: it proves the name."""
    with mosquitto_of(folder / "mosquitto", _known(folder)) as backend:
        text = GUARD.replace("BACKEND", backend.url).replace("SECRET", SECRET)
        with process(folder, text) as running:
            yield running.ports
            assert running.ask("status")["bugs"] == 0


def _known(folder: Path) -> str:
    """Lines of a Mosquitto that knows the user of the tests, and takes anybody without a name."""
    needs("mosquitto_passwd")
    file = folder / "passwords"
    subprocess.run(["mosquitto_passwd", "-c", "-b", file, Broker.user, Broker.password], check=True)
    return f"allow_anonymous true\npassword_file {file}\n{UNLIMITED}"
