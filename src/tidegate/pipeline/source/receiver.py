"""A subscriber of any MQTT broker that acknowledges what is on the disk, and nothing before.

It keeps one session at the broker (Clean Start 0, with an expiry), so the broker keeps what comes while nobody is
connected. PUBACK and PUBREC wait until the row of the message is written: after either of them a broker may forget
the message. That is why this is no client library: those send PUBREC by themselves.

One `run` is one connection. It returns only by an exception: OSError or PacketError if the connection ended and another
attempt may help, PipelineError if the broker does not want us.

It will not connect again by itself, will not authenticate by more than a name and a password, and will not use
WebSocket.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from tidegate import wire
from tidegate.errors import PipelineError, ProtocolError

KEEP_ALIVE: Final = 30  # seconds
RECEIVE_MAXIMUM: Final = 1000  # messages that wait for our acknowledgement
PATIENCE: Final = 10.0  # seconds for the broker to answer
QUIET: Final = 1.0  # seconds without a message after which the broker is asked whether it has more
_READ: Final = 1 << 20
_PAUSE: Final = 0.05
_TICK: Final = 0.5  # seconds between two looks at the clock
_LARGEST: Final = 268_435_460  # bytes of the largest packet there is
_LATER: Final = (
    3,  # of 3.1.1: server unavailable
    wire.Reason.SERVER_UNAVAILABLE,
    wire.Reason.SERVER_BUSY,
    wire.Reason.QUOTA_EXCEEDED,
    wire.Reason.CONNECTION_RATE_EXCEEDED,
)

log = structlog.get_logger("tidegate.pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    host: str
    port: int
    topics: tuple[str, ...]
    client_id: str
    user: str | None = None
    password: str | None = None
    tls: bool = False
    ca: Path | None = None  # certificates to trust in place of those of the system
    version: int = wire.V5
    qos: int = 1
    expiry: float = 604_800.0  # seconds for which the broker shall keep the session

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"


class Inlet(Protocol):
    def take(self, message: wire.Publish) -> None:
        """Accept it; it is written later."""

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        """Calls back, on the loop, when everything that was taken is on the disk."""

    def forget(self) -> None:
        """The broker has no session for us: packet identifiers mean nothing any more."""

    @property
    def full(self) -> bool:
        """No more for now."""


class Receiver:
    """The session at the broker, over one connection after the other. Everything is on the loop."""

    def __init__(self, broker: Broker, inlet: Inlet) -> None:
        self.ready = False
        """Connected and subscribed."""
        self.draining = False
        """Somebody waits for `drained`."""
        self.drained = False
        """The broker has answered a ping that followed our last acknowledgement, and sent no message before that."""
        self._broker = broker
        self._inlet = inlet
        self._unreleased: set[int] = set()  # QoS 2: taken, and not forgotten by the broker yet
        self._known = False  # the broker has had a session for us
        self._stream: asyncio.StreamWriter | None = None
        self._keep_alive = KEEP_ALIVE
        self._heard = self._sent = 0.0  # when something last came or went (monotonic)
        self._unanswered = 0  # groups of answers that wait for the disk
        self._probing = False  # a ping is on its way that may find the broker drained
        self._asked: float | None = None  # when the last ping was sent that nothing came after

    async def run(self) -> None:
        broker = self._broker
        context = ssl.create_default_context(cafile=broker.ca) if broker.tls else None
        try:
            async with asyncio.timeout(PATIENCE):
                opened = await asyncio.open_connection(broker.host, broker.port, ssl=context, limit=_READ)
        except ssl.SSLCertVerificationError as error:
            raise PipelineError(
                f"the certificate of {broker.place} is not trusted ({error.verify_message}); give the option ca the "
                "file of the authority that signed it"
            ) from error
        reader, stream = opened
        self._stream = stream
        try:
            self._asked = None
            self._keep_alive = KEEP_ALIVE
            self._heard = time.monotonic()
            self._more_expected()
            self._send(self._connect())
            await self._read(reader)
        finally:
            self.ready = False
            self._stream = None
            stream.close()
            try:
                async with asyncio.timeout(PATIENCE):
                    await stream.wait_closed()
            except OSError as error:  # it is closed either way
                log.debug("the connection did not end well", broker=broker.place, error=str(error))

    def leave(self) -> None:
        """Takes leave, if it is connected; the session stays."""
        if self.ready:
            self._send(wire.Disconnect())

    async def _read(self, reader: asyncio.StreamReader) -> None:
        deadline = time.monotonic() + PATIENCE
        data = b""
        while True:
            self._ping()
            if self._inlet.full:
                self._asked = None  # the answer may be there; nothing is read, so that the broker waits
                await asyncio.sleep(_PAUSE)
                continue
            try:
                async with asyncio.timeout(_TICK):
                    more = await reader.read(_READ)
            except TimeoutError:
                if not self.ready and time.monotonic() > deadline:
                    raise ConnectionError(f"{self._broker.place} does not answer") from None
                continue
            if not more:
                raise ConnectionError(f"{self._broker.place} closed the connection")
            self._heard, self._asked = time.monotonic(), None
            data = self._handle_all(data + more)

    def _handle_all(self, data: bytes) -> bytes:
        """Every whole packet; what is left over."""
        answers: list[wire.Packet] = []
        position = 0
        try:
            while (bounds := wire.frame(data, position, _LARGEST)) is not None:
                first, start, position = bounds
                answers.extend(self._handle(wire.decode(first, data[start:position], self._broker.version)))
        finally:
            if answers:
                self._unanswered += 1
                self._more_expected()
                self._inlet.after(self._answer, self._stream, answers)
        return data[position:]

    def _handle(self, packet: wire.Packet) -> Iterator[wire.Packet]:
        """Takes one packet; what to answer once everything that was taken is on the disk."""
        match packet:
            case wire.Publish(qos=0):
                self._more_expected()
                self._inlet.take(packet)
            case wire.Publish(qos=1):
                self._inlet.take(packet)
                yield wire.Puback(packet_id=packet.packet_id)
            case wire.Publish():
                # [MQTT-4.3.3-10] the same identifier is the same message, until PUBREL
                if packet.packet_id not in self._unreleased:
                    self._inlet.take(packet)
                    self._unreleased.add(packet.packet_id)
                yield wire.Pubrec(packet_id=packet.packet_id)
            case wire.Pubrel():
                self._unreleased.discard(packet.packet_id)
                yield wire.Pubcomp(packet_id=packet.packet_id)
            case wire.Connack():
                self._welcomed(packet)
            case wire.Suback():
                self._subscribed(packet)
            case wire.Disconnect():
                self._dismissed(packet)
            case wire.Pingresp():
                self.drained, self._probing = self.drained or self._probing, False
            case _:
                raise ProtocolError(f"{self._broker.place} sent {type(packet).__name__}, which a broker does not")

    def _connect(self) -> wire.Connect:
        broker = self._broker
        properties = wire.Properties()
        if broker.version == wire.V5:
            properties = wire.Properties(
                session_expiry_interval=min(int(broker.expiry), 0xFFFFFFFF), receive_maximum=RECEIVE_MAXIMUM
            )
        return wire.Connect(
            version=broker.version,
            client_id=broker.client_id,
            clean_start=False,
            keep_alive=KEEP_ALIVE,
            username=broker.user,
            password=None if broker.password is None else broker.password.encode(),
            properties=properties,
        )

    def _welcomed(self, packet: wire.Connack) -> None:
        place = self._broker.place
        if packet.reason:
            why = self._why(packet.reason, packet.properties)
            if packet.reason in _LATER:
                raise ConnectionError(f"{place} has no room for us now: {why}")
            raise PipelineError(f"{place} refused the connection: {why}; look at user, password and clientId")
        if not packet.session_present:
            if self._known:
                log.warning("the broker has forgotten our session; what came meanwhile is lost", broker=place)
            self._unreleased.clear()
            self._inlet.forget()
        given = packet.properties.session_expiry_interval
        if given is not None and given < int(self._broker.expiry):
            log.warning("the broker keeps our session for less than was asked", broker=place, seconds=given)
        self._keep_alive = packet.properties.server_keep_alive or KEEP_ALIVE
        # Also with a session, whose topics may have been others. Retain Handling 1: retained ones only for new filters.
        wanted = tuple(
            wire.Subscription(filter=each, qos=self._broker.qos, retain_as_published=True, retain_handling=1)
            if self._broker.version == wire.V5
            else wire.Subscription(filter=each, qos=self._broker.qos)
            for each in self._broker.topics
        )
        self._send(wire.Subscribe(packet_id=1, subscriptions=wanted))

    def _subscribed(self, packet: wire.Suback) -> None:
        for topic, reason in zip(self._broker.topics, packet.reasons, strict=False):
            if reason >= wire.Reason.UNSPECIFIED_ERROR:
                why = self._why(reason, packet.properties)
                raise PipelineError(f"{self._broker.place} refused the subscription to `{topic}`: {why}")
            if reason < self._broker.qos:
                log.warning("the broker gives a lower QoS than was asked", topic=topic, qos=reason)
        self._known = self.ready = True
        log.info("subscribed", broker=self._broker.place, topics=list(self._broker.topics))

    def _dismissed(self, packet: wire.Disconnect) -> None:
        why = self._why(packet.reason, packet.properties)
        if packet.reason == wire.Reason.SESSION_TAKEN_OVER:
            raise PipelineError(
                f"another client has connected to {self._broker.place} as {self._broker.client_id!r}; give each "
                "query a clientId of its own"
            )
        raise ConnectionError(f"{self._broker.place} closed the connection: {why}")

    def _why(self, reason: int, properties: wire.Properties) -> str:
        known = {each.value: each.name.lower().replace("_", " ") for each in wire.Reason}
        if self._broker.version == wire.V311:
            return f"return code {reason}"
        return properties.reason_string or known.get(reason, hex(reason))

    def _more_expected(self) -> None:
        """A message came, or an acknowledgement goes, which makes room for the next one."""
        self.drained = self._probing = False

    def _answer(self, stream: asyncio.StreamWriter, answers: list[wire.Packet]) -> None:
        self._unanswered -= 1
        if stream is self._stream:  # else it was over another connection: the broker will deliver them again
            for each in answers:
                self._send(each)

    def _send(self, packet: wire.Packet) -> None:
        assert self._stream is not None
        self._stream.write(wire.encode(packet, self._broker.version))
        self._sent = time.monotonic()

    def _ping(self) -> None:
        now = time.monotonic()
        if self._asked is not None and now - self._asked > PATIENCE:
            raise ConnectionError(f"{self._broker.place} does not answer any more")
        unsure = self.draining and not (self.drained or self._probing or self._unanswered) and now - self._heard > QUIET
        if self.ready and (unsure or now - self._sent > self._keep_alive / 2):
            self._probing = self._probing or unsure
            self._send(wire.Pingreq())
            self._asked = self._asked or now
