"""Two nodes that are linked over real sockets and TLS, on the loop of a test: `gym` connects to `remote`."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from harness import Client, free_port
from processes import Served, from_file, until
from tidegate import wire

GYM = """
version: 1
node: {name: a, data: data, cert: ../a.pem, key: ../a.key, ca: ../ca.pem}
listeners: [{url: "mqtt://127.0.0.1:PORT", scope: gym, anonymous: true}]
scopes: {gym: {}}
trust: {otherwise: degrade, domains: {b: {nodes: [b]}}}
LINKS
policies: open
sys: {interval: 0s}
"""
REMOTE = """
version: 1
node: {name: b, data: data}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: remotegym, anonymous: true}
  - {url: "mqtts://127.0.0.1:REMOTE", scope: remotegym, cert: ../b.pem, key: ../b.key, client_ca: ../ca.pem,
     client_cert: optional, anonymous: true}
scopes: {remotegym: {}}
trust: {otherwise: degrade, domains: {a: {nodes: [a]}}}
LINKS
policies: open
sys: {interval: 0s}
"""
FROM_GYM = 'links: [{from: gym, to: remotegym, via: ["mqtts://127.0.0.1:REMOTE"], peer: CN=b}]'
FROM_REMOTE = "links: [{from: remotegym, to: gym, peer: CN=a}]"


class Pair:
    """Two nodes: `gym` connects to `remote`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(free_port())
        self.gym: Served
        self.remote: Served

    def text(self, text: str, links: str) -> str:
        return text.replace("LINKS", links).replace("REMOTE", self.port)

    @contextlib.asynccontextmanager
    async def node(self, name: str, text: str, links: str) -> AsyncIterator[Served]:
        place = self.folder / f"node-{name}"
        place.mkdir(exist_ok=True)
        async with from_file(place, self.text(text, links)) as served:
            setattr(self, name, served)
            yield served

    def gyms(self, links: str = FROM_GYM) -> contextlib.AbstractAsyncContextManager[Served]:
        return self.node("gym", GYM, links)

    def remotes(self, links: str = FROM_REMOTE) -> contextlib.AbstractAsyncContextManager[Served]:
        return self.node("remote", REMOTE, links)


@contextlib.asynccontextmanager
async def pair(folder: Path, gym: str = FROM_GYM, remote: str = FROM_REMOTE) -> AsyncIterator[Pair]:
    both = Pair(folder)
    async with both.remotes(remote), both.gyms(gym):
        yield both


def row(served: Served) -> dict[str, Any]:
    (found,) = served.node.links.rows()
    return found


async def connected(*nodes: Served) -> None:
    await until(lambda: all(row(node)["state"] == "connected" for node in nodes))


async def over_tls(both: Pair, name: str | None, **fields: Any) -> Client:
    """Somebody who connects to the listener for links, with that certificate."""
    context = ssl.create_default_context(cafile=both.folder / "ca.pem")
    if name is not None:
        context.load_cert_chain(both.folder / f"{name}.pem", both.folder / f"{name}.key")
    client = await both.remote.dial(int(both.port), context)
    fields = {"clean_start": False, "keep_alive": 0, "client_id": "gym->remotegym", **fields}
    await client.send(wire.Connect(version=wire.V5, **fields))
    client.connack = await client.expect(wire.Connack)
    return client
