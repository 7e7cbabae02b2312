"""A node on real sockets with a plain and a TLS listener, and clients on either."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from harness import Client
from processes import Served, from_file, until
from tidegate import wire
from tidegate.cli import certificates

_HEAD: Final = """
version: 1
node: {name: test}
sys: {interval: 0s}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true}
  - url: mqtts://127.0.0.1:TLS_PORT
    anonymous: true
    cert: node.pem
    key: node.key
    client_ca: ca.pem
    client_cert: optional
"""


def authority(folder: Path, *people: str) -> Path:
    """A folder with certificates for the node and for each of these people."""
    certificates.make_ca(folder, "Test CA", days=2)
    certificates.issue(folder, "node", ["127.0.0.1"], client=False, days=2)
    for name in people:
        certificates.issue(folder, name, [], client=True, days=2)
    return folder


@contextlib.asynccontextmanager
async def mixed(folder: Path, text: str) -> AsyncIterator[Mixed]:
    """A node that offers plain and encrypted connections."""
    async with from_file(folder, _HEAD + text) as served:
        yield Mixed(served, folder)


class Mixed:
    """The node. Whoever comes gives a level: `plain`, `tls`, or the name on a certificate."""

    def __init__(self, served: Served, folder: Path) -> None:
        self.served = served
        self.folder = folder
        self._count = 0

    async def come(
        self,
        how: str,
        *,
        version: int = wire.V5,
        says: Mapping[str, str] | None = None,
        expect: int = 0,
        context: ssl.SSLContext | None = None,
        **fields: Any,
    ) -> Visitor:
        client = await self.dial(how, context)
        client.version = version
        self._count += 1
        connect = wire.Connect(
            version=version,
            client_id=fields.pop("client_id", f"c{self._count}"),
            clean_start=True,
            keep_alive=0,
            properties=_said(says),
            **fields,
        )
        await client.send(connect)
        client.connack = await client.expect(wire.Connack)
        assert client.connack.reason == expect, client.connack
        return Visitor(client, self.served)

    async def dial(self, how: str, context: ssl.SSLContext | None = None) -> Client:
        """A connection that has said nothing yet."""
        if how == "plain":
            return await self.served.dial(self.served.ports["PORT"])
        if context is None:
            context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        if how != "tls":
            context.load_cert_chain(self.folder / f"{how}.pem", self.folder / f"{how}.key")
        return await self.served.dial(self.served.ports["TLS_PORT"], context)


class Visitor:
    """Somebody who is connected."""

    def __init__(self, client: Client, served: Served) -> None:
        self.client = client
        self._served = served

    async def subscribe(self, filter: str, says: Mapping[str, str] | None = None) -> int:
        answer = await self.client.subscribe(filter, properties=_said(says))
        return answer.reasons[0]

    async def publish(self, topic: str, payload: bytes = b"x", says: Mapping[str, str] | None = None) -> int:
        answer = await self.client.publish(topic, payload, qos=1, properties=_said(says))
        assert isinstance(answer, wire.Puback)
        return answer.reason

    async def got(self) -> list[wire.Publish]:
        """What came since the last time: everything before the answer to a PING.

        A node that was kept from its work for a millisecond decides for the last receivers of a message in later turns.
        """
        await until(lambda: not self._served.node.site.unfinished)
        await self.client.send(wire.Pingreq())
        found: list[wire.Publish] = []
        while not isinstance(packet := await self.client.receive(), wire.Pingresp):
            assert isinstance(packet, wire.Publish), packet
            found.append(packet)
        return found

    async def floors(self) -> list[str]:
        """The floors of what came; empty for a protocol that cannot tell."""
        return [dict(message.properties.user_properties).get("floor", "") for message in await self.got()]


def _said(says: Mapping[str, str] | None) -> wire.Properties:
    return wire.Properties(user_properties=tuple(says.items())) if says else wire.NONE
