"""Until when the certificates of a node's file are good: its own, and those of the authorities that it believes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from tidegate.config import Config
from tidegate.net.control_socket import Command

FRESH: Final = 60.0
"""Seconds after which the files are read again, if somebody asks."""

T = TypeVar("T")


class CertifiedNode(Protocol):
    """What is needed of a node."""

    config: Config

    async def run_query(self, do: Callable[[], T]) -> T:
        """On the thread for those who only look."""


class CertificateExpiry:
    """The certificates of one node, read from their files."""

    def __init__(self, node: CertifiedNode) -> None:
        self._node = node
        self._known: list[dict[str, Any]] = []
        self._read = (-FRESH, "")

    def commands(self) -> dict[str, Command]:
        return {"certificate_list": self.listed}

    async def listed(self) -> dict[str, Any]:
        """The one that ends first of each file; `trouble`: a file that cannot be read."""
        now, config = time.monotonic(), self._node.config
        version = config.built.policy_version
        if now - self._read[0] >= FRESH or self._read[1] != version:
            self._read = (now, version)
            self._known = await self._node.run_query(lambda: list(_rows(config)))
        return {"certificates": self._known}


def _rows(config: Config) -> Iterator[dict[str, Any]]:
    """Blocks: reads files."""
    places: dict[Path, list[str]] = {}
    for place, path in _files(config):
        places.setdefault(path, []).append(place)
    for path, names in places.items():
        row = {"file": str(path), "used": names, "subject": None, "until": None, "trouble": None}
        try:
            yield {**row, **_first_to_end(path)}
        except (OSError, ValueError) as error:
            yield {**row, "trouble": str(error)[:200]}


def _files(config: Config) -> Iterator[tuple[str, Path]]:
    named: list[tuple[str, Any]] = [("node.cert", config.node.cert), ("node.ca", config.node.ca)]
    for listener in config.listeners:
        named += [(f"listener {listener.url}", listener.cert), (f"clients of {listener.url}", listener.client_ca)]
    if config.http is not None:
        named += [("http", config.http.cert), ("clients of http", config.http.client_ca)]
    named += [(f"broker of {each.source}->{each.target}", each.broker.ca) for each in config.links if each.broker]
    for place, path in named:
        if path is not None:
            yield place, Path(path)


def _first_to_end(path: Path) -> dict[str, Any]:
    from cryptography import x509

    certificates = x509.load_pem_x509_certificates(path.read_bytes())
    first = min(certificates, key=lambda each: each.not_valid_after_utc)
    return {"subject": first.subject.rfc4514_string(), "until": first.not_valid_after_utc.timestamp()}
