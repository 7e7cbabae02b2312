"""Brokers for tests of the format `mqtt`: a real Mosquitto that can be stopped and started again, and one by hand."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from bench.harness.servers import BenchError, Setting, mosquitto, mosquitto_configuration
from paho.mqtt import publish

from harness import PATIENCE, free_port
from processes import missing
from tidegate import wire

P = TypeVar("P")


class Mosquitto:
    """With persistence, always on the same port."""

    def __init__(self, folder: Path, more: str = "", *, certificates: Path | None = None) -> None:
        try:
            self._program = mosquitto()
        except BenchError as error:
            missing(str(error))
        folder.mkdir()
        self.port, self.tls_port = free_port(), free_port()
        self._file = folder / "mosquitto.conf"
        setting = Setting(durable=True, certificates=certificates)
        self._file.write_text(mosquitto_configuration(setting, self.port, folder, self.tls_port) + more)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([self._program, "-c", str(self._file)], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
            except OSError:
                assert self._process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE)
            self._process = None

    def publish(self, payloads: Iterable[object], *, topic: str = "raw/a", qos: int = 1) -> None:
        """Returns when the broker has acknowledged all of them."""
        messages = [(topic, str(each), qos, False) for each in payloads]
        publish.multiple(messages, hostname="127.0.0.1", port=self.port)  # type: ignore[arg-type]


class ByHand:
    """One connection to a broker that does what the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, *packets: wire.Packet) -> None:
        self.writer.write(b"".join(wire.encode(each, wire.V5) for each in packets))

    async def expect(self, kind: type[P]) -> P:
        """The next packet, which must be of that kind."""
        async with asyncio.timeout(PATIENCE):
            first, size = await self._reader.readexactly(2)
            if size > 127:
                size += (await self._reader.readexactly(1))[0] * 128 - 128
            packet = wire.decode(first, await self._reader.readexactly(size), wire.V5)
        assert isinstance(packet, kind), packet
        return packet

    async def welcome(self, *, present: bool = False) -> wire.Connect:
        connect = await self.expect(wire.Connect)
        self.send(wire.Connack(session_present=present, reason=0))
        subscribe = await self.expect(wire.Subscribe)
        granted = tuple(each.qos for each in subscribe.subscriptions)
        self.send(wire.Suback(packet_id=subscribe.packet_id, reasons=granted))
        return connect
