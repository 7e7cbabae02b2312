"""What tests of the door do again and again: a node with rules, its people, and what each of them was sent.

People are users of the directory with one password. A node is described by sections of its configuration as plain
data, so that a changed rule is a changed dict. Everybody who is asked for an inbox is asked by PING, so that nothing
is waited for that does not come.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from harness import Client
from processes import Served, from_file, until
from tidegate import wire

BOTH = [wire.V311, wire.V5]
PASSWORD = b"pw"

Section = dict[str, Any]


def user(*roles: str, groups: Iterable[str] = (), **attributes: Any) -> Section:
    """An entry of the directory."""
    return {"password": "plain:pw", "roles": list(roles), "groups": list(groups), "attributes": attributes}


def policy(id: str, topic: str = "#", action: str | list[str] | None = None, **more: Any) -> Section:
    """A policy; by default everybody may read and write everything."""
    return {"id": id, "subject": "*", "topic": topic, "action": action or ["read", "write"], **more}


ALL = policy("all")


def allowing(monitors: Iterable[Section]) -> Section:
    """`all`, for monitors too: what they make must be allowed to each of them by its name."""
    return {**ALL, "subject": ["*", *(f"monitor:{each['id']}" for each in monitors)]} if monitors else ALL


PEOPLE = {name: user() for name in ("mary", "alice", "bob", "carol")}


def setting(*policies: Section, certificates: Path | None = None, data: bool = False, **sections: Any) -> str:
    """The text of a configuration. Without policies everything is allowed by `all`, also to monitors; with
    `certificates` also over TLS.

    Anybody may come anonymously, and mary, alice, bob and carol as themselves.
    """
    written: Section = {
        "version": 1,
        "node": {"name": "test", **({"data": "data"} if data else {})},
        "listeners": [{"url": "mqtt://127.0.0.1:PORT", "anonymous": True}],
        "directory": {"users": PEOPLE},
        "policies": list(policies) or [allowing(sections.get("monitors", ()))],
        "sys": {"interval": "0s"},
        **sections,
    }
    if certificates is not None:
        written["listeners"] = [
            *written["listeners"],
            {
                "url": "mqtts://127.0.0.1:TLS_PORT",
                "anonymous": True,
                "cert": str(certificates / "node.pem"),
                "key": str(certificates / "node.key"),
                "client_ca": str(certificates / "ca.pem"),
                "client_cert": "optional",
            },
        ]
    return json.dumps(written, indent=1)


@contextlib.asynccontextmanager
async def door(folder: Path, *policies: Section, **sections: Any) -> AsyncIterator[Served]:
    """A node with these rules."""
    async with from_file(folder, setting(*policies, **sections)) as node:
        yield node


def secure(certificates: Path, name: str | None = None) -> ssl.SSLContext:
    """A client that trusts the node and, with a name, shows the certificate of that name."""
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    if name is not None:
        context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return context


async def come(
    node: Served,
    name: str | None,
    *,
    client: str | None = None,
    version: int = wire.V5,
    tls: ssl.SSLContext | None = None,
    expect: int = 0,
    asks: Iterable[tuple[str, str]] = (),
    stays: bool = False,
    port: str = "PORT",
    local: str | None = None,
    **fields: Any,
) -> Client:
    """Somebody connects: a user of the directory, or with None nobody in particular.

    `asks` are user properties of CONNECT; with `stays` the session is kept, and resumed if it is there. `local` is the
    address that it comes from.
    """
    end = await node.dial(node.ports["TLS_PORT" if tls is not None else port], tls, local=local)
    properties = fields.pop("properties", wire.NONE)
    if version == wire.V5:
        properties = replace(
            properties,
            user_properties=tuple(asks),
            **({"session_expiry_interval": 1000} if stays else {}),
        )
    fields.setdefault("clean_start", not stays)
    fields.setdefault("keep_alive", 0)
    if name is not None:
        fields |= {"username": name, "password": PASSWORD}
    await end.send(
        wire.Connect(version=version, client_id=client or name or "", properties=properties, **fields),
    )
    end.version = version
    end.connack = await end.expect(wire.Connack)
    assert end.connack.reason == expect, end.connack
    return end


async def go(node: Served, *ends: Client) -> None:
    """Their connections break; returns when the node knows."""
    scope = node.node.scopes["main"]
    left = scope.connected - len(ends)
    for end in ends:
        end.abort()
    await until(lambda: scope.connected == left)


def asking(*pairs: tuple[str, str], **fields: Any) -> wire.Properties:
    """Properties of a packet: user properties, and others by name."""
    return wire.Properties(user_properties=pairs, **fields)


async def inbox(end: Client) -> list[wire.Publish]:
    """Everything it has been sent up to now, acknowledged.

    It asks again until nothing more comes: what waited for a client is sent in pieces, on a busy machine in small ones.
    """
    found: list[wire.Publish] = []
    open: set[int] = set()
    before = -1
    asked = False
    while open or asked or len(found) > before:
        if not asked and len(found) > before:
            await end.settled()
            await end.send(wire.Pingreq())
            asked, before = True, len(found)
        match packet := await end.receive():
            case wire.Pingresp():
                asked = False
            case wire.Publish(qos=0):
                found.append(packet)
            case wire.Publish(qos=1):
                found.append(packet)
                await end.send(wire.Puback(packet_id=packet.packet_id))
            case wire.Publish():
                found.append(packet)
                open.add(packet.packet_id)
                await end.send(wire.Pubrec(packet_id=packet.packet_id))
            case wire.Pubrel():
                open.discard(packet.packet_id)
                await end.send(wire.Pubcomp(packet_id=packet.packet_id))
            case _:
                raise AssertionError(packet)
    return found


async def payloads(end: Client) -> list[bytes]:
    """Of everything it has been sent up to now."""
    return [message.payload for message in await inbox(end)]


async def content(end: Client) -> list[Any]:
    """The same, read as JSON."""
    return [json.loads(payload) for payload in await payloads(end)]


async def say(
    end: Client, topic: str, payload: bytes | Section = b"x", *asks: tuple[str, str], qos: int = 0, **fields: Any
) -> int:
    """Publishes; returns when the node has dealt with it, with the reason code of the acknowledgement.

    A dict is sent as JSON; `asks` are user properties.
    """
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    properties = fields.pop("properties", wire.NONE)
    if asks:
        properties = replace(properties, user_properties=(*properties.user_properties, *asks))
    end._pid += 1
    pid = end._pid if qos else 0
    packet = wire.Publish(topic=topic, payload=body, qos=qos, packet_id=pid, properties=properties, **fields)
    await end.send(packet)
    if qos == 0:
        await end.silent()
        return 0
    if qos == 1:
        return (await end.expect(wire.Puback)).reason
    received = await end.expect(wire.Pubrec)
    if received.reason < 0x80:
        await end.send(wire.Pubrel(packet_id=pid))
        assert (await end.expect(wire.Pubcomp)).reason == 0
    return received.reason


async def dismissed(end: Client, reason: int) -> None:
    """The node ends the connection: with this reason in MQTT 5, without a word in 3.1.1."""
    if end.version == wire.V5:
        assert (await end.expect(wire.Disconnect)).reason == reason
    assert await end.closed() == b""


_marks = count()


async def marked(end: Client, node: Served) -> list[bytes]:
    """What it is sent until a mark that is published now, without marks.

    For nodes that keep data, where the answer to a PING may overtake what waits for the disk.
    """
    mark = b"mark %d" % next(_marks)
    publisher = await come(node, "bob", client="marker")
    await say(publisher, "mark", mark, qos=1)
    found: list[bytes] = []
    while mark not in found:
        found.append((await end.message()).payload)
    await publisher.disconnect()
    return [payload for payload in found if not payload.startswith(b"mark")]
