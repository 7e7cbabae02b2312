"""What Zigbee2MQTT and those around it publish, by its documentation: it does not start without a radio.

The configurations are those of `docs/how-to/zigbee2mqtt.md`. Each message names who receives it; everybody
subscribes to everything.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from applications import page_configuration, served
from foreign.test_node_red import come
from harness import Client
from processes import on_uvloop
from tidegate import wire

TRAFFIC = json.loads(Path(__file__).with_name("zigbee2mqtt.json").read_text())
PASSWORDS = {"zigbee2mqtt": "z", "homeassistant": "ha", "keeper": "k", "display": "d"}


@pytest.mark.parametrize("guarded", [False, True], ids=["embedded", "guarded"])
@on_uvloop
async def test_everybody_receives_what_is_theirs(tmp_path: Path, guarded: bool) -> None:
    text = page_configuration("zigbee2mqtt.md", guarded=guarded)
    with served(tmp_path, text, guarded=guarded) as (_, port):
        clients = {user: await come(port, user, password) for user, password in PASSWORDS.items()}
        for client in clients.values():
            await client.subscribe("#", qos=1)
        for message in TRAFFIC:
            payload = json.dumps(message["payload"]).encode()
            fields = {"qos": 1, "retain": message["retain"], "packet_id": 7}
            await clients[message["as"]].send(wire.Publish(topic=message["topic"], payload=payload, **fields))
            first = await until(clients[message["as"]], wire.Puback)  # it waits for the disk, or for the broker
            assert isinstance(first[-1], wire.Puback)
            assert (first[-1].reason >= 0x80) is (not message["to"]), message
            answers = {user: await settled(client) for user, client in clients.items()}
            answers[message["as"]] += first
            got = {user for user, packets in answers.items() if any(isinstance(one, wire.Publish) for one in packets)}
            assert got <= set(message["to"]), message
            for user in set(message["to"]) - got:  # through a broker it takes a moment
                packet = await clients[user].expect(wire.Publish)
                await clients[user].send(wire.Puback(packet_id=packet.packet_id))
                assert packet.topic == message["topic"]
        late = await come(port, "display", "d", "late")
        await late.subscribe("#", qos=1)
        kept = await late.expect(wire.Publish)
        assert (kept.topic, kept.retain) == ("zigbee2mqtt/kitchen", True)
        for client in (*clients.values(), late):
            client.writer.close()


async def settled(client: Client) -> list[wire.Packet]:
    """What came before the answer to a PING, and with it."""
    await client.send(wire.Pingreq())
    return await until(client, wire.Pingresp)


async def until(client: Client, kind: type[wire.Puback | wire.Pingresp]) -> list[wire.Packet]:
    """What comes until a packet of this kind, with it."""
    packets: list[wire.Packet] = []
    while not packets or not isinstance(packets[-1], kind):
        packets.append(packet := await client.receive())
        if isinstance(packet, wire.Publish) and packet.qos:
            await client.send(wire.Puback(packet_id=packet.packet_id))
    return packets
