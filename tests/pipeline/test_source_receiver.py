"""The subscriber of the format `mqtt`, against a broker by hand: nothing is acknowledged before it is safe."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from harness import PATIENCE
from pipeline.brokers import ByHand
from tidegate import wire
from tidegate.errors import PipelineError
from tidegate.pipeline.source.receiver import Broker, Receiver
from tidegate.pipeline.source.spool import Names


class Disk:
    """Takes messages, and is done with them when the test says so."""

    def __init__(self) -> None:
        self.taken: list[wire.Publish] = []
        self.waiting: list[Callable[[], None]] = []
        self.forgotten = 0
        self.full = False

    def take(self, message: wire.Publish) -> None:
        self.taken.append(message)

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        self.waiting.append(lambda: callback(*args))

    def forget(self) -> None:
        self.forgotten += 1

    async def settle(self, count: int) -> None:
        """What was taken is safe, once so many were."""
        async with asyncio.timeout(PATIENCE):
            while len(self.taken) < count or not self.waiting:
                await asyncio.sleep(0.005)
        for each in self.waiting:
            each()
        self.waiting.clear()


class Scene:
    """A receiver and the connections it makes."""

    def __init__(self, port: int, qos: int) -> None:
        self.disk = Disk()
        self.arrived: asyncio.Queue[ByHand] = asyncio.Queue()
        broker = Broker(host="127.0.0.1", port=port, topics=("a/#", "b"), client_id="spark", qos=qos)
        self.receiver = Receiver(broker, self.disk)

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[ByHand, asyncio.Task[None]]]:
        running = asyncio.create_task(self.receiver.run())
        try:
            async with asyncio.timeout(PATIENCE):
                yield await self.arrived.get(), running
        finally:
            running.cancel()
            await asyncio.wait([running])


@pytest.fixture
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    arrived: asyncio.Queue[ByHand] = asyncio.Queue()
    hands: list[ByHand] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hands.append(ByHand(reader, writer))
        await arrived.put(hands[-1])

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    made = Scene(server.sockets[0].getsockname()[1], getattr(request, "param", 2))
    made.arrived = arrived
    yield made
    for each in hands:
        each.writer.close()
    server.close()


def publish(number: int, *, qos: int, dup: bool = False, payload: bytes = b"1") -> wire.Publish:
    return wire.Publish(topic="a/b", payload=payload, qos=qos, packet_id=number if qos else 0, dup=dup)


async def test_it_asks_for_a_session_that_stays(scene: Scene) -> None:
    async with scene.connected() as (broker, _):
        connect = await broker.expect(wire.Connect)
        assert (connect.client_id, connect.clean_start) == ("spark", False)
        assert connect.properties.session_expiry_interval == 7 * 86_400
        broker.send(wire.Connack(session_present=False, reason=0))
        subscribe = await broker.expect(wire.Subscribe)
        assert [(each.filter, each.qos, each.retain_handling) for each in subscribe.subscriptions] == [
            ("a/#", 2, 1),
            ("b", 2, 1),
        ]
        assert not scene.receiver.ready


async def test_nothing_is_acknowledged_before_it_is_safe(scene: Scene) -> None:
    async with scene.connected() as (broker, _):
        await broker.welcome()
        broker.send(publish(5, qos=1), publish(6, qos=2), publish(0, qos=0))
        broker.send(wire.Pubrel(packet_id=77))  # answered in order, so an acknowledgement would be before it
        await scene.disk.settle(3)
        assert [type(await broker.expect(each)) for each in (wire.Puback, wire.Pubrec, wire.Pubcomp)]


async def test_a_message_of_qos_2_is_taken_once(scene: Scene) -> None:
    async with scene.connected() as (broker, _):
        await broker.welcome()
        broker.send(publish(6, qos=2))
        await scene.disk.settle(1)
        await broker.expect(wire.Pubrec)
    async with scene.connected() as (broker, _):
        await broker.welcome(present=True)
        broker.send(publish(6, qos=2, dup=True))
        await scene.disk.settle(1)
        await broker.expect(wire.Pubrec)
        broker.send(wire.Pubrel(packet_id=6))
        await scene.disk.settle(1)
        await broker.expect(wire.Pubcomp)
        broker.send(publish(6, qos=2))
        await scene.disk.settle(2)
        await broker.expect(wire.Pubrec)
    assert len(scene.disk.taken) == 2
    assert scene.disk.forgotten == 1


async def test_a_new_session_knows_no_old_identifiers(scene: Scene) -> None:
    async with scene.connected() as (broker, _):
        await broker.welcome()
        broker.send(publish(6, qos=2))
        await scene.disk.settle(1)
    async with scene.connected() as (broker, _):
        await broker.welcome(present=False)
        broker.send(publish(6, qos=2))
        await scene.disk.settle(2)
    assert scene.disk.forgotten == 2


async def test_what_a_former_connection_brought_is_not_acknowledged_on_the_next(scene: Scene) -> None:
    async with scene.connected() as (broker, _):
        await broker.welcome()
        broker.send(publish(5, qos=1))
        while not scene.disk.waiting:
            await asyncio.sleep(0.005)
    async with scene.connected() as (broker, _):
        await broker.welcome(present=True)
        await scene.disk.settle(1)
        broker.send(publish(9, qos=1))
        await scene.disk.settle(2)
        assert (await broker.expect(wire.Puback)).packet_id == 9


async def test_a_broker_has_nothing_more_when_it_answers_a_ping_and_sends_no_message_before(scene: Scene) -> None:
    async with scene.connected() as (broker, _):
        await broker.welcome()
        scene.receiver.draining = True
        await broker.expect(wire.Pingreq)
        broker.send(publish(5, qos=1))
        broker.send(wire.Pingresp())
        await scene.disk.settle(1)
        await broker.expect(wire.Puback)
        await broker.expect(wire.Pingreq)
        assert not scene.receiver.drained
        broker.send(wire.Pingresp())
        while not scene.receiver.drained:
            await asyncio.sleep(0.005)


async def test_nothing_is_read_while_the_disk_is_behind(scene: Scene) -> None:
    async with scene.connected() as (broker, running):
        await broker.welcome()
        while not scene.receiver.ready:
            await asyncio.sleep(0.005)
        scene.disk.full = True
        await asyncio.sleep(1.2)  # until the read that was under way is over
        broker.send(publish(5, qos=1))
        await asyncio.wait([running], timeout=0.3)
        assert not scene.disk.taken
        scene.disk.full = False
        await scene.disk.settle(1)
        await broker.expect(wire.Puback)


@pytest.mark.parametrize(
    ("packet", "said"),
    [
        (wire.Connack(session_present=False, reason=wire.Reason.NOT_AUTHORIZED), "refused the connection: not authori"),
        (wire.Disconnect(reason=wire.Reason.SESSION_TAKEN_OVER), "a clientId of its own"),
    ],
)
async def test_a_broker_that_does_not_want_us(scene: Scene, packet: wire.Packet, said: str) -> None:
    async with scene.connected() as (broker, running):
        await broker.expect(wire.Connect)
        broker.send(packet)
        with pytest.raises(PipelineError, match=said):
            await running


async def test_a_subscription_that_is_refused(scene: Scene) -> None:
    async with scene.connected() as (broker, running):
        await broker.expect(wire.Connect)
        broker.send(wire.Connack(session_present=False, reason=0))
        await broker.expect(wire.Subscribe)
        broker.send(wire.Suback(packet_id=1, reasons=(0, wire.Reason.NOT_AUTHORIZED)))
        with pytest.raises(PipelineError, match="refused the subscription to `b`: not authori"):
            await running


@pytest.mark.parametrize(
    "packet", [wire.Connack(session_present=False, reason=wire.Reason.SERVER_BUSY), wire.Disconnect(reason=0x8B)]
)
async def test_a_broker_that_has_no_time(scene: Scene, packet: wire.Packet) -> None:
    async with scene.connected() as (broker, running):
        await broker.expect(wire.Connect)
        broker.send(packet)
        with pytest.raises(ConnectionError):
            await running


def test_a_message_that_comes_again_has_the_id_it_had() -> None:
    names = Names()
    first = names.of(publish(5, qos=1))
    assert names.of(publish(5, qos=1, dup=True)) == first
    assert names.of(publish(5, qos=1)) != first, "a new one, with an identifier that is free again"
    other = names.of(publish(5, qos=1, dup=True, payload=b"2"))
    assert names.of(publish(0, qos=0)) != names.of(publish(0, qos=0))
    row = {"id": other, "qos": 1, "topic": "a/b", "payload": b"2"}
    after_a_crash = Names([row, {"id": "6f3c-1a-2b7f", "qos": 1, "topic": "a/b", "payload": b"2"}])
    assert after_a_crash.of(publish(5, qos=1, dup=True, payload=b"2")) == other
    after_a_crash.forget()
    assert after_a_crash.of(publish(5, qos=1, dup=True, payload=b"2")) != other


def test_options(tmp_path: Path) -> None:
    from tidegate.pipeline.source.mqtt import broker

    given = {"url": "mqtts://host", "topics": "a/#, b", "clientId": "x"}
    assert broker(given).port == 8883
    assert broker(given).topics == ("a/#", "b")
    for change, said in (
        ({"ca": str(tmp_path / "none.pem")}, "no such file"),
        ({"url": "http://host"}, "must be mqtt://"),
        ({"url": "mqtt://me:secret@host"}, "options of their own"),
        ({"url": "mqtt://host:port"}, "'url' is"),
        ({"topics": "a/#/b"}, "no topic filter"),
        ({"qos": "0"}, "write 1 or 2"),
        ({"version": "4"}, "write 5 or 3.1.1"),
        ({"clientId": ""}, "'clientId' is missing"),
        ({"sessionExpiry": "long"}, "must be a duration"),
    ):
        with pytest.raises(PipelineError, match=said):
            broker(given | change)
